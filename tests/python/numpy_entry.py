"""Every argument of the package's functions with values that are not meant: converted, or refused by name and value.

test_python.cpp runs it with WORKBOOK_LIBRARY, a library of chapters 15 and 16, and with one of chapter 21 as its
argument; it ends with 1 at the first check that fails.
"""

import copy
import importlib.util
import inspect
import os
import pathlib
import pickle
import resource
import sys
import tempfile
import warnings

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import normal, refused

NotServed = workbook.NotServed
nan, inf = float("nan"), float("inf")
values = {
    "nan": nan, "inf": inf, "-inf": -inf, "negative": -3, "fraction": 2.5, "none": None, "0-d": np.array(2),
    "1-d": np.array([2, 3]), "2-d": np.array([[2, 3], [4, 5]]), "swapped": np.array(2, ">i4"), "text": "2",
    "bytes": bytearray(b"\2\0"), "array of text": np.array("2"), "object": np.array(None), "object 2": np.array(2, object),
    "objects": np.array([2, None], object), "ragged": [[2], [3, 4]], "complex": np.complex64(2 + 3j),
    "complexes": np.array([2j, 3]), "masked": np.ma.masked_array(2, True), "masked array": np.ma.masked_array([2, 3], [0, 1]),
    "set": {4, 0}, "dict": {4: 1, 0: 1}, "2**31": 2**31 + 1, "2**32": 2**32 + 1, "2**70": 2**70,
}  # fmt: skip
large = {"2**31", "2**32", "2**70"}
real, flags = {"negative", "fraction", "none", "0-d", "swapped"} | large, set()
window = {"negative", "none", "0-d", "1-d", "swapped"} | large
# The values of the table that an argument accepts: with the results of the same Python numbers. All others it refuses.
accepts = {
    "scale": real, "softmax_scale": real, "softcap": {"fraction", "none", "0-d", "swapped"}, "window_size": window,
    "dropout_p": set(), "mask": {"none"}, "lengths": {"none"}, "block_table": {"none"}, "dlse": {"none", "byte order"},
    "alibi_slopes": {"none", "list", "float64", "byte order"}, "sink": {"none", "list", "float64", "byte order"},
    **dict.fromkeys(("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k"), {"list", "byte order"}),
    "max_seqlen": set(values), "max_seqlen_q": set(values), "max_seqlen_k": set(values),
}  # fmt: skip
tensors = {"q", "k", "v", "qkv", "kv", "query", "key", "value", "dO", "O", "lse"}
accepts |= {name: {"byte order"} for name in tensors}
integers = {"0-d", "swapped", "list", "byte order", "an axis less"}
accepts_with_cache = accepts | {
    "k_cache": set(), "v_cache": set(), "cache_seqlens": integers, "cache_batch_idx": integers | {"none"},
    "block_table": {"list", "byte order"}, "cache_leftpad": {"none"}, "alibi_slopes": {"none"}, "softcap": {"none"},
    "window_size": {"negative", "none"}, "num_splits": {"0-d", "swapped"}, "rotary_cos": {"float64", "byte order"},
    "rotary_sin": {"float64", "byte order"},
}  # fmt: skip
said_as = {"q": "query", "k": "key", "v": "value"}


class Learnable:
    """Stands for a tensor without axes that needs a gradient."""

    requires_grad, shape = True, ()

    def __float__(self):
        return 0.5


def swap(x):
    return x.astype(x.dtype.newbyteorder("S"))


def variants(right):
    """The right array as one of another type or shape."""
    return {
        "list": right.tolist(), "float64": right.astype(float) if right.dtype.kind == "f" else right + 0.5,
        "objects": right.astype(object), "complex": right.astype(complex), "bool": right > 0, "an axis less": right[0],
        "empty": right[:0], "masked": np.ma.masked_array(right, right > 0), "text": right.astype(str),
        "byte order": swap(right),
    }  # fmt: skip


