"""flash_attn's functions on numpy arrays, windows and lengths as people write them, padding, tensors without rows, and
the gradient of the LSE: against attention(), which the other scripts compare with float64, and against float64.

test_python.cpp runs it with WORKBOOK_LIBRARY, a library of chapters 15 and 16, and with one of chapters 8 and 9 as its
argument; it ends with 1 at the first check that fails.
"""

import sys
from types import SimpleNamespace

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import close, normal, refused
from numpy_masks import attention as exact_attention

NotServed = workbook.NotServed
attention, gradients_of = workbook.attention, workbook.attention_gradients
far = 1000


def equal(got, expected, what):
    assert got.shape == expected.shape, f"{what}: {got.shape}, expected {expected.shape}"
    assert np.array_equal(got, expected), what


def layouts(q, k, v):
    """The packed forms, and batches that are packed sequences of one length."""
    B, N, H, d = q.shape
    expected, lse, _ = workbook.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert lse.shape == (B, H, N)
    qkv, kv = np.stack([q, k, v], 2), np.stack([k, v], 2)
    equal(workbook.flash_attn_qkvpacked_func(qkv, causal=True), expected, "qkvpacked")
    equal(workbook.flash_attn_kvpacked_func(q, kv, causal=True), expected, "kvpacked")
    flat = lambda x: x.reshape(B * N, *x.shape[2:])
    starts = np.arange(B + 1) * N
    rows = flat(expected)
    given = starts, starts, N, N
    out, packed_lse, probs = workbook.flash_attn_varlen_func(
        *map(flat, (q, k, v)), *given, causal=True, return_attn_probs=True
    )
    assert probs is None
    assert expected.flags.c_contiguous and out.flags.c_contiguous, "O is not contiguous"
    equal(out, rows, "varlen")
    equal(packed_lse, lse.swapaxes(0, 1).reshape(H, B * N), "the LSE of varlen")
    equal(workbook.flash_attn_varlen_qkvpacked_func(flat(qkv), starts, N, causal=True), rows, "varlen qkvpacked")
    equal(workbook.flash_attn_varlen_kvpacked_func(flat(q), flat(kv), *given, causal=True), rows, "varlen kvpacked")
    refused(NotServed, "qkv.shape = (2, 40, 2, 4, 64): allowed: (B, N, 3, H, d)",
            lambda: workbook.flash_attn_qkvpacked_func(qkv[:, :, :2]))  # fmt: skip
    refused(NotServed, "allowed: (T, H, d)", lambda: workbook.flash_attn_varlen_func(q, k, v, *given))
    short, single = k[:, :-1], q.astype(np.float32)
    for said, function, arguments in (
        (f"v.shape = {v.shape}: allowed: {short.shape}", workbook.flash_attn_func, (q, short, v)),
        (f"k.shape = {k[:1].shape}: allowed: {k.shape}", workbook.flash_attn_func, (q, k[:1], v[:1])),
        (f"kv.shape = {kv[:1].shape}: allowed: {kv.shape}", workbook.flash_attn_kvpacked_func, (q, kv[:1])),
        ("q.dtype = float32: allowed: float16 and bfloat16", workbook.flash_attn_func, (single, k, v)),
        ("k.dtype = float32: allowed: float16, the dtype of q", workbook.flash_attn_func, (q, single, v)),
        ("kv.dtype = float32: allowed: float16, the dtype of q", workbook.flash_attn_kvpacked_func,
         (q, kv.astype(np.float32))),
        ("query.dtype = float32: allowed: float16 and bfloat16", attention, (single, k, v)),
        ("len(cu_seqlens_q) = 3, len(cu_seqlens_k) = 2: allowed: the same length", workbook.flash_attn_varlen_func,
         (*map(flat, (q, k, v)), starts, [0, B * N], N, N)),
        (f"v.shape = {flat(v)[1:].shape}: allowed: {flat(k).shape}", workbook.flash_attn_varlen_func,
         (flat(q), flat(k), flat(v)[1:], *given)),
    ):  # fmt: skip
        refused(NotServed, said, lambda: function(*arguments))
    call = lambda starts, **options: lambda: workbook.flash_attn_varlen_func(
        *map(flat, (q, k, v)), starts, starts, N, N, **options
    )
    refused(NotServed, "block_table", call(starts, block_table=0))
    for wrong, said in (
        ([0, 40], "cu_seqlens_q[1] = 40: allowed: 80, the number of rows"),
        ([1, 40, 80], "cu_seqlens_q = [1, 40, 80]: allowed: whole numbers in ascending order, the first of which is 0"),
        ([0, 50, 40, 80], "cu_seqlens_q = [0, 50, 40, 80]: allowed"),
        ([0, 40.0, 80], "cu_seqlens_q[1] = 40.0: allowed: whole numbers"),
    ):
        refused(NotServed, said, call(wrong))
    print("layouts")


