"""PyTorch's FlashAttentionTestMixin with the implementation "Workbook"."""

import torch
from _fa_test_common import FlashAttentionTestMixin, SdpaShape
from torch.nn.attention import activate_flash_attention_impl
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, parametrize

import flash_attention_workbook as workbook

DTYPES = [torch.float16, torch.bfloat16]


def kernels_of(pass_):
    """A part of the names of the pass's kernels: they lie in the chapter's namespace."""
    return [f"ch{next(s.chapter for s in workbook.stages('cuda') if s.pass_ == pass_):02d}"]


class TestWorkbook(FlashAttentionTestMixin, TestCase):
    impl_name = "Workbook"
    fwd_kernel_patterns = kernels_of("forward")
    bwd_kernel_patterns = kernels_of("backward")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        workbook.register()
        activate_flash_attention_impl("Workbook")

    @parametrize("dtype", DTYPES)
    @parametrize("batch", [1, 2])
    @parametrize("seq_len", [512, 1024])
    @parametrize("heads", [4, 8])
    @parametrize("head_dim", [64, 128])
    @parametrize("is_causal", [False, True])
    def test_flash_attention_matches_math(self, device, dtype, batch, seq_len, heads, head_dim, is_causal):
        self._assert_flash_matches_math(
            device, shape=SdpaShape(batch, heads, seq_len, head_dim), dtype=dtype, is_causal=is_causal
        )

    @parametrize("dtype", DTYPES)
    def test_kernel_called(self, device, dtype):
        self._test_kernel_called(device, dtype)

    def test_multiple_activate(self, device):
        self._test_multiple_activate_impl()

    @parametrize("dtype", DTYPES)
    @parametrize("is_causal", [False, True])
    def test_compiled_metadata(self, device, dtype, is_causal):
        self._test_compiled_sdpa_metadata(device, dtype, is_causal)

    @parametrize("dtype", DTYPES)
    @parametrize("is_causal", [False, True])
    def test_compiled_matches_math(self, device, dtype, is_causal):
        self._test_compiled_sdpa_matches_math(device, dtype, is_causal)

    @parametrize("dtype", DTYPES)
    @parametrize("is_causal", [False, True])
    def test_compiled_backward_matches_math(self, device, dtype, is_causal):
        self._test_compiled_sdpa_backward_matches_math(device, dtype, is_causal, head_dim=128)

    def test_preserves_query_layout(self, device):
        self._test_attention_preserves_query_layout(device)


instantiate_device_type_tests(TestWorkbook, globals(), only_for="cuda")
