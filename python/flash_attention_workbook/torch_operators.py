"""Attention on PyTorch tensors, as operators with gradients that torch.compile and CUDA graphs support.

Tensors on a GPU use the library for "cuda", tensors on the CPU the library for "sim". The operators are declared with
torch.library's functions (PyTorch 2.4 or newer), like its decorator custom_op, but without the checks that the
decorator adds to every call in Python.

If nothing needs to observe an operator (no compiler, mode, transform or tracer, and plain tensors), attention()
bypasses PyTorch's dispatcher, which costs more than the call. It then uses an autograd.Function or, without gradients,
calls the library directly.
"""

import itertools
import math
import os

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from . import checked as entry
from .library import (
    LONGEST_MEMORY, NotServed, library_for, library_with, mask_text, parts_of, shortened, starts_of, with_lengths,
)  # fmt: skip

_NAMESPACE = "flash_attention_workbook"
_ELEMENTS = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_SYNCHRONIZE = os.environ.get("WORKBOOK_SYNCHRONIZE", "") not in ("", "0")
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # the stream's address, without an object
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
GPU = torch.device("cuda")
_PLAIN = (Tensor, torch.nn.Parameter)

_OF_INPUTS = "Tensor query, Tensor key, Tensor value"
_OF_BOTH = (
    "float scale, str mask, bool deterministic, Tensor? sink=None, Tensor? starts_q=None, Tensor? starts_k=None"
)
# Packed sequences have operators of their own, since Inductor may not record them in a CUDA graph: a call with new
# lengths copies their starts to the GPU, and a call with cu_seqlens waits for it.
_TAGS = (torch.Tag.pt2_compliant_tag,)
_OPERATORS = {"": _TAGS, "packed_": _TAGS + tuple(filter(None, [getattr(torch.Tag, "cudagraph_unsafe", None)]))}
for _prefix, _tags in _OPERATORS.items():
    torch.library.define(
        f"{_NAMESPACE}::{_prefix}forward", f"({_OF_INPUTS}, {_OF_BOTH}) -> (Tensor, Tensor)", tags=_tags
    )
    torch.library.define(
        f"{_NAMESPACE}::{_prefix}backward",
        f"(Tensor dO, {_OF_INPUTS}, Tensor O, Tensor lse, {_OF_BOTH}, Tensor? dlse=None) -> "
        "(Tensor, Tensor, Tensor, Tensor)",
        tags=_tags,
    )


def is_compiling():
    return torch.compiler.is_compiling()


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
        if tensor.dtype != query.dtype and query.dtype not in _ELEMENTS:
            raise NotServed(f"query.dtype = {query.dtype}: allowed: torch.float16 and torch.bfloat16")
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise NotServed(
                f"{name}: {tensor.dtype} on {tensor.device}; allowed: as query, {query.dtype} on {query.device}"
            )
    return B, H, Hkv, Nq, Nk, d


_plans = {}  # cache of plans, by everything that a plan depends on


def plan_for(pass_, query, key, value, scale, mask, deterministic, lse_gradient=False):
    """The library and its plan for this problem. NotServed or Unavailable if there is none. With deterministic, the
forward pass also checks the backward pass, so that the error comes early."""
    library = library_for("cuda" if query.is_cuda else "sim")
    which = (
        library, pass_, query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype, query.device,
        key.device, value.device, scale, mask, deterministic, lse_gradient,
    )  # fmt: skip
    plan = _plans.get(which)
    if plan is None:
        element = _ELEMENTS.get(query.dtype) or str(query.dtype).removeprefix("torch.")
        problem = (element, sizes_of(query, key, value), scale, mask)
        plan = library.plan(pass_, *problem, bool(deterministic) and pass_ == "backward", lse_gradient)
        if deterministic:
            library.plan("backward", *problem, True)
        if len(_plans) >= LONGEST_MEMORY:
            _plans.clear()
        _plans[which] = plan
    return library, plan


_starts = {}  # of packed sequences, by mask and device, which saves a copy to the GPU for each call


_recorded = set()  # the starts in CUDA graphs, whose memory must stay: nobody knows when a graph is gone


def _is_recording(device):
    return device.type == "cuda" and not is_compiling() and torch.cuda.is_current_stream_capturing()