def options(q, k, v, a):
    """Windows, softcaps and slopes as people write them."""
    func = workbook.flash_attn_func
    everything, causal = func(q, k, v), func(q, k, v, causal=True)
    for window in (None, (-1, -1), (None, None), -1, (-7, -2), [None, -1], np.array([-1, -1])):
        equal(func(q, k, v, window_size=window), everything, f"window {window}")
        equal(func(q, k, v, causal=True, window_size=window), causal, f"causal, window {window}")
    equal(func(q, k, v, window_size=7), func(q, k, v, window_size=(7, 7)), "one number")
    equal(func(q, k, v, causal=True, window_size=7), func(q, k, v, window_size=(7, 0)), "one number, causal")
    equal(func(q, k, v, window_size=(None, 3)), func(q, k, v, window_size=(far, 3)), "no end on the left")
    equal(func(q, k, v, softcap=None), everything, "softcap = None")
    for window in (4.0, (4.0, 0), (4, float("nan")), "4", (1, 2, 3)):
        refused(NotServed, "window_size", lambda: func(q, k, v, window_size=window))
    for mask in ("softcap=2", "alibi", "softcap=2+alibi"):
        equal(attention(a, a, a, mask=mask), attention(a, a, a, mask=f"none+{mask}"), mask)
    refused(NotServed, "softcap: allowed: one of none, causal", lambda: attention(a, a, a, mask="softcap"))

    usual = np.array([2.0 ** (-8 * h / 4) for h in range(1, 5)], np.float32)
    right = attention(a, a, a, mask="causal+alibi")
    given = a.swapaxes(1, 2)
    for slopes in (usual, np.broadcast_to(usual, (1, 4))):
        equal(func(given, given, given, causal=True, alibi_slopes=slopes).swapaxes(1, 2), right, "alibi_slopes")
    refused(NotServed, "alibi_slopes[2] = 0.03125: allowed: 0.015625, the usual slope",
            lambda: func(given, given, given, alibi_slopes=usual * [1, 1, 2, 1]))  # fmt: skip
    refused(NotServed, "alibi_slopes = ", lambda: func(given, given, given, alibi_slopes=usual[:3]))
    three = given[:, :, :3]
    for slopes in (np.array([2.0**-4, 2.0**-8, 2.0**-2]), np.ones(3)):
        refused(NotServed, "H (heads) = 3 with alibi: allowed: powers of two",
                lambda: func(three, three, three, alibi_slopes=slopes))  # fmt: skip
    for softcap in (5e-324, 1e-4, 1e38):
        refused(NotServed, f"softcap = {softcap}: allowed: a number from 0.001 to 1000".replace("e+", "e"),
                lambda: func(q, k, v, softcap=softcap))  # fmt: skip
    for tiny in (1e-300, -(2.0**-150)):
        refused(NotServed, f"softmax_scale = {tiny}: allowed: 0 and numbers that a float can hold",
                lambda: func(q, k, v, softmax_scale=tiny))  # fmt: skip
    for part, instead in (("sink", "the argument sink"), ("cache=60,4", "flash_attn_with_kvcache()")):
        refused(NotServed, f"mask = causal+{part}: allowed instead of {part.partition('=')[0]}: {instead}",
                lambda: attention(a, a, a, mask=f"causal+{part}"))  # fmt: skip
    sink = np.array([0.5, -1, 2, 0], np.float16)
    right = attention(a, a, a, causal=True, sink=sink)
    equal(func(given, given, given, causal=True, sink=sink).swapaxes(1, 2), right, "sink")
    print("options")


