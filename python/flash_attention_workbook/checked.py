"""The checks of the arguments of the package's functions, at their entry. What needs the problem as a whole (sizes, the
mask's numbers, sinks) is checked by the library. Independent of numpy and PyTorch."""

import operator

from .library import NotServed, library_with, refuse


_TOO_LARGE = float.fromhex("0x1.ffffffp127")  # the least number that becomes infinite as a float


def require_plain(name, value, allowed):
    """Refuses what numpy or Python would convert without a word: text, complex numbers, objects and masked arrays."""
    if type(value) not in (int, float, list, tuple) and not is_torch(value):
        kind = getattr(getattr(value, "dtype", None), "kind", "f")
        if isinstance(value, (str, bytes, bytearray, complex)) or kind in "OSUcMm" or hasattr(value, "mask"):
            refuse(name, value, allowed)


def _single(name, value, allowed):
    """The value itself, or the number in a tensor without axes, which the call reads on the host: torch.compile breaks
    its graph for it."""
    if getattr(value, "shape", ()) != ():
        refuse(name, value, allowed)
    if is_torch(value):
        _refuse_gradient(name, value)
        if not backend_of(value).is_compiling():
            value = backend_of(value).on_host(name, value, "a number on the host")
    require_plain(name, value, allowed)
    return value


def number(name, value, allowed="finite numbers that a float can hold"):
    """A finite number, also from an array or a tensor without axes, but not one that needs a gradient."""
    if type(value) is not float:
        given = value = value if type(value) is int else _single(name, value, allowed)
        try:
            value = float(value)
        except (TypeError, ValueError, OverflowError):
            value = None
        if value is None:
            refuse(name, given, allowed)
    if not -_TOO_LARGE < value < _TOO_LARGE:  # math.isfinite() would stop torch.compile where a number is a variable
        raise NotServed(f"{name} = {value}: allowed: {allowed}")
    return value


def scale_of_scores(name, value):
    """A factor of the scores; a number that is not 0 must not become 0 as a float."""
    value = number(name, value)
    if value != 0 and abs(value) <= 2.0**-150:
        raise NotServed(f"{name} = {value}: allowed: 0 and numbers that a float can hold")
    return value


def _refuse_gradient(name, value):
    """A gradient that no stage computes would be lost without a word."""
    if getattr(value, "requires_grad", False):
        raise NotServed(
            f"{name} = a tensor with requires_grad: no stage computes its gradient; allowed: {name}.detach()"
        )


def whole_number(name, value, allowed="whole numbers"):
    """An integer, also from an array or a tensor without axes. A float is not one, even if it has no fraction."""
    if type(value) is int:
        return value
    whole = None
    if getattr(getattr(value, "dtype", None), "kind", "i") != "b" and value is not None:
        value = _single(name, value, allowed)
        if not isinstance(value, float):
            try:
                whole = operator.index(value)
            except (TypeError, ValueError):
                pass
    return refuse(name, value, allowed) if whole is None else whole


def flag(name, value):
    """True or False, also as 1 or 0 and as an array or a tensor without axes."""
    if value is True or value is False:
        return value
    value = _single(name, value, "True and False")
    try:
        if value == 0 or value == 1:
            return bool(value)
    except (TypeError, ValueError):
        pass
    return refuse(name, value, "True and False")


def _elements(name, values, allowed):
    """Those of a sequence, as a tuple. Sets have no order, and dicts another meaning."""
    require_plain(name, values, allowed)
    if is_torch(values):
        values = backend_of(values).on_host(name, values, allowed + " on the host")
    each = None
    if values is not None and not isinstance(values, (int, float, set, frozenset, dict)):
        try:
            each = tuple(values)
        except TypeError:
            pass
    return refuse(name, values, allowed) if each is None else each


def numbers(name, values):
    """Integers, as a tuple."""
    each = _elements(name, values, "a sequence of whole numbers")
    return tuple(whole_number(f"{name}[{i}]", value) for i, value in enumerate(each))