def require_no_recording(name, device, what, allowed):
    """NotServed where a CUDA graph records: what waits for the GPU, or for a copy to it, would spoil the recording."""
    if _is_recording(device):
        raise NotServed(f"{name}: a CUDA graph cannot record {what}; allowed: {allowed}")


def _has_starts(mask):
    return "lengths=" in mask or "documents=" in mask


def _starts_on(device, mask):
    if not _has_starts(mask):
        return None
    known = _starts.get((mask, device))
    if known is None:
        lengths = shortened(",".join(str(b - a) for a, b in itertools.pairwise(starts_of(mask))))
        require_no_recording(f"lengths or cu_seqlens of {lengths} rows", device, "the first call with them, which "
                             "copies their starts to the GPU", "those of an earlier one")  # fmt: skip
        if len(_starts) >= LONGEST_MEMORY:
            _starts.clear()
        known = _starts[mask, device] = torch.tensor(starts_of(mask), dtype=torch.int32, device=device)
    elif _is_recording(device):
        _recorded.add(known)
    return known


def _extras(query, mask, sink):
    """Sinks without gaps, and starts. NotServed for sinks that are not (H), float32, on the query's device."""
    if sink is not None:
        if sink.shape != query.shape[1:2] or sink.dtype != torch.float32 or sink.device != query.device:
            raise NotServed(
                f"sink: {tuple(sink.shape)}, {sink.dtype} on {sink.device}; allowed: {tuple(query.shape[1:2])}, "
                f"torch.float32 on {query.device}"
            )
        sink = sink.contiguous()
    return sink, _starts_on(query.device, mask)


def _run(library, plan, tensors, extras):
    first = tensors[0]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    if plan.extras:
        addresses += [0 if tensor is None else tensor.data_ptr() for tensor in extras]
    if not first.is_cuda:
        return library.run(plan, addresses, keep=(tensors, extras))
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


def _run_forward(library, plan, query, key, value, sink):
    """The inputs without gaps, O and LSE."""
    query, key, value = dense(query), dense(key), dense(value)
    O = torch.empty_like(query)
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    tensors = (query, key, value, O, lse)
    _run(library, plan, tensors, _extras(query, plan.of[-1], sink))
    return tensors


def _sequences(query, key, value, starts_q, starts_k):
    """The lengths of the packed sequences of Q and of K, from FlashAttention's cu_seqlens. Waits for the device."""
    sizes_of(query, key, value)
    given = ("cu_seqlens_q", starts_q, query.shape[2]), ("cu_seqlens_k", starts_k, key.shape[2])
    each = [entry.starts(name, _starts_on_host(name, starts), rows) for name, starts, rows in given]
    return entry.lengths_between(each)


def on_host(name, tensor, otherwise):
    """The numbers of a tensor. NotServed where nothing can wait for them."""
    what, waits = f"{name} = a tensor on {tensor.device}", "that the call reads it on the host"
    if is_compiling() or tensor.is_meta:
        reader = "there are no numbers" if tensor.is_meta else "torch.compile cannot record " + waits
        raise NotServed(f"{what}: {reader}; allowed: {otherwise}")
    require_no_recording(what, tensor.device, waits, otherwise)
    return tensor.tolist()


def _starts_on_host(name, starts):
    return on_host(name, starts, f"{name} on the host, or lengths of attention()")


def _split(tensors, lengths):
    """For each sequence, its rows of the tensors, each of which has its lengths."""
    return zip(*(tensor.split(each, 2) for tensor, each in zip(tensors, lengths)))


def has_no_pairs(query, key):
    return query.shape[0] == 0 or query.shape[2] == 0 or key.shape[2] == 0


def run_forward(query, key, value, scale, mask, deterministic, sink=None, starts_q=None, starts_k=None):
    """O and LSE, without gradients."""
    if starts_q is not None:
        of_queries, of_keys = _sequences(query, key, value, starts_q, starts_k)
        if of_keys is not None:
            each = _split((query, key, value), (of_queries, of_keys, of_keys))
            parts = [run_forward(*tensors, scale, mask, deterministic, sink) for tensors in each]
            return tuple(torch.cat(part, 2) for part in zip(*parts))
        mask = with_lengths(mask, of_queries)
    if has_no_pairs(query, key):
        sizes_of(query, key, value)
        lse = query.new_full(query.shape[:3], -math.inf, dtype=torch.float32)
        return query.new_zeros(query.shape), lse if sink is None else lse.copy_(sink[:, None].expand(lse.shape[1:]))
    how = plan_for("forward", query, key, value, scale, mask, deterministic)
    return _run_forward(*how, query, key, value, sink)[3:]


