"""Stands for the package flash_attn, of which FlashAttention-4's tests import cute alone."""
