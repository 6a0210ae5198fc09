"""flash_attn's function for decoding with a KV cache, on stages with the mask "cache" (chapter 21).

Source: github.com/Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py, 2.8.
"""

from . import checked as entry
from .library import NotServed


def _rotated(x, cos, sin, positions, interleaved):
    """RoPE: x, (B, N, H, d), with the rows of cos and sin, (L, r/2), of its positions, (B, N). Rotates r elements of
    each row. Source: Su et al. 2021 (RoFormer), section 3.4.2."""
    r = 2 * cos.shape[-1]
    first, second = (slice(0, r, 2), slice(1, r, 2)) if interleaved else (slice(0, r // 2), slice(r // 2, r))
    c, s = (_float(table[positions])[:, :, None] for table in (cos, sin))
    a, b = _float(x[..., first]), _float(x[..., second])
    rotated = x.clone() if entry.is_torch(x) else x.copy()
    rotated[..., first], rotated[..., second] = a * c - b * s, b * c + a * s  # rounded to the type of x
    return rotated


def _float(x):
    return x.float() if entry.is_torch(x) else x.astype("float32")


def _append(k_cache, v_cache, k, v, table, positions):
    """Stores the new keys at their positions, (B, N), in the caches, in place."""
    page_size = k_cache.shape[1]
    pages = entry.backend_of(k_cache).pages_of(table, positions, page_size)
    k_cache[pages, positions % page_size], v_cache[pages, positions % page_size] = k, v


def _require_range(named, numbers, most):
    """NotServed for a number that is not from 0 to `most`. named: what a number is called, as a format of its place."""
    for at, number in numbers.items():
        if not 0 <= number <= most:
            raise NotServed(f"{named.format(*at)} = {number}: allowed: 0 to {most}")


def _checked_tables(q, k_cache, k, v, rotary_cos, rotary_sin, least):
    """The tables of RoPE. NotServed for new keys or tables that do not fit the caches. least: rows of the tables."""
    if (k is None) != (v is None):
        raise NotServed(f"{'v' if v is None else 'k'} = None: allowed: both k and v, or neither")
    if (rotary_cos is None) != (rotary_sin is None):
        missing = "rotary_sin" if rotary_sin is None else "rotary_cos"
        raise NotServed(f"{missing} = None: allowed: both rotary_cos and rotary_sin, or neither")
    if k is None:
        if rotary_cos is not None:
            entry.refuse("rotary_cos", rotary_cos, "None without new keys k and v, which it rotates too")
        return None, None
    wanted = (q.shape[0], k.shape[1], *k_cache.shape[2:])
    native = lambda x: x.dtype if entry.is_torch(x) else x.dtype.newbyteorder("=")
    for name, new in (("k", k), ("v", v)):
        if tuple(new.shape) != wanted or native(new) != native(q):
            raise NotServed(f"{name}: {tuple(new.shape)}, {new.dtype}; allowed: {wanted}, {native(q)}, as q")
    if rotary_cos is None:
        return None, None
    entry.arrays("(L, r/2)", rotary_cos=rotary_cos, rotary_sin=rotary_sin)
    real = entry.backend_of(q).real
    cos, sin = real("rotary_cos", rotary_cos, "(L, r/2)", q), real("rotary_sin", rotary_sin, "(L, r/2)", q)
    rows, half = rotary_cos.shape
    if rotary_sin.shape != rotary_cos.shape or rows < least or not 0 < 2 * half <= q.shape[-1]:
        raise NotServed(f"rotary_cos.shape, rotary_sin.shape = {tuple(rotary_cos.shape)}, {tuple(rotary_sin.shape)}: "
                        f"allowed: both (L, r/2) with L from {least} on and r up to {q.shape[-1]}")  # fmt: skip
    return cos, sin


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False,
):  # fmt: skip
    """FlashAttention-2's function of this name: O, (B, Nq, H, d), contiguous. It has no gradients.

    q: (B, Nq, H, d), float16 or bfloat16; under torch.autocast q, k, v may be float32. k_cache, v_cache: (B, Nk, Hkv,
    d); with block_table, (B, M), integers, pages of any number of keys: (pages, page_size, Hkv, d), and
    Nk = M·page_size. They may be views, with the same strides, multiples of 8 but for d. cache_batch_idx: (B), the rows
    of the caches of the requests of q. cache_seqlens: the number of keys of each request, (B), integers, or one number;
    None: Nk. On the GPU it is not read on the host, so a CUDA graph can repeat the call with other numbers. Numbers on
    the GPU are not checked. In lists all are, but for pages after a request's last key if its length is on the host.

    k, v: (B, N, Hkv, d), new keys, which are first stored in the caches, in place, after those of cache_seqlens; the
    caches must have room. rotary_cos, rotary_sin: (L, r/2), L at least Nk: K is rotated by its position before it is
    stored, and q by cache_seqlens or, if causal, by cache_seqlens + 0 to Nq - 1. rotary_interleaved: the pairs are
    elements 2i and 2i + 1, otherwise i and i + r/2.

    softmax_scale multiplies Q Kᵀ; None: 1/√d. causal: aligned to the last query and to the request's own last key.
    num_splits: the thread blocks that share the keys of a head, of those that the stage is built for; 0: the stage
    chooses. return_softmax_lse: (O, LSE), with the LSE (B, H, Nq) in natural units, float32; -inf without keys.

    Raises NotServed, which names the argument, its value and what is allowed; for a window, a softcap, ALiBi and
    cache_leftpad too, and for caches in the other byte order. A refused call leaves the caches as they were.
    Sources: Dao et al. 2023 (Flash-Decoding), Kwon et al. 2023 (PagedAttention), section 4.1.
    """
    entry.arrays("(B, N, H, d)", q=q, k_cache=k_cache, v_cache=v_cache)
    for name, new in (("k", k), ("v", v)):
        if new is not None:
            entry.arrays("(B, N, Hkv, d)", q=q, **{name: new})
    of = entry.backend_of(q)
    q, k, v = of.cast(q, k, v)
    of.require_element("q", q)
    causal, num_splits = entry.flag("causal", causal), entry.whole_number("num_splits", num_splits)
    interleaved = entry.flag("rotary_interleaved", rotary_interleaved)
    return_softmax_lse = entry.flag("return_softmax_lse", return_softmax_lse)
    window = entry.window("window_size", window_size)
    if window[0] != -1 or window[1] not in (-1, 0) or (window[1] == 0 and not causal):
        raise NotServed(f"window_size = {window}: no stage supports a window with a cache; allowed: (-1, -1)")
    if softcap is not None and entry.number("softcap", softcap, "0") != 0:
        raise NotServed(f"softcap = {softcap}: no stage supports it with a cache; allowed: 0")
    for name, value in (("alibi_slopes", alibi_slopes), ("cache_leftpad", cache_leftpad)):
        if value is not None:
            entry.refuse(name, value, "None", "no stage supports it with a cache; ")
    scale = max(q.shape[-1], 1) ** -0.5
    if softmax_scale is not None:
        scale = entry.scale_of_scores("softmax_scale", softmax_scale)
    if v_cache.shape != k_cache.shape or k_cache.shape[-1] != q.shape[-1]:
        raise NotServed(f"q.shape, k_cache.shape, v_cache.shape = {tuple(q.shape)}, {tuple(k_cache.shape)}, "
                        f"{tuple(v_cache.shape)}: allowed: the same for both caches, and the same d")  # fmt: skip
    B, (pages, page_size) = q.shape[0], k_cache.shape[:2]
    table = table_on_host = None
    named = "block_table[{}, {}]"
    if block_table is not None:
        table, table_on_host = of.integers("block_table", block_table, (B, None), q, 0, max(pages - 1, 0))
        if cache_batch_idx is not None:
            entry.refuse("cache_batch_idx", cache_batch_idx, "None with a block_table")
    elif cache_batch_idx is not None:
        named = "cache_batch_idx[{}]"
        rows, rows_on_host = of.integers("cache_batch_idx", cache_batch_idx, (B,), q, 0, max(pages - 1, 0))
        table, table_on_host = rows[:, None], None if rows_on_host is None else [[row] for row in rows_on_host]
    elif pages != B:
        raise NotServed(f"k_cache.shape = {tuple(k_cache.shape)}: allowed: {B} requests, as q, or a block_table")
    M = 1 if table is None else table.shape[1]
    Nk = page_size * M if pages or not B else 0
    rotates = q.shape[1] if causal else 1
    cos, sin = _checked_tables(q, k_cache, k, v, rotary_cos, rotary_sin, max(Nk, rotates))
    of.require_no_gradient(q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v)
    new = 0 if k is None else k.shape[1]
    if k is not None and cache_seqlens is None:
        raise NotServed("cache_seqlens = None: allowed: with new keys, the number of keys before them")
    if new > Nk:
        raise NotServed(f"k.shape = {tuple(k.shape)}: allowed: 0 to {Nk} new keys")
    most = Nk - new if cos is None else min(Nk - new, cos.shape[0] - rotates)
    given = Nk if cache_seqlens is None else cache_seqlens
    lengths, lengths_on_host = of.integers("cache_seqlens", given, (B,), q, 0, most)
    options = scale, causal, max(-(2**31), min(num_splits, 2**31 - 1))
    try:
        how = of.plan_of_decode(q, k_cache, v_cache, M, *options, new > 0)
    except NotServed as error:
        text = str(error).replace(f"splits = {options[-1]}:", f"num_splits = {num_splits}:")
        raise NotServed(text) from None
    if lengths_on_host is not None:
        _require_range("cache_seqlens[{}]", {(b,): n for b, n in enumerate(lengths_on_host)}, most)
    if table_on_host is not None:  # entries after a request's last key are not used, where the host knows it
        last = lambda b: Nk if lengths_on_host is None else lengths_on_host[b] + new
        used = {(b, j): page for b, row in enumerate(table_on_host)
                for j, page in enumerate(row[: -(-last(b) // max(page_size, 1))])}  # fmt: skip
        _require_range(named, used, max(pages - 1, 0))
    # From here on nothing is refused, so that a call that is refused leaves the caches as they were.
    if k is not None:
        positions = of.positions(lengths, new)
        if cos is not None:
            k = _rotated(k, cos, sin, positions, interleaved)
            q = _rotated(q, cos, sin, of.positions(lengths, rotates), interleaved)
        if new > 0:
            _append(k_cache, v_cache, k, v, table, positions)
    O, lse = of.decode(how, q, k_cache, v_cache, _as_int32(lengths) + new, table, *options)
    return (O, lse) if return_softmax_lse else O


def _as_int32(lengths):
    return lengths.int() if entry.is_torch(lengths) else lengths.astype("int32")
