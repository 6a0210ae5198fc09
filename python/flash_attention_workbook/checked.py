"""The checks of the arguments of the package's functions, at their entry. What needs the problem as a whole (sizes, the
mask's numbers, sinks) is checked by the library. Independent of numpy and PyTorch."""

import math
import operator

from .library import NotServed


def _refuse(name, value, allowed):
    text = repr(value)
    text = text if len(text) <= 100 else text[:99] + "…"
    raise NotServed(f"{name} = {text}: allowed: {allowed}") from None


def number(name, value, allowed="finite numbers"):
    """A finite number, also from an array or a tensor without axes."""
    if type(value) is not float:
        if getattr(value, "shape", ()) != () or isinstance(value, (str, bytes)):
            _refuse(name, value, allowed)
        try:
            value = float(value)
        except (TypeError, ValueError, OverflowError):
            _refuse(name, value, allowed)
    if not math.isfinite(value):
        raise NotServed(f"{name} = {value}: allowed: {allowed}")
    return value


def whole_number(name, value, allowed="whole numbers"):
    """An integer, also from an array or a tensor without axes. A float is not one, even if it has no fraction."""
    if type(value) is int:
        return value
    try:
        if getattr(value, "shape", ()) != ():
            raise TypeError
        return operator.index(value)
    except (TypeError, ValueError):
        return _refuse(name, value, allowed)


def flag(name, value):
    """True or False, also as 1 or 0 and as an array or a tensor without axes."""
    if value is True or value is False:
        return value
    if getattr(value, "shape", ()) != () or value is None or isinstance(value, (str, bytes)):
        _refuse(name, value, "True and False")
    try:
        if value == 0 or value == 1:
            return bool(value)
    except (TypeError, ValueError):
        pass
    return _refuse(name, value, "True and False")


def numbers(name, values, count=None, allowed="whole numbers"):
    """Integers, as many as `count` if it is given."""
    try:
        each = tuple(values)
    except TypeError:
        _refuse(name, values, f"a sequence of {allowed}")
    if isinstance(values, (str, bytes)) or (count is not None and len(each) != count):
        _refuse(name, values, f"{count or 'a sequence of'} {allowed}")
    return tuple(whole_number(f"{name}[{i}]", value, allowed) for i, value in enumerate(each))


def is_torch(array):
    return hasattr(array, "requires_grad")


def arrays(axes, **given):
    """Arrays or tensors with these axes, "(B, H, N, d)", and all of one kind. Their sizes and types are checked later."""
    first = None
    for name, array in given.items():
        count = getattr(array, "ndim", None)
        if count is None:
            _refuse(name, array, f"arrays and tensors, {axes}")
        if count != axes.count(",") + 1:
            raise NotServed(f"{name}.shape = {tuple(array.shape)}: allowed: {axes}")
        first = first or (name, is_torch(array))
        if is_torch(array) != first[1]:
            kinds = "an array", "a tensor"
            raise NotServed(f"{name} = {kinds[not first[1]]}: allowed: as {first[0]}, {kinds[first[1]]}")


def checked(causal, scale, deterministic, mask, lengths):
    """The options of attention() as Python's own types. NotServed, with the argument, its value and what is allowed."""
    if scale is not None:
        scale = number("scale", scale)
    if mask is not None and not isinstance(mask, str):
        _refuse("mask", mask, "None and a text such as 'causal'")
    if lengths is not None:
        lengths = numbers("lengths", lengths)
    return flag("causal", causal), scale, flag("deterministic", deterministic), mask, lengths
