"""The package on numpy arrays over the simulator: results and gradients against float64, layouts, what is refused.

test_python.cpp runs it with WORKBOOK_LIBRARY; it prints a line for each check and ends with 1 at the first that fails.
"""

import threading

import flash_attention_workbook as workbook
import numpy as np


def attention(Q, K, V, causal):
    """P and O in float64; rows that see no key are 0."""
    S = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if causal:
        Nq, Nk = S.shape[-2:]
        S = np.where(np.tril(np.ones((Nq, Nk), bool), Nk - Nq), S, -np.inf)
    m = S.max(-1, keepdims=True)
    P = np.exp(S - np.where(np.isinf(m), 0, m))
    l = P.sum(-1, keepdims=True)
    P = np.divide(P, l, out=np.zeros_like(P), where=l > 0)
    return P, P @ V


def gradients(Q, K, V, dO, causal):
    P, O = attention(Q, K, V, causal)
    dS = P * (dO @ V.swapaxes(-1, -2) - (dO * O).sum(-1, keepdims=True)) / np.sqrt(Q.shape[-1])
    return dS @ K, dS.swapaxes(-1, -2) @ Q, P.swapaxes(-1, -2) @ dO


def normal(*sizes, seed=1):
    return np.random.default_rng(seed).standard_normal(sizes).astype(np.float16)


def close(name, got, expected):
    error = np.abs(got.astype(np.float64) - expected).max()
    allowed = 4e-3 * max(1.0, np.abs(expected).max())
    assert error <= allowed, f"{name}: error {error:.3g}, allowed {allowed:.3g}"
    return error


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r} has no {text!r}"
        return
    raise AssertionError(f"nothing was said of {text!r}")


def main():
    stages = workbook.stages("sim")
    assert {(s.pass_, s.element) for s in stages} == {
        (pass_, element) for pass_ in ("forward", "backward") for element in ("float16", "bfloat16")
    }, stages
    print("stages:", len(stages))

    for Nq, Nk, causal in ((1, 1, False), (70, 70, True), (40, 90, True), (90, 40, True)):
        Q, K, V = normal(2, 2, Nq, 64, seed=2), normal(2, 2, Nk, 64, seed=3), normal(2, 2, Nk, 64, seed=4)
        dO = normal(2, 2, Nq, 64, seed=5)
        O, lse = workbook.attention(Q, K, V, causal=causal, return_lse=True)
        assert lse.shape == (2, 2, Nq) and lse.dtype == np.float32
        assert np.isinf(lse).any() == (causal and Nq > Nk)
        exact = [x.astype(np.float64) for x in (Q, K, V, dO)]
        errors = [close("O", O, attention(*exact[:3], causal)[1])]
        got = workbook.attention_gradients(dO, Q, K, V, O, lse, causal=causal)
        again = workbook.attention_gradients(dO, Q, K, V, O, lse, causal=causal, deterministic=True)
        for name, x, y, right in zip(("dQ", "dK", "dV"), got, again, gradients(*exact, causal)):
            errors.append(close(name, x, right))
            close(name, y, right)
        print(f"Nq = {Nq}, Nk = {Nk}, causal = {causal}: errors of O, dQ, dK, dV", *(f"{e:.1e}" for e in errors))

    Q, K, V = normal(1, 2, 50, 32, seed=6), normal(1, 2, 60, 32, seed=7), normal(1, 2, 60, 32, seed=8)
    O = workbook.attention(Q, K, V, causal=True)
    q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (Q, K, V))
    out, lse, _ = workbook.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert np.array_equal(out.swapaxes(1, 2), O), "the other layout"
    wide = np.zeros((1, 2, 50, 33), np.float16)
    wide[..., 1:] = Q  # rows with gaps, at odd addresses
    assert np.array_equal(workbook.attention(wide[..., 1:], K, V, causal=True), O), "gaps"
    views = [Q, K[:, :, ::-1], V[:, :1].repeat(2, 1)]
    views = [np.broadcast_to(view[:, :1], view.shape) for view in views]  # strides of 0, and negative ones
    dense = [np.ascontiguousarray(view) for view in views]
    dO = normal(1, 50, 2, 32, seed=9).swapaxes(1, 2)
    given = [(*x, *workbook.attention(*x, causal=True, return_lse=True)) for x in (views, dense)]
    for name, x, y in zip(("dQ", "dK", "dV"), *(workbook.attention_gradients(dO, *x, causal=True) for x in given)):
        assert np.allclose(x, y, atol=4e-3 if name == "dQ" else 0), f"{name} of arrays with gaps"
    assert np.array_equal(given[0][3], given[1][3]), "O of arrays with gaps"
    scaled = workbook.attention(Q, K, V, scale=0.5)
    assert not np.array_equal(scaled, workbook.attention(Q, K, V))
    print("layouts, gaps, scale")

    results = [None] * 4

    def work(i):
        results[i] = workbook.attention(Q, K, V, causal=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, O) for result in results), "threads"
    print("threads")

    a = normal(1, 4, 8, 64)
    refused(workbook.NotServed, "d = 40 is not supported; allowed: 32, 64 and 128",
            lambda: workbook.attention(a[..., :40], a[..., :40], a[..., :40]))  # fmt: skip
    refused(workbook.NotServed, "dtype = float32", lambda: workbook.attention(*[a.astype(np.float32)] * 3))
    refused(workbook.NotServed, "Hkv = 2, H = 4", lambda: workbook.attention(a, a[:, :2], a[:, :2]))
    refused(workbook.NotServed, "value.shape = (1, 4, 4, 64): allowed: (1, 4, 8, 64)",
            lambda: workbook.attention(a, a, a[:, :, :4]))  # fmt: skip
    refused(workbook.NotServed, "dropout_p = 0.1", lambda: workbook.flash_attn_func(a, a, a, 0.1))
    refused(workbook.NotServed, "window_size = (4, 0)", lambda: workbook.flash_attn_func(a, a, a, window_size=(4, 0)))
    refused(workbook.NotServed, "mask = causal+softcap=5: this stage does not have softcap; allowed: none and causal",
            lambda: workbook.attention(a, a, a, mask="causal+softcap=5"))  # fmt: skip
    refused(workbook.NotServed, "sink is supported by chapter 15", lambda: workbook.attention(a, a, a, sink=[0] * 4))
    library = workbook.library_for("sim")
    plan = library.plan("forward", "float16", (1, 4, 4, 8, 8, 64), 0.125, "none")
    refused(workbook.NotServed, "K.data = NULL", lambda: library.run(plan, [a.ctypes.data, 0, a.ctypes.data, 0, 0]))
    odd = a.ctypes.data + 2
    refused(workbook.NotServed, "Q.data is at an address that is 2 bytes past a multiple of 16: allowed: a multiple",
            lambda: library.run(plan, [odd] * 5))  # fmt: skip
    refused(workbook.NotServed, "mask = window: allowed: one of none, causal",
            lambda: library.plan("forward", "float16", (1, 4, 4, 8, 8, 64), 0.125, "window"))  # fmt: skip
    refused(workbook.Unavailable, "nowhere.so", lambda: workbook.load("/nowhere.so"))
    print("refused")


if __name__ == "__main__":
    main()
