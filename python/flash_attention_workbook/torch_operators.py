"""Attention on PyTorch tensors, as operators with gradients that torch.compile and CUDA graphs support.

Tensors on a GPU use the library for "cuda", tensors on the CPU the library for "sim". The operators are declared with
torch.library's functions (PyTorch 2.4 or newer), like its decorator custom_op, but without the checks that the
decorator adds to every call in Python.

If nothing needs to observe an operator (no compiler, mode, transform or tracer, and plain tensors), attention()
bypasses PyTorch's dispatcher, which costs more than the call. It then uses an autograd.Function or, without gradients,
calls the library directly.
"""

import math
import os

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .library import LONGEST_MEMORY, NotServed, library_for, mask_text, starts_of

_NAMESPACE = "flash_attention_workbook"
_ELEMENTS = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_SYNCHRONIZE = os.environ.get("WORKBOOK_SYNCHRONIZE", "") not in ("", "0")
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # the stream's address, without an object
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_PLAIN = (Tensor, torch.nn.Parameter)

_OF_INPUTS = "Tensor query, Tensor key, Tensor value"
_OF_BOTH = "float scale, str mask, bool deterministic, Tensor? sink=None, Tensor? starts=None"
torch.library.define(f"{_NAMESPACE}::forward", f"({_OF_INPUTS}, {_OF_BOTH}) -> (Tensor, Tensor)",
                     tags=(torch.Tag.pt2_compliant_tag,))  # fmt: skip