def run_backward(
    dO, query, key, value, O, lse, scale, mask, deterministic, sink=None, starts_q=None, starts_k=None, dlse=None
):
    """dQ, dK, dV and dsink, which is empty without sinks, because an operator's results must be tensors."""
    if starts_q is not None:
        of_queries, of_keys = _sequences(query, key, value, starts_q, starts_k)
        if of_keys is not None:
            tensors = (dO, query, key, value, O, lse) if dlse is None else (dO, query, key, value, O, lse, dlse)
            rows = (of_queries, of_queries, of_keys, of_keys, of_queries, of_queries, of_queries)
            options = scale, mask, deterministic, sink, None, None
            parts = [run_backward(*each[:6], *options, *each[6:]) for each in _split(tensors, rows)]
            *gradients, dsinks = zip(*parts)
            return (*(torch.cat(gradient, 2) for gradient in gradients), torch.stack(dsinks).sum(0))
        mask = with_lengths(mask, of_queries)
    if has_no_pairs(query, key):
        dsink = _empty_dsink(query, sink).zero_()
        if sink is not None and dlse is not None:  # without keys the LSE is the sink
            dsink += dlse.sum((0, 2))
        return (*(tensor.new_zeros(tensor.shape) for tensor in (query, key, value)), dsink)
    how = plan_for("backward", query, key, value, scale, mask, _in_order(deterministic), dlse is not None)
    *gradients, dsink = _run_backward(*how, dO, query, key, value, O, lse, sink, dlse)
    return (*gradients, _empty_dsink(query, sink) if dsink is None else dsink)


def _in_order(deterministic):
    """Whether gradients must be reproducible, also since PyTorch was told so for all of its operators."""
    return deterministic or (
        torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    )


def _empty_dsink(query, sink):
    return query.new_empty(0 if sink is None else sink.shape, dtype=torch.float32)


def _run_backward(library, plan, dO, query, key, value, O, lse, sink, dlse):
    query, key, value = dense(query), dense(key), dense(value)
    gradients = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
    dsink = None if sink is None else _empty_dsink(query, sink)
    dlse = None if dlse is None else dense(dlse)
    extras = (*_extras(query, plan.of[-1], sink), dsink, dlse)
    _run(library, plan, (query, key, value, dense(O), dense(dO), dense(lse), *gradients), extras)
    return (*gradients, dsink)


def _fake_forward(query, key, value, scale, mask, deterministic, sink=None, starts_q=None, starts_k=None):
    torch._check(query.dim() == 4, lambda: "query: allowed: (B, H, N, d)")
    return query.new_empty(query.shape), query.new_empty(query.shape[:3], dtype=torch.float32)


def _fake_backward(
    dO, query, key, value, O, lse, scale, mask, deterministic, sink=None, starts_q=None, starts_k=None, dlse=None
):
    gradients = tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, value))
    return (*gradients, _empty_dsink(query, sink))


def _keep(ctx, inputs, output):
    query, key, value, scale, mask, deterministic, sink, starts_q, starts_k = (*inputs, None, None, None)[:9]
    ctx.options = scale, mask, deterministic
    O, lse = output
    ctx.save_for_backward(query, key, value, O, lse, sink, starts_q, starts_k)
    ctx.set_materialize_grads(False)


def _gradients(ctx, dO, dlse):
    if dO is None and dlse is None:
        return (None,) * 9
    query, key, value, O, lse, sink, starts_q, starts_k = ctx.saved_tensors
    if dO is None:
        dO = torch.zeros_like(O)
    backward = _backward if starts_q is None and not _has_starts(ctx.options[1]) else _packed_backward
    dQ, dK, dV, dsink = backward(dO, query, key, value, O, lse, *ctx.options, sink, starts_q, starts_k, dlse)
    return dQ, dK, dV, None, None, None, None if sink is None else dsink, None, None


def _no_second_gradients(ctx, *gradients):
    raise NotServed("no stage supports second derivatives; allowed: first derivatives")


