"""FlashAttention-4's tests/cute against the book's package: dense and packed sequences, windows, softcaps, sinks,
losses that contain the LSE, and deterministic gradients, a thousand times each.

    python3 tests/peers/flash_attention_4.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so] [--only FILE]

CHECKOUT: of github.com/Dao-AILab/flash-attention. The library needs chapter 15, or 18 and 19. Its rule: the error
against fp32 is at most twice that of the same computed in the low precision by PyTorch, plus 2 units in the last place.
In twelve cases that is less than the rounding of O to bf16 (notes/pytorch.md). No stage has windows with a negative
side, or lengths by seqused: these cases, more than a hundred thousand, are not made.
"""

import os
import sys

import suite

FILES = {
    "test_flash_attn.py": [
        "test_flash_attn_output", "test_flash_attn_learnable_sink_backward_dtype",
        "test_flash_attn_varlen_learnable_sink_backward_with_lse", "test_flash_attn_varlen_output",
        "test_flash_attn_lse_grad", "test_flash_attn_empty_q_dense", "test_flash_attn_empty_q_varlen",
    ],
    "test_flash_attn_fast.py": [
        "test_flash_attn_output", "test_flash_attn_varlen_output", "test_flash_attn_varlen_unpad_output",
    ],
    "test_flash_attn_race_condition.py": ["test_flash_attn_output"],
}  # fmt: skip


def accepts(name, parameters):
    if parameters.get("has_qv"):
        return "has_qv"
    if parameters.get("num_splits", 1) > 1:
        return "num_splits"
    d = parameters.get("d", 64)
    return "" if d in suite.head_dims(parameters.get("dtype", "bfloat16")) else f"d = {d}"


def main():
    given = suite.arguments(__doc__, files=FILES)
    os.environ["FLASH_ATTENTION_CHECKOUT"] = str(given.checkout)
    codes = []
    for name in [given.only] if given.only else FILES:
        unpadded = [(True, True)]
        options = {"local_enum": [0, 1], "unpad_q, unpad_kv": unpadded, "unpad_q,unpad_kv": unpadded}
        file = suite.cut(given.checkout / "tests" / "cute" / name, options)
        codes.append(suite.run(
            f"FlashAttention-4, tests/cute/{name}", given, file, FILES[name], accepts,
            [suite.HERE / "shims" / "flash_attn_4"], "flash_attn.cute.interface",
        ))  # fmt: skip
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
