"""xformers' tests/test_mem_eff_attention.py against the book's package, which stands for FlashAttention-2 there: the
cases of the operators fa2F and fa2B, with biases that are none, causal, windows and packed sequences.

    python3 tests/peers/xformers_attention.py CHECKOUT [--limit SECONDS] [--libraries libworkbook_cuda.so]

CHECKOUT: of github.com/facebookresearch/xformers, at 0362871e or another commit before its attention moved to MSLK.
The checkout itself is the package: nothing is built. Its rule: a tolerance for each type, with inputs three times as
large as elsewhere. The library needs chapter 15, or 18 and 19.

The rule assumes that the largest element of P is 1, so that its rounding to 16 bits is exact. The book's kernels, as
FlashAttention-4's, let the maximum lag by up to 8, so that P V has an error of up to u·ΣP|V|, and O's rounding
adds u·|O|, with u = 2^-11 in fp16 and 2^-8 in bf16. For |O| = ΣP|V| = 10 in fp16 that is 0.0098; 0.008 is allowed.
"""

import re
import sys

import suite

FUNCTIONS = [
    "test_forward_gqa_one_group", "test_forward_gqa", "test_forward_splitk", "test_forward", "test_logsumexp_mqa",
    "test_logsumexp", "test_backward_gqa", "test_backward", "test_lowlevel_api_shapes", "test_cuda_streams",
    "test_custom_scale", "test_grad_checkpointing", "test_mqa_decoding", "test_empty_tensors", "test_memeff_compile",
    "test_unsupported_stride",
]  # fmt: skip


def accepts(name, parameters):
    values = [y for x in parameters.values() for y in (x if isinstance(x, tuple) else (x,))]
    operators = [x.NAME for x in values if hasattr(x, "NAME")]
    if not any(x.startswith("fa2") for x in operators):
        return "another operator"
    kinds = [x.__name__ for x in values if isinstance(x, type)]
    if any(word in kind for kind in kinds for word in ("Paged", "Padded", "Gappy")):
        return "paged, padded or gappy keys"
    sizes = [x for x in values if isinstance(x, int) and not isinstance(x, bool)]
    d = sizes[-1] if len(sizes) >= 4 else 0  # B, Mq, Mkv, H, K, Kv, or B, Mkv, H, K
    return "d > 128" if d > 128 else ""


def expected(case, why):
    """Elements of O beyond the tolerance by less than the rounding of P explains."""
    found = re.search(r"^AssertionError: (?:fw pass|failed).* ref=(\S+) \(diff=(\S+) > 0\).*elements: (\d+) ", why)
    if not found:
        return ""
    reference, beyond, count = float(found[1]), float(found[2]), int(found[3])
    u = 2**-8 if "bfloat16" in case else 2**-11
    rounding = u * max(abs(reference), 6)  # V has numbers of up to about 12; ΣP|V| is at least |O|
    return f"O is beyond its tolerance by {beyond:.1e} in {count} elements" if beyond < rounding and count < 10 else ""


def main():
    given = suite.arguments(__doc__)
    file = given.checkout / "tests" / "test_mem_eff_attention.py"
    return suite.run(
        "xformers, tests/test_mem_eff_attention.py", given, file, FUNCTIONS, accepts,
        [suite.HERE / "shims" / "xformers", given.checkout], "flash_attn", expected,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