def window(name, value):
    """The two sides of a window; -1: no end. None and negative numbers mean no end; one number is both sides."""
    allowed = "2 whole numbers, or one for both sides; None and negative numbers mean no end"
    if value is None or type(value) is int or getattr(value, "shape", None) == ():
        value = value, value
    sides = _elements(name, value, allowed)
    if len(sides) != 2:
        refuse(name, value, allowed)
    sides = [-1 if x is None else whole_number(f"{name}[{i}]", x, allowed) for i, x in enumerate(sides)]
    return max(sides[0], -1), max(sides[1], -1)


def is_sequence(x):
    return not isinstance(x, int) and hasattr(x, "__len__") and getattr(x, "shape", None) != ()


def lengths_of(value):
    """The lengths of packed sequences: of Q, and of K or None if they are the same. value: lengths, or two sequences of
    lengths."""
    pair = _elements("lengths", value, "a sequence of whole numbers, or two sequences")
    if len(pair) != 2 or not all(is_sequence(x) for x in pair):
        return _lengths("lengths", pair), None
    of_queries, of_keys = _lengths("lengths[0]", pair[0]), _lengths("lengths[1]", pair[1])
    if len(of_queries) != len(of_keys):
        raise NotServed(f"lengths = {len(of_queries)} for Q, {len(of_keys)} for K: allowed: equally many")
    return of_queries, None if of_queries == of_keys else of_keys


def lengths_between(pair):
    """lengths_of() the lengths between cu_seqlens_q and between cu_seqlens_k."""
    if len(pair[0]) != len(pair[1]):
        raise NotServed(f"len(cu_seqlens_q) = {len(pair[0]) + 1}, len(cu_seqlens_k) = {len(pair[1]) + 1}: allowed: "
                        "the same length")  # fmt: skip
    return lengths_of(pair)


def _lengths(name, values):
    lengths = numbers(name, values)
    for i, length in enumerate(lengths):
        if length < 0:
            raise NotServed(f"{name}[{i}] = {length}: allowed: whole numbers from 0 on")
    return lengths


def add_up(lengths, Nq, Nk):
    """NotServed unless the lengths of lengths_of() add up to the numbers of queries and keys."""
    for each, allowed in zip(lengths, ((Nq, Nk) if lengths[1] is None else (Nq,), (Nk,))):
        if each is not None and any(sum(each) != rows for rows in allowed):
            text = ",".join(map(str, each)) or "[]"
            raise NotServed(f"lengths = {text}: the lengths add up to {sum(each)}, with Nq = {Nq}, Nk = {Nk}: allowed: "
                            f"lengths that add up to {'both' if lengths[1] is None else allowed[0]}")  # fmt: skip


def starts(name, values, rows):
    """The lengths between FlashAttention's cu_seqlens, of tensors with this number of rows."""
    given = numbers(name, values)
    if not given or given[0] != 0 or any(a > b for a, b in zip(given, given[1:])):
        refuse(name, list(given), "whole numbers in ascending order, the first of which is 0")
    if given[-1] != rows:
        raise NotServed(f"{name}[{len(given) - 1}] = {given[-1]}: allowed: {rows}, the number of rows")
    return tuple(b - a for a, b in zip(given, given[1:]))


def slopes(H):
    """The usual slopes of ALiBi: 2^(-8(h + 1)/H) if H is a power of two; otherwise those of the next lower power of
    two, then every second one of twice as many. Source: Press et al. 2021 (ALiBi), get_slopes() in its code."""
    power = 1 << (H.bit_length() - 1)
    regular = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    return regular if power == H else regular + slopes(2 * power)[::2][: H - power]


def require_usual_slopes(given, B, H, fallback):
    """NotServed for alibi_slopes, (H) or (B, H), that are not slopes(H), or whose H no stage supports. B = None: any.
    Waits for the device."""
    if H & (H - 1) and not fallback:
        raise NotServed(f"H (heads) = {H} with alibi: allowed: powers of two")
    allowed = f"the usual slopes, ({H},) or ({'B' if B is None else B}, {H})"
    require_plain("alibi_slopes", given, allowed)
    _refuse_gradient("alibi_slopes", given)
    if is_torch(given):
        rows = backend_of(given).on_host("alibi_slopes", given, "a list of numbers")
    else:
        rows = given.tolist() if hasattr(given, "tolist") else given
    is_list = lambda x: isinstance(x, (list, tuple))
    nested = is_list(rows) and any(map(is_list, rows))
    rows = rows if nested else [rows]
    if not all(is_list(row) and len(row) == H for row in rows) or (nested and B is not None and len(rows) != B):
        refuse("alibi_slopes", given, allowed)
    for row in rows:
        for h, (slope, usual) in enumerate(zip(row, slopes(H))):
            if not abs(number(f"alibi_slopes[{h}]", slope) - usual) <= 1e-5 * usual:
                raise NotServed(f"alibi_slopes[{h}] = {slope}: allowed: {usual:.6g}, the usual slope")


