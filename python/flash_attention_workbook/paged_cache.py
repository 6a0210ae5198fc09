"""A KV cache whose pages sequences share, as in serving engines, for flash_attn_with_kvcache().

Source: Kwon et al. 2023 (PagedAttention), section 4.
"""

import collections

from . import checked as entry
from .kv_cache import flash_attn_with_kvcache
from .library import NotServed


def _count(name, value):
    value = entry.whole_number(name, value, "whole numbers from 1 to 2147483647")
    if not 1 <= value < 2**31:
        raise NotServed(f"{name} = {value}: allowed: whole numbers from 1 to 2147483647")
    return value


class PagedCache:
    """The keys and values of many sequences in pages: k and v are (pages, page_size, heads, d).

    heads: of K and V. like: an array or a tensor, whose type and device the caches have. A sequence is a number, which
    add() and fork() return. A fork shares the pages of its parent. If a shared page is not full and one of its
    sequences receives new keys, that sequence gets a copy of the page first (copy on write). Elements of no key are
    NaN, so a kernel that reads them is found out.

    Raises NotServed for other arguments, Unavailable without a library of chapter 21, and MemoryError if too few pages
    are free; then nothing has changed.
    """

    def __init__(self, pages, page_size, heads, d, like):
        sizes = [("pages", pages), ("page_size", page_size), ("heads", heads), ("d", d)]
        shape = tuple(_count(name, value) for name, value in sizes)
        if not hasattr(like, "dtype"):
            entry.refuse("like", like, "an array or a tensor, float16 or bfloat16")
        self._of = entry.backend_of(like)
        self.k, self.v = self._of.unset(shape, like), self._of.unset(shape, like)
        self._free = list(range(shape[0]))[::-1]
        self._sharers = collections.Counter()  # of each page: the number of sequences that have it
        self._tables, self._lengths = {}, {}  # of each sequence
        self._next = 0

    def add(self):
        """A new sequence without keys."""
        return self._new([], 0)

    def fork(self, sequence):
        """A new sequence with the keys of this one."""
        pages = self._pages(sequence)[: -(-self._lengths[sequence] // self.k.shape[1])]  # not those reserved
        self._sharers.update(pages)
        return self._new(pages, self._lengths[sequence])

    def free(self, sequence):
        """Ends a sequence. Pages that no other sequence has are free again."""
        unused = []
        self._of.require_host("PagedCache", self.k)
        for page in self._pages(sequence):
            self._sharers[page] -= 1
            if self._sharers[page] == 0:
                unused.append(page)
        if unused:
            self.k[unused] = self.v[unused] = float("nan")
        self._free += unused[::-1]
        del self._tables[sequence], self._lengths[sequence]

    def length(self, sequence):
        """The number of keys of a sequence."""
        self._pages(sequence)
        return self._lengths[sequence]

    @property
    def free_pages(self):
        """The number of pages that no sequence has."""
        return len(self._free)

    def attend(self, sequences, q, k=None, v=None, **options):
        """flash_attn_with_kvcache() for these sequences: appends the new keys k and v, (B, N, heads, d), of each, and
        attends to all of its keys with q, (B, Nq, H, d). sequences: B numbers, each once. options: those of
        flash_attn_with_kvcache() but for cache_seqlens and block_table. A refused call may have reserved pages for the
        sequences' next keys."""
        sequences = entry.numbers("sequences", sequences)
        entry.arrays("(B, N, H, d)", q=q, **({} if k is None else {"k": k}))
        if len(sequences) != q.shape[0] or len(set(sequences)) != len(sequences):
            entry.refuse("sequences", list(sequences), f"{q.shape[0]} of them, as q, each once")
        new = 0 if k is None else k.shape[1]
        self._reserve(sequences, new)
        table, lengths = self.tables(sequences)
        results = flash_attn_with_kvcache(
            q, self.k, self.v, k, v, cache_seqlens=lengths, block_table=table, **options
        )  # fmt: skip
        for sequence in sequences:
            self._lengths[sequence] += new
        return results

    def tables(self, sequences):
        """The arguments block_table, (B, M), and cache_seqlens, (B), of flash_attn_with_kvcache(), int32."""
        self._of.require_host("PagedCache", self.k)
        tables = [self._pages(sequence) for sequence in sequences]
        M = max([1, *map(len, tables)])
        tables = [pages + [0] * (M - len(pages)) for pages in tables]
        return self._of.int32(tables, (len(tables), M), self.k), self._of.int32(
            [self._lengths[sequence] for sequence in sequences], (len(tables),), self.k
        )

    def _new(self, pages, length):
        sequence = self._next
        self._next += 1
        self._tables[sequence], self._lengths[sequence] = pages, length
        return sequence

    def _pages(self, sequence):
        allowed = "numbers that add() and fork() have returned, until free()"
        if entry.whole_number("sequence", sequence, allowed) not in self._tables:
            entry.refuse("sequence", sequence, allowed)
        return self._tables[sequence]

    def _reserve(self, sequences, new):
        """Makes room for new keys of each sequence, in pages of its own."""
        self._of.require_host("PagedCache", self.k)
        size, needed, written = self.k.shape[1], 0, collections.Counter()
        for sequence in sequences:
            pages, length = self._pages(sequence), self._lengths[sequence]
            needed += max(0, -(-(length + new) // size) - len(pages))
            if new > 0 and length % size > 0:
                written[pages[length // size]] += 1
        # Of the sequences that share a page, the last one that writes to it may keep it.
        needed += sum(min(count, self._sharers[page] - 1) for page, count in written.items())
        if needed > len(self._free):
            raise MemoryError(f"PagedCache: {new} new keys of {len(sequences)} sequences need {needed} more pages, and "
                              f"{len(self._free)} of {self.k.shape[0]} are free")  # fmt: skip
        for sequence in sequences:
            pages, length = self._tables[sequence], self._lengths[sequence]
            if new > 0 and length % size > 0 and self._sharers[pages[length // size]] > 1:
                shared, own = pages[length // size], self._take()
                self.k[own], self.v[own] = self.k[shared], self.v[shared]
                self._sharers[shared] -= 1
                pages[length // size] = own
            while len(pages) * size < length + new:
                pages.append(self._take())

    def _take(self):
        page = self._free.pop()
        self._sharers[page] = 1
        return page