_CODE = {"forward": (run_forward, _fake_forward), "backward": (run_backward, _fake_backward)}
for _prefix in _OPERATORS:
    for _pass, (_function, _fake) in _CODE.items():
        torch.library.impl(f"{_NAMESPACE}::{_prefix}{_pass}", ("cpu", "cuda"), _function)
        torch.library.register_fake(f"{_NAMESPACE}::{_prefix}{_pass}", _fake)
    torch.library.register_autograd(f"{_NAMESPACE}::{_prefix}forward", _gradients, setup_context=_keep)
    torch.library.register_autograd(f"{_NAMESPACE}::{_prefix}backward", _no_second_gradients)

# The caches are read where they are. _decode() stores nothing in them.
torch.library.define(
    f"{_NAMESPACE}::decode",
    "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor cache_seqlens, Tensor? block_table, float scale, bool causal, "
    "int splits) -> (Tensor, Tensor)",
    tags=_TAGS,
)


def _decode(q, k_cache, v_cache, lengths, table, scale, causal, splits, how=None):
    M = 1 if table is None else table.shape[1]
    library, plan = how or _plan_of_decode(q, k_cache, v_cache, M, scale, causal, splits, False)
    Q = dense(q.transpose(1, 2))
    O, lse = torch.empty_like(Q), Q.new_empty(Q.shape[:3], dtype=torch.float32)
    if plan is None:
        return O.zero_().transpose(1, 2).contiguous(), lse.fill_(-math.inf)
    _run(library, plan, (Q, k_cache, v_cache, O, lse, lengths, table), ())
    return O.transpose(1, 2).contiguous(), lse


def _plan_of_decode(q, k_cache, v_cache, M, scale, causal, splits, writes):
    (B, Nq, H, d), (pages, page_size, Hkv, _) = q.shape, k_cache.shape
    of_k, of_v = ((x.shape, x.stride(), x.data_ptr()) for x in (k_cache, v_cache))
    cache = max(page_size, 1), max(pages, 1), splits, entry.cache_strides(writes, k_cache=of_k, v_cache=of_v)
    sizes, mask = (max(B, 1), H, Hkv, max(Nq, 1), max(page_size * M, 1), d), "causal" if causal else "none"
    library, element = library_with("21", "cuda" if q.is_cuda else "sim"), _ELEMENTS.get(q.dtype) or str(q.dtype)[6:]
    plan = library.plan("forward", element, sizes, scale, mask, cache=cache)
    return library, plan if B and Nq and page_size * M and pages else None


def _fake_decode(q, k_cache, v_cache, lengths, table, scale, causal, splits):
    B, Nq, H, d = q.shape
    return q.new_empty((B, Nq, H, d)), q.new_empty((B, H, Nq), dtype=torch.float32)


torch.library.impl(f"{_NAMESPACE}::decode", ("cpu", "cuda"), _decode)
torch.library.register_fake(f"{_NAMESPACE}::decode", _fake_decode)

_operators = getattr(torch.ops, _NAMESPACE)


def _flops_of_a_matmul(query, key, mask, deterministic, sink=None, starts_q=None, starts_k=None, dlse=None):
    """As PyTorch counts its own: masked pairs too, but each packed sequence by itself."""
    B, H, Nq, d = query.shape
    rows = [(0, Nq), (0, key.shape[2])]
    if "lengths=" in mask:
        rows = [starts_of(mask)] * 2
    elif starts_q is not None and type(starts_q) in _PLAIN and not starts_q.is_meta:  # has data
        rows = starts_q.tolist(), starts_k.tolist()
    Q, K = ([b - a for a, b in itertools.pairwise(starts)] for starts in rows)
    return 2 * B * H * d * sum(q * k for q, k in zip(Q, K))


@register_flop_formula([_operators.forward, _operators.packed_forward], get_raw=True)
def _(query, key, value, scale, mask, *others, out_val=None):
    return 2 * _flops_of_a_matmul(query, key, mask, *others)


@register_flop_formula([_operators.backward, _operators.packed_backward], get_raw=True)
def _(dO, query, key, value, O, lse, scale, mask, *others, out_val=None):
    return 5 * _flops_of_a_matmul(query, key, mask, *others)


@register_flop_formula(_operators.decode)
def _(q, k_cache, v_cache, lengths, table, *others, **options):
    return 4 * math.prod(q) * k_cache[1] * (1 if table is None else table[1])


