"""Every argument of the package's functions with values that are not meant: converted, or refused by name.

test_python.cpp runs it with WORKBOOK_LIBRARY; it ends with 1 at the first check that fails.
"""

import copy
import pickle

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import normal, refused

nan, inf = float("nan"), float("inf")
numbers = {
    "nan": nan, "inf": inf, "-inf": -inf, "negative": -3, "0-d": np.array(2), "array": np.array([2, 3]),
    "swapped": np.array(2, ">i4"), "huge": 2**70, "fraction": 2.5, "text": "2", "none": None,
}  # fmt: skip
# The values of the table that an argument accepts; it must refuse all others with its name.
accepts = {
    "scale": {"negative", "0-d", "swapped", "fraction", "huge", "none"},
    "causal": set(),
    "deterministic": set(),
    "return_lse": set(),
    "fallback": set(),
    "mask": {"none"},
    "lengths": {"none"},
    "sink": {"none"},
    "pad": set(),
}
accepts_flash = {
    "softmax_scale": accepts["scale"],
    "causal": set(),
    "deterministic": set(),
    "window_size": {"array", "negative", "0-d", "swapped", "huge", "none"},
    "softcap": {"0-d", "swapped", "fraction", "none"},
    "dropout_p": set(),
    "alibi_slopes": {"none"},
    "return_attn_probs": set(),
    "fallback": set(),
    "sink": {"none"},
    "pad": set(),
}
said_as = {"q": "query", "k": "key", "v": "value"}


class Learnable:
    """Stands for a tensor without axes that needs a gradient."""

    requires_grad, shape = True, ()

    def __float__(self):
        return 0.5


def table(function, accepted):
    for argument, allowed in accepted.items():
        for name, value in numbers.items():
            what = f"{function.__name__}({argument}={value!r})"
            try:
                function(**{argument: value})
            except workbook.NotServed as error:
                assert name not in allowed, f"{what} is refused: {error}"
                assert said_as.get(argument, argument) in str(error), f"{what}: {error}"
                assert "allowed" in str(error), f"{what}: {error}"
            else:
                assert name in allowed, f"{what} is accepted"


def table_of_tensors(function, tensors):
    """Every tensor in turn is replaced by a value that is not one, or by a tensor of another type or shape."""
    for argument, right in tensors.items():
        others = numbers | {
            "list": right.tolist(), "float64": right.astype(float), "object": right.astype(object),
            "complex": right.astype(complex), "true": right > 0, "no batch": right[0], "empty": right[:0],
            "masked": np.ma.masked_array(right, right > 0),
        }  # fmt: skip
        for name, value in others.items():
            if argument == "dlse" and value is None:
                continue
            what = f"{function.__name__}({argument} = {name})"
            try:
                function(**tensors | {argument: value})
            except workbook.NotServed as error:
                assert "allowed: " in str(error), f"{what}: {error}"
                names = argument, said_as.get(argument, argument), "as query", "dtype of query", "key.shape", "dtype ="
                assert any(each in str(error) for each in names), f"{what}: {error}"
            else:
                raise AssertionError(f"{what} is accepted")


