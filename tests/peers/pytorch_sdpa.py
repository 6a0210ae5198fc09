"""PyTorch's tests of a FlashAttention implementation (FlashAttentionTestMixin) against the book's package behind
scaled_dot_product_attention.

    python3 tests/peers/pytorch_sdpa.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so]

CHECKOUT: of github.com/pytorch/pytorch, of which test/nn/attention/_fa_test_common.py is taken. The mixin holds what is
tested; which cases, shims/pytorch/test_workbook.py says, as test_fa3.py does for FlashAttention-3.
"""

import pathlib
import sys

import suite

FUNCTIONS = [
    "test_flash_attention_matches_math", "test_kernel_called", "test_multiple_activate", "test_compiled_metadata",
    "test_compiled_matches_math", "test_compiled_backward_matches_math", "test_preserves_query_layout",
]  # fmt: skip


def main():
    given = suite.arguments(__doc__)
    tests = pathlib.Path(given.checkout).resolve() / "test" / "nn" / "attention"
    shims = suite.HERE / "shims"
    sys.path.append(str(shims / "pytorch_missing"))  # last: the real ones come first
    return suite.run(
        "PyTorch, FlashAttentionTestMixin", given, shims / "pytorch" / "test_workbook.py", FUNCTIONS,
        lambda name, parameters: "", [tests],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