def plain(argument, value):
    """What an accepted value stands for."""
    if "max_seqlen" in argument:  # is not used
        return 64
    if argument == "window_size" and (value is None or type(value) is int and not 0 <= value < 1000):
        return None
    if isinstance(value, np.ndarray):
        return value.astype(value.dtype.newbyteorder("=")) if value.ndim > 1 else value.tolist()
    return value


def names(text, argument, value):
    """Whether a message names the argument, or the one that it differs from, and the value, its type or its shape."""
    is_sequence = lambda x: hasattr(x, "__len__") and not isinstance(x, str) and getattr(x, "shape", None) != ()
    each = [value, *value] if is_sequence(value) else [value]
    texts = [" ".join(repr(x).split())[:99] for x in each] + [str(x) for x in each[:3]]
    texts += [str(value.shape), str(value.dtype)] if isinstance(value, np.ndarray) else []
    texts += [f"{float(value):g}", str(float(value))] if type(value) is int else []
    texts += [",".join(map(str, x)) for x in each if is_sequence(x)]
    called = argument, said_as.get(argument, argument), "as q", "dtype of query", "key.shape", "dtype ="
    return "allowed: " in text and any(x in text for x in called) and any(x in text for x in texts)


def same(results, others):
    results, others = ([x] if isinstance(x, np.ndarray) else x for x in (results, others))
    return all(x is y is None or np.array_equal(x, y, equal_nan=True) for x, y in zip(results, others, strict=True))


def table(function, given, accepts, caches=()):
    """Every argument in turn is replaced by each of the values. Refused calls leave the caches as they were."""
    before, known = [cache.copy() for cache in caches], {}

    def call(options):
        for cache, old in zip(caches, before):
            cache[...] = old
        return function(**given | options), [cache.copy() for cache in caches]

    for argument in inspect.signature(function).parameters:
        right = given.get(argument)
        for name, value in (values | (variants(right) if isinstance(right, np.ndarray) else {})).items():
            what, allowed = f"{function.__name__}({argument} = {name})", accepts.get(argument, flags)
            try:
                got = call({argument: value})
            except NotServed as error:
                assert name not in allowed, f"{what} is refused: {error}"
                named = names(str(error), argument, value) or name in ("empty", "none") and "allowed: " in str(error)
                assert named, f"{what}: {error}"
                assert same(caches, before), f"{what} changes a cache: {error}"
            else:
                assert name in allowed, f"{what} is accepted"
                simple = value if name in ("empty", "an axis less") else plain(argument, value)
                simple = right if name in ("list", "byte order") else simple
                which = argument, repr(simple)
                if which not in known:
                    known[which] = call({argument: simple})
                close = name == "float64" or argument in ("dO", "O", "lse", "dlse")
                assert close or all(map(same, got, known[which])), what
    call({})


