"""FlashAttention-4's tests/cute/test_flash_attn.py against the book's package: dense and packed sequences, windows,
softcaps, sinks, and losses that contain the LSE.

    python3 tests/peers/flash_attention_4.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so]

CHECKOUT: of github.com/Dao-AILab/flash-attention. The library needs chapter 15, or 18 and 19. Its rule: the error
against fp32 is at most twice that of the same computed in the low precision by PyTorch, plus 2 units in the last place.
In twelve cases that is less than the rounding of O to bf16 (notes/pytorch.md).
"""

import os
import pathlib
import sys

import suite

FUNCTIONS = [
    "test_flash_attn_output", "test_flash_attn_learnable_sink_backward_dtype",
    "test_flash_attn_varlen_learnable_sink_backward_with_lse", "test_flash_attn_varlen_output",
    "test_flash_attn_lse_grad", "test_flash_attn_empty_q_dense", "test_flash_attn_empty_q_varlen",
]  # fmt: skip


def accepts(name, parameters):
    if parameters.get("has_qv"):
        return "has_qv"
    if parameters.get("local_enum", 0) > 1:
        return "a window with a negative side"
    if not (parameters.get("unpad_q", True) and parameters.get("unpad_kv", True)):
        return "seqused"
    d = parameters.get("d", 64)
    return "" if d in suite.head_dims(parameters.get("dtype", "bfloat16")) else f"d = {d}"


def main():
    given = suite.arguments(__doc__)
    checkout = pathlib.Path(given.checkout).resolve()
    os.environ["FLASH_ATTENTION_CHECKOUT"] = str(checkout)
    file = suite.cut(checkout / "tests" / "cute" / "test_flash_attn.py")
    return suite.run(
        "FlashAttention-4, tests/cute/test_flash_attn.py", given, file, FUNCTIONS, accepts,
        [suite.HERE / "shims" / "flash_attn_4"], "flash_attn.cute.interface",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
