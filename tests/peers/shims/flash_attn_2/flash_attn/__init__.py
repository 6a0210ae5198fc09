"""Stands for the package flash_attn in front of its own tests: its functions, by the book's package. Its helpers
(bert_padding, layers.rotary) come from the checkout that FLASH_ATTENTION_CHECKOUT names."""

import os

import pytest

import flash_attention_workbook as workbook

__path__.append(os.path.join(os.environ["FLASH_ATTENTION_CHECKOUT"], "flash_attn"))


def flash_attn_func(*arguments, **options):
    try:
        return workbook.flash_attn_func(*arguments, **options)
    except workbook.NotServed as error:
        pytest.skip(str(error))


def flash_attn_qkvpacked_func(qkv, *arguments, **options):
    return flash_attn_func(*qkv.unbind(2), *arguments, **options)


def flash_attn_kvpacked_func(q, kv, *arguments, **options):
    return flash_attn_func(q, *kv.unbind(2), *arguments, **options)


def _none(*arguments, **options):
    pytest.skip("the book has no such function")


flash_attn_varlen_func = flash_attn_varlen_kvpacked_func = flash_attn_varlen_qkvpacked_func = _none
flash_attn_with_kvcache = _none
