"""FlashInfer's tests/attention against the book's package: two libraries against each other, and each against
FlashInfer's own references.

    python3 tests/peers/flashinfer_prefill.py CHECKOUT AMPERE HOPPER [--limit SECONDS] [--only test_hopper.py]

CHECKOUT: of github.com/flashinfer-ai/flashinfer. AMPERE: a library of chapters 15 and 8; HOPPER: of 18 and 11. The
backend "fa2" of the tests is AMPERE, "fa3" is HOPPER. O and the LSE of both may differ by 1e-3.
"""

import os
import re
import sys

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
    given = suite.arguments(__doc__, "ampere", "hopper", files=FILES)
    os.environ["WORKBOOK_FA2"], os.environ["WORKBOOK_FA3"] = given.ampere, given.hopper
    folders = [suite.HERE / "shims" / "flashinfer", given.checkout]
    codes = []
    for name in [given.only] if given.only else FILES:
        file = given.checkout / "tests" / "attention" / name
        if name == "test_attention_sink.py":
            file = suite.cut(file)
            file.write_text(re.sub(PAGES, AT_ONCE, file.read_text()))
        codes.append(suite.run(f"FlashInfer, {name}", given, file, FILES[name], accepts, folders, "flashinfer"))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