torch.library.define(
    f"{_NAMESPACE}::backward",
    f"(Tensor dO, {_OF_INPUTS}, Tensor O, Tensor lse, {_OF_BOTH}) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def dense(tensor: Tensor) -> Tensor:
    """The tensor without gaps, aligned to 16 bytes: the tensor itself or a copy."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone(memory_format=torch.contiguous_format)


def sizes_of(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    """(B, H, Hkv, Nq, Nk, d). NotServed for incompatible shapes, types or devices."""
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


_plans = {}  # cache of plans, by everything that a plan depends on


def plan_for(pass_, query, key, value, scale, mask, deterministic):
    """The library and its plan for this problem. NotServed or Unavailable if there is none. With deterministic, the
forward pass also checks the backward pass, so that the error comes early."""
    library = library_for("cuda" if query.is_cuda else "sim")
    which = (
        library, pass_, query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype, query.device,
        key.device, value.device, scale, mask, deterministic,
    )  # fmt: skip
    plan = _plans.get(which)
    if plan is None:
        element = _ELEMENTS.get(query.dtype) or str(query.dtype).removeprefix("torch.")
        problem = (element, sizes_of(query, key, value), scale, mask)
        plan = library.plan(pass_, *problem, bool(deterministic) and pass_ == "backward")
        if deterministic:
            library.plan("backward", *problem, True)
        if len(_plans) >= LONGEST_MEMORY:
            _plans.clear()
        _plans[which] = plan
    return library, plan


def _extras(query, sink, starts):
    """Sinks and starts without gaps. NotServed for sinks that are not (H), float32, on the query's device."""
    if sink is not None:
        if sink.shape != query.shape[1:2] or sink.dtype != torch.float32 or sink.device != query.device:
            raise NotServed(
                f"sink: {tuple(sink.shape)}, {sink.dtype} on {sink.device}; allowed: {tuple(query.shape[1:2])}, "
                f"torch.float32 on {query.device}"
            )
        sink = sink.contiguous()
    return sink, starts


def _run(library, plan, tensors, extras):
    first = tensors[0]
    addresses = [tensor.data_ptr() for tensor in tensors]
    if plan.extras:
        addresses += [0 if tensor is None else tensor.data_ptr() for tensor in extras]
    if not first.is_cuda:
        return library.run(plan, addresses)
    index = first.get_device()
    if index != _current_device():
        with torch.cuda.device(index):
            return _run(library, plan, tensors, extras)
    stream = _raw_stream(index) if _raw_stream is not None else torch.cuda.current_stream(index).cuda_stream
    room = workspace = None
    if plan.workspace:
        room = first.new_empty(plan.workspace, dtype=torch.uint8)  # aligned to 512 bytes
        workspace = room.data_ptr()
    library.run(plan, addresses, workspace, stream)
    if _SYNCHRONIZE and not torch.cuda.is_current_stream_capturing():
        library.synchronize()


def _run_forward(library, plan, query, key, value, sink, starts):
    """The inputs without gaps, O and LSE."""
    query, key, value = dense(query), dense(key), dense(value)
    O = torch.empty_like(query)
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    tensors = (query, key, value, O, lse)
    _run(library, plan, tensors, _extras(query, sink, starts))
    return tensors


def run_forward(query, key, value, scale, mask, deterministic, sink=None, starts=None):
    """O and LSE, without gradients."""
    how = plan_for("forward", query, key, value, scale, mask, deterministic)
    return _run_forward(*how, query, key, value, sink, starts)[3:]


def run_backward(dO, query, key, value, O, lse, scale, mask, deterministic, sink=None, starts=None):
    """dQ, dK, dV and dsink, which is empty without sinks, because an operator's results must be tensors."""
    how = plan_for("backward", query, key, value, scale, mask, deterministic)
    *gradients, dsink = _run_backward(*how, dO, query, key, value, O, lse, sink, starts)
    return (*gradients, _empty_dsink(query, sink) if dsink is None else dsink)


def _empty_dsink(query, sink):
    return query.new_empty(0 if sink is None else sink.shape, dtype=torch.float32)


def _run_backward(library, plan, dO, query, key, value, O, lse, sink, starts):
    query, key, value = dense(query), dense(key), dense(value)
    gradients = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
    dsink = None if sink is None else _empty_dsink(query, sink)
    extras = (*_extras(query, sink, starts), dsink)
    _run(library, plan, (query, key, value, dense(O), dense(dO), dense(lse), *gradients), extras)
    return (*gradients, dsink)


torch.library.impl(f"{_NAMESPACE}::forward", ("cpu", "cuda"), run_forward)
torch.library.impl(f"{_NAMESPACE}::backward", ("cpu", "cuda"), run_backward)


@torch.library.register_fake(f"{_NAMESPACE}::forward")
def _(query, key, value, scale, mask, deterministic, sink=None, starts=None):
    torch._check(query.dim() == 4, lambda: "query: allowed: (B, H, N, d)")
    return query.new_empty(query.shape), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.register_fake(f"{_NAMESPACE}::backward")
def _(dO, query, key, value, O, lse, scale, mask, deterministic, sink=None, starts=None):
    gradients = tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, value))
    return (*gradients, _empty_dsink(query, sink))


def _keep(ctx, inputs, output):
    query, key, value, scale, mask, deterministic, sink, starts = (*inputs, None, None)[:8]
    ctx.options = scale, mask, deterministic
    O, lse = output
    ctx.save_for_backward(query, key, value, O, lse, sink, starts)
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)


def _gradients(ctx, dO, dlse):
    if dO is None:
        return (None,) * 8
    query, key, value, O, lse, sink, starts = ctx.saved_tensors
    dQ, dK, dV, dsink = _backward(dO, query, key, value, O, lse, *ctx.options, sink, starts)
    return dQ, dK, dV, None, None, None, None if sink is None else dsink, None


def _no_second_gradients(ctx, *gradients):
    raise NotServed("no stage supports second derivatives; allowed: first derivatives")


torch.library.register_autograd(f"{_NAMESPACE}::forward", _gradients, setup_context=_keep)
torch.library.register_autograd(f"{_NAMESPACE}::backward", _no_second_gradients)

_forward = getattr(torch.ops, _NAMESPACE).forward.default
_backward = getattr(torch.ops, _NAMESPACE).backward.default


