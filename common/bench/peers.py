"""Times PyTorch's scaled_dot_product_attention, one backend after the other, on the shapes that ./workbook bench gives.

./workbook bench --peers runs this. Reads one JSON document from the file named as its argument:
  {"budget": seconds a shape, "shapes": [{"pass": "forward", "causal": false, "B": 1, "H": 32, "N": 4096, "d": 64}, ...]}
Writes one JSON object a line to descriptor 3: first {"environment": {...}} or {"missing": why nothing can be timed},
then for each shape and backend {"name", "shape", "result", "message", "seconds": [...], "extra_bytes"}.

As the book times its own stages: random normal inputs in fp16, several sets in turn that are together larger than L2,
calls that are not counted first, CUDA events around each call, nothing waited for in between.
"""

import json
import math
import os
import sys

out = os.fdopen(3, "w", buffering=1)


def say(**values):
    out.write(json.dumps(values) + "\n")


try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except ImportError as error:
    say(missing=f"PyTorch was not found by {sys.executable} ({error})")
    sys.exit(0)
if not torch.cuda.is_available():
    say(missing=f"PyTorch {torch.__version__} of {sys.executable} sees no GPU")
    sys.exit(0)

BACKENDS = [
    ("SDPA math", SDPBackend.MATH),
    ("SDPA memory-efficient", SDPBackend.EFFICIENT_ATTENTION),
    ("SDPA FlashAttention-2", SDPBackend.FLASH_ATTENTION),
    ("SDPA cuDNN", SDPBackend.CUDNN_ATTENTION),
]


def events(calls, count):
    """Seconds of call i for i in range(count)."""
    pairs = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(count)]
    for i, (begin, end) in enumerate(pairs):
        begin.record()
        calls(i)
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]


def measure(shape, backend, budget):
    B, H, N, d = (shape[key] for key in "BHNd")
    backward = shape["pass"] == "backward"
    one_set = 4 * 2 * B * H * N * d
    count = max(2, math.ceil(2 * torch.cuda.get_device_properties(0).L2_cache_size / one_set))
    if backward and backend == SDPBackend.MATH:
        count = 1  # it keeps S and P of every set: larger than L2 by themselves
    torch.manual_seed(1)
    sets = []
    for _ in range(count):
        tensors = [torch.randn(B, H, N, d, device="cuda").half() for _ in range(4)]
        for tensor in tensors[:3]:
            tensor.requires_grad_(backward)
        sets.append(tensors)
    with sdpa_kernel(backend):
        if backward:
            results = [scaled_dot_product_attention(*s[:3], is_causal=shape["causal"]) for s in sets]

            def call(i):
                Q, K, V, dO = sets[i % count]
                return torch.autograd.grad(results[i % count], (Q, K, V), dO, retain_graph=True)
        else:

            @torch.no_grad()
            def call(i):
                return scaled_dot_product_attention(*sets[i % count][:3], is_causal=shape["causal"])

        for i in range(3):
            call(i)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call(0)
        torch.cuda.synchronize()
        results_bytes = (3 if backward else 1) * 2 * B * H * N * d
        extra = torch.cuda.max_memory_allocated() - before - results_bytes
        first = events(call, 1)[0]
        return events(call, int(min(max(budget / max(first, 1e-7), 3), 50))), max(extra, 0)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    say(
        environment={
            "PyTorch": torch.__version__,
            "PyTorch's CUDA": str(torch.version.cuda),
            "cuDNN": str(torch.backends.cudnn.version()),
        }
    )
    for shape in request["shapes"]:
        for name, backend in BACKENDS:
            answer = {"name": name, "shape": shape, "result": "ok", "message": "", "seconds": [], "extra_bytes": None}
            try:
                answer["seconds"], answer["extra_bytes"] = measure(shape, backend, request["budget"])
            except torch.OutOfMemoryError as error:
                answer["result"], answer["message"] = "out of memory", str(error).splitlines()[0]
            except RuntimeError as error:
                refused = "No available kernel" in str(error)
                answer["result"] = "not supported" if refused else "failed"
                answer["message"] = str(error).splitlines()[0]
            torch.cuda.empty_cache()
            say(**answer)


main()
