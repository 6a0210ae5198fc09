"""FlashAttention-3's hopper/test_flash_attn.py, as it is, against the book's package: forward and backward,
with windows and softcaps if the library has them.

    python3 tests/peers/flash_attention_3.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so]

CHECKOUT: of github.com/Dao-AILab/flash-attention. The suite's own switches leave out what the book has not; d = 64
cannot be had unchanged (it also asks for rows of V that are longer than those of K).
"""

import os
import sys

import suite

SWITCHES = ["PACKGQA", "SPLIT", "FP8", "HDIM64", "HDIM96", "HDIM192", "HDIM256", "PAGEDKV", "APPENDKV"]
FUNCTIONS = ["test_flash_attn_output"]


def accepts(name, parameters):
    import torch

    if parameters.get("has_qv"):
        return "has_qv"
    if parameters.get("mha_type", "mha") != "mha" and not suite.shared_heads():
        return "mqa and gqa"
    d = parameters["d"]
    return "" if d in suite.head_dims(parameters.get("dtype", torch.bfloat16)) else f"d = {d}"


def main():
    given = suite.arguments(__doc__)
    for switch in SWITCHES if {"window", "softcap"} <= suite.masks() else ["LOCAL", "SOFTCAP", *SWITCHES]:
        os.environ[f"FLASH_ATTENTION_DISABLE_{switch}"] = "TRUE"
    sys.path.append(str(suite.HERE / "shims" / "pytorch_missing"))  # last: the real ones come first
    hopper = given.checkout / "hopper"
    return suite.run(
        "FlashAttention-3, hopper/test_flash_attn.py", given, hopper / "test_flash_attn.py", FUNCTIONS, accepts,
        [suite.HERE / "shims" / "flash_attn_3", hopper], "flash_attn_interface",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
