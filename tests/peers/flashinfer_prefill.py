"""FlashInfer's tests/attention against the book's package: two libraries against each other, and each against
FlashInfer's own references.

    python3 tests/peers/flashinfer_prefill.py CHECKOUT AMPERE HOPPER [--limit SECONDS] [--only test_hopper.py]

CHECKOUT: of github.com/flashinfer-ai/flashinfer. AMPERE: a library of chapters 15 and 8; HOPPER: of 18 and 11. The
backend "fa2" of the tests is AMPERE, "fa3" is HOPPER. O and the LSE of both may differ by 1e-3.
"""

import argparse
import os
import pathlib
import re
import sys
import types

import suite

FILES = {
    "test_hopper.py": ["test_single_prefill", "test_batch_ragged_prefill"],
    "test_single_prefill.py": ["test_sinqle_prefill_with_paged_kv_cache", "test_single_prefill_extreme_negative_logits",
                               "test_single_prefill_masked_key_never_dominates"],
    "test_logits_cap.py": ["test_single_prefill_logits_soft_cap"],
    "test_sliding_window.py": ["test_single_prefill_sliding_window"],
    "test_alibi.py": ["test_single_prefill_alibi"],
    "test_non_contiguous_prefill.py": ["test_single_prefill_packed_input", "test_batch_ragged_prefill_packed_input"],
    "test_attention_sink.py": ["test_attention_sink"],
}  # fmt: skip
# A loop that copies one page at a time, for seconds, and the same without a loop.
PAGES = (
    r"for i, page_idx in enumerate\(kv_indices_fragmented\):\n"
    r"\s+k_paged_frag\[page_idx, 0\] = (\w+)\[i\]\n\s+v_paged_frag\[page_idx, 0\] = (\w+)\[i\]"
)
AT_ONCE = r"at = kv_indices_fragmented.long(); k_paged_frag[at, 0] = \1; v_paged_frag[at, 0] = \2"


def accepts(name, parameters):
    if parameters.get("num_qo_heads", 1) % parameters.get("num_kv_heads", 1):
        return "heads that are no multiple"
    d = parameters.get("head_dim", 64)
    return "" if d in (64, 128) else f"d = {d}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("ampere"), parser.add_argument("hopper")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each file after which no case is begun")
    parser.add_argument("--only", choices=FILES, help="one of the files")
    given = parser.parse_args()
    os.environ["WORKBOOK_FA2"], os.environ["WORKBOOK_FA3"] = given.ampere, given.hopper
    folder = given.checkout.resolve() / "tests" / "attention"
    codes = []
    for name, functions in FILES.items():
        if given.only in (None, name):
            file = folder / name
            if name == "test_attention_sink.py":
                file = suite.cut(file)
                file.write_text(re.sub(PAGES, AT_ONCE, file.read_text()))
            options = types.SimpleNamespace(checkout=given.checkout, limit=given.limit, list=False)
            folders = [suite.HERE / "shims" / "flashinfer", given.checkout.resolve()]
            codes.append(suite.run(f"FlashInfer, {name}", options, file, functions, accepts, folders, "flashinfer"))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
