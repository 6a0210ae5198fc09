"""FlashAttention-3's hopper/test_flash_attn.py against the book's package: forward and backward, with windows and
softcaps if the library has them. Each case begins with a random attention_chunk, which no stage has, unless windows are
switched off; here it has only the part without one.

    python3 tests/peers/flash_attention_3.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so]

CHECKOUT: of github.com/Dao-AILab/flash-attention. The suite's own switches leave out what the book has not; d = 64
cannot be had unchanged (it also asks for rows of V that are longer than those of K).
"""

import os
import re
import sys

import suite

SWITCHES = ["PACKGQA", "SPLIT", "FP8", "HDIM64", "HDIM96", "HDIM192", "HDIM256", "PAGEDKV", "APPENDKV"]
FUNCTIONS = ["test_flash_attn_output"]


def accepts(name, parameters):
    import torch

    if parameters.get("has_qv"):
        return "has_qv"
    shared = parameters.get("mha_type", "mha") != "mha"
    return suite.unserved(parameters["d"], parameters.get("dtype", torch.bfloat16), shared)


def main():
    given = suite.arguments(__doc__)
    for switch in SWITCHES if {"window", "softcap"} <= suite.masks() else ["LOCAL", "SOFTCAP", *SWITCHES]:
        os.environ[f"FLASH_ATTENTION_DISABLE_{switch}"] = "TRUE"
    sys.path.append(str(suite.HERE / "shims" / "pytorch_missing"))  # last: the real ones come first
    hopper = given.checkout / "hopper"
    file = suite.cut(hopper / "test_flash_attn.py")
    file.write_text(re.sub(r"(attention_chunk_vals = )\[torch.*", r"\1[0]", file.read_text()))
    return suite.run(
        "FlashAttention-3, hopper/test_flash_attn.py", given, file, FUNCTIONS, accepts,
        [suite.HERE / "shims" / "flash_attn_3", hopper], "flash_attn_interface",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
