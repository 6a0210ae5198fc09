"""The functions of the package flash_attn, with its names, layouts and arguments.

Source: github.com/Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py, 2.8.
"""

import re

from . import checked as entry
from .library import NotServed

_NO_END = 2**31  # in a mask's text
_SOFTCAP = "a number from 0.001 to 1000, or 0 or None"
_DROPOUT = "0 and, with fallback = True, numbers below 1"


def _heads_first(array, packed):
    """(B, N, H, d), or (T, H, d) if packed, as (B, H, N, d)."""
    if packed:
        array = array[None]
    return array.transpose(1, 2) if entry.is_torch(array) else array.swapaxes(1, 2)


def _mask(causal, window, softcap, alibi):
    left, right = window
    if causal:
        right = 0
    if left != -1 or right not in (-1, 0):
        mask = f"window={_NO_END if left == -1 else left},{_NO_END if right == -1 else right}"
    else:
        mask = "none" if right == -1 else "causal"
    if softcap:
        mask += f"+softcap={softcap}".replace("e+", "e")
    return mask + "+alibi" if alibi else mask


def _require_fit(q, k, v, kv, pad):
    """NotServed, with the arguments' own names and layout, for K and V whose shapes do not fit Q's."""
    for name, x in (("k", k), ("v", v)) if kv is None else (("kv", k),):
        allowed = (*q.shape[:-3], *k.shape[-3:-1], x.shape[-1] if pad else q.shape[-1])
        if tuple(x.shape) != allowed:
            x, allowed = (x, allowed) if kv is None else (kv, (*allowed[:-2], 2, *allowed[-2:]))
            raise NotServed(f"{name}.shape = {tuple(x.shape)}: allowed: {allowed}")


def _attention(
    q, k, v, lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
    return_attn_probs, fallback, sink, pad, kv=None,
):  # fmt: skip
    """The results of a function of flash_attn. lengths: for packed sequences, cu_seqlens_q and cu_seqlens_k. kv: the
    argument that k and v are parts of."""
    packed = lengths is not None
    entry.arrays("(T, H, d)" if packed else "(B, N, H, d)", q=q, **({"k": k, "v": v} if kv is None else {"kv": k}))
    window = entry.window("window_size", window_size)
    softcap = 0.0 if softcap is None else entry.number("softcap", softcap, _SOFTCAP)
    if softcap < 0:
        raise NotServed(f"softcap = {softcap:g}: allowed: {_SOFTCAP}")
    dropout_p = entry.number("dropout_p", dropout_p, _DROPOUT)
    if softmax_scale is not None:
        softmax_scale = entry.scale_of_scores("softmax_scale", softmax_scale)
    causal, fallback = entry.flag("causal", causal), entry.flag("fallback", fallback)
    return_attn_probs = entry.flag("return_attn_probs", return_attn_probs)
    if alibi_slopes is not None:
        B = q.shape[0] if not packed else len(lengths[0]) - 1 if entry.is_sequence(lengths[0]) else None
        entry.require_usual_slopes(alibi_slopes, B, q.shape[-2], fallback)
    mask = _mask(causal, window, softcap, alibi_slopes is not None)
    given = [_heads_first(x, packed) for x in (q, k, v)]
    sequences = _lengths(q, k, *lengths) if packed else None
    if dropout_p != 0 and not (0 < dropout_p < 1 and fallback):
        raise NotServed(f"dropout_p = {dropout_p}: no stage supports it; allowed: {_DROPOUT}")
    options = entry.checked(False, softmax_scale, deterministic, mask, None)[:3]
    options = *options, return_attn_probs, fallback, mask, sink, sequences, entry.flag("pad", pad)
    of = entry.backend_of(q)
    if of.is_compiling():  # which cannot trace what follows an error
        _require_fit(q, k, v, kv, options[-1])
        results = of.attention(*given, *options, dropout_p)
    else:
        try:
            results = of.attention(*given, *options, dropout_p)
        except NotServed as error:
            _require_fit(q, k, v, kv, options[-1])
            given = "" if mask in ("none", "causal") else f"window_size = {window}, softcap = {softcap}: "
            named = {"query": "q", "key": "kv" if kv is not None else "k", "value": "kv" if kv is not None else "v"}
            text = re.sub(r"\b(query|key|value)(?=\.dtype|: |, torch|$)", lambda name: named[name[0]], str(error))
            raise NotServed(given + text) from None
    O, lse = results if return_attn_probs else (results, None)
    O = O.transpose(1, 2).contiguous() if entry.is_torch(O) else O.swapaxes(1, 2).copy()
    if packed:
        O, lse = O[0], None if lse is None else lse[0]
    return (O, lse, None) if return_attn_probs else O


def _lengths(q, k, cu_seqlens_q, cu_seqlens_k):
    """The lengths of attention()."""
    given = ("cu_seqlens_q", cu_seqlens_q, q.shape[0]), ("cu_seqlens_k", cu_seqlens_k, k.shape[0])
    if entry.is_torch(cu_seqlens_q) and entry.is_torch(cu_seqlens_k):
        from . import torch_operators

        return torch_operators.lengths_from(given, q)
    return entry.lengths_between([entry.starts(*each) for each in given])


