"""Registers the stages with PyTorch's scaled_dot_product_attention as the FlashAttention implementation "Workbook"."""

import math
import warnings

import torch

from . import torch_operators
from .library import NotServed, Unavailable

NAME = "Workbook"
_FORWARD = "_scaled_dot_product_flash_attention"
_BACKWARD = "_scaled_dot_product_flash_attention_backward"


def _require(served, query, key, causal, dropout_p, return_debug_mask):
    """NotServed for options of SDPA that no stage supports."""
    Nq, Nk = query.shape[-2], key.shape[-2]
    if dropout_p != 0.0:
        raise NotServed(f"dropout_p = {dropout_p}: no stage supports it; allowed: 0, or activate(fallback = True)")
    if return_debug_mask:
        raise NotServed("return_debug_mask = True: no stage supports it; allowed: False")
    if causal and Nq != Nk:
        raise NotServed(
            f"is_causal = True, Nq = {Nq}, Nk = {Nk}: PyTorch's mask is aligned to the first key, the "
            "stages' to the last; allowed: Nq = Nk"
        )
    served()


def _in_layout_of(tensor, result):
    """The result with the strides of `tensor`, as PyTorch's compiler expects of PyTorch's operators."""
    like = torch.empty_like(tensor)
    return result if like.stride() == result.stride() else like.copy_(result)


class _Registered:
    """The registered implementation, which replaces PyTorch's; remove() restores PyTorch's."""

    def __init__(self, fallback):
        self._fallback = fallback
        self._own = {}  # PyTorch's own kernels
        if fallback:
            if not hasattr(torch.library, "get_kernel"):
                raise Unavailable(f"fallback = True: PyTorch {torch.__version__} has no torch.library.get_kernel")
            self._own = {name: torch.library.get_kernel(f"aten::{name}", "CUDA") for name in (_FORWARD, _BACKWARD)}
        self._library = torch.library.Library("aten", "IMPL")
        self._library.impl(_FORWARD, self._forward, "CUDA", with_keyset=True)
        self._library.impl(_BACKWARD, self._backward, "CUDA", with_keyset=True)

    def remove(self):
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def _by_pytorch(self, name, keys, error, *arguments, **options):
        if not self._fallback:
            raise error
        return self._own[name].call_boxed(keys, *arguments, **options)

    def _forward(self, keys, query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        mask = "causal" if is_causal else "none"

        def served():  # checks both passes, since the backward pass must use the same implementation
            for pass_ in () if torch_operators.has_no_pairs(query, key) else ("forward", "backward"):
                torch_operators.plan_for(pass_, query, key, value, factor, mask, False)

        try:
            _require(served, query, key, is_causal, dropout_p, return_debug_mask)
        except (NotServed, Unavailable) as error:
            return self._by_pytorch(
                _FORWARD, keys, error, query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale
            )
        O, lse = torch_operators.run_forward(query, key, value, factor, mask, False)
        out = _in_layout_of(query, O)
        seed = torch.empty(2, dtype=torch.uint64, device=query.device)  # for dropout, which is not used
        offset = torch.empty((), dtype=torch.uint64, device=query.device)
        debug_mask = torch.empty(0, dtype=query.dtype, device=query.device)
        return out, lse, None, None, query.shape[-2], key.shape[-2], seed, offset, debug_mask

    def _backward(
        self, keys, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
        is_causal, philox_seed, philox_offset, *, scale=None,
    ):  # fmt: skip
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        mask = "causal" if is_causal else "none"

        def served():
            if not torch_operators.has_no_pairs(query, key):
                torch_operators.plan_for("backward", query, key, value, factor, mask, False)

        try:
            _require(served, query, key, is_causal, dropout_p, False)
        except (NotServed, Unavailable) as error:
            return self._by_pytorch(
                _BACKWARD, keys, error, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q,
                max_k, dropout_p, is_causal, philox_seed, philox_offset, scale=scale,
            )  # fmt: skip
        deterministic = torch.are_deterministic_algorithms_enabled()
        gradients = torch_operators.run_backward(
            grad_out, query, key, value, out, logsumexp, factor, mask, deterministic
        )
        return tuple(map(_in_layout_of, (query, key, value), gradients[:3]))


def register(fallback=False):
    """See the package's register()."""
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError:
        raise Unavailable(
            f"PyTorch {torch.__version__} has no registry of FlashAttention implementations; allowed: 2.10 or newer"
        ) from None
    register_flash_attention_impl(NAME, register_fn=lambda *_, **__: _Registered(fallback))


def activate():
    """Activates the stages; register() must be called first."""
    from torch.nn.attention import activate_flash_attention_impl

    activate_flash_attention_impl(NAME)
    if torch.backends.cuda.cudnn_sdp_enabled():
        warnings.warn(
            "activate(): on Hopper and newer GPUs PyTorch prefers cuDNN to FlashAttention, and the stages do not run; "
            "torch.backends.cuda.enable_cudnn_sdp(False) excludes cuDNN",
            stacklevel=3,
        )
