"""Chapter 5 in Triton: causal attention, O and LSE in one kernel. README.md compares it with the CUDA code.

    python3 tests/peers/triton_beside.py           # compare with float64, and time with chapters 5 and 6
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def rows_of(X, rows, count, d: tl.constexpr):  # (rows, d), 0 past the end
    return tl.load(X + rows[:, None] * d + tl.arange(0, d)[None, :], mask=rows[:, None] < count, other=0.0)


@triton.jit
def step(O, m, l, Q, K, V, queries, keys, Nk, diagonal, scale, d: tl.constexpr, causal: tl.constexpr,
         masked: tl.constexpr):  # fmt: skip
    """Processes one K/V tile and returns the new O (Br, d), m and l (Br). scale includes log2(e)."""
    S = tl.dot(Q, tl.trans(rows_of(K, keys, Nk, d))) * scale  # (Br, Bc)
    if masked:
        unmasked = keys[None, :] < Nk
        if causal:
            unmasked = unmasked & (keys[None, :] <= queries[:, None] + diagonal)
        S = tl.where(unmasked, S, float("-inf"))
    m_new = tl.maximum(m, tl.max(S, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)  # all keys of the row so far are masked
    rescale = tl.exp2(m - m_safe)
    P = tl.exp2(S - m_safe[:, None])
    l = l * rescale + tl.sum(P, 1)
    O = tl.dot(P.to(V.dtype.element_ty), rows_of(V, keys, Nk, d), O * rescale[:, None])
    return O, m_new, l


@triton.jit(do_not_specialize=["Nq", "Nk"])  # otherwise Triton compiles again for new lengths
def attention(Q, K, V, O, lse, Nq, Nk, scale, d: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr,
              causal: tl.constexpr):  # fmt: skip
    """One program per head and Q tile. The last tiles, which attend to the most keys, start first."""
    head = tl.program_id(0).to(tl.int64)
    first_query = (tl.num_programs(1) - 1 - tl.program_id(1)) * Br
    Q += head * Nq * d
    K += head * Nk * d
    V += head * Nk * d
    O += head * Nq * d
    lse += head * Nq
    queries = first_query + tl.arange(0, Br)
    Q_tile = rows_of(Q, queries, Nq, d)
    O_tile = tl.zeros([Br, d], tl.float32)
    m = tl.full([Br], float("-inf"), tl.float32)
    l = tl.zeros([Br], tl.float32)
    diagonal = Nk - Nq
    visible = first_query * 0 + Nk  # keys that the last query attends to
    whole = visible  # keys that the first query attends to, and so every query of the tile
    if causal:
        visible = tl.minimum(visible, tl.minimum(first_query + Br, Nq) + diagonal)
        whole = tl.maximum(tl.minimum(whole, first_query + diagonal + 1), 0)
    whole = whole // Bc * Bc
    for first_key in range(0, whole, Bc):
        keys = first_key + tl.arange(0, Bc)
        O_tile, m, l = step(O_tile, m, l, Q_tile, K, V, queries, keys, Nk, diagonal, scale, d, causal, False)
    for first_key in range(whole, visible, Bc):
        keys = first_key + tl.arange(0, Bc)
        O_tile, m, l = step(O_tile, m, l, Q_tile, K, V, queries, keys, Nk, diagonal, scale, d, causal, True)
    inverse = tl.where(l > 0, 1.0 / l, 0.0)
    offsets = queries[:, None] * d + tl.arange(0, d)[None, :]
    tl.store(O + offsets, (O_tile * inverse[:, None]).to(O.dtype.element_ty), mask=queries[:, None] < Nq)
    tl.store(lse + queries, (m + tl.log2(l)) * 0.6931471805599453, mask=queries < Nq)


def forward(Q, K, V, causal=True):
    """O (B, H, Nq, d) and LSE (B, H, Nq), float32. Q (B, H, Nq, d), K and V (B, H, Nk, d): 16 bits, contiguous."""
    (B, H, Nq, d), Nk = Q.shape, K.shape[2]
    O, lse = torch.empty_like(Q), torch.empty((B, H, Nq), dtype=torch.float32, device=Q.device)
    Br, Bc = 128, 64
    attention[(B * H, triton.cdiv(Nq, Br))](
        Q, K, V, O, lse, Nq, Nk, 1.4426950408889634 / math.sqrt(d), d, Br, Bc, causal,
        num_warps=4 if d <= 64 else 8, num_stages=3,
    )  # fmt: skip
    return O, lse
