"""Stands for the package flash_attn, of which xformers calls the compiled functions."""

__version__ = "2.8.3"