def main():
    warnings.simplefilter("error")
    a, sink = normal(1, 4, 64, 64), np.array([0.5, -1, 2, 0], np.float32)
    q = np.ascontiguousarray(a.swapaxes(1, 2))
    O, lse = workbook.attention(a, a, a, return_lse=True, sink=sink)
    every = {"query": a, "key": a, "value": a, "sink": sink}
    slopes = np.array([2.0 ** (-2 * h) for h in range(1, 5)], np.float32)
    options = {"sink": sink, "alibi_slopes": slopes}
    ends = np.array([0, 64])
    starts = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 64, "max_seqlen_k": 64}
    qkv, kv = np.stack([q, q, q], 2), np.stack([q, q], 2)
    for function, given in (
        (workbook.attention, every),
        (workbook.attention_gradients, every | {"dO": a, "O": O, "lse": lse, "dlse": lse}),
        (workbook.flash_attn_func, {"q": q, "k": q, "v": q}),
        (workbook.flash_attn_kvpacked_func, {"q": q, "kv": kv}),
        (workbook.flash_attn_varlen_func, {"q": q[0], "k": q[0], "v": q[0], **starts}),
        (workbook.flash_attn_varlen_qkvpacked_func, {"qkv": qkv[0], "cu_seqlens": ends, "max_seqlen": 64}),
        (workbook.flash_attn_varlen_kvpacked_func, {"q": q[0], "kv": kv[0], **starts}),
    ):  # fmt: skip
        table(function, given if "query" in given else given | options, accepts)
    table(workbook.flash_attn_qkvpacked_func, {"qkv": qkv} | options, accepts | {"qkv": {"byte order", "empty"}})

    def attention(**options):
        return workbook.attention(a, a, a, **options)

    def flash_attn_func(**options):
        return workbook.flash_attn_func(q, q, q, **options)

    for name, function in (("scale", attention), ("softmax_scale", flash_attn_func), ("softcap", flash_attn_func)):
        said = f"{name} = a tensor with requires_grad"
        refused(workbook.NotServed, said, lambda: function(**{name: Learnable()}))
    for mask in ("", "causal\0+alibi", "caus\u00e4l", "\udc80", "causal\n", " causal"):
        refused(workbook.NotServed, "mask = ", lambda: attention(mask=mask))
    for x in ("1e+39", "1e+300", "-inf", "nan"):
        refused(workbook.NotServed, f"sink[1] = {x}: allowed: finite numbers that a float can hold",
                lambda: attention(sink=np.array([0, float(x), 0, 0])))  # fmt: skip
    assert np.array_equal(attention(lengths=(x for x in (40, 24))), attention(lengths=(40, 24))), "a generator"
    refused(workbook.NotServed, "lengths = []: the lengths add up to 0", lambda: attention(lengths=[]))
    refused(workbook.NotServed, "H (heads) = 0: allowed: ", lambda: workbook.attention(*[a[:, :0]] * 3))
    library = workbook.library_for("sim")
    assert len(pickle.loads(pickle.dumps(library)).stages) == len(copy.deepcopy(library).stages) == len(library.stages)
    for function in (workbook.stages, workbook.synchronize, workbook.library_for):
        table(function, {"backend": "sim"}, {})
    loading()
    for function in (workbook.register, workbook.activate):
        if importlib.util.find_spec("torch") is None:
            refused(workbook.Unavailable, "register() and activate() need PyTorch", function)
    for element, value in values.items():  # within a sequence
        for argument, call, fine in (
            ("lengths", lambda x: attention(lengths=(62, x)), {"0-d", "swapped"}),
            ("window_size", lambda x: flash_attn_func(window_size=(x, 0)), window - {"1-d"}),
            ("sink", lambda x: attention(sink=[0, 1, 2, x]), real - {"none", "2**70"}),
            ("alibi_slopes", lambda x: flash_attn_func(alibi_slopes=[0.25, 0.0625, 0.015625, x]), set()),
            ("cu_seqlens_q", lambda x: workbook.flash_attn_varlen_func(*[q[0]] * 3, [0, x, 64], [0, 2, 64], 64, 64),
             {"0-d", "swapped"}),
        ):  # fmt: skip
            try:
                call(value)
            except NotServed as error:
                assert element not in fine, f"{argument}: {value!r} is refused: {error}"
                assert argument in str(error) and "allowed: " in str(error), f"{argument}: {value!r}: {error}"
            else:
                assert element in fine, f"{argument}: {value!r} is accepted"
    for given in (slopes.tolist(), slopes[None], [slopes.tolist()], tuple(slopes)):
        assert same(flash_attn_func(alibi_slopes=given), flash_attn_func(alibi_slopes=slopes)), given
    for shape in ((1, 1, 4), (0, 4), (3, 4)):
        refused(NotServed, "allowed: the usual slopes, (4,) or (1, 4)",
                lambda: flash_attn_func(alibi_slopes=np.broadcast_to(slopes, shape)))  # fmt: skip
    refused(NotServed, "lengths = (32, 32): with mask = causal+lengths=40,24 allowed: only one of the two",
            lambda: attention(mask="causal+lengths=40,24", lengths=(32, 32)))  # fmt: skip
    refused(NotServed, "mask = causal+softcap=5+softcap=6: softcap is given twice; allowed: once",
            lambda: attention(mask="causal+softcap=5+softcap=6"))  # fmt: skip
    print("numbers")

    # Arrays of the other byte order have the same values.
    O, lse = workbook.attention(a, a, a, return_lse=True)
    assert same(workbook.attention(*[swap(a)] * 3), O)
    assert same(workbook.flash_attn_func(*[swap(q)] * 3), O.swapaxes(1, 2))
    one = workbook.attention(*[np.full((1, 1, 1, 64), x, ">f2") for x in (0, 0, 1)])
    assert (one == 1).all() and one.dtype.isnative
    right = workbook.attention_gradients(a, a, a, a, O, lse)
    got = workbook.attention_gradients(*[swap(x) for x in (a, a, a, a, O, lse)])
    assert all(np.allclose(x.astype(float), y.astype(float), atol=4e-3) for x, y in zip(got, right))
    print("byte order")
    with_cache()
    print("refused")