_forward, _backward = _operators.forward.default, _operators.backward.default
_packed_forward, _packed_backward = _operators.packed_forward.default, _operators.packed_backward.default


class Attention(torch.autograd.Function):
    """The forward pass without the dispatcher. It saves dense inputs, so that backward need not copy them again."""

    @staticmethod
    def forward(ctx, query, key, value, sink, with_lse, options):
        library, plan = plan_for("forward", query, key, value, *options)
        tensors = _run_forward(library, plan, query, key, value, sink)
        ctx.how = library, plan, options
        ctx.save_for_backward(*tensors, sink)
        O, lse = tensors[3:]
        if not with_lse:  # a second result costs microseconds in both passes
            return O
        ctx.set_materialize_grads(False)
        return O, lse

    @staticmethod
    def backward(ctx, dO, dlse=None):
        if dO is None and dlse is None:
            return (None,) * 6
        library, plan, options = ctx.how
        *tensors, sink = ctx.saved_tensors
        if dO is None:
            dO = torch.zeros_like(tensors[3])
        given = [dO] if dlse is None else [dO, dlse]
        if torch.is_grad_enabled() or not _is_eager(*given) or any(map(_is_batched, given)):
            # create_graph=True: the operator's gradients raise the error that there are no second derivatives.
            gradients = _backward(dO, *tensors, *options, sink, None, None, dlse)
        else:
            plan = library.plan("backward", *plan.of, _in_order(options[2]), dlse is not None)
            gradients = _run_backward(library, plan, dO, *tensors, sink, dlse)
        return (*gradients[:3], None if sink is None else gradients[3], None, None)


# autograd.grad(…, is_grads_batched=True) and jacobian(…, vectorize=True) still use PyTorch's older vmap.
_is_batched = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda tensor: False)

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
    """O and LSE, or only O, with the least overhead. starts: of the packed sequences of Q and K, as tensors, or ()."""
    tensors = (query, key, value) if sink is None else (query, key, value, sink)
    forward = _packed_forward if starts or _has_starts(options[1]) else _forward
    if torch.compiler.is_compiling():
        results = forward(query, key, value, *options, sink, *starts)
    elif not _is_eager(*tensors) or starts or has_no_pairs(query, key):
        if forward_ad._current_level >= 0:  # the dispatcher would drop them
            if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
                raise NotServed("no stage supports forward derivatives; allowed: backward derivatives")
        try:
            results = forward(query, key, value, *options, sink, *starts)
        except RuntimeError as error:
            if "setup_context" in str(error):  # PyTorch's message on operators under torch.func.grad
                raise NotServed("no stage supports torch.func.grad; allowed: torch.autograd.grad") from None
            raise
    elif torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors]):
        return _differentiable(query, key, value, sink, with_lse, options)
    else:
        results = run_forward(query, key, value, *options, sink)
    return results if with_lse else results[0]


def _attends(kind, sides, Nq, Nk, device):
    """The unmasked pairs of a mask, (Nq, Nk); None: all."""
    if kind == "none":
        return None
    distance = torch.arange(Nk - Nq, Nk, device=device)[:, None] - torch.arange(Nk, device=device)
    if kind == "causal":
        return distance >= 0
    left, right = map(int, sides.split(","))
    return (distance <= left) & (distance >= -right)


