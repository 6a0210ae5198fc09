"""Times PyTorch's scaled_dot_product_attention, one backend after the other, and its flex_attention, on given
shapes.

./workbook bench --peers runs this. It reads one JSON document from the file named as its argument:
  {"budget": seconds per shape, "shapes": [{"pass": "forward", "mask": "none", "B": 1, "H": 32, "Hkv": 32,
    "Nq": 4096, "N": 4096, "d": 64}, ...],
   "libraries": [{"name": peer's name, "path": of a shared library}, ...],
   "peers": [the only names of PyTorch's to time, ...]}
"peers" may be missing: then all are timed.
A mask is "none", "causal", "window=LEFT,RIGHT", "documents=N,N,…", "prefix=N" or "strided=WIDTH,STRIDE", optionally
followed by "+softcap=C", "+alibi", "+lengths=N,N,…".
A library is a peer for each of these functions that it exports:
  int forward(const void* Q, const void* K, const void* V, void* O, float* LSE, const int* sizes, float scale,
              cudaStream_t stream)
  int forward_decoding(the same)
  int forward_fp8(const void* Q, const void* K, const void* V, void* O, float* LSE, float* Q_scales, float* K_scales,
                  float* V_scales, const int* sizes, float scale, cudaStream_t stream)
  int backward(const void* Q, const void* K, const void* V, const void* O, const void* dO, const float* LSE, void* dQ,
               void* dK, void* dV, float* workspace, const int* sizes, float scale, cudaStream_t stream)
sizes are heads, kv_heads, Nq, Nk, d, left, right, B: heads = B·H, kv_heads = B·Hkv, and a query attends to `left` keys
before its own and to `right` keys after it, where -1 means all. Nq = Nk, except for forward_decoding(). The tensors are
fp16 of shape (heads, N, d), LSE is (heads, Nq). forward_fp8() receives e4m3 codes and, for each K/V head, the scales by
which the codes are multiplied; its O is bf16. The name of that peer is NAME FP8, codes given: quantisation is not
timed. workspace has d + 3 floats for each row of Q and, if heads share K and V, 2·d for each row of K, of Nq + 128 and
Nk + 128 rows per head. All functions return a cudaError_t: cudaErrorNotSupported for a shape that they do not support.
A library is timed only if its results equal PyTorch's up to the rounding of fp16, or of P to e4m3.

It writes one JSON object per line to descriptor 3: first {"environment": {...}} or {"missing": why nothing is timed},
then for each shape and peer {"name", "library", "element", "shape", "result", "message", "seconds": [...],
"extra_bytes"}.

It times like the book times its own stages: random normal inputs in fp16, several sets in rotation that together
exceed L2, warm-up calls first, CUDA events around each call, and no synchronisation in between. Before the calls of
forward_decoding() the GPU waits, so that their times contain no time of the host, which Python's calls would add.
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


def events(calls, count, cycles):
    """The time of calls(i) in seconds, for i in range(count); the GPU first waits for this number of cycles."""
    pairs = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(count)]
    if cycles > 0:
        torch.cuda._sleep(cycles)
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


def timed(call, shape, budget, cycles=0):
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
    first = events(call, 1, cycles)[0]
    return events(call, int(min(max(budget / max(first, 1e-7), 3), 50)), cycles), max(extra, 0)


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


def window_of(shape):
    """How many keys a query attends to before and after its own; -1: all."""
    kind, _, sizes = shape["mask"].partition("=")
    if kind not in ("none", "causal", "window") or "+" in sizes:
        raise NotSupported("supported are no mask, the causal mask and windows")
    return {"none": (-1, -1), "causal": (-1, 0)}.get(kind) or tuple(map(int, sizes.split(",")))


def flash_options(shape):
    """The arguments that PyTorch's functions for FlashAttention-2 have in common, for tensors (B, N, H, d)."""
    left, right = window_of(shape)
    common = (None, None, shape["Nq"], shape["N"], 0.0, (left, right) == (-1, 0))
    return common, {"window_size_left": left, "window_size_right": right}


def measure_window(shape, _, budget):
    """PyTorch's FlashAttention-2 with a window, which scaled_dot_product_attention does not expose."""
    common, window = flash_options(shape)
    ops = torch.ops.aten
    sets = [[tensor.transpose(1, 2) for tensor in tensors] for tensors in tensors_of(shape, False)]  # (B, N, H, d)
    results = [ops._flash_attention_forward(*s[:3], *common, False, **window) for s in sets]

    def forward(i):
        return ops._flash_attention_forward(*sets[i % len(sets)][:3], *common, False, **window)

    def backward(i):
        (Q, K, V, dO), (O, lse, state, unused, _) = sets[i % len(sets)], results[i % len(sets)]
        return ops._flash_attention_backward(dO, Q, K, V, O, lse, *common, state, unused, **window)

    return timed(backward if shape["pass"] == "backward" else forward, shape, budget)


def flash_attention_2(shape, Q, K, V, dO):
    """PyTorch's O, LSE and a function for dQ, dK and dV; all but LSE are (B, H, N, d)."""
    common, window = flash_options(shape)
    ops = torch.ops.aten
    Q, K, V, dO = (tensor.transpose(1, 2) for tensor in (Q, K, V, dO))
    O, lse, state, unused, _ = ops._flash_attention_forward(Q, K, V, *common, False, **window)

    def gradients():
        values = ops._flash_attention_backward(dO, Q, K, V, O, lse, *common, state, unused, **window)
        return [gradient.transpose(1, 2) for gradient in values]

    return O.transpose(1, 2).contiguous(), lse, gradients


