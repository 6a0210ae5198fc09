"""PyTorch's tests of FlashAttention against the book's package: FlashAttentionTestMixin, and the gradients of
scaled_dot_product_attention against its math backend, both by activate(); and packed sequences with windows.

    python3 tests/peers/pytorch_sdpa.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so] [--only FILE]

CHECKOUT: of github.com/pytorch/pytorch, at the version that is installed. The mixin, test/nn/attention/
_fa_test_common.py, holds what is tested; which cases, shims/pytorch/test_workbook.py says, as test_fa3.py does for
FlashAttention-3. The others are test/test_transformers.py and test/test_varlen_attention.py, which need chapter 15, or
18 and 19.
"""

import re
import sys

import suite

MIXIN = "test_workbook.py"
FILES = {
    MIXIN: [
        "test_flash_attention_matches_math", "test_kernel_called", "test_multiple_activate", "test_compiled_metadata",
        "test_compiled_matches_math", "test_compiled_backward_matches_math", "test_preserves_query_layout",
    ],
    "test_transformers.py": [
        "test_flash_attention_vs_math_ref_grads", "test_fused_attention_vs_math_ref_grads_cudagraph",
    ],
    "test_varlen_attention.py": ["test_varlen_vs_sdpa", "test_batch_invariance"],
}  # fmt: skip


def accepts(name, parameters):
    case = parameters["case"]
    if "dropout_p" in case and "dropout_p_0_0" not in case:
        return "dropout_p"
    if "cudagraph" in name and "FLASH_ATTENTION" not in case:
        return "another backend"
    lengths = re.search(r"seq_len_q_(\d+)_seq_len_k_(\d+)", case)
    if lengths and lengths[1] != lengths[2] and "is_causal_True" in case:
        return "causal with two lengths, which PyTorch's test skips"
    d = re.search(r"head_dim_(\d+)", case)
    if name in FILES[MIXIN] or d is None:
        return ""
    return suite.unserved(int(d[1]), "float16", "enable_gqa_True" in case)


def replace():
    """Replaces PyTorch's FlashAttention and varlen_attn() by the package."""
    import torch.nn.attention.varlen

    import flash_attention_workbook as workbook

    def varlen_attn(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
        starts = cu_seq_q, cu_seq_k, max_q, max_k
        return workbook.flash_attn_varlen_func(q, k, v, *starts, softmax_scale=scale, window_size=window_size)

    torch.nn.attention.varlen.varlen_attn = varlen_attn
    workbook.activate()


def main():
    given = suite.arguments(__doc__, files=FILES)
    shims, tests = suite.HERE / "shims", given.checkout / "test"
    sys.path.append(str(shims / "pytorch_missing"))  # last: the real ones come first
    sys.path.insert(0, str(suite.BOOK / "python"))
    codes = []
    for name in [given.only] if given.only else FILES:
        file = shims / "pytorch" / name
        if name != MIXIN:
            replace()  # PyTorch's own grid has head dimensions of 8, 203 and 256
            file = suite.cut(tests / name, {"head_dim": [32, 64, 128], "dropout_p": [0.0]})
        codes.append(suite.run(
            f"PyTorch, {name}", given, file, FILES[name], accepts, [tests, tests / "nn" / "attention"]
        ))  # fmt: skip
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