def by_pytorch(query, key, value, scale, mask, sink, lengths, with_lse, dropout_p=0.0):
    """O and the LSE by PyTorch; without with_lse, the LSE may be None. lengths: of packed sequences of Q and of K, or
    None. mask: none, causal or a window, with softcap and ALiBi; NotServed for others."""
    sizes_of(query, key, value)
    if not query.is_floating_point():
        raise NotServed(f"query.dtype = {query.dtype}: allowed with PyTorch: floating-point types")
    if not key.shape[1] or query.shape[1] % key.shape[1]:
        raise NotServed(f"key.shape = {tuple(key.shape)}: allowed: {query.shape[1]} heads, or a divisor of it")
    if lengths is not None:
        of_queries, of_keys = lengths[0], lengths[1] or lengths[0]
        each = _split((query, key, value), (of_queries, of_keys, of_keys))
        parts = [by_pytorch(*tensors, scale, mask, sink, None, with_lse, dropout_p) for tensors in each]
        O, lse = zip(*parts)
        return torch.cat(O, 2), None if lse[0] is None else torch.cat(lse, 2)
    parts = dict(part.partition("=")[::2] for part in mask.split("+"))
    kind, *others = parts
    if kind not in ("none", "causal", "window") or not all([part in ("softcap", "alibi", "sink") for part in others]):
        raise NotServed(f"fallback = True, mask = {mask}: allowed with PyTorch: none, causal and window=LEFT,RIGHT, "
                        "with +softcap=C, +alibi and sinks")  # fmt: skip
    Nq, Nk, G = query.shape[2], key.shape[2], query.shape[1] // key.shape[1]
    if G > 1:
        key, value = (tensor.repeat_interleave(G, 1) for tensor in (key, value))
    is_causal = True if kind == "causal" and Nq == Nk else False  # torch.compile's SymBool is not enough
    by_sdpa = not others and not with_lse
    attends = None if is_causal and by_sdpa else _attends(kind, parts[kind], Nq, Nk, query.device)
    if by_sdpa:
        # Rows without a key attend to all here, and become 0 afterwards: some backends compute other numbers for them.
        keyless = None if attends is None else ~attends.any(-1, keepdim=True)
        O = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=None if attends is None else attends | keyless, dropout_p=dropout_p,
            is_causal=is_causal, scale=scale,
        )  # fmt: skip
        return O if keyless is None else O.masked_fill(keyless, 0), None
    S = query.float() @ key.float().transpose(-1, -2) * scale
    if "softcap" in parts:
        S = float(parts["softcap"]) * torch.tanh(S / float(parts["softcap"]))
    if "alibi" in parts:
        distance = torch.arange(Nk - Nq, Nk, device=S.device)[:, None] - torch.arange(Nk, device=S.device)
        slopes = torch.cat([S.new_full((1,), slope) for slope in entry.slopes(S.shape[1])])  # without a copy to the GPU
        S = S - slopes[:, None, None] * distance.abs()
    if attends is not None:
        S = S.masked_fill(~attends, -math.inf)
    of_row = S.new_full((1,), -math.inf) if sink is None else sink.float()
    S = torch.cat([S, of_row[:, None, None].expand(*S.shape[:3], 1)], -1)  # the score of the sink, or none
    masked = (S == -math.inf).all(-1, keepdim=True)  # rows without a score
    P = torch.softmax(S.masked_fill(masked, 0), -1).masked_fill(masked, 0)
    lse = torch.logsumexp(S.masked_fill(masked, 0), -1).masked_fill(masked[..., 0], -math.inf)
    P = torch.nn.functional.dropout(P[..., :-1], dropout_p)
    return (P @ value.float()).to(query.dtype), lse


def _passes(*tensors):
    """Those that a call needs."""
    needed = torch.is_grad_enabled() and any([tensor is not None and tensor.requires_grad for tensor in tensors])
    return ("forward", "backward") if needed else ("forward",)


def _is_served(query, key, value, scale, mask, deterministic):
    passes = _passes(query, key, value)
    if is_compiling():  # which cannot see the library: by what its stages declare
        return query.shape[-1] in _dims(query, key, passes, mask, deterministic, False)
    try:
        for pass_ in passes:
            plan_for(pass_, query, key, value, scale, mask, deterministic and pass_ == "backward")
    except NotServed:
        return False
    return True


def _dims(query, key, passes, mask, *options):
    """The head dimensions that stages declare for these passes."""
    shares_heads = True if query.shape[1] != key.shape[1] else False
    backend = "cuda" if query.is_cuda else "sim"
    return _declared(backend, passes, query.dtype, tuple(parts_of(mask)), shares_heads, *options)


@torch.compiler.assume_constant_result
def _declared(backend, passes, dtype, *options):
    return library_for(backend).dims_to_pad_to(passes, _ELEMENTS.get(dtype), *options)


def cast(*tensors):
    """The tensors, of which some may be None, in the type of autocast if one is float32: RoPE may leave Q and K so, and
    V not."""
    kind = tensors[0].device.type
    single = any([x is not None and x.dtype == torch.float32 for x in tensors])
    if single and kind != "meta" and torch.is_autocast_enabled(kind):
        return [None if x is None else x.to(torch.get_autocast_dtype(kind)) for x in tensors]
    return tensors