def _parts(name, packed, count, axes, axis):
    """The tensors of a packed one, which are views of it."""
    entry.arrays(axes, **{name: packed})
    if packed.shape[axis] != count:
        raise NotServed(f"{name}.shape = {tuple(packed.shape)}: allowed: {axes}")
    return [packed[(slice(None),) * axis + (i,)] for i in range(count)]


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, fallback=False, *, sink=None, pad=False,
):  # fmt: skip
    """FlashAttention-2's function of this name: O, (B, Nq, H, d), contiguous.

    q: (B, Nq, H, d); k, v: (B, Nk, Hkv, d), H a multiple of Hkv; float16 or bfloat16, under torch.autocast float32 too.
    softmax_scale multiplies Q Kᵀ; None: 1/√d. causal: aligned to the last query and key. window_size: the numbers of
    keys (before, after) the query's own position, or one number for both; None and negative numbers: no end. softcap: 0
    or None, or a cap from 0.001 to 1000, in the units of a scaled score. alibi_slopes: the usual ones, (H) or (B, H),
    in scores per key; they are compared on the host. deterministic: bitwise reproducible gradients. return_attn_probs:
    (O, softmax_lse, None), with the LSE (B, H, Nq) in natural units, float32, which has a gradient.

    Not FlashAttention's: fallback: PyTorch computes what no stage supports, dropout too. sink: (H), one logit per head.
    pad: as in attention().

    Raises NotServed, which names the argument, its value and what is allowed; for other values of dropout_p and
    alibi_slopes too. Source: Dao 2023 (FlashAttention-2).
    """
    return _attention(
        q, k, v, None, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
        return_attn_probs, fallback, sink, pad,
    )  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, fallback=False, *, sink=None, pad=False,
):  # fmt: skip
    """flash_attn_func() of qkv[:, :, 0], qkv[:, :, 1] and qkv[:, :, 2]; qkv: (B, N, 3, H, d).

    The other arguments, results, errors and the source are flash_attn_func()'s.
    """
    return flash_attn_func(
        *_parts("qkv", qkv, 3, "(B, N, 3, H, d)", 2), dropout_p, softmax_scale, causal, window_size, softcap,
        alibi_slopes, deterministic, return_attn_probs, fallback, sink=sink, pad=pad,
    )  # fmt: skip


def flash_attn_kvpacked_func(
    q, kv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, fallback=False, *, sink=None, pad=False,
):  # fmt: skip
    """flash_attn_func() of q, (B, Nq, H, d), and kv[:, :, 0] and kv[:, :, 1]; kv: (B, Nk, 2, Hkv, d).

    The other arguments, results, errors and the source are flash_attn_func()'s.
    """
    return _attention(
        q, *_parts("kv", kv, 2, "(B, Nk, 2, Hkv, d)", 2), None, dropout_p, softmax_scale, causal, window_size, softcap,
        alibi_slopes, deterministic, return_attn_probs, fallback, sink, pad, kv,
    )  # fmt: skip


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
    block_table=None, fallback=False, *, sink=None, pad=False,
):  # fmt: skip
    """FlashAttention-2's function of this name, for S packed sequences: O, (Tq, H, d), contiguous.

    q: (Tq, H, d); k, v: (Tk, Hkv, d). cu_seqlens_q, cu_seqlens_k: (S + 1) whole numbers, the first row of each sequence
    and then the end of the last one; arrays, or tensors on any device. The call reads them on the host, for which it
    waits for the device; under torch.compile the operator reads them, in both passes. Sequences may be empty. If the
    lengths of Q and K differ, every sequence is a call of its own. max_seqlen_q, max_seqlen_k: not used. block_table:
    None.

    The other arguments, errors and the source are flash_attn_func()'s; softmax_lse is (H, Tq).
    """
    if block_table is not None:
        allowed = "None, or flash_attn_with_kvcache(), whose queries are (B, Nq, H, d)"
        entry.refuse("block_table", block_table, allowed, "no stage supports it with packed sequences; ")
    return _attention(
        q, k, v, (cu_seqlens_q, cu_seqlens_k), dropout_p, softmax_scale, causal, window_size, softcap,
        alibi_slopes, deterministic, return_attn_probs, fallback, sink, pad,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    alibi_slopes=None, deterministic=False, return_attn_probs=False, fallback=False, *, sink=None, pad=False,
):  # fmt: skip
    """flash_attn_varlen_func() of qkv[:, 0], qkv[:, 1] and qkv[:, 2]; qkv: (T, 3, H, d).

    The other arguments, results, errors and the source are flash_attn_varlen_func()'s.
    """
    return flash_attn_varlen_func(
        *_parts("qkv", qkv, 3, "(T, 3, H, d)", 1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p,
        softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, None, fallback,
        sink=sink, pad=pad,
    )  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, fallback=False,
    *, sink=None, pad=False,
):  # fmt: skip
    """flash_attn_varlen_func() of q, (Tq, H, d), and kv[:, 0] and kv[:, 1]; kv: (Tk, 2, Hkv, d).

    The other arguments, results, errors and the source are flash_attn_varlen_func()'s.
    """
    return _attention(
        q, *_parts("kv", kv, 2, "(Tk, 2, Hkv, d)", 1), (cu_seqlens_q, cu_seqlens_k), dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs, fallback, sink, pad, kv,
    )  # fmt: skip
