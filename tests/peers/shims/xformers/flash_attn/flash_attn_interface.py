"""FlashAttention-2's compiled functions, as xformers calls them, by the book's operators. Other head dimensions are
padded with columns of zeros."""

import torch
from torch.nn.functional import pad

from flash_attention_workbook import library_for, torch_operators
from flash_attention_workbook.checked import padded_head_dim
from flash_attention_workbook.flash_attn import _mask
from flash_attention_workbook.library import parts_of


def _heads_first(mask, *tensors):
    """(B, N, H, d), or (T, H, d) of packed sequences, as (B, H, N, d), padded."""
    like = tensors[0]
    parts = parts_of(mask) + ([] if like.dim() == 4 else ["packed"])
    library, element = library_for("cuda" if like.is_cuda else "sim"), str(like.dtype).removeprefix("torch.")
    d = padded_head_dim(library.head_dims(("forward", "backward"), element, parts), like.shape[-1])
    tensors = [tensor if tensor.dim() == 4 else tensor[None] for tensor in tensors]
    return [pad(tensor.transpose(1, 2), (0, d - tensor.shape[-1])) for tensor in tensors]


def _as(like, result):
    """(B, H, N, d) in the layout and with the columns of `like`."""
    result = result.transpose(1, 2)[..., : like.shape[-1]].contiguous()
    return result if like.dim() == 4 else result[0]


class flash_attn_gpu:
    @staticmethod
    def _forward(q, k, v, starts, scale, causal, left, right, softcap, p):
        assert p == 0 and softcap == 0
        with torch.no_grad():
            mask = _mask(causal, (max(left, -1), max(right, -1)), softcap, False)
            O, lse = torch_operators.run_forward(*_heads_first(mask, q, k, v), scale, mask, False, None, *starts)
        return _as(q, O), lse if q.dim() == 4 else lse[0], torch.empty(0), torch.empty(2, dtype=torch.int64)

    @staticmethod
    def _backward(dO, q, k, v, O, lse, gradients, starts, p, scale, causal, left, right, softcap, deterministic):
        assert p == 0 and softcap == 0
        with torch.no_grad():
            mask = _mask(causal, (max(left, -1), max(right, -1)), softcap, False)
            lse = lse if q.dim() == 4 else lse[None, :, : q.shape[0]]  # xformers pads it
            tensors = *_heads_first(mask, dO, q, k, v, O), lse
            results = torch_operators.run_backward(*tensors, scale, mask, deterministic, None, *starts)
            for gradient, result in zip(gradients, results):
                gradient.copy_(_as(gradient, result))

    @staticmethod
    def fwd(q, k, v, out, alibi_slopes, p, scale, causal, left, right, softcap, return_softmax, generator):
        return flash_attn_gpu._forward(q, k, v, (None, None), scale, causal, left, right, softcap, p)

    @staticmethod
    def varlen_fwd(
        q, k, v, out, starts_q, starts_k, seqused_k, leftpad_k, block_table, alibi_slopes, max_q, max_k, p, scale,
        zero_tensors, causal, left, right, softcap, return_softmax, generator,
    ):  # fmt: skip
        assert seqused_k is None and block_table is None
        return flash_attn_gpu._forward(q, k, v, (starts_q, starts_k), scale, causal, left, right, softcap, p)

    @staticmethod
    def bwd(
        dO, q, k, v, out, lse, dq, dk, dv, alibi_slopes, p, scale, causal, left, right, softcap, deterministic,
        generator, rng_state,
    ):  # fmt: skip
        options = p, scale, causal, left, right, softcap, deterministic
        flash_attn_gpu._backward(dO, q, k, v, out, lse, (dq, dk, dv), (None, None), *options)

    @staticmethod
    def varlen_bwd(
        dO, q, k, v, out, lse, dq, dk, dv, starts_q, starts_k, alibi_slopes, max_q, max_k, p, scale, zero_tensors,
        causal, left, right, softcap, deterministic, generator, rng_state,
    ):  # fmt: skip
        options = p, scale, causal, left, right, softcap, deterministic
        flash_attn_gpu._backward(dO, q, k, v, out, lse, (dq, dk, dv), (starts_q, starts_k), *options)
