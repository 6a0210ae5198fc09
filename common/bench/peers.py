"""Times PyTorch's scaled_dot_product_attention, one backend after the other, and its flex_attention, on given
shapes.

./workbook bench --peers runs this. It reads one JSON document from the file named as its argument:
  {"budget": seconds per shape, "shapes": [{"pass": "forward", "mask": "none", "B": 1, "H": 32, "Hkv": 32,
    "Nq": 4096, "N": 4096, "d": 64}, ...],
   "libraries": [path of a shared library, ...], "peers": [the only names of PyTorch's to time, ...]}
"peers" may be missing: then all are timed.
A mask is "none", "causal", "window=LEFT,RIGHT", "documents=N,N,…", "prefix=N" or "strided=WIDTH,STRIDE", optionally
followed by "+softcap=C", "+alibi", "+lengths=N,N,…".
A library is a peer named after its file (fa3.so: "fa3"), for the passes that it exports:
  int forward(const void* Q, const void* K, const void* V, void* O, float* LSE, int heads, int Nq, int Nk, int d,
              int causal, float scale, cudaStream_t stream)
  int backward(const void* Q, const void* K, const void* V, const void* O, const void* dO, const float* LSE, void* dQ,
               void* dK, void* dV, float* rows, float* dQ_sum, int heads, int Nq, int Nk, int d, int causal,
               float scale, cudaStream_t stream)
with fp16 tensors of shape (heads, N, d), heads = B·H, LSE of (heads, Nq); rows and dQ_sum are workspace: two
and d floats per query, with Nq padded to a multiple of 128. Both return a cudaError_t. A library is timed only if its
results equal PyTorch's up to the rounding of fp16.

It writes one JSON object per line to descriptor 3: first {"environment": {...}} or {"missing": why nothing is timed},
then for each shape and peer {"name", "library", "shape", "result", "message", "seconds": [...], "extra_bytes"}.

It times like the book times its own stages: random normal inputs in fp16, several sets in rotation that together
exceed L2, warm-up calls first, CUDA events around each call, and no synchronisation in between.
"""

import ctypes
import json
import math
import os
import pathlib
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


class NotSupported(RuntimeError):
    """A shape that the peer does not support."""


def events(calls, count):
    """The time of calls(i) in seconds, for i in range(count)."""
    pairs = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(count)]
    for i, (begin, end) in enumerate(pairs):
        begin.record()
        calls(i)
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]


def tensors_of(shape, copies_anyway):
    """Sets of Q, K, V, dO that together exceed L2; one set if the peer's own memory already exceeds it."""
    B, H, Hkv, Nq, N, d = (shape[key] for key in ("B", "H", "Hkv", "Nq", "N", "d"))
    sizes = [(B, H, Nq, d), (B, Hkv, N, d), (B, Hkv, N, d), (B, H, Nq, d)]
    one_set = sum(2 * math.prod(size) for size in sizes)
    count = max(2, math.ceil(2 * torch.cuda.get_device_properties(0).L2_cache_size / one_set))
    torch.manual_seed(1)
    return [
        [torch.randn(size, device="cuda").half() for size in sizes] for _ in range(1 if copies_anyway else count)
    ]


def timed(call, shape, budget):
    """The time of each call in seconds, and the bytes that a call allocates in addition to its results."""
    for i in range(3):
        call(i)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call(0)
    torch.cuda.synchronize()
    of_keys = 2 * shape["Hkv"] * shape["N"] if shape["pass"] == "backward" else 0  # rows of dK and dV
    results_bytes = 2 * shape["B"] * (shape["H"] * shape["Nq"] + of_keys) * shape["d"]
    extra = torch.cuda.max_memory_allocated() - before - results_bytes
    first = events(call, 1)[0]
    return events(call, int(min(max(budget / max(first, 1e-7), 3), 50))), max(extra, 0)


def measure_function(attention, sets, shape, budget):
    """Times attention(Q, K, V), or its gradients."""
    if shape["pass"] == "forward":

        @torch.no_grad()
        def call(i):
            return attention(*sets[i % len(sets)][:3])

        return timed(call, shape, budget)
    for tensors in sets:
        for tensor in tensors[:3]:
            tensor.requires_grad_(True)
    results = [attention(*s[:3]) for s in sets]

    def gradients(i):
        Q, K, V, dO = sets[i % len(sets)]
        return torch.autograd.grad(results[i % len(sets)], (Q, K, V), dO, retain_graph=True)

    return timed(gradients, shape, budget)


