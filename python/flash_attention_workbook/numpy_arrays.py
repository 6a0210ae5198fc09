"""numpy arrays on the simulator."""

import math

import numpy

from . import checked as entry
from .library import NotServed, library_for, library_with, mask_text, parts_of, starts_of, with_lengths


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
        if array.dtype != Q.dtype and Q.dtype.name not in ("float16", "bfloat16"):
            raise NotServed(f"query.dtype = {Q.dtype}: allowed: float16 and bfloat16")
        if array.dtype != Q.dtype:
            raise NotServed(f"{name}.dtype = {array.dtype}: allowed: {Q.dtype}, the dtype of query")
    B, H, Nq, d = Q.shape
    _, Hkv, Nk, _ = K.shape
    for name, array in (("key", K), ("value", V)):
        if tuple(array.shape) != (B, Hkv, Nk, d):
            raise NotServed(f"{name}.shape = {tuple(array.shape)}: allowed: {(B, Hkv, Nk, d)}")
    return B, H, Hkv, Nq, Nk, d


def _array(name, value, allowed):
    """The value as an array. NotServed for text, sequences of several lengths, masked arrays and so on."""
    for each in [value, *value] if isinstance(value, (list, tuple)) else [value]:
        entry.require_plain(name, each, allowed)
    try:
        return numpy.asarray(value)
    except ValueError:
        return entry.refuse(name, value, allowed)


def real(name, value, allowed, like=None):
    """An array of real numbers. like: for tensors."""
    array = _array(name, value, allowed)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        entry.refuse(name, value, "float32, or another type of real numbers", f"{name}.dtype = {array.dtype}: ")
    return array


def _sink(sink, H):
    """The sinks as float32; None if there are none."""
    if sink is None:
        return None
    array = real("sink", sink, f"{(H,)}, one number for each query head")
    if array.shape != (H,):
        entry.refuse("sink", sink, f"{(H,)}, one for each query head", f"sink.shape = {array.shape}: ")
    with numpy.errstate(over="ignore"):
        sinks = dense(array.astype(numpy.float32))
    for h in numpy.flatnonzero(~numpy.isfinite(sinks) | (sinks > 2.0**127)):
        raise NotServed(f"sink[{h}] = {array[h]}: allowed: finite numbers that a float can hold, up to 2^127")
    return sinks


def _padded(pad, pass_, mask, options, Q, K, *arrays):
    """The arrays with zeros in the columns up to a head dimension that a stage supports. options: of head_dims()."""
    if not pad:
        return Q, K, *arrays
    arrays = Q, K, *arrays
    dims = library_for("sim").head_dims((pass_,), Q.dtype.name, parts_of(mask), Q.shape[1] != K.shape[1], *options)
    d = entry.padded_head_dim(dims, max(array.shape[-1] for array in arrays))
    return [numpy.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, d - array.shape[-1])]) for array in arrays]


def _packed(mask, lengths, Nq, Nk):
    """The mask with the lengths of packed sequences; or the slices of each sequence's queries and keys, if the lengths
    of Q and K differ."""
    if lengths is None:
        return mask, None
    entry.add_up(lengths, Nq, Nk)
    if lengths[1] is None:
        return with_lengths(mask, lengths[0]), None
    ends = [numpy.cumsum(each).tolist() for each in lengths]
    slices = [[slice(end - n, end) for end, n in zip(*each)] for each in zip(ends, lengths)]
    return mask, list(zip(*slices))


def _plan(pass_, arrays, scale, mask, *options):
    """The library and the plan; no plan for tensors without rows, whose results no stage needs to compute."""
    B, H, Hkv, Nq, Nk, d = sizes_of(*arrays)
    library = library_for("sim")
    sizes = max(B, 1), H, Hkv, max(Nq, 1), max(Nk, 1), d
    plan = library.plan(pass_, arrays[0].dtype.name, sizes, scale, mask, *options)
    return library, plan if B and Nq and Nk else None


def _starts(mask):
    starts = starts_of(mask)
    return None if starts is None else numpy.array(starts, numpy.int32)


def _run(library, plan, arrays, extras):
    arrays = [*arrays, *extras] if plan.extras else arrays
    library.run(plan, [0 if array is None else array.ctypes.data for array in arrays], keep=arrays)


