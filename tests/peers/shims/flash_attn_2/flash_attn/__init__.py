"""Stands for the package flash_attn in front of its own tests: its functions, by the book's package. Its helpers
(bert_padding, layers.rotary) come from the checkout that FLASH_ATTENTION_CHECKOUT names."""

import os

import pytest

import flash_attention_workbook as workbook

__path__.append(os.path.join(os.environ["FLASH_ATTENTION_CHECKOUT"], "flash_attn"))


def _skips(function):
    """The function, which skips a test where no stage of the library supports its arguments."""

    def call(*arguments, **options):
        try:
            return function(*arguments, **options)
        except workbook.NotServed as error:
            pytest.skip(str(error))

    return call


flash_attn_func = _skips(workbook.flash_attn_func)
flash_attn_qkvpacked_func = _skips(workbook.flash_attn_qkvpacked_func)
flash_attn_kvpacked_func = _skips(workbook.flash_attn_kvpacked_func)
flash_attn_varlen_func = _skips(workbook.flash_attn_varlen_func)
flash_attn_varlen_qkvpacked_func = _skips(workbook.flash_attn_varlen_qkvpacked_func)
flash_attn_varlen_kvpacked_func = _skips(workbook.flash_attn_varlen_kvpacked_func)
flash_attn_with_kvcache = _skips(workbook.flash_attn_with_kvcache)