def lengths():
    """Sequences without rows, and lengths of Q and K that differ: as calls for each sequence."""
    Q, K, V, dO = (normal(2, 4, 100, 64, seed=s) for s in (1, 2, 3, 4))
    sink = np.array([0.5, -1, 2, 0], np.float32)
    for mask in ("causal", "window=9,4+softcap=5+alibi"):
        expected = attention(Q, K, V, mask=mask, lengths=(60, 40))
        for same in ((0, 60, 40), (60, 0, 0, 40, 0), np.array([60, 40]), ((60, 40), (60, 40))):
            equal(attention(Q, K, V, mask=mask, lengths=same), expected, f"lengths = {same}")
        equal(attention(Q, K, V, mask=mask, lengths=[100]), attention(Q, K, V, mask=mask), "one sequence")
        options = {"mask": mask, "sink": sink}
        O, lse = attention(Q, K, V, lengths=((70, 0, 30), (20, 50, 30)), return_lse=True, **options)
        got = gradients_of(dO, Q, K, V, O, lse, lengths=((70, 0, 30), (20, 50, 30)), dlse=lse, **options)
        dsink = 0
        for q, k in ((slice(0, 70), slice(0, 20)), (slice(70, 70), slice(20, 70)), (slice(70, 100), slice(70, 100))):
            cut = [Q[:, :, q], K[:, :, k], V[:, :, k]]
            O_part, lse_part = attention(*cut, return_lse=True, **options)
            equal(O[:, :, q], O_part, "O of a sequence")
            equal(lse[:, :, q], lse_part, "LSE of a sequence")
            parts = gradients_of(dO[:, :, q], *cut, O_part, lse_part, dlse=lse_part, **options)
            for x, rows, part in zip(got, (q, k, k), parts):
                assert np.allclose(x[:, :, rows], part, atol=4e-3), "a gradient of a sequence"
            dsink = dsink + parts[3]
        assert np.allclose(got[3], dsink), "dsink"
    call = lambda value: lambda: attention(Q, K, V, lengths=value)
    refused(NotServed, "lengths[1] = -40: allowed: whole numbers from 0 on", call((140, -40)))
    refused(NotServed, "lengths = []: the lengths add up to 0, with Nq = 100, Nk = 100", call([]))
    refused(NotServed, "lengths = 50,40: the lengths add up to 90, with Nq = 100, Nk = 100: allowed: lengths that add "
            "up to 100", call(((60, 40), (50, 40))))  # fmt: skip
    refused(NotServed, "lengths = 2 for Q, 1 for K: allowed: equally many", call(((60, 40), (100,))))
    refused(NotServed, "lengths = 100: allowed: a sequence of whole numbers, or two sequences", call(100))

    for B, Nq, Nk in ((0, 5, 5), (2, 0, 5), (2, 5, 0), (0, 0, 0)):  # no rows
        q, k = normal(B, 4, Nq, 64), normal(B, 4, Nk, 64)
        O, lse = attention(q, k, k, causal=True, sink=sink, return_lse=True)
        assert O.shape == q.shape and not O.any() and lse.shape == q.shape[:3]
        equal(lse, np.broadcast_to(sink[:, None], lse.shape), "an LSE without keys")
        assert np.isneginf(attention(q, k, k, return_lse=True)[1]).all()
        *rest, dsink = gradients_of(q, q, k, k, O, lse, dlse=np.ones_like(lse), sink=sink)
        assert [x.shape for x in rest] == [q.shape, k.shape, k.shape] and not any(x.any() for x in rest)
        equal(dsink, np.full(4, B * Nq if Nk == 0 else 0, np.float32), "dsink without keys")
    refused(NotServed, "dtype = float32", lambda: attention(*[np.zeros((0, 4, 5, 64), np.float32)] * 3))
    print("lengths")