def cache_strides(writes, **caches):
    """Those of page, head, key and element of both caches, in elements; 0 along axes of one element. caches: the sizes,
    the strides in elements, and the address of each. NotServed for what no stage reads, or new keys cannot be stored
    in."""
    each = [[step if size > 1 else 0 for size, step in zip(*of[:2])] for of in caches.values()]
    for (name, (sizes, given, address)), strides in zip(caches.items(), each):
        if strides != each[0]:
            refuse(f"{name}.strides", given, f"k_cache's, {next(iter(caches.values()))[1]}")
        if any(step < 0 or step % 8 != 0 for step in strides[:3]) or (strides[3] != 1 and sizes[3] > 1):
            refuse(f"{name}.strides", given, "multiples of 8 elements from 0 on, and then 1")
        if writes and any(step == 0 and size > 1 for step, size in zip(strides, sizes)):
            refuse(f"{name}.strides", given, "with new keys, no 0")
        if address % 16 != 0:
            refuse(f"{name}'s address", address, "multiples of 16")
    page, key, head, element = each[0]
    return page, head, key, element


def padded_head_dim(dims, d):
    """The first of the head dimensions `dims` from d on; d if there is none."""
    for dim in dims:
        if dim >= d:
            return dim
    return d


def require_cache_dim(backend, element, d):
    dims = library_with("21", backend).head_dims(("forward",), element, ("cache",))
    if dims and d not in dims:
        raise NotServed(f"d = {d}: allowed: {', '.join(map(str, dims))}, of the stages that read a cache")


def is_torch(array):
    return hasattr(array, "requires_grad")


def backend_of(array):
    """The module that computes with arrays, or with tensors."""
    if is_torch(array):
        from . import torch_operators as module
    else:
        from . import numpy_arrays as module
    return module


def arrays(axes, **given):
    """Requires arrays or tensors with these axes, "(B, H, N, d)", all of one kind and on one device; types are checked
    later."""
    first = None
    for name, array in given.items():
        count = getattr(array, "ndim", None)
        if count is None:
            refuse(name, array, f"arrays and tensors, {axes}")
        if count != axes.count(",") + 1:
            raise NotServed(f"{name}.shape = {tuple(array.shape)}: allowed: {axes}")
        of_torch = is_torch(array)
        if of_torch and (array.is_sparse or array.is_sparse_csr or array.is_nested):
            raise NotServed(f"{name} = a sparse or nested tensor: allowed: dense tensors")
        if not of_torch:
            require_plain(name, array, "arrays of real numbers, without a mask")
        first = first or (name, of_torch, array)
        if of_torch != first[1]:
            kinds = "an array", "a tensor"
            raise NotServed(f"{name} = {kinds[not first[1]]}: allowed: as {first[0]}, {kinds[first[1]]}")
        if of_torch and array.device != first[2].device:
            raise NotServed(f"{name}.device = {array.device}: allowed: {first[2].device}, as {first[0]}")


def checked(causal, scale, deterministic, mask, lengths):
    """The options of attention() as Python's own types. NotServed, with the argument, its value and what is allowed."""
    if scale is not None:
        scale = scale_of_scores("scale", scale)
    if mask is not None and not (isinstance(mask, str) and mask.isascii() and mask.isprintable()):
        refuse("mask", mask, "None and a text such as 'causal'")
    if lengths is not None:
        lengths = lengths_of(lengths)
        if mask is not None and ("lengths=" in mask or "documents=" in mask):
            refuse("lengths", lengths[0], "only one of the two", f"with mask = {mask} ")
    return flag("causal", causal), scale, flag("deterministic", deterministic), mask, lengths
