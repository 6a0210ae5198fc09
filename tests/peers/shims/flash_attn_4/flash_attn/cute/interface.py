"""Stands for FlashAttention-4's module of this name in front of its own tests: its functions, by the book's package."""

import math

import pytest
import torch

import flash_attention_workbook as workbook


def _window(window_size):
    """A negative side is a bound there, not an unlimited side."""
    if any(side is not None and side < 0 for side in window_size):
        pytest.skip(f"window_size = {window_size}: no stage has a negative side")
    return window_size


def _served(function, tensors, given, window_size, softcap, sink):
    options = {"window_size": _window(window_size), "softcap": softcap, "sink": sink, "pad": True}
    try:
        out, lse, _ = function(*tensors, return_attn_probs=True, **options, **given)
    except workbook.NotServed as error:
        pytest.skip(str(error))
    return out, lse


def flash_attn_func(
    q, k, v, qv=None, softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0,
    num_splits=1, pack_gqa=None, deterministic=False, return_lse=False, **options,
):  # fmt: skip
    if qv is not None or num_splits not in (0, 1) or any(x is not None for x in options.values()):
        pytest.skip(f"qv, num_splits = {num_splits}, {sorted(options)}: no stage has them")
    given = {"softmax_scale": softmax_scale, "causal": causal, "deterministic": deterministic}
    return _served(workbook.flash_attn_func, (q, k, v), given, window_size, softcap, learnable_sink)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, seqused_q=None,
    seqused_k=None, page_table=None, softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None,
    softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, return_lse=False, scheduler_metadata=None, **options,
):  # fmt: skip
    unserved = seqused_q, seqused_k, page_table, *options.values()
    if cu_seqlens_q is None or cu_seqlens_k is None or any(x is not None for x in unserved):
        pytest.skip(f"seqused, pages, {sorted(options)}: no stage has them")
    given = {"softmax_scale": softmax_scale, "causal": causal, "deterministic": deterministic}
    tensors = q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    return _served(workbook.flash_attn_varlen_func, tensors, given, window_size, softcap, learnable_sink)


def _flash_attn_bwd(
    q, k, v, out, dout, lse, causal=False, window_size_left=None, window_size_right=None, deterministic=False
):
    no_end = 2**31
    left, right = (no_end if side is None else side for side in _window((window_size_left, window_size_right)))
    mask = f"window={left},{0 if causal else right}"
    if left == no_end and (causal or right == no_end):
        mask = "causal" if causal else "none"
    tensors = [x.transpose(1, 2) for x in (dout, q, k, v, out)]
    scale = 1 / math.sqrt(q.shape[-1])
    gradients = torch.ops.flash_attention_workbook.backward(*tensors, lse, scale, mask, deterministic)
    return tuple(x.transpose(1, 2) for x in gradients[:3])


def get_scheduler_metadata(**options):
    return None


def _none(*arguments, **options):
    pytest.skip("the book has no such function")


_flash_attn_fwd = _flash_attn_bwd_sparse_mla = flash_attn_combine = _none
