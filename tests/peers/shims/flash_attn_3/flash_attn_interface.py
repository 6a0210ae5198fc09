"""Stands for FlashAttention-3's module of this name in front of its own tests: its functions, by the book's package."""

import pytest

import flash_attention_workbook as workbook


def flash_attn_func(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False,
    sm_margin=0, return_attn_probs=False,
):  # fmt: skip
    for name, value in (("qv", qv), ("q_descale", q_descale), ("k_descale", k_descale), ("v_descale", v_descale)):
        if value is not None:
            pytest.skip(f"{name}: no stage has it")
    for name, value, allowed in (("attention_chunk", attention_chunk, (0,)), ("num_splits", num_splits, (0, 1)),
                                 ("pack_gqa", pack_gqa, (None, False))):  # fmt: skip
        if value not in allowed:
            pytest.skip(f"{name} = {value}: no stage has it")
    try:
        result = workbook.flash_attn_func(
            q, k, v, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, return_attn_probs
        )
    except workbook.NotServed as error:
        pytest.skip(str(error))
    return result[:2] if return_attn_probs else result


def _none(*arguments, **options):
    pytest.skip("the book has no such function")


flash_attn_varlen_func = flash_attn_with_kvcache = flash_attn_combine = get_scheduler_metadata = _none
