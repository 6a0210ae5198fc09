"""flash_attn_with_kvcache on numpy arrays: pages of many sizes, new keys with RoPE, views of one cache, and refused
input; against float64.

test_python.cpp runs it with WORKBOOK_LIBRARY, a library of chapter 21, and with one of chapters 8 and 9 as its argument;
it ends with 1 at the first check that fails.
"""

import sys

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import refused

NotServed = workbook.NotServed
decode = workbook.flash_attn_with_kvcache
B, Nq, H, Hkv, d = 3, 2, 8, 2, 64


def normal(random, sizes):
    return random.standard_normal(sizes).astype(np.float16)


def exact(q, K, V, lengths, causal):
    """O and LSE in float64. q: (B, Nq, H, d); K, V: for each request (N, Hkv, d), of which `lengths` count."""
    O, lse = np.zeros(q.shape), np.full((len(q), q.shape[2], q.shape[1]), -np.inf)
    for b, n in enumerate(lengths):
        for h in range(q.shape[2]):
            k, v = (x[b][:n, h * Hkv // q.shape[2]].astype(float) for x in (K, V))
            for i in range(q.shape[1]):
                end = max(n + i + 1 - q.shape[1], 0) if causal else n
                S = k[:end] @ q[b, i, h].astype(float) / np.sqrt(d)
                if end > 0:
                    lse[b, h, i] = np.logaddexp.reduce(S)
                    O[b, i, h] = np.exp(S - lse[b, h, i]) @ v[:end]
    return O, lse


def agree(results, expected, what):
    (O, lse), (exact_O, exact_lse) = results, expected
    assert O.shape == exact_O.shape and lse.shape == exact_lse.shape and O.flags.c_contiguous, what
    assert abs(O - exact_O).max() < 3e-3, f"{what}: O differs by {abs(O - exact_O).max()}"
    seen = np.isfinite(exact_lse)
    assert (np.isfinite(lse) == seen).all(), f"{what}: an LSE without keys is not -inf"
    assert abs(lse[seen] - exact_lse[seen]).max() < 1e-4, f"{what}: LSE"


def rotated(x, cos, sin, position, interleaved):
    """RoPE of one row or of the rows of all heads, (…, d), rounded to float16."""
    r, y = 2 * cos.shape[1], x.astype(float)
    first = slice(0, r, 2) if interleaved else slice(0, r // 2)
    second = slice(1, r, 2) if interleaved else slice(r // 2, r)
    c, s = cos[position].astype(float), sin[position].astype(float)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = a * c - b * s, b * c + a * s
    return y.astype(np.float16)


def pages(random):
    """Pages of any size, in any order; what belongs to no key is NaN."""
    for size, M in ((1, 20), (16, 5), (48, 3), (300, 1)):
        count = B * M + 3
        table = random.permutation(count)[: B * M].reshape(B, M)
        lengths = np.array([0, min(7, M * size - 3), M * size - 3])
        pools = [np.full((count, size, Hkv, d), np.nan, np.float16) for _ in "KV"]
        rows = [[normal(random, (n, Hkv, d)) for n in lengths] for _ in "KV"]
        for pool, of_requests in zip(pools, rows):
            for b, new in enumerate(of_requests):
                for j, row in enumerate(new):
                    pool[table[b, j // size], j % size] = row
        for causal in (False, True):
            q, what = normal(random, (B, Nq, H, d)), f"pages of {size}, causal = {causal}"
            found = decode(q, *pools, cache_seqlens=lengths, block_table=table, causal=causal, return_softmax_lse=True)
            agree(found, exact(q, *rows, lengths, causal), what)
            for r, interleaved in ((0, False), (d // 2, False), (d // 2, True), (d, False)):
                append(random, q, pools, rows, table, lengths, causal, r, interleaved, f"{what}, r = {r}")
    print("pages")


def append(random, q, pools, rows, table, lengths, causal, r, interleaved, what):
    """Three new keys for each request; nothing but their places changes."""
    size, Nk = pools[0].shape[1], table.shape[1] * pools[0].shape[1]
    angles = normal(random, (Nk, r // 2)).astype(float)
    cos, sin = (np.cos(angles).astype(np.float16), np.sin(angles).astype(np.float16)) if r else (None, None)
    k, v = normal(random, (B, 3, Hkv, d)), normal(random, (B, 3, Hkv, d))
    expected, of_q = [pool.copy() for pool in pools], q.copy()
    K, V = ([list(row) for row in each] for each in rows)
    for b, n in enumerate(lengths):
        for t in range(3):
            new = rotated(k[b, t], cos, sin, n + t, interleaved) if r else k[b, t]
            for pool, keys, x in ((expected[0], K, new), (expected[1], V, v[b, t])):
                pool[table[b, (n + t) // size], (n + t) % size] = x
                keys[b].append(x)
        for i in range(Nq if r else 0):
            of_q[b, i] = rotated(q[b, i], cos, sin, n + (i if causal else 0), interleaved)
    caches = [pool.copy() for pool in pools]
    found = decode(q, *caches, k, v, cos, sin, lengths, None, None, table, None, causal,
                   rotary_interleaved=interleaved, return_softmax_lse=True)  # fmt: skip
    for cache, right in zip(caches, expected):
        distance = np.nan_to_num(abs(cache.astype(float) - right.astype(float)), nan=0)
        assert (np.isnan(cache) == np.isnan(right)).all() and distance.max() <= 4e-3, f"{what}: the caches"
    agree(found, exact(of_q, *([np.array(x) for x in each] for each in (K, V)), lengths + 3, causal), what)


def views(random):
    """K and V in one array, rows of the caches for each request, any number of splits."""
    both, q, rows = normal(random, (5, 70, 2, Hkv, d)), normal(random, (B, 1, H, d)), [4, 0, 2]
    k_cache, v_cache = both[:, :, 0], both[:, :, 1]
    found = decode(q, k_cache, v_cache, cache_seqlens=70, cache_batch_idx=rows, return_softmax_lse=True)
    agree(found, exact(q, k_cache[rows], v_cache[rows], [70] * B, False), "cache_batch_idx")
    for splits in (0, 1, 3, 128):
        found = decode(q, k_cache[:B], v_cache[:B], num_splits=splits, return_softmax_lse=True)
        agree(found, exact(q, k_cache, v_cache, [70] * B, False), f"num_splits = {splits}")
    assert decode(q[:0], k_cache[:0], v_cache[:0]).shape == (0, 1, H, d)
    print("views")


def refusals(random, without_cache):
    caches, q = [normal(random, (B, 70, Hkv, d)) for _ in "KV"], normal(random, (B, 1, H, d))
    new = normal(random, (B, 1, Hkv, d))
    table = np.zeros((B, 2), np.int32)

    def refuse(said, **changed):
        refused(NotServed, said, lambda: decode(**{"q": q, "k_cache": caches[0], "v_cache": caches[1], **changed}))

    refuse("window_size = (5, 0): no stage", window_size=(5, 0))
    refuse("softcap = 30.0: no stage", softcap=30.0)
    refuse("[2.0]: no stage supports it with a cache; allowed: None", alibi_slopes=[2.0])
    refuse("cache_leftpad = [0, 0, 0]: no stage", cache_leftpad=[0, 0, 0])
    refuse("num_splits = 7: allowed: 0, 1, 2, 3, 8 and 128", num_splits=7)
    refuse("num_splits = 1.0: allowed: whole numbers", num_splits=1.0)
    refuse("causal = 2: allowed: True and False", causal=2)
    refuse("softmax_scale = nan: allowed: finite numbers", softmax_scale=float("nan"))
    refuse("cache_seqlens[0] = 71: allowed: 0 to 70", cache_seqlens=71)
    refuse("cache_seqlens[1] = -1: allowed: 0 to 70", cache_seqlens=[0, -1, 0])
    refuse("cache_seqlens = [1, 2]: (2,), int64; allowed: (3), whole numbers from 0 to 70", cache_seqlens=[1, 2])
    refuse("cache_seqlens = [1.0, 2.0, 3.0]: (3,), float64; allowed: (3), whole numbers", cache_seqlens=[1.0, 2.0, 3.0])
    refuse("block_table[0, 1] = 3: allowed: 0 to 2", block_table=table + [0, 3])
    refuse("(2, 2), int32; allowed: (3, M)", block_table=table[:2])
    refuse("cache_batch_idx = [0, 1, 2]: allowed: None with", block_table=table, cache_batch_idx=[0, 1, 2])
    refuse("allowed: 3 requests, as q, or a block_table", k_cache=caches[0][:2], v_cache=caches[1][:2])
    refuse("the same for both caches, and the same d", v_cache=caches[1][:2])
    refuse("q.dtype = float32: allowed: float16 and bfloat16", q=q.astype(np.float32))
    refuse("k_cache.dtype = >f2: allowed: float16", k_cache=caches[0].astype(">f2"), v_cache=caches[1].astype(">f2"))
    refuse("v = None: allowed: both k and v", k=new)
    refuse("k: (3, 1, 8, 64), float16; allowed: (3, 1, 2, 64), float16, as q", k=q, v=q)
    refuse("cache_seqlens = None: allowed: with new keys", k=new, v=new)
    refuse("cache_seqlens[0] = 70: allowed: 0 to 69", k=new, v=new, cache_seqlens=70)
    refuse("block_table[0, 1] = -1: allowed: 0 to 2", k=new, v=new, cache_seqlens=70, block_table=table - [0, 1])
    refuse("rotary_sin = None: allowed: both", rotary_cos=np.zeros((70, 16)))
    tables = {"rotary_cos": np.zeros((69, 16)), "rotary_sin": np.zeros((69, 16))}
    refuse(": allowed: None without new keys", **tables)
    refuse("allowed: both (L, r/2) with L from 70 on and r up to 64", k=new, v=new, cache_seqlens=0, **tables)
    refuse("v_cache.strides", v_cache=np.concatenate([caches[1], caches[1]], 1)[:, :70])
    every_second = np.zeros((B, 70, Hkv, 2 * d), np.float16)[..., ::2]
    refuse("multiples of 8 elements from 0 on, and then 1", k_cache=every_second, v_cache=every_second)
    wide = np.zeros((B, 70, Hkv, d + 8), np.float16)[..., 4 : d + 4]
    refuse("k_cache's address = ", k_cache=wide, v_cache=wide)
    narrow = (np.ascontiguousarray(x[..., :32]) for x in (q, *caches))
    refuse("d = 32 is not supported", **dict(zip(("q", "k_cache", "v_cache"), narrow)))
    workbook.load(without_cache)
    refuse("this stage does not have cache")
    refuse("cache is supported by chapter 21; allowed: a library with it")
    print("refused")


if __name__ == "__main__":
    numbers = np.random.default_rng(1)
    pages(numbers)
    views(numbers)
    refusals(numbers, sys.argv[1])
