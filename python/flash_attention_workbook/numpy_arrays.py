"""numpy arrays on the simulator."""

import math

import numpy

from .library import NotServed, library_for, mask_text, starts_of


def dense(array):
    """The array without gaps, in this machine's byte order, aligned to 16 bytes: the array itself or a copy."""
    array = numpy.asarray(array)
    array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if array.ctypes.data % 16 == 0:
        return array
    room = numpy.empty(array.nbytes + 16, numpy.uint8)
    begin = -room.ctypes.data % 16
    aligned = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def sizes_of(Q, K, V):
    """(B, H, Hkv, Nq, Nk, d). NotServed for incompatible shapes or different element types."""
    for name, array in (("query", Q), ("key", K), ("value", V)):
        if array.ndim != 4:
            raise NotServed(f"{name}.shape = {tuple(array.shape)}: allowed: (B, H, N, d)")
        if array.dtype != Q.dtype:
            raise NotServed(f"{name}.dtype = {array.dtype}: allowed: {Q.dtype}, the dtype of query")
    B, H, Nq, d = Q.shape
    _, Hkv, Nk, _ = K.shape
    for name, array in (("key", K), ("value", V)):
        if tuple(array.shape) != (B, Hkv, Nk, d):
            raise NotServed(f"{name}.shape = {tuple(array.shape)}: allowed: {(B, Hkv, Nk, d)}")
    return B, H, Hkv, Nq, Nk, d


def _arguments(Q, K, V, mask, scale):
    sizes = sizes_of(Q, K, V)
    if scale is None:
        scale = 1 / math.sqrt(max(sizes[-1], 1))
    return Q.dtype.name, sizes, scale, mask


def _extras(mask, sink, H):
    """Sinks and the starts of packed sequences; None if there are none."""
    if sink is not None:
        sink = numpy.asarray(sink)
        if sink.dtype.kind not in "fiu":
            raise NotServed(f"sink.dtype = {sink.dtype}: allowed: float32, or another type of real numbers")
        if sink.shape != (H,):
            raise NotServed(f"sink.shape = {sink.shape}: allowed: {(H,)}, one for each query head")
        sink = dense(sink.astype(numpy.float32))
    starts = starts_of(mask)
    return sink, None if starts is None else numpy.array(starts, numpy.int32)


def _run(library, plan, arrays, extras):
    arrays = [*arrays, *extras] if plan.extras else arrays
    library.run(plan, [0 if array is None else array.ctypes.data for array in arrays])


def attention(Q, K, V, causal, scale, deterministic, return_lse, fallback, mask, sink, lengths):
    if fallback:
        raise NotServed("fallback = True: allowed only with PyTorch tensors")
    Q, K, V = (dense(array) for array in (Q, K, V))
    mask = mask_text(causal, mask, sink, lengths)
    library = library_for("sim")
    plan = library.plan("forward", *_arguments(Q, K, V, mask, scale))
    O, lse = dense(numpy.empty_like(Q)), dense(numpy.empty(Q.shape[:3], numpy.float32))
    _run(library, plan, (Q, K, V, O, lse), _extras(mask, sink, Q.shape[1]))
    return (O, lse) if return_lse else O


def attention_gradients(dO, Q, K, V, O, lse, causal, scale, deterministic, mask, sink, lengths):
    for name, array, expected in (("dO", dO, Q), ("O", O, Q)):
        if array.shape != expected.shape or array.dtype.newbyteorder("=") != expected.dtype.newbyteorder("="):
            raise NotServed(
                f"{name}: {array.shape}, {array.dtype}; allowed: as query, {expected.shape}, {expected.dtype}"
            )
    if lse.shape != Q.shape[:3] or lse.dtype.newbyteorder("=") != numpy.float32:
        raise NotServed(f"lse: {lse.shape}, {lse.dtype}; allowed: {Q.shape[:3]}, float32")
    inputs = [dense(array) for array in (Q, K, V, O, dO, lse)]
    library = library_for("sim")
    mask = mask_text(causal, mask, sink, lengths)
    plan = library.plan("backward", *_arguments(*inputs[:3], mask, scale), deterministic)
    gradients = [dense(numpy.empty_like(array)) for array in inputs[:3]]
    sink, starts = _extras(mask, sink, Q.shape[1])
    dsink = None if sink is None else numpy.empty_like(sink)
    _run(library, plan, (*inputs, *gradients), (sink, starts, dsink))
    return tuple(gradients) if sink is None else (*gradients, dsink)