def pad():
    """Columns of zeros, and rows of V of another length, change no score."""
    for d, columns in ((40, 40), (64, 32), (72, 100), (1, 1)):
        Q, K = normal(1, 4, 50, d, seed=1), normal(1, 2, 50, d, seed=2)
        V, dO = normal(1, 2, 50, columns, seed=3), normal(1, 4, 50, columns, seed=4)
        given = {"causal": True, "pad": True}
        O, lse = attention(Q, K, V, return_lse=True, **given)
        P, right, right_lse, _, _ = exact_attention(*(x.astype(float) for x in (Q, K, V)), far, 0, 0, False, None, None)
        close(f"O, d = {d}", O, right)
        close(f"LSE, d = {d}", lse, right_lse)
        dQ, dK, dV = gradients_of(dO, Q, K, V, O, lse, **given)
        assert dQ.shape == Q.shape and dK.shape == K.shape and dV.shape == V.shape
        close(f"dV, d = {d}", dV, (P.swapaxes(-1, -2) @ dO.astype(float)).reshape(1, 2, 2, 50, columns).sum(2))
        out = workbook.flash_attn_func(*(x.swapaxes(1, 2) for x in (Q, K, V)), **given)
        equal(out.swapaxes(1, 2), O, "flash_attn_func")
    Q, K, V = (normal(1, 2, 50, 20, seed=seed) for seed in (1, 2, 3))
    O = attention(Q, K, V, mask="window=7,0", pad=True)  # no stage has windows for d = 32
    close("O of a window, d = 20", O, exact_attention(*(x.astype(float) for x in (Q, K, V)), 7, 0, 0, False, None, None)[1])
    by_pytorch = "fallback = True lets PyTorch compute it, for tensors"
    for text in ("d = 40 is not supported", f"pad = True adds columns of zeros up to d = 64, and {by_pytorch}"):
        refused(NotServed, text, lambda: attention(*[normal(1, 1, 8, 40)] * 3))
    for text in ("d = 200 is not supported", f"d = 200: in attention() and flash_attn's functions {by_pytorch}"):
        refused(NotServed, text, lambda: attention(*[normal(1, 1, 8, 200)] * 3, pad=True))

    # Of two stages, the one for small d has neither shared heads nor the gradient of the LSE.
    library, both = object.__new__(workbook.Library), ("forward", "backward")
    declared = {"element": "float16", "masks": ("none",), "deterministic": False}
    library.stages = [
        SimpleNamespace(pass_=p, head_dims=dims, shared_heads=more, lse_gradient=more and p == "backward", **declared)
        for dims, more in (((32, 64), False), ((64, 128), True)) for p in both
    ]  # fmt: skip
    dims = lambda *wanted: library.head_dims(both, "float16", ["none"], *wanted)
    assert dims() == (32, 64, 128) and dims(True) == (64, 128) == dims(False, False, True), "head_dims()"
    assert dims(False, True) == library.head_dims(both, "float16", ["causal"]) == (), "head_dims() of nothing"
    assert library.dims_to_pad_to(both, "float16", ["none"], False, False, True) == (64, 128, 32, 64, 128)
    print("pad")


def gradient_of_lse(chapter, cases):
    """A loss of O and the LSE, and of the LSE alone: dQ, dK and dsink against differences of float64."""
    for mask, left, right, softcap, sink in cases:
        Q, K, V, dO = (normal(1, 2, 40, 64, seed=s) for s in (1, 2, 3, 4))
        dlse = normal(1, 2, 40, seed=5).astype(np.float32)
        given = {"mask": mask, "sink": sink}
        O, lse = attention(Q, K, V, return_lse=True, **given)
        for dO in (dO, np.zeros_like(dO)):
            got = gradients_of(dO, Q, K, V, O, lse, dlse=dlse, **given)
            exact = [x.astype(float) for x in (Q, K, V)]

            def loss(q, k, v, s):
                _, o, l, _, _ = exact_attention(q, k, v, left, right, softcap, False, s, None)
                return (o * dO.astype(float)).sum() + (l * dlse.astype(float)).sum()

            random, step = np.random.default_rng(6), 1e-5
            for name, which in (("dQ", 0), ("dK", 1), ("dV", 2), *((("dsink", 3),) if sink is not None else ())):
                arguments = [*exact, None if sink is None else np.asarray(sink, float)]
                along = random.standard_normal(arguments[which].shape)
                at = lambda move: loss(*arguments[:which], arguments[which] + move * along, *arguments[which + 1 :])
                slope = (at(step) - at(-step)) / (2 * step)
                error = abs((got[which].astype(float) * along).sum() - slope)
                allowed = 5e-3 * np.linalg.norm(got[which].astype(float)) * np.sqrt(along.size) / 8 + 1e-6
                assert error <= allowed, f"{name}, {mask}, chapter {chapter}: {error:.3g}, allowed {allowed:.3g}"
        assert not got[2].any(), "dV of a loss of the LSE alone"
    print("the LSE's gradient, chapter", chapter)


def main():
    q, k, v = normal(2, 40, 4, 64, seed=1), normal(2, 40, 2, 64, seed=2), normal(2, 40, 2, 64, seed=3)
    layouts(q, *(np.repeat(x, 2, 2) for x in (k, v)))
    options(q, k, v, normal(1, 4, 64, 64))
    lengths()
    pad()
    gradient_of_lse("15", (("causal", far, 0, 0, None), ("window=9,4+softcap=5", 9, 4, 5, (0.5, -1.0))))
    a = normal(1, 2, 8, 64)
    O, lse = attention(a, a, a, mask="prefix=3", return_lse=True)
    refused(NotServed, "lse_gradient = 1: this stage does not have the gradient of the LSE",
            lambda: gradients_of(a, a, a, a, O, lse, dlse=lse, mask="prefix=3"))  # fmt: skip
    workbook.load(sys.argv[1])
    gradient_of_lse("9", (("none", far, far, 0, None), ("causal", far, 0, 0, None)))
    print("refused")


main()