def _forward(Q, K, V, scale, mask, sink):
    library, plan = _plan("forward", (Q, K, V), scale, mask)
    O, lse = dense(numpy.empty_like(Q)), dense(numpy.empty(Q.shape[:3], numpy.float32))
    if plan is None:
        O[...] = 0
        lse[...] = -math.inf if sink is None else sink[:, None]
    else:
        _run(library, plan, (Q, K, V, O, lse), (sink, _starts(mask)))
    return O, lse


def _backward(Q, K, V, O, dO, lse, dlse, scale, mask, sink, deterministic):
    library, plan = _plan("backward", (Q, K, V), scale, mask, deterministic, dlse is not None)
    gradients = [dense(numpy.zeros_like(array)) for array in (Q, K, V)]
    dsink = None if sink is None else numpy.zeros_like(sink)
    if plan is not None:
        _run(library, plan, (Q, K, V, O, dO, lse, *gradients), (sink, _starts(mask), dsink, dlse))
    elif sink is not None and dlse is not None:
        dsink = dlse.sum((0, 2), dtype=numpy.float32)  # without keys the LSE is the sink
    return *gradients, dsink


def attention(Q, K, V, causal, scale, deterministic, return_lse, fallback, mask, sink, lengths, pad, dropout_p=0.0):
    """See the package's attention(). dropout_p: for tensors, with fallback."""
    if fallback:
        raise NotServed("fallback = True: allowed only with PyTorch tensors")
    columns = V.shape[-1]
    if scale is None:
        scale = 1 / math.sqrt(max(Q.shape[-1], 1))
    mask, sink = mask_text(causal, mask, sink), _sink(sink, Q.shape[1])
    mask, slices = _packed(mask, lengths, Q.shape[2], K.shape[2])
    Q, K, V = (dense(array) for array in _padded(pad, "forward", mask, (), Q, K, V))
    if slices is None:
        O, lse = _forward(Q, K, V, scale, mask, sink)
    else:
        sizes_of(Q, K, V)
        of_each = [[dense(x[:, :, s]) for x, s in zip((Q, K, V), (q, k, k))] for q, k in slices]
        O, lse = (numpy.concatenate(x, 2) for x in zip(*(_forward(*each, scale, mask, sink) for each in of_each)))
    O = O[..., :columns] if pad else O
    return (O, lse) if return_lse else O


def attention_gradients(dO, Q, K, V, O, lse, dlse, causal, scale, deterministic, mask, sink, lengths, pad):
    """See the package's attention_gradients()."""
    like_O = (*Q.shape[:3], V.shape[-1]) if pad else Q.shape
    for name, array in (("dO", dO), ("O", O)):
        if array.shape != like_O or array.dtype.newbyteorder("=") != Q.dtype.newbyteorder("="):
            raise NotServed(f"{name}: {array.shape}, {array.dtype}; allowed: as query, {like_O}, {Q.dtype}")
    for name, array in (("lse", lse), ("dlse", dlse)):
        if array is not None and (array.shape != Q.shape[:3] or array.dtype.newbyteorder("=") != numpy.float32):
            raise NotServed(f"{name}: {array.shape}, {array.dtype}; allowed: {Q.shape[:3]}, float32")
    columns = [array.shape[-1] for array in (Q, K, V)]
    if scale is None:
        scale = 1 / math.sqrt(max(Q.shape[-1], 1))
    mask, sink = mask_text(causal, mask, sink), _sink(sink, Q.shape[1])
    mask, slices = _packed(mask, lengths, Q.shape[2], K.shape[2])
    wanted = deterministic, dlse is not None
    inputs = [dense(array) for array in (*_padded(pad, "backward", mask, wanted, Q, K, V, O, dO), lse)]
    dlse = None if dlse is None else dense(dlse)
    options = scale, mask, sink, deterministic
    if slices is None:
        *gradients, dsink = _backward(*inputs, dlse, *options)
    else:
        sizes_of(*inputs[:3])
        parts = []
        for q, k in slices:
            each = [dense(x[:, :, s]) for x, s in zip(inputs, (q, k, k, q, q, q))]
            parts.append(_backward(*each, None if dlse is None else dense(dlse[:, :, q]), *options))
        *gradients, dsinks = zip(*parts)
        gradients = [numpy.concatenate(gradient, 2) for gradient in gradients]
        dsink = None if sink is None else sum(dsinks)
    gradients = [gradient[..., :count] for gradient, count in zip(gradients, columns)] if pad else gradients
    return tuple(gradients) if sink is None else (*gradients, dsink)