def _sink(sink, query):
    """The sinks as a tensor of float32. NotServed for what is no real number for each query head."""
    shape = (query.shape[1],)
    sink = real("sink", sink, f"{shape}, one number for each query head", query)
    if sink.shape != shape:
        raise NotServed(f"sink.shape = {tuple(sink.shape)}: allowed: {shape}, one number for each query head")
    return sink.float()


def _tensor(name, value, allowed, like, device=None):
    """The value as a tensor: on this device, by default that of `like`, if it is none yet."""
    if isinstance(value, Tensor):
        return value
    entry.require_plain(name, value, allowed)
    if _is_recording(like.device):
        entry.refuse(name, value, f"a tensor on {like.device}", "a CUDA graph cannot record its copy to the GPU; ")
    try:
        return torch.tensor(value, device=device or like.device)
    except (TypeError, ValueError, RuntimeError):
        return entry.refuse(name, value, allowed)


def real(name, value, allowed, like):
    """A tensor of real numbers, on the device of `like` if it is none yet."""
    value = _tensor(name, value, allowed, like)
    if value.is_complex() or value.dtype == torch.bool:
        raise NotServed(f"{name}.dtype = {value.dtype}: allowed: torch.float32, or another type of real numbers")
    if value.device != like.device:
        raise NotServed(f"{name}.device = {value.device}: allowed: {like.device}")
    return value


def lengths_from(given, query):
    """The lengths between FlashAttention's cu_seqlens, which waits for the device; the tensors themselves where a
    compiler or tracer needs an operator. given: of Q and of K, the name, cu_seqlens and the number of rows."""
    for name, starts, _ in given:
        if starts.is_meta and not query.is_meta:
            raise NotServed(f"{name}.device = meta: allowed: a device with data")
        if starts.dim() != 1 or starts.is_floating_point():
            raise NotServed(f"{name}: {tuple(starts.shape)}, {starts.dtype}: allowed: (S + 1) integers")
    tensors = [starts for _, starts, _ in given]
    if not _is_eager(*tensors):
        return tuple(tensors)
    host = [_starts_on_host(given[0][0], tensors[0])]
    host.append(host[0] if tensors[1] is tensors[0] else _starts_on_host(given[1][0], tensors[1]))
    return entry.lengths_between([entry.starts(name, values, rows) for values, (name, _, rows) in zip(host, given)])


def attention(
    query, key, value, causal, scale, deterministic, return_lse, fallback, mask, sink, lengths, pad, dropout_p=0.0
):
    """See the package's attention(). lengths: those of Q and of K, or FlashAttention's cu_seqlens as tensors.
    dropout_p: by PyTorch, with fallback."""
    query, key, value = cast(query, key, value)
    columns = value.shape[-1]
    if scale is None:
        scale = 1 / math.sqrt(max(query.shape[-1], 1))
    mask = mask_text(causal, mask, sink)
    if sink is not None:
        sink = _sink(sink, query)
    starts, served = (), mask
    if lengths is not None and isinstance(lengths[0], Tensor):
        starts = lengths
    elif lengths is not None:
        entry.add_up(lengths, query.shape[2], key.shape[2])
        if lengths[1] is None:
            served = with_lengths(mask, lengths[0])
        else:
            ends = [[0, *itertools.accumulate(each)] for each in lengths]
            starts = [torch.tensor(each, dtype=torch.int32, device="cpu") for each in ends]
    if pad:
        passes = _passes(query, key, value, sink)
        wanted = served + "+lengths" if starts is lengths else served, deterministic, return_lse and len(passes) == 2
        d = entry.padded_head_dim(_dims(query, key, passes, *wanted), max(query.shape[-1], columns))
        query, key, value = (torch.nn.functional.pad(x, (0, d - x.shape[-1])) for x in (query, key, value))
    if dropout_p > 0 or (fallback and not _is_served(query, key, value, scale, served, deterministic)):
        if starts is lengths:
            raise NotServed("cu_seqlens = tensors: under torch.compile PyTorch cannot compute what no stage supports; "
                            "allowed: cu_seqlens on the host, or lengths")  # fmt: skip
        O, lse = by_pytorch(query, key, value, scale, mask, sink, lengths, return_lse, dropout_p)
        return (O[..., :columns], lse) if return_lse else O[..., :columns]
    results = _attention(query, key, value, sink, starts, return_lse, scale, served, deterministic)
    if columns == query.shape[-1]:
        return results
    return (results[0][..., :columns], results[1]) if return_lse else results[..., :columns]


