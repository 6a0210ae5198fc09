"""PyTorch's tensors: operators with gradients, which torch.compile and CUDA graphs take as they take PyTorch's own.

Tensors on a GPU go to the library for "cuda", those on the CPU to the one for "sim". The operators are declared by
torch.library's functions for it (PyTorch 2.4 or newer), as its decorator custom_op does, without the checks that this
one adds to every call in Python.
"""

import math
import os

import torch
from torch import Tensor

from .library import NotServed, library_for

_NAMESPACE = "flash_attention_workbook"
_ELEMENTS = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_SYNCHRONIZE = os.environ.get("WORKBOOK_SYNCHRONIZE", "") not in ("", "0")
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # the stream's number alone, without an object

_OF_INPUTS = "Tensor query, Tensor key, Tensor value"
_OF_BOTH = "float scale, bool causal, bool deterministic"
torch.library.define(f"{_NAMESPACE}::forward", f"({_OF_INPUTS}, {_OF_BOTH}) -> (Tensor, Tensor)",
                     tags=(torch.Tag.pt2_compliant_tag,))  # fmt: skip
torch.library.define(
    f"{_NAMESPACE}::backward",
    f"(Tensor dO, {_OF_INPUTS}, Tensor O, Tensor lse, {_OF_BOTH}) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def dense(tensor: Tensor) -> Tensor:
    """The tensor without gaps, aligned to 16 bytes: itself, or a copy."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone(memory_format=torch.contiguous_format)


def sizes_of(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    """(B, H, Hkv, Nq, Nk, d). NotServed for shapes that do not fit together, types or devices that differ."""
    if query.dim() != 4:
        raise NotServed(f"query.shape = {tuple(query.shape)}: allowed: (B, H, N, d)")
    B, H, Nq, d = query.shape
    if key.dim() != 4:
        raise NotServed(f"key.shape = {tuple(key.shape)}: allowed: (B, Hkv, Nk, d)")
    Hkv, Nk = key.shape[1], key.shape[2]
    for name, tensor in (("key", key), ("value", value)):
        if tensor.shape != (B, Hkv, Nk, d):
            raise NotServed(f"{name}.shape = {tuple(tensor.shape)}: allowed: {(B, Hkv, Nk, d)}")
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise NotServed(
                f"{name}: {tensor.dtype} on {tensor.device}; allowed: as query, {query.dtype} on {query.device}"
            )
    return B, H, Hkv, Nq, Nk, d


def plan_for(pass_, query, key, value, scale, causal, deterministic):
    """The library, and how it does this problem. NotServed or Unavailable if it does not."""
    library = library_for("cuda" if query.is_cuda else "sim")
    element = _ELEMENTS.get(query.dtype) or str(query.dtype).removeprefix("torch.")
    mask = "causal" if causal else "none"
    return library, library.plan(pass_, element, sizes_of(query, key, value), scale, mask, deterministic)


def _run(library, plan, tensors):
    device = tensors[0].device
    if device.type != "cuda":
        return library.run(plan, [tensor.data_ptr() for tensor in tensors])
    index = device.index
    if index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _run(library, plan, tensors)
    stream = _raw_stream(index) if _raw_stream is not None else torch.cuda.current_stream(device).cuda_stream
    room = workspace = None
    if plan.workspace:
        room = torch.empty(plan.workspace, dtype=torch.uint8, device=device)  # aligned to 512 bytes
        workspace = room.data_ptr()
    library.run(plan, [tensor.data_ptr() for tensor in tensors], workspace, stream)
    if _SYNCHRONIZE and not torch.cuda.is_current_stream_capturing():
        library.synchronize()


def run_forward(query, key, value, scale, causal, deterministic):
    """O and LSE, without gradients."""
    library, plan = plan_for("forward", query, key, value, scale, causal, False)
    if deterministic:  # said here, not in the backward pass
        plan_for("backward", query, key, value, scale, causal, True)
    query = dense(query)
    O = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    lse = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
    _run(library, plan, (query, dense(key), dense(value), O, lse))
    return O, lse


def run_backward(dO, query, key, value, O, lse, scale, causal, deterministic):
    """dQ, dK and dV."""
    library, plan = plan_for("backward", query, key, value, scale, causal, deterministic)
    inputs = [dense(tensor) for tensor in (query, key, value, O, dO, lse)]
    gradients = [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in inputs[:3]]
    _run(library, plan, (*inputs, *gradients))
    return tuple(gradients)


torch.library.impl(f"{_NAMESPACE}::forward", ("cpu", "cuda"), run_forward)
torch.library.impl(f"{_NAMESPACE}::backward", ("cpu", "cuda"), run_backward)


@torch.library.register_fake(f"{_NAMESPACE}::forward")
def _(query, key, value, scale, causal, deterministic):
    torch._check(query.dim() == 4, lambda: "query: allowed: (B, H, N, d)")
    return query.new_empty(query.shape), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.register_fake(f"{_NAMESPACE}::backward")
def _(dO, query, key, value, O, lse, scale, causal, deterministic):
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, value))


def _keep(ctx, inputs, output):
    query, key, value, *ctx.options = inputs
    O, lse = output
    ctx.save_for_backward(query, key, value, O, lse)
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)


def _gradients(ctx, dO, dlse):
    if dO is None:
        return (None,) * 6
    query, key, value, O, lse = ctx.saved_tensors
    return (*_backward(dO, query, key, value, O, lse, *ctx.options), None, None, None)


def _no_second_gradients(ctx, *gradients):
    raise NotServed("no stage has second derivatives; allowed: first ones")


torch.library.register_autograd(f"{_NAMESPACE}::forward", _gradients, setup_context=_keep)
torch.library.register_autograd(f"{_NAMESPACE}::backward", _no_second_gradients)

_forward = getattr(torch.ops, _NAMESPACE).forward.default
_backward = getattr(torch.ops, _NAMESPACE).backward.default


def by_pytorch(query, key, value, causal, scale, dropout_p=0.0):
    """The same by PyTorch: with the mask that ends at the last query and key."""
    Nq, Nk = query.shape[-2], key.shape[-2]
    mask = None
    if causal and Nq != Nk:
        mask = torch.ones(Nq, Nk, dtype=torch.bool, device=query.device).tril(Nk - Nq)
    heads = query.shape[1] // key.shape[1]
    if heads > 1:
        key, value = (tensor.repeat_interleave(heads, 1) for tensor in (key, value))
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_p, is_causal=causal and mask is None, scale=scale
    )


def _is_served(query, key, value, scale, causal, deterministic):
    try:
        plan_for("forward", query, key, value, scale, causal, False)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
            plan_for("backward", query, key, value, scale, causal, deterministic)
    except NotServed:
        return False
    return True


def attention(query, key, value, causal, scale, deterministic, return_lse, fallback):
    """See the package's attention()."""
    if scale is None:
        scale = 1 / math.sqrt(max(query.shape[-1], 1))
    if fallback and not _is_served(query, key, value, scale, causal, deterministic):
        if return_lse:
            raise NotServed("return_lse = True: PyTorch gives none; allowed with what a stage serves")
        return by_pytorch(query, key, value, causal, scale)
    O, lse = _forward(query, key, value, scale, causal, deterministic)
    return (O, lse) if return_lse else O
