"""Stands for FlashAttention-4 in front of its own tests. Its testing.py comes from the checkout that
FLASH_ATTENTION_CHECKOUT names."""

import os

__path__.append(os.path.join(os.environ["FLASH_ATTENTION_CHECKOUT"], "flash_attn", "cute"))
