"""The book's kernels, or yours, from Python.

    ./workbook library --chapters 8,9              # your chapters; --solutions: the book's
    export PYTHONPATH=python                       # relative to the book's folder

    from flash_attention_workbook import attention, flash_attn_func
    O = attention(Q, K, V, causal=True)            # (B, H, N, d), like scaled_dot_product_attention
    o = flash_attn_func(q, k, v, causal=True)      # (B, N, H, d), like the package flash_attn

numpy arrays and PyTorch tensors on the CPU run on the simulator; tensors on a GPU run there. For tensors, the functions
are PyTorch operators with gradients, and torch.compile and CUDA graphs support them. activate() makes PyTorch's own
scaled_dot_product_attention call them. A problem that no stage of the library supports raises an error that says what
is allowed; with fallback=True PyTorch computes it instead.

A mistake in a kernel raises an error with the simulator's report. On a GPU a kernel fails after its call has returned:
synchronize() then raises the error, as does every call if WORKBOOK_SYNCHRONIZE=1 is set.
"""

from . import checked as entry
from .library import KernelFailed, Library, NotServed, OpenExercise, Unavailable, WorkbookError, library_for, load

__all__ = [
    "KernelFailed", "Library", "NotServed", "OpenExercise", "Unavailable", "WorkbookError", "activate", "attention",
    "attention_gradients", "flash_attn_func", "library_for", "load", "register", "stages", "synchronize",
]  # fmt: skip


def stages(backend):
    """The stages of the library for "sim" or "cuda"."""
    return list(library_for(backend).stages)


def synchronize(backend="cuda"):
    """Waits for the device. Raises KernelFailed or OpenExercise for kernels launched since the last call."""
    library_for(backend).synchronize()


def attention(
    query, key, value, causal=False, scale=None, deterministic=False, return_lse=False, fallback=False, *, mask=None,
    sink=None, lengths=None,
):  # fmt: skip
    """softmax(scale·Q Kᵀ) V, with the layout of PyTorch's scaled_dot_product_attention.

    query: (B, H, Nq, d); key, value: (B, Hkv, Nk, d), H a multiple of Hkv; float16 or bfloat16. scale: None
    means 1/√d. causal: FlashAttention's mask, aligned to the last query and key (PyTorch's is aligned to the first;
    they differ if Nq is not Nk); fully masked rows become 0. deterministic: bitwise reproducible gradients.
    return_lse: returns (O, LSE), with LSE (B, H, Nq) in float32. fallback: PyTorch computes what no stage supports;
    otherwise NotServed.

    For libraries with a stage of chapter 15 or 16: mask, instead of causal, in the syntax of ./workbook run --mask:
    "window=256,0+softcap=50+alibi" or "documents=600,424"; sink: (H), float32, one logit per query head, added to the
    softmax's denominator only; lengths: lengths of packed sequences, on the host, which add up to N.
    """
    entry.arrays("(B, H, N, d)", query=query, key=key, value=value)
    causal, scale, deterministic, mask, lengths = entry.checked(causal, scale, deterministic, mask, lengths)
    return_lse, fallback = entry.flag("return_lse", return_lse), entry.flag("fallback", fallback)
    if entry.is_torch(query):
        from . import torch_operators as of
    else:
        from . import numpy_arrays as of
    return of.attention(query, key, value, causal, scale, deterministic, return_lse, fallback, mask, sink, lengths)


def attention_gradients(
    dO, query, key, value, O, lse, causal=False, scale=None, deterministic=False, *, mask=None, sink=None, lengths=None
):
    """dQ, dK, dV and, with sinks, dsink, as numpy arrays, from the arguments of attention() and its results with
    return_lse."""
    from . import numpy_arrays

    entry.arrays("(B, H, N, d)", query=query, key=key, value=value, O=O, dO=dO)
    entry.arrays("(B, H, N)", lse=lse)
    if entry.is_torch(query) or entry.is_torch(lse):
        raise NotServed("query, lse = tensors: allowed: arrays; for tensors PyTorch computes the gradients")
    causal, scale, deterministic, mask, lengths = entry.checked(causal, scale, deterministic, mask, lengths)
    return numpy_arrays.attention_gradients(
        dO, query, key, value, O, lse, causal, scale, deterministic, mask, sink, lengths
    )


