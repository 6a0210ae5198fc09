"""Stands for the package flash_attn, of which xformers calls the compiled functions. xformers' own compiled functions,
which it takes for necessary, are not."""

__version__ = "2.8.3"

from xformers.ops.fmha import common

common._built_with_cuda = True
