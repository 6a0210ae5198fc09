"""PagedCache on numpy arrays: sequences that grow, fork and end, beside their keys in lists; refused input.

test_python.cpp runs it with WORKBOOK_LIBRARY, a library of chapter 21; it ends with 1 at the first check that fails.
"""

import random

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import refused

NotServed = workbook.NotServed
H, Hkv, d = 4, 2, 64
like = np.zeros(1, np.float16)


def normal(generator, *sizes):
    return generator.standard_normal(sizes).astype(np.float16)


def contiguous(q, keys, values, **options):
    """The results for one sequence whose keys are in a list, with a cache without pages."""
    caches = [np.array(rows, np.float16).reshape(1, -1, Hkv, d) for rows in (keys, values)]
    return workbook.flash_attn_with_kvcache(q[None], *caches, num_splits=1, return_softmax_lse=True, **options)


def grow_fork_and_end(seed, page_size, pages=24):
    """Random operations. The order in which free pages are taken is random too."""
    choose, generator = random.Random(seed), np.random.default_rng(seed)
    cache, known = workbook.PagedCache(pages, page_size, Hkv, d, like), {}
    for step in range(60):
        choose.shuffle(cache._free)
        kind = choose.choice(["add", "fork", "free", "attend", "attend", "attend"])
        if kind == "add" or not known:
            known[cache.add()] = [], []
        elif kind == "fork":
            of = choose.choice(sorted(known))
            known[cache.fork(of)] = tuple(map(list, known[of]))
        elif kind == "free" and len(known) > 1:
            of = choose.choice(sorted(known))
            cache.free(of)
            del known[of]
        else:
            chosen = choose.sample(sorted(known), choose.randint(1, min(3, len(known))))
            new, free = choose.randint(0, 2 * page_size), cache.free_pages
            q, k, v = (normal(generator, len(chosen), n, h, d) for n, h in ((1, H), (new, Hkv), (new, Hkv)))
            before = [cache.length(sequence) for sequence in chosen], cache.k.copy()
            try:
                O, lse = cache.attend(chosen, q, k, v, num_splits=1, return_softmax_lse=True)
            except MemoryError as error:
                assert f"and {free} of {pages} are free" in str(error), error
                assert before[0] == [cache.length(s) for s in chosen] and cache.free_pages == free
                assert np.array_equal(before[1], cache.k, equal_nan=True), "a call without room changes the cache"
                continue
            for b, sequence in enumerate(chosen):
                for rows, x in zip(known[sequence], (k, v)):
                    rows.extend(x[b])
                if not known[sequence][0]:
                    assert not O[b].any() and np.isneginf(lse[b]).all(), "a sequence without keys"
                    continue
                right = contiguous(q[b], *known[sequence])
                what = f"seed {seed}, pages of {page_size}, step {step}"
                assert np.array_equal(O[b], right[0][0]) and np.array_equal(lse[b], right[1][0]), what
        used = {page for sequence in known for page in cache._tables[sequence]}
        assert cache.free_pages == pages - len(used) and not used & set(cache._free), "pages are lost, or used twice"
        unused = sorted(cache._free)
        assert np.isnan(cache.k[unused]).all() and np.isnan(cache.v[unused]).all(), "a free page has numbers"
        for sequence, (keys, values) in known.items():
            table, (length,) = cache.tables([sequence])
            for pool, rows in ((cache.k, keys), (cache.v, values)):
                stored = pool[table[0]].reshape(-1, Hkv, d)
                assert np.array_equal(stored[:length], np.array(rows, np.float16).reshape(-1, Hkv, d)), f"step {step}"
                rest = stored[length:] if len(cache._tables[sequence]) else stored[:0]
                assert np.isnan(rest).all(), "elements of no key"
    for sequence in known:
        cache.free(sequence)
    assert cache.free_pages == pages and np.isnan(cache.k).all(), "pages are left"


def shared_pages():
    """Forks cost no page until they grow, and then one; the last sequence that writes to a page keeps it."""
    generator = np.random.default_rng(1)
    cache = workbook.PagedCache(10, 4, Hkv, d, like)
    parent = cache.add()
    row = lambda n, count=1: [normal(generator, count, m, h, d) for m, h in ((1, H), (n, Hkv), (n, Hkv))]
    cache.attend([parent], *row(6))
    forks = [cache.fork(parent) for _ in range(3)]
    assert cache.free_pages == 8
    cache.attend([parent, *forks], *row(1, 4))
    assert cache.free_pages == 8 - 3, "of four sequences, three copy the page"
    cache.attend([parent, *forks], *row(1, 4))
    assert cache.free_pages == 5, "full pages"
    cache.free(parent)
    assert cache.free_pages == 6, "the parent's own page alone"
    late = cache.fork(forks[0])
    cache.attend([late], *row(1))
    assert cache.free_pages == 5 and cache.length(late) == 9, "a new page, no copy of a full one"
    full = workbook.PagedCache(2, 4, Hkv, d, like)
    two = [full.add()]
    full.attend(two, *row(2))
    two.append(full.fork(two[0]))
    full.attend(two, *row(2, 2))
    assert full.free_pages == 0, "of two sequences, one copies the page"


def refusals():
    for options, text in (
        ((0, 4, 2, 64, like), "pages = 0: allowed: whole numbers from 1 to 2147483647"),
        ((4, 2.0, 2, 64, like), "page_size = 2.0: allowed: whole numbers from 1 to"),
        ((4, 4, 2, 64, [1.0]), "like = [1.0]: allowed: an array or a tensor"),
        ((4, 4, 2, 64, np.zeros(1)), "like.dtype = float64: allowed: float16 and bfloat16"),
        ((4, 4, 2, 96, like), "d = 96: allowed: 64, 128, of the stages that read a cache"),
    ):
        refused(NotServed, text, lambda: workbook.PagedCache(*options))
    cache, q = workbook.PagedCache(4, 4, Hkv, d, like), np.zeros((1, 1, H, d), np.float16)
    one = cache.add()
    for sequences in ([one, one], [], [one + 1, one]):
        refused(NotServed, f"sequences = {sequences}: allowed: 1 of them", lambda: cache.attend(sequences, q))
    refused(NotServed, "sequence = 7: allowed: numbers that add() and fork() have returned", lambda: cache.fork(7))
    refused(NotServed, "sequence = 7: allowed: ", lambda: cache.attend([7], q))
    cache.free(one)
    refused(NotServed, f"sequence = {one}: allowed: ", lambda: cache.free(one))


def main():
    for seed, page_size in enumerate((1, 2, 5, 16, 40)):
        grow_fork_and_end(seed, page_size)
    print("grow, fork and end")
    shared_pages()
    print("shared pages")
    refusals()
    print("refused")


if __name__ == "__main__":
    main()