def caller_of(function, shape):
    """Calls a library's function with these tensors."""
    if shape["Nq"] != shape["N"] and function.__name__ != "forward_decoding":
        raise NotSupported("a library supports only Nk = Nq")
    B, H, Hkv, Nq, N, d = (shape[key] for key in ("B", "H", "Hkv", "Nq", "N", "d"))
    sizes = (ctypes.c_int * 8)(B * H, B * Hkv, Nq, N, d, *window_of(shape), B)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call(*tensors):
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        error = function(*pointers, sizes, ctypes.c_float(1 / math.sqrt(d)), stream)
        if error == 801:  # cudaErrorNotSupported
            raise NotSupported(f"{function.__name__}() does not support this shape")
        if error != 0:
            raise RuntimeError(f"{function.__name__}() returned {error}")

    return call


def check(name, got, expected, allowed):
    difference = ((got.float() - expected.float()).norm() / expected.float().norm()).item()
    if not difference <= allowed:
        raise RuntimeError(f"its {name} differs from PyTorch's by {difference:.3g} of its norm")


def forward_of(function, shape):
    """Calls of a library's function with each set, and the sets."""
    call, sets = caller_of(function, shape), tensors_of(shape, False)

    def forward(i):
        Q, K, V, _ = sets[i % len(sets)]
        O, lse = torch.empty_like(Q), torch.empty(Q.shape[:3], device="cuda")
        call(Q, K, V, O, lse)
        return O

    return forward, sets


def measure_forward_decoding(shape, library, budget):
    forward, sets = forward_of(library.forward_decoding, shape)
    for i, tensors in enumerate(sets):
        check("O", forward(i), flash_attention_2(shape, *tensors)[0], 4e-3)  # both round P and O to fp16
    return timed(forward, shape, budget, cycles=10**7)  # 5 ms


def measure_forward(shape, library, budget):
    forward, sets = forward_of(library.forward, shape)
    difference = (forward(0).float() - flash_attention_2(shape, *sets[0])[0].float()).abs().max().item()
    if not difference <= 4e-3:  # one unit in the last place of an O of size 4
        raise RuntimeError(f"its O differs from PyTorch's by up to {difference:.3g}")
    return timed(forward, shape, budget)


def codes_of(tensor, Hkv):
    """The e4m3 codes of a tensor (B, heads, N, d), their scales (B, Hkv), and what they stand for in fp16."""
    heads = tensor.float().reshape(tensor.shape[0], Hkv, -1)
    scales = heads.abs().amax(-1) / 448  # the largest number of e4m3
    codes = (heads / scales[..., None]).to(torch.float8_e4m3fn)
    return codes.reshape(tensor.shape), scales, (codes.float() * scales[..., None]).half().reshape(tensor.shape)


def measure_forward_fp8(shape, library, budget):
    call = caller_of(library.forward_fp8, shape)
    sets, expected = [], None
    for *tensors, dO in tensors_of(shape, False):
        codes, scales, decoded = zip(*(codes_of(tensor, shape["Hkv"]) for tensor in tensors))
        sets.append((codes, scales))
        if expected is None:
            expected = flash_attention_2(shape, *decoded, dO)[0]

    def forward(i):
        (Q, K, V), scales = sets[i % len(sets)]
        O, lse = torch.empty_like(Q, dtype=torch.bfloat16), torch.empty(Q.shape[:3], device="cuda")
        call(Q, K, V, O, lse, *scales)
        return O

    check("O", forward(0), expected, 1 / 16)  # e4m3 rounds an element of P by at most a sixteenth
    return timed(forward, shape, budget)


def measure_backward(shape, library, budget):
    call, sets = caller_of(library.backward, shape), tensors_of(shape, False)
    B, H, Hkv, Nq, N, d = (shape[key] for key in ("B", "H", "Hkv", "Nq", "N", "d"))
    floats = B * H * (Nq + 128) * (d + 3) + (B * Hkv * (N + 128) * 2 * d if Hkv != H else 0)
    results = [flash_attention_2(shape, *tensors) for tensors in sets]

    def backward(i):
        (Q, K, V, dO), (O, lse, _) = sets[i % len(sets)], results[i % len(sets)]
        gradients = [torch.empty_like(tensor) for tensor in (Q, K, V)]
        call(Q, K, V, O, dO, lse, *gradients, torch.empty(floats, device="cuda"))
        return gradients

    for name, mine, expected in zip(("dQ", "dK", "dV"), backward(0), results[0][2]()):
        check(name, mine, expected, 4e-3)  # both round P and dS to fp16, and the gradients
    return timed(backward, shape, budget)


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
    functions = {
        "forward": measure_forward,
        "forward_decoding": measure_forward_decoding,
        "forward_fp8": measure_forward_fp8,
        "backward": measure_backward,
    }
    libraries = [(one["name"], one["path"], ctypes.CDLL(one["path"])) for one in request.get("libraries", [])]
    for shape in request["shapes"]:
        peers = [(name, "PyTorch", measure_backend, backend) for name, backend in BACKENDS]
        peers.append(("FlexAttention", "PyTorch", measure_flex, None))
        if shape["mask"].startswith("window=") and "+" not in shape["mask"]:
            peers.append(("FlashAttention-2 window", "PyTorch", measure_window, None))
        peers = [peer for peer in peers if peer[0] in request.get("peers", [peer[0]])]
        for name, path, exports in libraries:
            for function, measure in functions.items():
                if function.startswith(shape["pass"]) and hasattr(exports, function):
                    fp8 = " FP8, codes given" if function == "forward_fp8" else ""
                    peers.append((name + fp8, pathlib.Path(path).name, measure, exports))
        for name, library, measure, of in peers:
            element = "float8" if measure is measure_forward_fp8 else "float16"
            answer = {"name": name, "library": library, "element": element, "shape": shape, "result": "ok"}
            answer.update(message="", seconds=[], extra_bytes=None)
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
