"""Chapter 6 in Triton: dQ, dK and dV, recomputing P, without atomics. README.md compares it with the CUDA code.

    python3 tests/peers/triton_beside.py           # compare with float64, and time with chapters 5 and 6
"""

import math

import torch
import triton
import triton.language as tl
from forward import rows_of


@triton.jit(do_not_specialize=["count"])
def prepare_rows(O, dO, D, count, d: tl.constexpr, rows: tl.constexpr):
    """D = rowsum(dO∘O), in fp32."""
    own = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    dO_O = rows_of(O, own, count, d).to(tl.float32) * rows_of(dO, own, count, d).to(tl.float32)
    tl.store(D + own, tl.sum(dO_O, 1), mask=own < count)


@triton.jit
def P_and_dS(left, right, left_of_dP, right_of_dP, lse, D, unmasked, scale):
    """P and dS of a pair of tiles, transposed if the keys are on the left. lse is in log2 units."""
    S = tl.dot(left, tl.trans(right)) * (scale * 1.4426950408889634)
    P = tl.where(unmasked, tl.exp2(S - lse), 0.0)
    return P, P * (tl.dot(left_of_dP, tl.trans(right_of_dP)) - D)


@triton.jit(do_not_specialize=["Nq", "Nk"])
def key_gradients(Q, K, V, dO, lse, D, dK, dV, Nq, Nk, scale, d: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr,
                  causal: tl.constexpr):  # fmt: skip
    """One program per head and K/V tile. The first tiles, to which the most queries attend, start first."""
    head, first_key = tl.program_id(0).to(tl.int64), tl.program_id(1) * Bc
    keys = first_key + tl.arange(0, Bc)
    K_tile, V_tile = rows_of(K + head * Nk * d, keys, Nk, d), rows_of(V + head * Nk * d, keys, Nk, d)
    dK_tile, dV_tile = tl.zeros([Bc, d], tl.float32), tl.zeros([Bc, d], tl.float32)
    begin = first_key * 0
    if causal:
        begin = tl.maximum(first_key - (Nk - Nq), 0) // Br * Br
    for first_query in range(begin, Nq, Br):
        rows = first_query + tl.arange(0, Br)
        Q_tile, dO_tile = rows_of(Q + head * Nq * d, rows, Nq, d), rows_of(dO + head * Nq * d, rows, Nq, d)
        row_lse = tl.load(lse + head * Nq + rows, mask=rows < Nq, other=0.0) * 1.4426950408889634
        row_D = tl.load(D + head * Nq + rows, mask=rows < Nq, other=0.0)
        unmasked = (keys[:, None] < Nk) & (rows[None, :] < Nq)
        if causal:
            unmasked = unmasked & (keys[:, None] <= rows[None, :] + (Nk - Nq))
        P, dS = P_and_dS(K_tile, Q_tile, V_tile, dO_tile, row_lse[None, :], row_D[None, :], unmasked, scale)
        dV_tile = tl.dot(P.to(dO_tile.dtype), dO_tile, dV_tile)
        dK_tile = tl.dot(dS.to(Q_tile.dtype), Q_tile, dK_tile)
    offsets = head * Nk * d + keys[:, None] * d + tl.arange(0, d)[None, :]
    tl.store(dK + offsets, (dK_tile * scale).to(dK.dtype.element_ty), mask=keys[:, None] < Nk)
    tl.store(dV + offsets, dV_tile.to(dV.dtype.element_ty), mask=keys[:, None] < Nk)


@triton.jit(do_not_specialize=["Nq", "Nk"])
def query_gradients(Q, K, V, dO, lse, D, dQ, Nq, Nk, scale, d: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr,
                    causal: tl.constexpr):  # fmt: skip
    """The same with queries and keys exchanged: one program per head and Q tile, the last tiles first."""
    head, first_query = tl.program_id(0).to(tl.int64), (tl.num_programs(1) - 1 - tl.program_id(1)) * Br
    rows = first_query + tl.arange(0, Br)
    Q_tile, dO_tile = rows_of(Q + head * Nq * d, rows, Nq, d), rows_of(dO + head * Nq * d, rows, Nq, d)
    row_lse = tl.load(lse + head * Nq + rows, mask=rows < Nq, other=0.0) * 1.4426950408889634
    row_D = tl.load(D + head * Nq + rows, mask=rows < Nq, other=0.0)
    dQ_tile = tl.zeros([Br, d], tl.float32)
    end = tl.minimum(first_query + Br, Nq) + (Nk - Nq) if causal else Nk
    for first_key in range(0, end, Bc):
        keys = first_key + tl.arange(0, Bc)
        K_tile, V_tile = rows_of(K + head * Nk * d, keys, Nk, d), rows_of(V + head * Nk * d, keys, Nk, d)
        unmasked = (keys[None, :] < Nk) & (rows[:, None] < Nq)
        if causal:
            unmasked = unmasked & (keys[None, :] <= rows[:, None] + (Nk - Nq))
        P, dS = P_and_dS(Q_tile, K_tile, dO_tile, V_tile, row_lse[:, None], row_D[:, None], unmasked, scale)
        dQ_tile = tl.dot(dS.to(K_tile.dtype), K_tile, dQ_tile)
    offsets = head * Nq * d + rows[:, None] * d + tl.arange(0, d)[None, :]
    tl.store(dQ + offsets, (dQ_tile * scale).to(dQ.dtype.element_ty), mask=rows[:, None] < Nq)


def backward(dO, Q, K, V, O, lse, causal=True):
    """dQ, dK and dV. Shapes as in forward(), which returned O and lse; all contiguous."""
    (B, H, Nq, d), Nk = Q.shape, K.shape[2]
    D, dQ, dK, dV = (torch.empty_like(x) for x in (lse, Q, K, V))
    prepare_rows[(triton.cdiv(B * H * Nq, 64),)](O, dO, D, B * H * Nq, d, 64)
    sizes = (Nq, Nk, 1 / math.sqrt(d), d, 64, 64, causal)
    options = {"num_warps": 4 if d <= 64 else 8, "num_stages": 2}
    key_gradients[(B * H, triton.cdiv(Nk, 64))](Q, K, V, dO, lse, D, dK, dV, *sizes, **options)
    query_gradients[(B * H, triton.cdiv(Nq, 64))](Q, K, V, dO, lse, D, dQ, *sizes, **options)
    return dQ, dK, dV
