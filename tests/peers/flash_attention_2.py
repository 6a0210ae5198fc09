"""FlashAttention-2's tests/test_flash_attn.py against the book's package: its cases without dropout and ALiBi, whose
slopes are random there; of those with a cache, the ones without windows and padding on the left.

    python3 tests/peers/flash_attention_2.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so]

CHECKOUT: of github.com/Dao-AILab/flash-attention. Its rule: the error against fp32 is at most twice that of the same
computed in the low precision by PyTorch (three times for the gradients in the output test).
"""

import os
import sys

import suite

FUNCTIONS = [
    "test_flash_attn_qkvpacked", "test_flash_attn_output", "test_flash_attn_causal", "test_flash_attn_splitkv",
    "test_flash_attn_varlen_qkvpacked", "test_flash_attn_varlen_output", "test_flash_attn_varlen_causal",
    "test_flash_attn_race_condition", "test_flash_attn_bwd_overflow", "test_flash_attn_bwd_transpose",
    "test_flash_attn_deterministic", "test_flash_attn_kvcache",
]  # fmt: skip
OFF = {"dropout_p": 0.0, "alibi": False}
OFF_WITH_CACHE = {"local": False, "has_leftpad": False}


def accepts(name, parameters):
    import torch

    for option, off in {**OFF, **(OFF_WITH_CACHE if name == "test_flash_attn_kvcache" else {})}.items():
        if parameters.get(option, off) != off:
            return option
    shared = parameters.get("mha_type", "mha") != "mha"
    if name == "test_flash_attn_kvcache":
        import flash_attention_workbook as workbook

        dims = [d for stage in workbook.stages("cuda") if "cache" in stage.masks for d in stage.head_dims]
        return "" if parameters.get("d") in dims else f"d = {parameters.get('d')} with a cache"
    return suite.unserved(parameters["d"], parameters.get("dtype", torch.float16), shared)


def main():
    given = suite.arguments(__doc__)
    os.environ["FLASH_ATTENTION_CHECKOUT"] = str(given.checkout)
    file = suite.cut(given.checkout / "tests" / "test_flash_attn.py", {"alibi": [False], "dropout_p": [0.0]})
    return suite.run(
        "FlashAttention-2, tests/test_flash_attn.py", given, file, FUNCTIONS, accepts,
        [suite.HERE / "shims" / "flash_attn_2"], "flash_attn",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
