"""Stands for FlashInfer in front of its own tests: its functions, by the book's package. Its LSE has base 2.

The backend "fa2" is the library that WORKBOOK_FA2 names, and "fa3" the one that WORKBOOK_FA3 names, so that a test that
compares FlashInfer's backends compares two of the book's chapters.
"""

import collections
import math
import os
import sys
import types

import pytest

import flash_attention_workbook as workbook
from flash_attention_workbook.library import _loaded

_libraries = {}


def _use(backend):
    path = os.environ["WORKBOOK_FA2" if backend == "fa2" else "WORKBOOK_FA3"]
    if path not in _libraries:
        _libraries[path] = workbook.load(path)
    _loaded["cuda"] = _libraries[path]


def _attention(backend, tensors, starts, causal, window_left, soft_cap, scale, sink=None, alibi=None):
    """q, k, v: (N, H, d). O and the LSE, (N, H), with base 2."""
    _use(backend)
    options = {"softmax_scale": scale, "causal": causal, "window_size": (window_left, -1), "softcap": soft_cap or 0.0}
    starts = starts or [[0, x.shape[0]] for x in tensors[:2]]
    try:
        out, lse, _ = workbook.flash_attn_varlen_func(
            *tensors, *map(_int32, starts, tensors), None, None, alibi_slopes=alibi, return_attn_probs=True, sink=sink,
            **options,
        )  # fmt: skip
    except workbook.NotServed as error:
        pytest.skip(str(error)[:300])
    return out, lse.transpose(0, 1) / math.log(2)


def _int32(starts, tensor):
    import torch

    return torch.as_tensor(starts, dtype=torch.int32, device=tensor.device)


def single_prefill_with_kv_cache_return_lse(
    q, k, v, custom_mask=None, causal=False, pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None,
    sm_scale=None, backend="auto", **options,
):  # fmt: skip
    import torch

    if options:
        pytest.skip(f"{sorted(options)}: no stage has them")
    if custom_mask is not None:  # only a reference of theirs needs it
        G = q.shape[1] // k.shape[1]
        k, v = (x.float().repeat_interleave(G, 1) for x in (k, v))
        S = torch.einsum("qhd,khd->hqk", q.float(), k) / math.sqrt(q.shape[2])
        P = S.masked_fill(~custom_mask, -math.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", P, v).to(q.dtype), None
    alibi = None
    if pos_encoding_mode == "ALIBI":
        if not causal:
            pytest.skip("ALiBi without a causal mask: their score modification is + slope·j, not - slope·|i - j|")
        H = q.shape[1]
        alibi = torch.tensor([2.0 ** (-8 * (h + 1) / H) for h in range(H)], device=q.device)
    return _attention(backend, (q, k, v), None, causal, window_left, logits_soft_cap, sm_scale, None, alibi)


def single_prefill_with_kv_cache(*arguments, **options):
    return single_prefill_with_kv_cache_return_lse(*arguments, **options)[0]


class BatchPrefillWithRaggedKVCacheWrapper:
    def __init__(self, workspace, kv_layout="NHD", backend="auto", jit_args=None, jit_kwargs=None):
        self.backend = backend

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim, causal=False, window_left=-1,
        logits_soft_cap=None, q_data_type=None, kv_data_type=None, sm_scale=None,
    ):  # fmt: skip
        self.starts = qo_indptr, kv_indptr
        self.causal, self.window_left, self.soft_cap, self.scale = causal, window_left, logits_soft_cap, sm_scale

    def run_return_lse(self, q, k, v, sink=None, sm_scale=None):
        scale = self.scale if sm_scale is None else sm_scale
        options = self.causal, self.window_left, self.soft_cap, scale, sink
        return _attention(self.backend, (q, k, v), self.starts, *options)

    def run(self, *arguments, **options):
        return self.run_return_lse(*arguments, **options)[0]


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithRaggedKVCacheWrapper):
    """Its pages have one key each, and are gathered here."""

    def __init__(
        self, workspace, kv_layout="NHD", backend="auto", q_data_type=None, kv_data_type=None, head_dim_qk=None,
        head_dim_vo=None, window_left=-1,
    ):  # fmt: skip
        super().__init__(workspace, kv_layout, backend)

    def plan(
        self, qo_indptr, kv_indptr, kv_indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        causal=False, window_left=-1, q_data_type=None, kv_data_type=None, non_blocking=True,
    ):  # fmt: skip
        if page_size != 1:
            pytest.skip(f"page_size = {page_size}: no stage has pages")
        self.indices = kv_indices.long()
        super().plan(qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim, causal, window_left)

    def run_return_lse(self, q, kv, sink=None, sm_scale=None):
        k, v = (x.reshape(-1, *x.shape[-2:])[self.indices.to(x.device)] for x in kv)
        return super().run_return_lse(q, k, v, sink, sm_scale)


def _nothing(*arguments, **options):
    return None


# What the tests import from other modules of FlashInfer. has_flashinfer_jit_cache: no fixture compiles its kernels.
_MODULES = {
    "utils": {
        "GPUArchitectureError": Exception, "get_compute_capability": lambda device: (9, 0),
        "has_flashinfer_jit_cache": lambda: True, "is_fa3_backend_supported": _nothing,
        "is_fa3_prefill_head_dim_supported": _nothing, "is_sm90a_supported": lambda device: True,
    },
    "prefill": {"single_prefill_with_kv_cache": single_prefill_with_kv_cache},
    "quantization": {},
    "quantization.nvfp4_quantization_utils": {
        "NVFP44Over6Config": type(None), "NVFP44Over6ErrMode": type(None), "nvfp4_e4m3_max": _nothing,
    },
    "jit": {"JitSpec": type(None), "MissingJITCacheError": Exception, "build_jit_specs": _nothing},
    "jit.attention": {"gen_batch_prefill_attention_sink_module": _nothing},
    "jit.attention.variants": {"attention_sink_decl": {"fa2": "", "fa3": ""}},
    "jit.utils": {"filename_safe_dtype_map": collections.defaultdict(str)},
}  # fmt: skip
for _name, _contents in _MODULES.items():
    _module = types.ModuleType(f"{__name__}.{_name}")
    _module.__dict__.update(_contents)
    sys.modules[_module.__name__] = _module
    _parent, _, _child = _module.__name__.rpartition(".")
    setattr(sys.modules[_parent], _child, _module)
