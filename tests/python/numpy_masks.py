"""Chapter 15's and 16's masks, sinks and packed sequences on numpy arrays: results and gradients, and what is refused.

test_python.cpp runs it with WORKBOOK_LIBRARY; it ends with 1 at the first check that fails.
"""

import sys

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import close, normal, refused


def attention(Q, K, V, left, right, softcap, alibi, sink, lengths):
    """P, O, LSE, the derivatives of the scores, and the sinks' weights, in float64."""
    (B, H, Nq, d), (_, Hkv, Nk, _) = Q.shape, K.shape
    K, V = (np.repeat(x, H // Hkv, 1) for x in (K, V))
    i, j = np.arange(Nq)[:, None] + Nk - Nq, np.arange(Nk)[None]
    attends = (i - left <= j) & (j <= i + right)
    if lengths is not None:
        of = np.repeat(np.arange(len(lengths)), lengths)
        attends &= of[:, None] == of[None]
    S = Q @ K.swapaxes(-1, -2) / np.sqrt(d)
    derivative = 1 - np.tanh(S / softcap) ** 2 if softcap else np.ones_like(S)
    S = softcap * np.tanh(S / softcap) if softcap else S
    if alibi:
        S = S - (2.0 ** (-8 * np.arange(1, H + 1) / H))[:, None, None] * np.abs(i - j)
    S = np.where(attends, S, -np.inf)
    s = np.full((H, 1, 1), -np.inf) if sink is None else np.asarray(sink, float)[:, None, None]
    lse = np.logaddexp(np.logaddexp.reduce(S, -1, keepdims=True), s)
    P = np.exp(S - lse)
    return P, P @ V, lse[..., 0], derivative, np.exp(s - lse)


def gradients(Q, K, V, dO, *options):
    P, O, _, derivative, of_sink = attention(Q, K, V, *options)
    G = Q.shape[1] // K.shape[1]
    D = (dO * O).sum(-1, keepdims=True)
    dS = P * (dO @ np.repeat(V, G, 1).swapaxes(-1, -2) - D) * derivative / np.sqrt(Q.shape[-1])
    sums = lambda x: x.reshape(x.shape[0], -1, G, *x.shape[2:]).sum(2)
    dK, dV = sums(dS.swapaxes(-1, -2) @ Q), sums(P.swapaxes(-1, -2) @ dO)
    return dS @ np.repeat(K, G, 1), dK, dV, -(of_sink * D).sum((0, 2, 3))


def main():
    stages = [s for s in workbook.stages("sim") if s.chapter == 15]
    assert stages and all("packed" in s.masks and "sink" in s.masks and s.shared_heads for s in stages)
    far = 1000
    for H, Hkv, Nq, Nk, text, left, right, softcap, alibi, sink, lengths in (
        (2, 2, 70, 70, "none", far, far, 0, False, None, None),
        (4, 2, 40, 90, "window=20,5", 20, 5, 0, False, None, None),
        (4, 1, 70, 70, "causal+softcap=5+alibi", far, 0, 5, True, None, None),
        (4, 2, 70, 70, "causal", far, 0, 0, False, (0.5, -1, 2, 0), None),
        (4, 2, 137, 137, "window=50,0+softcap=20+alibi", 50, 0, 20, True, (0.5, -1, 2, 0), (100, 37)),
    ):
        Q, K, V = normal(2, H, Nq, 64, seed=2), normal(2, Hkv, Nk, 64, seed=3), normal(2, Hkv, Nk, 64, seed=4)
        dO = normal(2, H, Nq, 64, seed=5)
        given = {"mask": text, "sink": sink, "lengths": lengths}
        O, lse = workbook.attention(Q, K, V, return_lse=True, **given)
        exact = [x.astype(np.float64) for x in (Q, K, V, dO)]
        options = left, right, softcap, alibi, sink, lengths
        _, right_O, right_lse, _, _ = attention(*exact[:3], *options)
        errors = [close("O", O, right_O), close("LSE", lse, right_lse)]
        for deterministic in (False, True):
            got = workbook.attention_gradients(dO, Q, K, V, O, lse, deterministic=deterministic, **given)
            assert len(got) == (3 if sink is None else 4)
            for name, x, y in zip(("dQ", "dK", "dV", "dsink"), got, gradients(*exact, *options)):
                errors.append(close(name, x, y))
        print(text, f"H = {H}, Hkv = {Hkv}, errors:", *(f"{e:.1e}" for e in errors))

    a = normal(1, 4, 64, 64)
    q = np.ascontiguousarray(a.swapaxes(1, 2))
    out = workbook.flash_attn_func(q, q, q, causal=True, window_size=(20, 0), softcap=5.0)
    assert np.array_equal(out.swapaxes(1, 2), workbook.attention(a, a, a, mask="window=20,0+softcap=5"))
    out = workbook.flash_attn_func(q, q, q, window_size=(-1, 7))
    assert np.array_equal(out.swapaxes(1, 2), workbook.attention(a, a, a, mask="window=500,7"))
    for side in (2**31, sys.maxsize - 1024, sys.maxsize, 2**70):  # no end
        out = workbook.flash_attn_func(q, q, q, window_size=(side, 0))
        assert np.array_equal(out.swapaxes(1, 2), workbook.attention(a, a, a, mask="window=500,0")), side
    packed = {"mask": "causal", "lengths": (40, 24)}
    poisoned = a.copy()
    poisoned[:, :, 40:] = np.nan
    assert np.array_equal(workbook.attention(*[poisoned] * 3, **packed)[:, :, :40],
                          workbook.attention(a, a, a, **packed)[:, :, :40])  # fmt: skip

    # NaN in V of a masked key reaches the rows of its tile, but no others: 0·NaN is NaN.
    long = normal(1, 4, 128, 64)
    poisoned = long.copy()
    poisoned[:, :, 127] = np.nan
    O = workbook.attention(long, poisoned, poisoned, mask="causal")
    assert np.array_equal(O[:, :, :64], workbook.attention(long, long, long, mask="causal")[:, :, :64])

    # Chapter 16's documents are such sequences, as a mask.
    O, lse = workbook.attention(a, a, a, return_lse=True, **packed)
    got = workbook.attention(a, a, a, mask="documents=40,24")
    close("O of documents", got, O.astype(np.float64))
    for x, y in zip(workbook.attention_gradients(a, a, a, a, O, lse, mask="documents=40,24"),
                    workbook.attention_gradients(a, a, a, a, O, lse, **packed)):  # fmt: skip
        close("a gradient of documents", x, y.astype(np.float64))

    NotServed = workbook.NotServed
    refused(NotServed, "causal = True, mask = none: allowed: only one of the two",
            lambda: workbook.attention(a, a, a, causal=True, mask="none"))  # fmt: skip
    one_of_two = "allowed: only one of the two, such as mask = causal+softcap=50"
    refused(NotServed, f"causal = True, mask = softcap=50: {one_of_two}",
            lambda: workbook.attention(a, a, a, causal=True, mask="softcap=50"))  # fmt: skip
    texts = ("one of none, causal, window=LEFT,RIGHT with whole numbers from 0 on (LEFT,0: a causal window), "
             "documents=N,N,…, prefix=N and strided=WIDTH,STRIDE, followed by any of +softcap=C, +alibi, "
             "+lengths=N,N,…, +rope, +dropout=P,SEED; sinks by the argument sink")  # fmt: skip
    for mask in ("window=4", "causal+window=50,50", "none+rope+causal", "w" * 70_000):
        shown = mask if len(mask) < 100 else "w" * 99 + "…"
        refused(NotServed, f"mask = {shown}: allowed: {texts}", lambda: workbook.attention(a, a, a, mask=mask))
    refused(NotServed, "lengths = 40,20: the lengths add up to 60, with Nq = 64, Nk = 64: allowed: lengths that add up to both",
            lambda: workbook.attention(a, a, a, lengths=(40, 20)))  # fmt: skip
    most = sys.maxsize
    for mask, said in (
        (f"strided=4,{most}", f"strided = 4,{most}: allowed: whole numbers from 1 to 2147483647"),
        (f"prefix={most}", f"prefix = {most}: allowed: whole numbers from 0 to 2147483647"),
        (f"none+lengths={most},{most},66", f"lengths = {most},{most},66: allowed: whole numbers from 0 to 2147483647"),
        ("causal+softcap=inf", "softcap = inf: allowed: a number from 0.001 to 1000"),
        ("none+dropout=0.001,7", "dropout = 0.001: allowed: 0, and from 1/512 to below 1, rounded to a multiple of"),
        ("causal+dropout=0.1,7", "this stage does not have dropout"),  # not 0.101562
    ):
        refused(NotServed, f"mask = {mask}: {said}", lambda: workbook.attention(a, a, a, mask=mask))
    for scale in (float("inf"), float("nan"), 1e300):
        refused(NotServed, "allowed: finite numbers", lambda: workbook.attention(a, a, a, scale=scale))
    refused(NotServed, "sink[2] = nan: allowed: finite numbers",
            lambda: workbook.attention(a, a, a, sink=(1, 2, float("nan"), 0)))  # fmt: skip
    refused(NotServed, "sink[1] = 3e+38: allowed: finite numbers that a float can hold, up to 2^127",
            lambda: workbook.attention(a, a, a, sink=(1, 3e38, 2, 0)))  # fmt: skip
    O, lse = workbook.attention(a, a, a, sink=(1, 2.0**127, -3e38, 0), return_lse=True)
    assert not O[:, 1].any() and np.allclose(lse[:, 1], 2.0**127) and np.isfinite(O).all() and np.isfinite(lse).all()
    refused(NotServed, "sink.shape = (3,): allowed: (4,)", lambda: workbook.attention(a, a, a, sink=(1, 2, 3)))
    library = workbook.library_for("sim")
    at, room = a.ctypes.data, np.zeros(4096, np.float32)
    sizes = (1, 4, 4, 64, 64, 64)
    plan = library.plan("forward", "float16", sizes, 0.125, "causal+sink")
    refused(NotServed, "sink.data = NULL: with mask = causal+sink allowed: the address of the array",
            lambda: library.run(plan, [at, at, at, at, room.ctypes.data, 0, 0]))  # fmt: skip
    plan = library.plan("forward", "float16", sizes, 0.125, "none+alibi")
    refused(NotServed, "starts.data = an address: with mask = none+alibi allowed: NULL",
            lambda: library.run(plan, [at, at, at, at, room.ctypes.data, 0, at]))  # fmt: skip
    starts = np.array([0, 41, 64], np.int32)
    plan = library.plan("forward", "float16", sizes, 0.125, "none+lengths=40,24")
    refused(NotServed, "starts[1] = 41: allowed with mask = none+lengths=40,24: 40",
            lambda: library.run(plan, [at, at, at, at, room.ctypes.data, 0, starts.ctypes.data]))  # fmt: skip
    print("refused")


if __name__ == "__main__":
    main()
