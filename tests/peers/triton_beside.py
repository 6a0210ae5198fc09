"""The book's chapters 5 and 6 in Triton (notes/triton): right against float64, and timed beside the CUDA.

    ./workbook library --chapters 5,6 --solutions
    python3 tests/peers/triton_beside.py [--libraries libworkbook_cuda.so] [--limit SECONDS]
    TRITON_INTERPRET=1 python3 tests/peers/triton_beside.py        # without a GPU: right, not timed

The rule: an error of at most twice that of PyTorch's math in the same precision, and two units in the last place.
Times are medians of CUDA events around a call, back to back, inputs in the L2 cache as the last call left them. The
exit code is 0 if all is right.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

BOOK = pathlib.Path(__file__).resolve().parents[2]
INTERPRETED = os.environ.get("TRITON_INTERPRET", "") == "1"
sys.path[:0] = [str(BOOK / "python"), str(BOOK / "notes" / "triton")]
sys.dont_write_bytecode = True

import torch  # noqa: E402
import torch_checks  # noqa: E402
from backward import backward  # noqa: E402
from forward import forward  # noqa: E402

if INTERPRETED:  # its numbers are arrays of one element, of which NumPy since 2.4 makes no int
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor_and_index

torch_checks.torch = torch  # its main() imports it
DEVICE = "cpu" if INTERPRETED else "cuda"


def tensors(B, H, Nq, Nk, d, dtype):
    """Q, K, V and dO."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    sizes = [(B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, d), (B, H, Nq, d)]
    return [torch.randn(size, generator=generator, device=DEVICE).to(dtype) for size in sizes]


def by_pytorch(Q, K, V, dO, causal, dtype):
    """O, dQ, dK and dV by the definition, computed in `dtype`."""
    inputs = [x.to(dtype).requires_grad_() for x in (Q, K, V)]
    O = torch_checks.reference(*inputs, causal)
    return (O.detach(), *torch.autograd.grad(O, inputs, dO.to(dtype)))


def check(Nq, Nk, d, dtype, causal):
    """Whether O, LSE and the gradients are right; prints the worst of them."""
    Q, K, V, dO = tensors(1, 2, Nq, Nk, d, dtype)
    O, lse = forward(Q, K, V, causal)
    got = (O, *backward(dO, Q, K, V, O, lse, causal))
    exact = by_pytorch(Q, K, V, dO, causal, torch.float64)
    low = by_pytorch(Q, K, V, dO, causal, dtype)
    worst, where = 0.0, ""
    for name, mine, theirs, right in zip(("O", "dQ", "dK", "dV"), got, low, exact):
        error, of_pytorch = ((x.double() - right).abs().max().item() for x in (mine, theirs))
        allowed = 2 * of_pytorch + 2 * torch.finfo(dtype).eps * max(right.abs().max().item(), 1e-3)
        ratio = error / allowed if mine.isfinite().all() else float("inf")
        if ratio >= worst:
            worst, where = ratio, name
    S = Q.double() @ K.double().transpose(-1, -2) / d**0.5
    if causal:
        S = S.masked_fill(~torch.ones(Nq, Nk, dtype=torch.bool, device=DEVICE).tril(Nk - Nq), -torch.inf)
    lse_right = torch.allclose(lse.double(), torch.logsumexp(S, -1), rtol=1e-4, atol=1e-4)
    ok = worst <= 1 and lse_right
    print(f"  {'ok' if ok else 'WRONG'}: Nq = {Nq}, Nk = {Nk}, d = {d}, {dtype}, causal = {causal}: {where} has "
          f"{worst:.2f} of the error that is allowed; LSE {'right' if lse_right else 'WRONG'}", flush=True)  # fmt: skip
    return ok


def microseconds(call, seconds=0.4):
    """Of the GPU for a call: the median over CUDA events."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times, end = [], time.monotonic() + seconds
    while len(times) < 100 or time.monotonic() < end:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(21)]
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        torch.cuda.synchronize()
        times += [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]
    return statistics.median(times)


def timed(B, H, N, d, causal):
    """Prints the times of both passes, ours and Triton's, in fp16."""
    import flash_attention_workbook as workbook
    from flash_attention_workbook import torch_operators

    Q, K, V, dO = tensors(B, H, N, N, d, torch.float16)
    options = (1 / d**0.5, "causal" if causal else "none", False)
    O, lse = torch_operators.run_forward(Q, K, V, *options)
    chapters = {s.pass_: s.chapter for s in reversed(workbook.stages("cuda")) if s.element == "float16"}
    passes = {
        "forward": (lambda: torch_operators.run_forward(Q, K, V, *options), lambda: forward(Q, K, V, causal)),
        "backward": (lambda: torch_operators.run_backward(dO, Q, K, V, O, lse, *options),
                     lambda: backward(dO, Q, K, V, O, lse, causal)),
    }  # fmt: skip
    for name, (book, triton) in passes.items():
        flops = 4 * B * H * N * N * d * (0.5 if causal else 1) * (1 if name == "forward" else 2.5)
        first, second, third = microseconds(book), microseconds(triton), microseconds(book)  # order is no matter
        text = f"chapter {chapters[name]} {first:.1f} us, {flops / first / 1e6:.0f} TFLOPS (again: {third:.1f} us)"
        print(f"  {name}, B = {B}, H = {H}, N = {N}, d = {d}, causal = {causal}: {text}; "
              f"Triton {second:.1f} us, {flops / second / 1e6:.0f} TFLOPS; {second / first:.2f} of the time",
              flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--libraries", help="libraries of ./workbook library, with ':' between them")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which nothing more is begun")
    given = parser.parse_args()
    if given.libraries:
        os.environ["WORKBOOK_LIBRARY"] = given.libraries
    import triton

    begin = time.monotonic()
    where = "interpreter" if INTERPRETED else torch.cuda.get_device_name()
    print(f"Triton {triton.__version__}, PyTorch {torch.__version__}, {where}")
    lengths = ((1, 1), (64, 64), (113, 203), (70, 30)) if INTERPRETED else ((1, 1), (113, 203), (257, 70), (1000, 1000))
    kinds = [(32, torch.float16)]
    if not INTERPRETED:
        kinds += [(64, torch.float16), (128, torch.float16), (64, torch.bfloat16)]
    cases = [(Nq, Nk, *kind, causal) for kind in kinds for causal in (True, False) for Nq, Nk in lengths]
    results = []
    for case in cases:
        if time.monotonic() - begin > given.limit:
            print(f"  not run within {given.limit} s: {len(cases) - len(results)} of {len(cases)} cases")
            break
        results.append(check(*case))
    print(f"{sum(results)} of {len(cases)} cases right")
    if not INTERPRETED:
        for d in (64, 128):
            for causal in (True, False):
                timed(4, 16, 4096, d, causal)
    return 0 if results and all(results) and len(results) == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