# --- A KV cache ----------------------------------------------------------------------------------------------------


def require_no_gradient(**tensors):
    """NotServed for tensors whose gradient would be lost."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
            raise NotServed(f"{name}.requires_grad = True: decoding has no gradients; allowed under torch.no_grad()")


def integers(name, value, shape, like, least, most):
    """A tensor of integers of this shape, in which None is any size, on the device of `like`; and a list of them, or
    None where the host cannot read them without waiting. One number stands for all. least, most: see numpy_arrays."""
    if type(value) is int and len(shape) == 1:  # which a CUDA graph can record, unlike a copy to the GPU
        if not least <= value <= most:
            entry.refuse(f"{name}[0]", value, f"{least} to {most}")
        made = torch.full(shape, value, dtype=torch.int32, device=like.device)
        return made, None if is_compiling() else [value] * shape[0]
    given, host = value, None if isinstance(value, Tensor) else _tensor(name, value, "whole numbers", like, "cpu")
    value = value if host is None else host.to(like.device)
    if value.dim() == 0 and len(shape) == 1:
        value = value.expand(shape)
    whole = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    fits = value.dim() == len(shape) and all([size in (None, given) for size, given in zip(shape, value.shape)])
    if not whole or value.device != like.device or not fits:
        sizes = f"({', '.join('M' if size is None else str(size) for size in shape)})"
        raise NotServed(f"{name}: {tuple(value.shape)}, {value.dtype} on {value.device}; allowed: {sizes}, whole "
                        f"numbers from {least} to {most} on {like.device}")  # fmt: skip
    if host is None and not value.is_cuda and _is_eager(value):
        host = value
    return value, None if host is None else given if is_compiling() else host.expand(value.shape).tolist()


def require_element(name, tensor):
    if tensor.dtype not in _ELEMENTS:
        raise NotServed(f"{name}.dtype = {tensor.dtype}: allowed: torch.float16 and torch.bfloat16")


def unset(shape, like):
    """A cache of NaN. NotServed for a type or d that no stage reads."""
    require_element("like", like)
    entry.require_cache_dim("cuda" if like.is_cuda else "sim", _ELEMENTS[like.dtype], shape[-1])
    return torch.full(shape, math.nan, dtype=like.dtype, device=like.device)


def require_host(name, like):
    """NotServed where a CUDA graph records, which cannot repeat what the host does."""
    require_no_recording(name, like.device, "what the host does with pages", "flash_attn_with_kvcache() with tensors")


def int32(numbers, shape, like):
    return torch.tensor(numbers, dtype=torch.int32, device=like.device).reshape(shape)


def positions(lengths, count):
    """Those of the tokens that follow each request's keys: (B, count)."""
    return lengths[:, None] + torch.arange(count, device=lengths.device)


def pages_of(table, positions, page_size):
    """The page of each position, (B, N); without a table, the request."""
    if table is None:
        return torch.arange(len(positions), device=positions.device)[:, None]
    return table.gather(1, (positions // page_size).clamp(max=table.shape[1] - 1))


def plan_of_decode(q, k_cache, v_cache, *options):
    """See numpy_arrays. No result where a compiler or tracer needs an operator, which then makes the plan."""
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if cache.dtype != q.dtype:
            raise NotServed(f"{name}.dtype = {cache.dtype}: allowed: {q.dtype}, as q")
    return _plan_of_decode(q, k_cache, v_cache, *options) if _is_eager(q, k_cache, v_cache) else None


def decode(how, q, k_cache, v_cache, lengths, table, *options):
    """O, (B, Nq, H, d), and LSE. how: plan_of_decode()'s result; q: (B, Nq, H, d); the caches: (pages, page_size, Hkv,
    d); lengths: (B), int32; table: (B, M); options: scale, causal and splits."""
    table = None if table is None else table.int().contiguous()
    given = q, k_cache, v_cache, lengths.contiguous(), table, *options
    return _decode(*given, how) if _is_eager(q, k_cache, v_cache, lengths) else _operators.decode(*given)