def _flash_mask(causal, window_size, softcap, rows):
    """The mask of attention() for FlashAttention's options. rows: exceeds every window."""
    left, right = window_size
    if causal:
        right = 0
    if (left, right) == (-1, -1) or (left, right) == (-1, 0):
        mask = "none" if right == -1 else "causal"
    else:
        mask = f"window={rows if left == -1 else left},{rows if right == -1 else right}"
    return f"{mask}+softcap={softcap}" if softcap > 0 else mask


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, fallback=False,
):  # fmt: skip
    """FlashAttention-2's function of this name, with its layout: q (B, Nq, H, d); k, v (B, Nk, Hkv, d).

    return_attn_probs: returns (out, softmax_lse, None), with softmax_lse (B, H, Nq). window_size and softcap need a
    library with a stage that supports them. dropout_p and alibi_slopes allow only the default values; others raise
    NotServed. (For ALiBi's slopes, 2^(-8(h + 1)/H) with H a power of two:
    attention(mask="causal+alibi").)
    """
    entry.arrays("(B, N, H, d)", q=q, k=k, v=v)
    window_size = entry.numbers("window_size", window_size, 2, "whole numbers from -1 on")
    if min(window_size) < -1:
        raise NotServed(f"window_size = {window_size}: allowed: 2 whole numbers from -1 on")
    softcap, dropout_p = entry.number("softcap", softcap), entry.number("dropout_p", dropout_p)
    causal, fallback = entry.flag("causal", causal), entry.flag("fallback", fallback)
    return_attn_probs = entry.flag("return_attn_probs", return_attn_probs)
    if softcap < 0:
        raise NotServed(f"softcap = {softcap}: allowed: 0 and numbers from 0.001 to 1000")
    masked = window_size != (-1, -1) or softcap != 0.0
    given = {"alibi_slopes": (alibi_slopes, None)}
    if dropout_p != 0.0:
        given |= {"window_size": (window_size, (-1, -1)), "softcap": (softcap, 0.0)}
    if not (fallback and not return_attn_probs and entry.is_torch(q)):
        given["dropout_p"] = (dropout_p, 0.0)
    for name, (value, allowed) in given.items():
        if value is not allowed and (allowed is None or value != allowed):
            raise NotServed(f"{name} = {value}: no stage supports it; allowed: {allowed}")
    if dropout_p != 0.0:
        from . import torch_operators

        result = torch_operators.by_pytorch(*[x.transpose(1, 2) for x in (q, k, v)], causal, softmax_scale, dropout_p)
        return result.transpose(1, 2)
    transposed = [x.transpose(1, 2) if entry.is_torch(x) else x.swapaxes(1, 2) for x in (q, k, v)]
    options = softmax_scale, deterministic, return_attn_probs, fallback
    if not masked:
        result = attention(*transposed, causal, *options)
    else:
        mask = _flash_mask(causal, window_size, softcap, q.shape[1] + k.shape[1])
        try:
            result = attention(*transposed, False, *options, mask=mask)
        except NotServed as error:
            raise NotServed(f"window_size = {window_size}, softcap = {softcap}: {error}") from None
    O, lse = result if return_attn_probs else (result, None)
    O = O.transpose(1, 2) if entry.is_torch(O) else O.swapaxes(1, 2)
    return (O, lse, None) if return_attn_probs else O


def register(fallback=False):
    """Registers the stages with scaled_dot_product_attention, as the FlashAttention implementation "Workbook".

    torch.nn.attention.activate_flash_attention_impl("Workbook") then
    activates them. Unavailable if PyTorch has no such registry. fallback: PyTorch's own FlashAttention computes what no
    stage supports.
    """
    from . import sdpa

    sdpa.register(fallback)


def activate(fallback=False):
    """register(), then activates the stages. torch.nn.attention.restore_flash_attention_impl() undoes it."""
    from . import sdpa

    sdpa.register(fallback)
    sdpa.activate()