def measure_backend(shape, backend, budget):
    if shape["mask"] not in ("none", "causal"):
        raise NotSupported("scaled_dot_product_attention supports this mask only as a matrix")
    if shape["mask"] == "causal" and shape["Nq"] != shape["N"]:
        raise NotSupported("PyTorch's causal mask is aligned to the first key, the book's to the last")
    options = {"is_causal": shape["mask"] == "causal", "enable_gqa": shape["H"] != shape["Hkv"]}
    # Standard attention stores S and P of every set.
    sets = tensors_of(shape, shape["pass"] == "backward" and backend == SDPBackend.MATH)
    with sdpa_kernel(backend):
        return measure_function(lambda Q, K, V: scaled_dot_product_attention(Q, K, V, **options), sets, shape, budget)


def measure_flex(shape, _, budget):
    """flex_attention as documented: compiled, with a block mask and a score_mod."""
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    except ImportError:
        raise NotSupported("this PyTorch has no flex_attention") from None
    kind, *parts = shape["mask"].split("+")
    kind, _, sizes = kind.partition("=")
    values = dict(part.partition("=")[::2] for part in parts)
    if kind == "documents":
        values["lengths"] = sizes
    diagonal, heads = shape["N"] - shape["Nq"], shape["H"]
    allows, modifications = [], []
    if kind in ("causal", "documents"):
        allows.append(lambda q, k: k <= q + diagonal)
    elif kind == "prefix":
        allows.append(lambda q, k: (k <= q + diagonal) | (k < int(sizes)))
    elif kind != "none":
        left, right = map(int, sizes.split(","))
        if kind == "window":
            allows.append(lambda q, k: (k - q - diagonal >= -left) & (k - q - diagonal <= right))
        else:
            allows.append(lambda q, k: (k <= q + diagonal) & ((q + diagonal - k) % right < left))
    if "lengths" in values:
        lengths = torch.tensor([int(length) for length in values["lengths"].split(",")], device="cuda")
        document = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"), lengths)
        allows.append(lambda q, k: document[q] == document[k])
    if "softcap" in values:
        cap = float(values["softcap"])
        modifications.append(lambda score, h, q, k: cap * torch.tanh(score / cap))
    if "alibi" in values:
        modifications.append(
            lambda score, h, q, k: score - torch.exp2(-8.0 * (h + 1) / heads) * (q + diagonal - k).abs()
        )

    def mask(b, h, q, k):
        allowed = allows[0](q, k)
        for also in allows[1:]:
            allowed = allowed & also(q, k)
        return allowed

    def score_mod(score, b, h, q, k):
        for modification in modifications:
            score = modification(score, h, q, k)
        return score

    options = {"enable_gqa": shape["H"] != shape["Hkv"]}
    if allows:
        options["block_mask"] = create_block_mask(mask, None, None, shape["Nq"], shape["N"], device="cuda")
    if modifications:
        options["score_mod"] = score_mod
    torch._dynamo.reset()  # with a second shape it would compile a kernel for dynamic shapes
    compiled = torch.compile(flex_attention)
    return measure_function(lambda Q, K, V: compiled(Q, K, V, **options), tensors_of(shape, False), shape, budget)


def measure_window(shape, _, budget):
    """PyTorch's FlashAttention-2 with a window, which scaled_dot_product_attention does not expose."""
    left, right = map(int, shape["mask"].removeprefix("window=").split(","))
    window = {"window_size_left": left, "window_size_right": right}
    lengths = (None, None, shape["Nq"], shape["N"])
    ops = torch.ops.aten
    sets = [[tensor.transpose(1, 2) for tensor in tensors] for tensors in tensors_of(shape, False)]  # (B, N, H, d)
    results = [ops._flash_attention_forward(*s[:3], *lengths, 0.0, False, False, **window) for s in sets]

    def forward(i):
        return ops._flash_attention_forward(*sets[i % len(sets)][:3], *lengths, 0.0, False, False, **window)

    def backward(i):
        (Q, K, V, dO), (O, lse, state, unused, _) = sets[i % len(sets)], results[i % len(sets)]
        return ops._flash_attention_backward(dO, Q, K, V, O, lse, *lengths, 0.0, False, state, unused, **window)

    return timed(backward if shape["pass"] == "backward" else forward, shape, budget)