# --- A KV cache ----------------------------------------------------------------------------------------------------


def is_compiling():
    return False


def cast(*arrays):
    """Arrays know no autocast."""
    return arrays


def require_no_gradient(**arrays):
    """Arrays have no gradients."""


def integers(name, value, shape, like, least, most):
    """An array of integers of this shape, in which None is any size, and a list of them. One number stands for all.
    least, most: for the message; kv_cache checks the numbers."""
    sizes = f"({', '.join('M' if size is None else str(size) for size in shape)})"
    allowed = f"{sizes}, whole numbers from {least} to {most}"
    array = _array(name, value, allowed)
    if array.dtype.kind not in "iu":
        entry.refuse(name, value, allowed, f"{array.shape}, {array.dtype}; ")
    if array.ndim == 0 and len(shape) == 1:
        array = numpy.full(shape, array)
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape)):
        entry.refuse(name, value, allowed, f"{array.shape}, {array.dtype}; ")
    return array, array.tolist()


def require_element(name, array):
    if array.dtype.name not in ("float16", "bfloat16"):
        raise NotServed(f"{name}.dtype = {array.dtype}: allowed: float16 and bfloat16")


def unset(shape, like):
    """A cache of NaN. NotServed for a type or d that no stage reads."""
    require_element("like", like)
    entry.require_cache_dim("sim", like.dtype.name, shape[-1])
    return numpy.full(shape, numpy.nan, like.dtype.newbyteorder("="))


def require_host(name, like):
    """Refuses nothing: arrays are on the host."""


def int32(numbers, shape, like):
    return numpy.array(numbers, numpy.int32).reshape(shape)


def positions(lengths, count):
    """Those of the tokens that follow each request's keys: (B, count)."""
    return lengths.astype(numpy.int64)[:, None] + numpy.arange(count)


def pages_of(table, positions, page_size):
    """The page of each position, (B, N); without a table, the request. Positions after the last page have its page."""
    if table is None:
        return numpy.arange(len(positions))[:, None]
    return numpy.take_along_axis(table, numpy.minimum(positions // page_size, table.shape[1] - 1), 1)


def plan_of_decode(q, k_cache, v_cache, M, scale, causal, splits, writes):
    """The library and the plan; no plan without keys or queries. NotServed for caches that no stage reads, or that are
    to be written and cannot be."""
    for name, array in (("k_cache", k_cache), ("v_cache", v_cache)):
        if array.dtype != q.dtype.newbyteorder("="):
            raise NotServed(f"{name}.dtype = {array.dtype}: allowed: {q.dtype.newbyteorder('=')}, as q")
        if writes and not array.flags.writeable:
            raise NotServed(f"{name}.flags.writeable = False: allowed: True, with new keys")
    (B, Nq, H, d), (pages, page_size, Hkv, _) = q.shape, k_cache.shape
    steps = lambda x: tuple(step / x.itemsize if step % x.itemsize else step // x.itemsize for step in x.strides)
    of_k, of_v = ((x.shape, steps(x), x.ctypes.data) for x in (k_cache, v_cache))
    cache = max(page_size, 1), max(pages, 1), splits, entry.cache_strides(writes, k_cache=of_k, v_cache=of_v)
    sizes = max(B, 1), H, Hkv, max(Nq, 1), max(page_size * M, 1), d
    library, mask = library_with("21", "sim"), "causal" if causal else "none"
    plan = library.plan("forward", k_cache.dtype.name, sizes, scale, mask, cache=cache)
    return library, plan if B and Nq and page_size * M and pages else None


def decode(how, q, k_cache, v_cache, lengths, table, *options):
    """O and LSE. how: plan_of_decode()'s result; lengths: (B), int32; table: (B, M); options: for tensors."""
    library, plan = how
    Q = dense(q.swapaxes(1, 2))
    O, lse = dense(numpy.zeros_like(Q)), dense(numpy.full(Q.shape[:3], -math.inf, numpy.float32))
    if plan is not None:
        table = None if table is None else dense(table.astype(numpy.int32))
        arrays = [Q, k_cache, v_cache, O, lse, dense(lengths), table]
        library.run(plan, [0 if array is None else array.ctypes.data for array in arrays], keep=arrays)
    return O.swapaxes(1, 2).copy(), lse
