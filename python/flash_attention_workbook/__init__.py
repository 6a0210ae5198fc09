"""The book's kernels, or yours, from Python.

    ./workbook library --chapters 8,9              # your chapters; --solutions: the book's
    export PYTHONPATH=python                       # relative to the book's folder

    from flash_attention_workbook import attention, flash_attn_func
    O = attention(Q, K, V, causal=True)            # (B, H, N, d), like scaled_dot_product_attention
    o = flash_attn_func(q, k, v, causal=True)      # (B, N, H, d), like the package flash_attn; with its packed forms

numpy arrays and PyTorch tensors on the CPU run on the simulator; tensors on a GPU run there. For tensors, the functions
are PyTorch operators with gradients, and torch.compile and CUDA graphs support them. activate() makes PyTorch's own
scaled_dot_product_attention call them. A problem that no stage of the library supports raises an error that says what
is allowed; with fallback=True PyTorch computes it instead.

A mistake in a kernel raises an error with the simulator's report. On a GPU a kernel fails after its call has returned:
synchronize() then raises the error, as does every call if WORKBOOK_SYNCHRONIZE=1 is set.
"""

import sys

from . import checked as entry
from .flash_attn import (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func,
)  # fmt: skip
from .kv_cache import flash_attn_with_kvcache
from .library import KernelFailed, Library, NotServed, OpenExercise, Unavailable, WorkbookError, library_for, load
from .paged_cache import PagedCache

__all__ = [
    "KernelFailed", "Library", "NotServed", "OpenExercise", "PagedCache", "Unavailable", "WorkbookError", "activate",
    "attention", "attention_gradients", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache", "library_for", "load", "register", "stages", "synchronize",
]  # fmt: skip


if "torch" in sys.modules:  # FLOP counters and torch.export.load look for the operators before the first call
    from . import torch_operators as _operators  # noqa: F401


def stages(backend):
    """The stages of the library for "sim" or "cuda", a list of library.Stage. Unavailable without a library."""
    return list(library_for(backend).stages)


def synchronize(backend="cuda"):
    """Waits for the device. Raises KernelFailed or OpenExercise for kernels launched since the last call, Unavailable
    without a library, NotServed while a CUDA graph records."""
    library = library_for(backend)
    if backend == "cuda" and "torch" in sys.modules:
        from . import torch_operators

        torch_operators.require_no_recording("synchronize()", torch_operators.GPU, "a call that waits", "after it")
    library.synchronize()


def attention(
    query, key, value, causal=False, scale=None, deterministic=False, return_lse=False, fallback=False, *, mask=None,
    sink=None, lengths=None, pad=False,
):  # fmt: skip
    """softmax(scale·Q Kᵀ) V, with the layout of PyTorch's scaled_dot_product_attention: O, (B, H, Nq, d).

    query: (B, H, Nq, d); key, value: (B, Hkv, Nk, d), H a multiple of Hkv; float16 or bfloat16, under torch.autocast
    float32 too. scale: None means 1/√d. causal: FlashAttention's mask, aligned to the last query and key (PyTorch's is
    aligned to the first; they differ if Nq is not Nk). Fully masked rows become 0, and so do all rows if Nk is 0.
    deterministic: bitwise reproducible gradients. return_lse: returns (O, LSE), with LSE (B, H, Nq) in float32 and
    natural units; it has a gradient. fallback: PyTorch computes what no stage supports, for tensors: the masks none,
    causal and window, with softcap, ALiBi, sinks and lengths; a wrong shape, type or device is refused all the same.

    For libraries with a stage of chapters 15 to 18: mask, instead of causal, in the syntax of ./workbook run --mask:
    "window=256,0+softcap=50+alibi", "softcap=50", "documents=600,424" (16) or "causal+rope+dropout=0.1,7" (17), of
    which the probability is rounded to a multiple of 1/256. sink: (H) floating-point numbers up to 2^127, one logit per
    query head, added to the softmax's denominator only. lengths: of packed sequences, whole numbers on the host,
    which add up to N; or a pair of such lists, of Q and of K, for which every sequence is a call of its own.

    pad: adds columns of zeros up to a head dimension that the stages support for this call, which changes no score.
    Then V may have another number of columns than Q and K, and O has V's.

    Raises NotServed, which names the argument, its value and what is allowed; Unavailable without a library or device;
    KernelFailed and OpenExercise for the kernel. Source: Dao 2023 (FlashAttention-2), Algorithm 1.
    """
    entry.arrays("(B, H, N, d)", query=query, key=key, value=value)
    causal, scale, deterministic, mask, lengths = entry.checked(causal, scale, deterministic, mask, lengths)
    flags = [entry.flag(*each) for each in (("return_lse", return_lse), ("fallback", fallback), ("pad", pad))]
    return_lse, fallback, pad = flags
    return entry.backend_of(query).attention(
        query, key, value, causal, scale, deterministic, return_lse, fallback, mask, sink, lengths, pad
    )


def attention_gradients(
    dO, query, key, value, O, lse, causal=False, scale=None, deterministic=False, *, dlse=None, mask=None, sink=None,
    lengths=None, pad=False,
):  # fmt: skip
    """dQ, dK, dV and, with sinks, dsink, as numpy arrays, with the shapes of Q, K, V and the sinks.

    dO: the gradient of O. O, lse: the results of attention() with return_lse. dlse: the gradient of the LSE,
    (B, H, Nq), float32; None: the loss does not depend on the LSE. The other arguments and the errors are
    attention()'s. Source: Dao 2023 (FlashAttention-2), Algorithm 2.
    """
    from . import numpy_arrays

    entry.arrays("(B, H, N, d)", query=query, key=key, value=value, O=O, dO=dO)
    entry.arrays("(B, H, N)", lse=lse)
    if dlse is not None:
        entry.arrays("(B, H, N)", dlse=dlse)
    if any(map(entry.is_torch, (query, lse, dlse))):
        raise NotServed("query, lse, dlse = tensors: allowed: arrays; for tensors PyTorch computes the gradients")
    causal, scale, deterministic, mask, lengths = entry.checked(causal, scale, deterministic, mask, lengths)
    return numpy_arrays.attention_gradients(
        dO, query, key, value, O, lse, dlse, causal, scale, deterministic, mask, sink, lengths, entry.flag("pad", pad)
    )


def _sdpa():
    try:
        from . import sdpa
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unavailable("register() and activate() need PyTorch, which is not installed") from None
    return sdpa


def register(fallback=False):
    """Registers the stages with scaled_dot_product_attention, as the FlashAttention implementation "Workbook".

    torch.nn.attention.activate_flash_attention_impl("Workbook") then
    activates them. Unavailable without PyTorch, or if it has no such registry. fallback: PyTorch's own FlashAttention
    computes what no stage supports.
    """
    _sdpa().register(entry.flag("fallback", fallback))


def activate(fallback=False):
    """register(), then activates the stages. torch.nn.attention.restore_flash_attention_impl() undoes it.

    Warns while PyTorch may choose cuDNN, which it prefers to every FlashAttention on Hopper and newer GPUs."""
    register(fallback)
    _sdpa().activate()