class Attention(torch.autograd.Function):
    """The forward pass without the dispatcher. It saves dense inputs, so that backward need not copy them again."""

    @staticmethod
    def forward(ctx, query, key, value, sink, with_lse, options, starts):
        library, plan = plan_for("forward", query, key, value, *options)
        tensors = _run_forward(library, plan, query, key, value, sink, starts)
        ctx.how = library, plan, options, starts
        ctx.save_for_backward(*tensors, sink)
        O, lse = tensors[3:]
        if not with_lse:  # a second result costs microseconds in both passes
            return O
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(lse)
        return O, lse

    @staticmethod
    def backward(ctx, dO, dlse=None):
        if dO is None:
            return (None,) * 7
        library, plan, options, starts = ctx.how
        *tensors, sink = ctx.saved_tensors
        if torch.is_grad_enabled() or not _is_eager(dO):
            # create_graph=True: the operator's gradients raise the error that there are no second derivatives.
            gradients = _backward(dO, *tensors, *options, sink, starts)
        else:
            plan = library.plan("backward", *plan.of, options[2])
            gradients = _run_backward(library, plan, dO, *tensors, sink, starts)
        return (*gradients[:3], None if sink is None else gradients[3], None, None, None)


# Equivalent to Function.apply if no functorch transform is active, which _is_eager() has checked.
_differentiable = super(torch.autograd.Function, Attention).apply


def _is_eager(*tensors):
    """Whether these have data, and no compiler, mode, transform, tracer or forward derivative needs an operator."""
    return not torch.compiler.is_compiling() and (  # a constant for the compiler, which stops here
        all([type(tensor) in _PLAIN and not tensor.is_meta for tensor in tensors])
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
    )


def _attention(query, key, value, sink, starts, with_lse, *options):
    """O and LSE, or only O, with the least overhead."""
    tensors = (query, key, value) if sink is None else (query, key, value, sink)
    if not _is_eager(*tensors):
        if not torch.compiler.is_compiling() and forward_ad._current_level >= 0:  # the dispatcher would drop them
            if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
                raise NotServed("no stage supports forward derivatives; allowed: backward derivatives")
        results = _forward(query, key, value, *options, sink, starts)
    elif torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors]):
        return _differentiable(query, key, value, sink, with_lse, options, starts)
    else:
        results = run_forward(query, key, value, *options, sink, starts)
    return results if with_lse else results[0]


def by_pytorch(query, key, value, causal, scale, dropout_p=0.0):
    """The same by PyTorch, with the mask aligned to the last query and key."""
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


def _is_served(query, key, value, scale, mask, deterministic):
    try:
        plan_for("forward", query, key, value, scale, mask, False)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
            plan_for("backward", query, key, value, scale, mask, deterministic)
    except NotServed:
        return False
    return True


_starts = {}  # by mask and device, which saves a copy to the GPU for each call


def _starts_on(device, mask):
    if "+lengths=" not in mask:
        return None
    known = _starts.get((mask, device))
    if known is None:
        if len(_starts) >= LONGEST_MEMORY:
            _starts.clear()
        known = _starts[mask, device] = torch.tensor(starts_of(mask), dtype=torch.int32, device=device)
    return known


def attention(query, key, value, causal, scale, deterministic, return_lse, fallback, mask, sink, lengths):
    """See the package's attention()."""
    if scale is None:
        scale = 1 / math.sqrt(max(query.shape[-1], 1))
    mask = mask_text(causal, mask, sink, lengths)
    if fallback and not _is_served(query, key, value, scale, mask, deterministic):
        if return_lse:
            raise NotServed("return_lse = True: PyTorch returns no LSE; allowed for problems that a stage supports")
        if mask not in ("none", "causal"):
            raise NotServed(f"fallback = True, mask = {mask}: allowed with PyTorch: none and causal")
        return by_pytorch(query, key, value, mask == "causal", scale)
    starts = _starts_on(query.device, mask)
    return _attention(query, key, value, sink, starts, return_lse, scale, mask, deterministic)