def loading():
    """load() of what is no library."""
    for name, value in values.items():
        if name != "text":
            refused(NotServed, f"path = {' '.join(repr(value).split())[:99]}", lambda: workbook.load(value))
    path = lambda name: os.path.join(folder, name)
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(path("fifo"))
        whole = pathlib.Path(os.environ["WORKBOOK_LIBRARY"]).read_bytes()
        for size in (0, 3, 63, 64, 4096, 300000, 1000000, len(whole) - 1):
            pathlib.Path(path(f"{size}.so")).write_bytes(whole[:size])
        other = np.linalg._umath_linalg.__file__  # no library of the book
        ends = f"the file ends after 4096 of {len(whole)} bytes"
        for given, said in (("/nowhere", "No such file"), (folder, "not a regular file"), (path("fifo"), "regular"),
                            (path("0.so"), "too short"), (path("3.so"), ""), (path("63.so"), ""), (path("64.so"), ""),
                            (path("4096.so"), ends), (path("300000.so"), "the file ends"), (b"\0", "null"),
                            (path("1000000.so"), "the file ends"), (path(f"{len(whole) - 1}.so"), "the file ends"),
                            (other, "workbook_error; allowed: libraries of ./workbook library")):  # fmt: skip
            refused(workbook.Unavailable, f"library {given}: ", lambda: workbook.load(given))
            refused(workbook.Unavailable, said, lambda: workbook.load(given))
        pathlib.Path(path("new.so")).write_bytes(whole)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # of the copy
        refused(workbook.Unavailable, f"library {path('new.so')}: [Errno 27] File too large",
                lambda: workbook.load(path("new.so")))  # fmt: skip
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def with_cache():
    """flash_attn_with_kvcache(), with a library of chapter 21, in rows of a cache and in pages."""
    workbook.load(sys.argv[1])
    B, H, Hkv, Nk, d = 3, 8, 2, 70, 64
    q, new = normal(B, 1, H, d), normal(B, 1, Hkv, d, seed=2)
    k_cache, v_cache = normal(B, Nk, Hkv, d, seed=3), normal(B, Nk, Hkv, d, seed=4)
    angles = np.arange(Nk * 16).reshape(Nk, 16) / 7
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": new, "v": new[::-1].copy()}
    given |= {"rotary_cos": np.cos(angles), "rotary_sin": np.sin(angles), "cache_seqlens": np.array([5, 69, 0])}
    rows = given | {"cache_batch_idx": np.array([2, 0, 1], np.int32)}
    pools = [np.concatenate([x, x])[:, :16].copy() for x in (k_cache, v_cache)]
    pages = given | {"k_cache": pools[0], "v_cache": pools[1], "cache_seqlens": np.array([5, 31, 0])}
    pages |= {"block_table": np.array([[1, 0], [3, 2], [5, 4]])}
    call = lambda given: workbook.flash_attn_with_kvcache(**given, return_softmax_lse=True)

    def flash_attn_with_kvcache(**options):
        return workbook.flash_attn_with_kvcache(**options)

    flash_attn_with_kvcache.__signature__ = inspect.signature(workbook.flash_attn_with_kvcache)
    table(flash_attn_with_kvcache, rows, accepts_with_cache | {"block_table": {"none"}}, (k_cache, v_cache))
    table(flash_attn_with_kvcache, pages, accepts_with_cache | {"cache_batch_idx": {"none"}}, pools)

    def refuse(said, of=rows, **changed):
        caches = [x.copy() for x in (of["k_cache"], of["v_cache"])]
        refused(NotServed, said, lambda: call(of | changed))
        assert same(caches, [of["k_cache"], of["v_cache"]]), said

    for name, right in (("cache_seqlens", [5, 69, 0]), ("cache_batch_idx", [2, 0, 1])):
        for wrong in (-3, 2**31 + 1, 2**32, 2**32 + 5, 2**63, 2**64 - 1):
            given = np.array([right[0], wrong, right[2]], np.uint64 if wrong > 0 else int)
            refuse(f"{name}[1] = {wrong}: allowed: 0 to ", **{name: given})
        refuse(f"{name} = [2, {2**70}, 0]: (3,), object; allowed: (3), whole numbers", **{name: [2, 2**70, 0]})
    refuse(f"block_table[1, 1] = {2**32}: allowed: 0 to 5", pages, block_table=np.array([[0, 1], [2, 2**32], [4, 5]]))
    for wrong in (-3, np.array(2), np.array(2, ">i4"), [[1, 2], [3], [4, 5]], {4, 0}):
        refuse("block_table = ", pages, block_table=wrong)
    refuse("k.shape = (3, 1, 2, 64): allowed: 0 to 0 new keys", pages, block_table=np.zeros((3, 0), int))
    for splits in (7, -1, 2**31, 2**32 + 3, 2**32 + 7, 2**40, 2**70):
        refuse(f"num_splits = {splits}: allowed: 0, 1, 2, 3, 8 and 128", num_splits=splits)
    refuse("q.dtype = float32: allowed: float16 and bfloat16", q=q.astype(np.float32))
    refuse("Hkv (K/V heads) = 2", q=normal(B, 1, 5, d))
    refuse("softmax_scale = 1e+39: allowed: finite numbers that a float can hold", softmax_scale=1e39)
    read_only = [x.copy() for x in (k_cache, v_cache)]
    for name, x in zip(("k_cache", "v_cache"), read_only):
        x.flags.writeable = False
        refuse(f"{name}.flags.writeable = False: allowed: True", **{name: x})
    every = np.lib.stride_tricks.as_strided(np.zeros_like(k_cache[0]), k_cache.shape, (0, *k_cache.strides[1:]))
    refuse("k_cache.strides = (0, 128, 64, 1): allowed: with new keys, no 0", k_cache=every, v_cache=every)
    shifted = np.zeros(k_cache.size + 4, np.float16)[4:].reshape(k_cache.shape)
    refuse("k_cache's address = ", k_cache=shifted)
    refuse("cache_seqlens[1] = 69: allowed: 0 to 68", q=normal(B, 2, H, d), causal=True)  # q at positions 69 and 70
    for interleaved in ("2", nan):
        refuse("rotary_interleaved = ", {name: rows[name] for name in ("q", "k_cache", "v_cache")},
               rotary_interleaved=interleaved)  # fmt: skip
    for k_pool, v_pool in ([x[:0] for x in pools], [x[:, :0] for x in pools]):  # no pages, and pages without keys
        of = pages | {"k_cache": k_pool, "v_cache": v_pool}
        refuse("k.shape = (3, 1, 2, 64): allowed: 0 to 0 new keys", of)
        without = {"q": q, "k_cache": k_pool, "v_cache": v_pool, "block_table": pages["block_table"]}
        refuse("cache_seqlens[0] = 5: allowed: 0 to 0", without, cache_seqlens=5)
        assert not call(without | {"cache_seqlens": 0})[0].any()
    swapped = {name: swap(rows[name]) for name in ("q", "k_cache", "v_cache")}
    refuse("k_cache.dtype = >f2: allowed: float16, as q", **swapped)


main()