def main():
    a = normal(1, 4, 64, 64)
    q = np.ascontiguousarray(a.swapaxes(1, 2))
    O, lse = workbook.attention(a, a, a, return_lse=True)

    def attention(**options):
        return workbook.attention(a, a, a, **options)

    def flash_attn_func(**options):
        return workbook.flash_attn_func(q, q, q, **options)

    table(attention, accepts)
    table(flash_attn_func, accepts_flash)
    table_of_tensors(workbook.attention, {"query": a, "key": a, "value": a})
    table_of_tensors(workbook.flash_attn_func, {"q": q, "k": q, "v": q})
    gradients = {"dO": a, "query": a, "key": a, "value": a, "O": O, "lse": lse, "dlse": lse}
    table_of_tensors(workbook.attention_gradients, gradients)
    table(lambda **options: workbook.attention_gradients(**gradients | options),
          {name: accepts[name] for name in ("scale", "causal", "deterministic", "mask", "lengths", "sink", "pad")})
    for name, function in (("scale", attention), ("softmax_scale", flash_attn_func), ("softcap", flash_attn_func)):
        said = f"{name} = a tensor with requires_grad"
        refused(workbook.NotServed, said, lambda: function(**{name: Learnable()}))
    for mask in ("", "causal\0+alibi", "caus\u00e4l", "\udc80", "causal\n", " causal"):
        refused(workbook.NotServed, "mask = ", lambda: attention(mask=mask))
    refused(workbook.NotServed, "sink[1] = inf: allowed: ", lambda: attention(sink=np.array([0, 1e300, 0, 0])))
    assert np.array_equal(attention(lengths=(x for x in (40, 24))), attention(lengths=(40, 24))), "a generator"
    refused(workbook.NotServed, "lengths = []: the lengths add up to 0", lambda: attention(lengths=[]))
    refused(workbook.NotServed, "H (heads) = 0: allowed: ", lambda: workbook.attention(*[a[:, :0]] * 3))
    packed = {"q": q[0], "k": q[0], "v": q[0], "cu_seqlens_q": [0, 64], "cu_seqlens_k": [0, 64]}
    table(lambda **options: workbook.flash_attn_varlen_func(**packed | options, max_seqlen_q=64, max_seqlen_k=64),
          {"cu_seqlens_q": set(), "cu_seqlens_k": set(), "block_table": {"none"}})  # fmt: skip
    library = workbook.library_for("sim")
    assert len(pickle.loads(pickle.dumps(library)).stages) == len(copy.deepcopy(library).stages) == len(library.stages)
    table(workbook.stages, {"backend": set()})
    table(workbook.synchronize, {"backend": set()})
    load = lambda path: refused(workbook.Unavailable, f"library {path}: ", lambda: workbook.load(path))
    table(load, {"path": {"text"}})
    other = np.linalg._umath_linalg.__file__  # no library of the book
    refused(workbook.Unavailable, "workbook_error", lambda: workbook.load(other))
    for element in numbers:  # within a sequence
        for given, call in (
            ("lengths", lambda x: attention(lengths=(62, x))),
            ("window_size", lambda x: flash_attn_func(window_size=(x, 0))),
            ("sink", lambda x: attention(sink=[0, 1, 2, x])),
        ):
            value = numbers[element]
            fine = {"lengths": {"0-d", "swapped"}, "window_size": {"0-d", "swapped", "huge", "negative", "none"},
                    "sink": {"negative", "0-d", "swapped", "fraction"}}[given]  # fmt: skip
            try:
                call(value)
            except workbook.NotServed as error:
                assert element not in fine, f"{given}: {value!r} is refused: {error}"
                assert given in str(error) and "allowed" in str(error), f"{given}: {value!r}: {error}"
            else:
                assert element in fine, f"{given}: {value!r} is accepted"
    print("numbers")

    # Arrays of the other byte order have the same values.
    swap = lambda x: x.astype(x.dtype.newbyteorder("S"))
    assert np.array_equal(workbook.attention(*[swap(a)] * 3), O)
    assert np.array_equal(workbook.attention(a, swap(a), a), O)
    assert np.array_equal(workbook.flash_attn_func(*[swap(q)] * 3).swapaxes(1, 2), O)
    one = workbook.attention(*[np.full((1, 1, 1, 64), x, ">f2") for x in (0, 0, 1)])
    assert (one == 1).all() and one.dtype.isnative
    right = workbook.attention_gradients(a, a, a, a, O, lse)
    got = workbook.attention_gradients(*[swap(x) for x in (a, a, a, a, O, lse)])
    assert all(np.allclose(x.astype(float), y.astype(float), atol=4e-3) for x, y in zip(got, right))
    sink = np.array([0.5, -1, 2, 0], np.float32)
    assert np.array_equal(attention(sink=sink), attention(sink=swap(sink)))
    print("refused")


main()