def pointers(tensors):
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def numbers_of(shape):
    """The arguments after the tensors."""
    if (shape["H"], shape["Nq"]) != (shape["Hkv"], shape["N"]) or shape["mask"] not in ("none", "causal"):
        raise NotSupported("a library supports only Hkv = H, Nk = Nq and no mask or the causal one")
    B, H, N, d = (shape[key] for key in "BHNd")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return B * H, N, N, d, int(shape["mask"] == "causal"), ctypes.c_float(1 / math.sqrt(d)), stream


def measure_forward(shape, library, budget):
    sets = tensors_of(shape, False)
    lse = torch.empty(shape["B"] * shape["H"], shape["N"], device="cuda")

    def call(i):
        Q, K, V = sets[i % len(sets)][:3]
        O = torch.empty_like(Q)
        error = library.forward(*pointers((Q, K, V, O, lse)), *numbers_of(shape))
        if error != 0:
            raise RuntimeError(f"forward() returned {error}")
        return O

    O = call(0)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
        expected = scaled_dot_product_attention(*sets[0][:3], is_causal=shape["mask"] == "causal")
    difference = (O.float() - expected.float()).abs().max().item()
    if not difference <= 4e-3:  # one unit in the last place of an O of size 4
        raise RuntimeError(f"its O differs from PyTorch's by up to {difference:.3g}")
    return timed(call, shape, budget)


def measure_backward(shape, library, budget):
    B, H, N, d = (shape[key] for key in "BHNd")
    numbers = numbers_of(shape)
    sets = tensors_of(shape, False)
    rows = B * H * ((N + 127) // 128 * 128)
    scratch = [torch.empty(rows * floats, device="cuda") for floats in (2, d)]
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    results = [flash(*s[:3], is_causal=shape["mask"] == "causal")[:2] for s in sets]  # O and LSE

    def call(i):
        Q, K, V, dO = sets[i % len(sets)]
        gradients = [torch.empty_like(Q) for _ in range(3)]
        tensors = (Q, K, V, results[i % len(sets)][0], dO, results[i % len(sets)][1], *gradients, *scratch)
        error = library.backward(*pointers(tensors), *numbers)
        if error != 0:
            raise RuntimeError(f"backward() returned {error}")
        return gradients

    got = call(0)
    Q, K, V, dO = (tensor.clone().requires_grad_(True) for tensor in sets[0])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        O = scaled_dot_product_attention(Q, K, V, is_causal=shape["mask"] == "causal")
    for name, mine, expected in zip(("dQ", "dK", "dV"), got, torch.autograd.grad(O, (Q, K, V), dO)):
        difference = ((mine.float() - expected.float()).norm() / expected.float().norm()).item()
        if not difference <= 4e-3:  # both round P and dS to fp16, and the gradients
            raise RuntimeError(f"its {name} differs from PyTorch's by {difference:.3g} of its norm")
    return timed(call, shape, budget)


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
    passes = {"forward": measure_forward, "backward": measure_backward}
    libraries = [(path, ctypes.CDLL(str(path))) for path in map(pathlib.Path, request.get("libraries", []))]
    for shape in request["shapes"]:
        peers = [(name, "PyTorch", measure_backend, backend) for name, backend in BACKENDS]
        peers.append(("FlexAttention", "PyTorch", measure_flex, None))
        if shape["mask"].startswith("window=") and "+" not in shape["mask"]:
            peers.append(("FlashAttention-2 window", "PyTorch", measure_window, None))
        peers = [peer for peer in peers if peer[0] in request.get("peers", [peer[0]])]
        for path, exports in libraries:
            if hasattr(exports, shape["pass"]):
                peers.append((path.stem, path.name, passes[shape["pass"]], exports))
        for name, library, measure, of in peers:
            answer = {"name": name, "library": library, "shape": shape, "result": "ok", "message": "", "seconds": [], "extra_bytes": None}
            try:
                answer["seconds"], answer["extra_bytes"] = measure(shape, of, request["budget"])
            except torch.OutOfMemoryError as error:
                answer["result"], answer["message"] = "out of memory", str(error).splitlines()[0]
            except Exception as error:  # including a compiler's errors
                refused = isinstance(error, NotSupported) or "No available kernel" in str(error)
                answer["result"] = "not supported" if refused else "failed"
                answer["message"] = str(error).splitlines()[0]
            torch.cuda.empty_cache()
            say(**answer)


main()
