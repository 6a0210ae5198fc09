"""What a reader of notes/pytorch.md tries first, one line per trial: calls that must work, and calls that must be
refused by an error that says what is allowed.

    python3 tests/peers/torch_walk.py [--libraries libworkbook_cuda.so] [--only compile,graph] [--device cpu]

The library needs chapter 15, or 18 and 19, one for every d, and 21. A line begins with "ok", "refused" (as expected:
the text follows, for the reader to judge) or "FAULT": a wrong result, an error where there should be none, or an error
of another kind. "PyTorch" is an error of PyTorch's own that no package can change. --device cpu: on the simulator,
without the trials that need a GPU. The exit code is 0 without faults.
"""

import argparse
import copy
import io
import os
import pathlib
import pickle
import signal
import sys
import tempfile
import threading
import time
import warnings

BOOK = pathlib.Path(__file__).resolve().parents[2]
TRIALS = []
WORKS, REFUSED, PYTORCH = "works", "refused", "PyTorch's error"
_N = 70


def trial(expected=WORKS, on_gpu=False, limit=60):
    def add(function):
        TRIALS.append((function.__name__, expected, on_gpu, limit, function))
        return function

    return add


def trials(expected, cases, prefix):
    for name, call in cases.items():
        TRIALS.append((f"{prefix}: {name}", expected, False, 60, call))


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def tensors(B=2, H=4, N=_N, d=64, dtype=None, grad=True, Hkv=None, Nk=None, seed=0):
    """Q, K, V: (B, H, N, d)."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, H, N, d)] + [(B, Hkv or H, Nk or N, d)] * 2
    made = [torch.randn(s, generator=generator, device="cpu") for s in shapes]
    return [x.to(device=device, dtype=dtype or torch.float16).requires_grad_(grad) for x in made]


def rows_first(B=2, N=_N, H=4, d=64, **options):
    """q, k, v: (B, N, H, d)."""
    return [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors(B, H, N, d, **options)]


def reference(Q, K, V, causal=False, left=None, sink=None, cap=0.0, scale=None):
    """O and LSE in fp32."""
    G = Q.shape[1] // K.shape[1]
    q, k, v = Q.float(), K.float().repeat_interleave(G, 1), V.float().repeat_interleave(G, 1)
    S = q @ k.transpose(-1, -2) * (Q.shape[-1] ** -0.5 if scale is None else scale)
    S = cap * torch.tanh(S / cap) if cap else S
    Nq, Nk = S.shape[-2:]
    distance = torch.arange(Nk - Nq, Nk, device=S.device)[:, None] - torch.arange(Nk, device=S.device)
    if causal:
        S = S.masked_fill(distance < 0, -float("inf"))
    if left is not None:
        S = S.masked_fill(distance > left, -float("inf"))
    if sink is not None:
        S = torch.cat([S, sink.float()[:, None, None].expand(*S.shape[:3], 1)], -1)
    return torch.softmax(S, -1)[..., :Nk] @ v, torch.logsumexp(S, -1)


def near(got, right, what="O", factor=1.0):
    """The relative error, compared with a few roundings of the type."""
    error = ((got.double() - right.double()).norm() / right.double().norm().clamp(min=1e-9)).item()
    allowed = factor * (4e-3 if got.dtype != torch.bfloat16 else 2.5e-2)
    require(got.shape == right.shape and error <= allowed, f"{what}: {tuple(got.shape)}, relative error {error:.2g}")


def refuses(said, call):
    """The call must raise NotServed with this text."""
    try:
        call()
    except workbook.NotServed as error:
        require(said in str(error), f"{said!r} is not in {error}")
    else:
        raise AssertionError(f"no error; expected: {said}")


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend, **options)


def same_with_gradients(way, plain, given, outputs=1):
    """The results and gradients of two functions, of which dQ may differ by the order of its additions."""
    got, right = way(*given), plain(*given)
    got, right = (x if isinstance(x, tuple) else (x,) for x in (got, right))
    for x, y in zip(got[:outputs], right[:outputs]):
        near(x, y, "a result")
    loss = lambda results: sum((x.float() * torch.linspace(-1, 1, x.shape[-1], device=device)).sum()
                               for x in results[:outputs])  # fmt: skip
    inputs = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    for x, y in zip(torch.autograd.grad(loss(got), inputs), torch.autograd.grad(loss(right), inputs)):
        near(x, y, "a gradient", 2)


def starts(*lengths, on=None, dtype=None):
    return torch.tensor([0, *lengths], device=on or device).cumsum(0).to(dtype or torch.int32)


def block_class():
    nn = torch.nn

    class Block(nn.Module):
        """A transformer block's attention, as notes/pytorch.md shows it, with sinks and a term of the LSE."""

        def __init__(self, width=256, heads=4, sinks=False):
            super().__init__()
            self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
            self.sinks = nn.Parameter(torch.zeros(heads)) if sinks else None

        def forward(self, x):
            B, N, width = x.shape
            q, k, v = (y.transpose(1, 2) for y in self.qkv(x).view(B, N, 3, self.heads, -1).unbind(2))
            O, lse = workbook.attention(q, k, v, causal=True, sink=self.sinks, return_lse=True)
            return self.out(O.transpose(1, 2).reshape(B, N, width)), lse

    return Block


def model(sinks=True, dtype=None, seed=3):
    torch.manual_seed(seed)
    return block_class()(sinks=sinks).to(device=device, dtype=dtype or torch.bfloat16)


def ids(dtype=None):
    return torch.randn(2, _N, 256, generator=torch.Generator().manual_seed(5)).to(device, dtype or torch.bfloat16)


def loss_of(results):
    y, lse = results
    return y.float().pow(2).mean() + 1e-3 * lse.pow(2).mean()


def gradients_of(module, x, run=None):
    module.zero_grad(set_to_none=True)
    loss = loss_of((module if run is None else run)(x))
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad.clone() for name, p in module.named_parameters()}


def same_model(module, x, run, factor=1.0):
    right, got = gradients_of(module, x), gradients_of(module, x, run)
    require(right.keys() == got.keys(), f"{right.keys() ^ got.keys()}")
    for name in right:
        near(got[name].to(right[name].dtype), right[name], name, factor)


# --- torch.compile ---------------------------------------------------------------------------------------------------


@trial(limit=120)
def compile_attention_and_its_lse():
    way = lambda q, k, v: workbook.attention(q, k, v, causal=True, return_lse=True)
    same_with_gradients(compiled(way), way, tensors(), 2)


@trial(limit=120)
def compile_flash_attn_func_with_everything():
    sink = torch.linspace(-1, 1, 4, device=device).bfloat16().requires_grad_()
    way = lambda q, k, v, s: workbook.flash_attn_func(
        q, k, v, causal=True, window_size=(20, 0), softcap=30.0, sink=s, deterministic=True, return_attn_probs=True
    )
    same_with_gradients(compiled(way), way, (*rows_first(dtype=torch.bfloat16), sink), 2)


@trial(limit=120)
def compile_a_model_under_autocast():
    module, x = model(dtype=torch.float32), ids(torch.float32)

    def run(y):
        with torch.autocast(device, torch.bfloat16):
            return module(y)

    right, got = gradients_of(module, x, run), gradients_of(module, x, compiled(run))
    for name in right:
        near(got[name], right[name], name, 8)


@trial(limit=120)
def compile_with_lengths_that_change():
    made = compiled(lambda q, k, v: workbook.attention(q, k, v, causal=True))
    for N in (64, 70, 33, 129, 1):
        given = tensors(N=N)
        near(made(*given), workbook.attention(*given, causal=True))


@trial(limit=120)
def compile_with_a_dynamic_batch():
    made = compiled(lambda q, k, v: workbook.attention(q, k, v, causal=True, return_lse=True)[0], dynamic=True)
    for B in (2, 3, 5):
        given = tensors(B=B)
        same_with_gradients(made, lambda *x: workbook.attention(*x, causal=True), given)


@trial(on_gpu=True, limit=180)
def compile_reduce_overhead():
    module, x = model(), ids()
    made = compiled(module, mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        same_model(module, x, made, 4)


@trial(on_gpu=True, limit=180)
def compile_reduce_overhead_lengths_never_seen():
    way = lambda q, k, v: workbook.attention(q, k, v, causal=True, lengths=(11, 23, 36)) * 2
    made, given = compiled(way, mode="reduce-overhead"), tensors()
    results = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        results.append(made(*given))
        torch.autograd.grad(results[-1].sum(), given)
        results[-1] = results[-1].detach().clone()
    for x in results:
        near(x, way(*given))


@trial(on_gpu=True, limit=180)
def compile_reduce_overhead_cu_seqlens():
    way = lambda q, k, v, c: workbook.flash_attn_varlen_func(q, k, v, c, c, 70, 70, causal=True) * 2
    made = compiled(way, mode="reduce-overhead")
    q, k, v = (x[0].detach().requires_grad_() for x in rows_first(1))
    for lengths in ((30, 40), (10, 60), (70, 0), (1, 69)):
        torch.compiler.cudagraph_mark_step_begin()
        out = made(q, k, v, starts(*lengths))
        torch.autograd.grad(out.sum(), (q, k, v))
        near(out.detach().clone(), way(q, k, v, starts(*lengths)))


@trial(limit=120)
def compile_cu_seqlens_without_a_new_compilation():
    way = lambda q, k, v, c: workbook.flash_attn_varlen_func(q, k, v, c, c, 70, 70, causal=True, return_attn_probs=True)
    made = compiled(way)
    given = [x[0].detach().requires_grad_() for x in rows_first(1)]
    graphs = []
    for lengths in ((30, 40), (10, 60), (70, 0), (1, 69)):
        same_with_gradients(made, way, (*given, starts(*lengths)), 2)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    require(graphs[0] == graphs[-1], f"compilations: {graphs}")


@trial(limit=120)
def lengths_as_a_tensor():
    given = tensors()
    right = workbook.attention(*given, causal=True, lengths=(30, 40))
    near(workbook.attention(*given, causal=True, lengths=torch.tensor([30, 40], device=device)), right)
    made = compiled(lambda q, k, v, n: workbook.attention(q, k, v, causal=True, lengths=n))
    for lengths in ((30, 40), (10, 60)):
        near(made(*given, lengths), workbook.attention(*given, causal=True, lengths=lengths))


@trial(limit=120)
def compile_with_numbers_that_change():
    """A number that changes from call to call is a variable for torch.compile, a length or a scale too."""
    made = compiled(lambda q, k, v, scale: workbook.attention(q, k, v, scale=scale))
    windowed = lambda q, k, v, n: workbook.flash_attn_func(q, k, v, window_size=(n, 0), softcap=2.0 * n)
    made_windowed = compiled(windowed)
    for n in (10, 20, 30):
        given = tensors()
        near(made(*given, 1 / n), workbook.attention(*given, scale=1 / n))
        given = rows_first()
        near(made_windowed(*given, n), windowed(*given, n))


@trial(limit=120)
def compile_with_whole_numbers_as_scales():
    for dynamic in (None, True):
        made = compiled(lambda q, k, v, scale: workbook.attention(q, k, v, scale=scale), dynamic=dynamic)
        given = tensors()
        for scale in (1, 2, 3):
            near(made(*given, scale), workbook.attention(*given, scale=scale))


@trial(limit=120)
def compile_a_scale_that_is_a_tensor():
    """PyTorch breaks its graph there."""
    torch._dynamo.reset()
    given, scale = tensors(), torch.tensor(0.2, device=device)
    made = torch.compile(lambda q, k, v, s: workbook.attention(q, k, v, scale=s), backend=backend)
    near(made(*given, scale), workbook.attention(*given, scale=0.2))


@trial(REFUSED)
def compile_lengths_with_none():
    compiled(lambda *x: workbook.attention(*x, lengths=[None, 70]))(*tensors())


@trial(limit=120)
def compile_cu_seqlens_of_other_sizes():
    way = lambda q, k, v, c, n: workbook.flash_attn_varlen_func(q, k, v, c, c, n, n, causal=True)
    made = compiled(way)
    for lengths in ((30, 40), (10, 20, 40), (91,), (1,) * 7):
        given = [x[0].detach().requires_grad_() for x in rows_first(1, N=sum(lengths))]
        same_with_gradients(made, way, (*given, starts(*lengths), max(lengths)))


@trial(limit=120)
def compile_a_model_for_inference():
    module, x = model().eval(), ids()
    made = compiled(module)
    with torch.inference_mode():
        near(made(x)[0], module(x)[0])
    near(copy.deepcopy(made)(x)[0], module(x)[0])


@trial(REFUSED)
def compile_with_slopes():
    slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625], device=device)
    compiled(lambda q, k, v, s: workbook.flash_attn_func(q, k, v, causal=True, alibi_slopes=s))(*rows_first(), slopes)


@trial(limit=120)
def compile_with_slopes_as_a_list():
    way = lambda *x: workbook.flash_attn_func(*x, causal=True, alibi_slopes=[0.25, 0.0625, 0.015625, 0.00390625])
    same_with_gradients(compiled(way), way, rows_first())


@trial(limit=120)
def compile_a_mask_with_everything():
    way = lambda q, k, v: workbook.attention(q, k, v, mask="window=9,0+softcap=5+alibi", sink=[0.5, 0.1, 0.2, 0.3])
    same_with_gradients(compiled(way), way, tensors(Hkv=2))


@trial(limit=120)
def compile_with_checkpointing():
    from torch.utils.checkpoint import checkpoint

    module, x = model(), ids()
    same_model(module, x, compiled(lambda y: checkpoint(module, y, use_reentrant=False)), 4)


@trial(REFUSED)
def compile_a_head_dimension_that_is_not_served():
    compiled(lambda q, k, v: workbook.attention(q, k, v))(*tensors(d=72))


@trial(REFUSED)
def compile_a_mask_that_is_wrong():
    compiled(lambda q, k, v: workbook.attention(q, k, v, mask="windows=3"))(*tensors())


@trial(REFUSED)
def compile_causal_and_mask():
    compiled(lambda q, k, v: workbook.attention(q, k, v, causal=True, mask="causal"))(*tensors())


@trial(REFUSED)
def compile_what_is_no_mask():
    bools = torch.ones(4, 4, device=device).bool()
    compiled(lambda *x: workbook.attention(*x, mask=bools))(*tensors())


@trial(REFUSED)
def compile_a_window_of_text():
    compiled(lambda *x: workbook.flash_attn_func(*x, window_size="x"))(*rows_first())


@trial(REFUSED)
def compile_a_window_of_floats():
    compiled(lambda *x: workbook.flash_attn_func(*x, window_size=(2.0, 0)))(*rows_first())


@trial(REFUSED)
def compile_sinks_of_other_heads():
    compiled(lambda q, k, v, s: workbook.flash_attn_func(q, k, v, sink=s))(*rows_first(), torch.zeros(5, device=device))


@trial(REFUSED)
def compile_lengths_as_a_tensor():
    lengths = torch.tensor([30, 40])
    compiled(lambda *x: workbook.attention(*x, lengths=lengths))(*tensors())


@trial(REFUSED)
def compile_shapes_that_do_not_fit():
    q, k, v = rows_first()
    compiled(workbook.flash_attn_func)(q, k, v[:, :60])


@trial(REFUSED)
def compile_float32():
    compiled(lambda q, k, v: workbook.flash_attn_func(q, k, v))(*rows_first(dtype=torch.float32))


@trial(limit=120)
def export_a_model_and_run_it():
    module, x = model().eval(), ids()
    for strict in (False, True):
        exported = torch.export.export(module, (x,), strict=strict)
        near(exported.module()(x)[0], module(x)[0])
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    near(torch.export.load(file).module()(x)[0], module(x)[0])


@trial(limit=120)
def export_with_a_dynamic_length():
    module = model().eval()
    dynamic = {"x": {1: torch.export.Dim("N", min=2, max=4096)}}
    exported = torch.export.export(module, (ids(),), dynamic_shapes=dynamic).module()
    for N in (40, 133):
        x = torch.randn(2, N, 256, device=device).bfloat16()
        near(exported(x)[0], module(x)[0])


@trial()
def jit_trace():
    module, x = model().eval(), ids()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, (x,), check_trace=False)
        near(traced(x)[0], module(x)[0])


@trial(PYTORCH)
def jit_script():
    torch.jit.script(model())


@trial(PYTORCH)
def fx_symbolic_trace():
    torch.fx.symbolic_trace(model())


@trial()
def make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx as make

    way = lambda q, k, v: workbook.attention(q, k, v, causal=True)
    given = tensors(grad=False)
    near(make(way)(*given)(*given), way(*given))


# --- CUDA graphs, streams, threads -----------------------------------------------------------------------------------


def warmed_up(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)


@trial(on_gpu=True)
def graph_forward_and_backward_of_a_model():
    module, x = model(), ids()
    warmed_up(lambda: gradients_of(module, x))
    graph = torch.cuda.CUDAGraph()
    module.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = loss_of(module(x))
        loss.backward()
    static = {name: p.grad for name, p in module.named_parameters()}
    x.copy_(torch.randn_like(x))
    graph.replay()
    got = {name: g.clone() for name, g in static.items()}
    right = gradients_of(module, x)
    near(loss, right["loss"])
    for name in got:
        near(got[name], right[name], name, 2)


@trial(on_gpu=True)
def graph_make_graphed_callables():
    module, x = model(), ids().requires_grad_()
    right = gradients_of(module, x)
    made = torch.cuda.make_graphed_callables(copy.deepcopy(module), (x,))
    got = gradients_of(made, x)
    for name in right:
        near(got[name], right[name], name, 2)


@trial(on_gpu=True)
def graph_with_lengths_after_a_warmup():
    Q, K, V = tensors(grad=False)
    call = lambda: workbook.attention(Q, K, V, causal=True, lengths=(20, 50))
    warmed_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        O = call()
    Q.copy_(torch.randn_like(Q))
    graph.replay()
    near(O, call())


@trial(on_gpu=True)
def graph_with_slopes_as_a_list():
    given = [x.detach() for x in rows_first()]
    call = lambda: workbook.flash_attn_func(*given, causal=True, alibi_slopes=[0.25, 0.0625, 0.015625, 0.00390625])
    warmed_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        O = call()
    graph.replay()
    near(O, call())


@trial(REFUSED, on_gpu=True)
def graph_with_slopes_on_the_device():
    slopes, given = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625], device=device), rows_first()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        workbook.flash_attn_func(*given, causal=True, alibi_slopes=slopes)


@trial(REFUSED, on_gpu=True)
def graph_with_sinks_as_a_list():
    given = tensors(grad=False)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        workbook.attention(*given, sink=[0.0, 1.0, 2.0, 3.0])


@trial(REFUSED, on_gpu=True)
def graph_with_lengths_never_seen():
    given = tensors(grad=False)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        workbook.attention(*given, causal=True, lengths=(29, 41))


@trial(REFUSED, on_gpu=True)
def graph_with_cu_seqlens_on_the_device():
    q, k, v = (x[0].detach() for x in rows_first(1))
    c = starts(30, 40)
    workbook.flash_attn_varlen_func(q, k, v, c, c, 40, 40)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        workbook.flash_attn_varlen_func(q, k, v, c, c, 40, 40)


@trial(on_gpu=True)
def graph_with_numbers_on_the_device():
    """They are refused before they harm the recording, the process's random numbers, or a later recording."""
    given, rows, cache = tensors(grad=False), [x.detach() for x in rows_first()], with_cache()
    k = rows_first(H=2)[1].detach()[:, :1]
    number = lambda x: torch.tensor(x, device=device)
    paged = workbook.PagedCache(20, 16, 2, 64, cache[0])
    one = paged.add()
    calls = {
        "scale = a tensor on cuda:0: a CUDA graph cannot record": lambda: workbook.attention(*given, scale=number_),
        "causal = a tensor": lambda: workbook.attention(*given, causal=flag_),
        "lengths[0] = a tensor": lambda: workbook.attention(*given, lengths=[whole_, 68]),
        "softmax_scale = a tensor": lambda: workbook.flash_attn_func(*rows, softmax_scale=number_),
        "softcap = a tensor": lambda: workbook.flash_attn_func(*rows, softcap=number_),
        "dropout_p = a tensor": lambda: workbook.flash_attn_func(*rows, dropout_p=number_, fallback=True),
        "window_size[0] = a tensor": lambda: workbook.flash_attn_func(*rows, window_size=(whole_, 0)),
        "window_size = a tensor": lambda: workbook.flash_attn_func(*rows, window_size=pair_),
        "alibi_slopes = a tensor": lambda: workbook.flash_attn_func(*rows, alibi_slopes=pair_),
        "num_splits = a tensor": lambda: workbook.flash_attn_with_kvcache(*cache, num_splits=whole_),
        "rotary_interleaved = a tensor": lambda: workbook.flash_attn_with_kvcache(*cache, rotary_interleaved=flag_),
        "block_table = [[0], [1]]: a CUDA graph": lambda: workbook.flash_attn_with_kvcache(
            *cache, block_table=[[0], [1]]),
        "synchronize(): a CUDA graph cannot record": workbook.synchronize,
        "PagedCache: a CUDA graph cannot record": lambda: paged.attend([one], cache[0][:1], k[:1], k[:1]),
        "PagedCache: a CUDA graph cannot record what": lambda: paged.free(one),
    }  # fmt: skip
    number_, flag_, whole_, pair_ = number(0.1), number(True), number(2), number([2, 0])
    right = workbook.attention(*given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for said, call in calls.items():
            refuses(said, call)
        O = workbook.attention(*given, scale=torch.tensor(0.125))
    torch.randn(3, device=device)
    graph.replay()
    near(O, right)
    require(paged.length(one) == 0 and paged.free_pages == 20, "a refused call changes the cache")
    near(workbook.attention(*given, scale=number(0.125), causal=number(False)), right)


@trial(on_gpu=True)
def graph_with_cu_seqlens_on_the_host():
    q, k, v = (x[0].detach() for x in rows_first(1))
    c = starts(30, 40, on="cpu")
    call = lambda: workbook.flash_attn_varlen_func(q, k, v, c, c, 40, 40)
    warmed_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        O = call()
    q.copy_(torch.randn_like(q))
    graph.replay()
    near(O, call())


@trial(on_gpu=True)
def graph_that_outlives_the_memory_of_lengths():
    """After more lists of lengths than the package remembers, a graph's starts are still there."""
    from flash_attention_workbook import torch_operators

    Q, K, V = tensors(grad=False)
    call = lambda: workbook.attention(Q, K, V, causal=True, lengths=(21, 49))
    warmed_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        O = call()
    right = call()
    torch_operators._starts.clear()
    junk = [torch.full((128,), 7, dtype=torch.int32, device=device) for _ in range(4096)]
    graph.replay()
    near(O, right)
    del junk


@trial(on_gpu=True)
def two_streams_in_turns():
    given = tensors(H=8, N=700)
    right = workbook.attention(*given, causal=True)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for i in range(20):
        with torch.cuda.stream(streams[i % 2]):
            O = workbook.attention(*given, causal=True)
            results.append((O, *torch.autograd.grad(O, given, torch.ones_like(O))))
    torch.cuda.synchronize()
    first = torch.autograd.grad(right, given, torch.ones_like(right))
    for O, dQ, dK, dV in results:
        require(torch.equal(O, right) and torch.equal(dK, first[1]) and torch.equal(dV, first[2]), "O, dK or dV differ")
        near(dQ, first[0], "dQ")


@trial()
def threads_of_replicas():
    """As DataParallel: replicas of a model, each in its own thread, of which the first call is at the same time."""
    module, x = model(), ids()
    replicas, found, errors = [copy.deepcopy(module) for _ in range(4)], {}, []

    def work(i):
        try:
            for _ in range(1 if device == "cpu" else 10):
                found[i] = gradients_of(replicas[i], x)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(replicas))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    require(not errors, f"{errors[:1]!r}")
    right = gradients_of(module, x)
    for got in found.values():
        for name in right:
            near(got[name], right[name], name, 2)


@trial(on_gpu=True)
def data_parallel():
    module, x = model(), ids()
    same_model(module, x, torch.nn.DataParallel(module, device_ids=[0]))
    outputs = torch.nn.parallel.parallel_apply([module, module], [(x,), (x,)], devices=[0, 0])
    near(outputs[1][0], module(x)[0])


@trial(limit=90)
def distributed_data_parallel():
    import torch.distributed as dist

    if not dist.is_available():
        return "no torch.distributed"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            module, x = model(), ids()
            wrapped = torch.nn.parallel.DistributedDataParallel(module)
            same_model(module, x, wrapped)
        finally:
            dist.destroy_process_group()


# --- autocast, types, sinks ------------------------------------------------------------------------------------------


@trial()
def autocast_with_weights_in_float32():
    module, x = model(dtype=torch.float32), ids(torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(device, dtype):
            got = gradients_of(module, x)
        require(all(g.dtype == torch.float32 for g in got.values()), "a gradient that is not float32")


@trial()
def autocast_with_rotated_q_and_k_in_float32():
    """RoPE in float32 leaves V in autocast's type."""
    Q, K, V = tensors(dtype=torch.float32)
    for given in ((Q, K, V.bfloat16()), (Q.bfloat16(), K, V.bfloat16()), (Q.bfloat16(), K.bfloat16(), V)):
        with torch.autocast(device, torch.bfloat16):
            O = workbook.attention(*given, causal=True)
        require(O.dtype == torch.bfloat16, f"{O.dtype}")
        near(O, reference(Q, K, V, True)[0])


@trial()
def autocast_of_packed_sequences():
    q, k, v = (x[0].detach().requires_grad_() for x in rows_first(1, dtype=torch.float32))
    with torch.autocast(device, torch.bfloat16):
        O = workbook.flash_attn_varlen_func(q, k, v, starts(30, 40), starts(30, 40), 40, 40)
    require(O.dtype == torch.bfloat16 and torch.autograd.grad(O.sum(), q)[0].dtype == torch.float32, "types")


@trial(REFUSED)
def autocast_switched_off_inside():
    with torch.autocast(device, torch.bfloat16), torch.autocast(device, enabled=False):
        workbook.attention(*tensors(dtype=torch.float32))


@trial()
def sinks_of_every_kind():
    Q, K, V = tensors()
    values = [0.5, -1.0, 0.0, 2.0]
    right = reference(Q, K, V, True, sink=torch.tensor(values, device=device))[0]
    kinds = [torch.tensor(values, device=device).to(t) for t in (torch.float32, torch.bfloat16, torch.float16)]
    for sink in (*kinds, kinds[0].double(), torch.nn.Parameter(kinds[1]), values, tuple(values)):
        near(workbook.attention(Q, K, V, causal=True, sink=sink), right)
        near(workbook.flash_attn_func(*(x.transpose(1, 2) for x in (Q, K, V)), causal=True, sink=sink),
             right.transpose(1, 2))  # fmt: skip


@trial()
def sinks_in_bf16_learn():
    Q, K, V = tensors(dtype=torch.bfloat16)
    sink = torch.nn.Parameter(torch.zeros(4, device=device, dtype=torch.bfloat16))
    for given in ((Q, K, V), [x.detach() for x in (Q, K, V)]):  # with and without other gradients
        optimizer = torch.optim.AdamW([sink], lr=0.01)
        O, lse = workbook.attention(*given, causal=True, sink=sink, return_lse=True)
        (O.float().pow(2).sum() + lse.sum()).backward()
        exact = reference(*given, True, sink=sink)
        (right,) = torch.autograd.grad(exact[0].pow(2).sum() + exact[1].sum(), sink)
        near(sink.grad, right, "dsink")
        optimizer.step()
        optimizer.zero_grad()


@trial()
def loss_of_the_lse_alone():
    given = tensors(Hkv=2)
    for options in ({}, {"causal": True}, {"mask": "window=20,0+softcap=30"}):
        lse = workbook.attention(*given, **options, return_lse=True)[1]
        right = reference(*given, options != {}, 20 if "mask" in options else None, cap=30 if "mask" in options else 0)
        near(lse, right[1], "LSE")
        mine, theirs = (torch.autograd.grad(x.pow(2).sum(), given[:2]) for x in (lse, right[1]))
        for name, x, y in zip(("dQ", "dK"), mine, theirs):
            near(x, y, f"{name}, {options}", 2)


@trial()
def gradients_beside_sdpa():
    """At most twice the error of PyTorch's math in the same type, both against fp32."""
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    for dtype in (torch.float16, torch.bfloat16):
        for d in (64, 128):
            for causal in (False, True):
                given = tensors(d=d, dtype=dtype)
                dO = torch.randn(given[0].shape).to(device, dtype)
                exact_in = [x.detach().float().requires_grad_() for x in given]
                O = sdpa(*exact_in, is_causal=causal)
                right = (O, *torch.autograd.grad(O, exact_in, dO.float()))
                low = [x.detach().clone().requires_grad_() for x in given]
                P = low[0] @ low[1].transpose(-1, -2) * d**-0.5
                if causal:
                    P = P.masked_fill(~torch.ones_like(P[0, 0], dtype=torch.bool).tril(), -float("inf"))
                O = torch.softmax(P, -1) @ low[2]
                theirs = (O, *torch.autograd.grad(O, low, dO))
                O = workbook.attention(*given, causal=causal)
                mine = (O, *torch.autograd.grad(O, given, dO))
                for name, x, y, z in zip(("O", "dQ", "dK", "dV"), mine, theirs, right):
                    error, allowed = ((e.float() - z).abs().max().item() for e in (x, y))
                    allowed = 2 * allowed + torch.finfo(dtype).eps * z.abs().max().item()
                    require(error <= allowed, f"{name}, {dtype}, d {d}: {error:.2g}, allowed {allowed:.2g}")


@trial()
def a_scale_of_every_kind():
    Q, K, V = tensors()
    right = reference(Q, K, V, scale=0.25)[0]
    for scale in (0.25, torch.tensor(0.25), torch.tensor(0.25, device=device), torch.tensor(0.25).double()):
        near(workbook.attention(Q, K, V, scale=scale), right)
    near(workbook.attention(Q, K, V, scale=0), reference(Q, K, V, scale=0)[0])
    near(workbook.attention(Q, K, V, scale=-0.25), reference(Q, K, V, scale=-0.25)[0])


trials(REFUSED, {
    "a learnable scale": lambda: workbook.attention(*tensors(), scale=torch.nn.Parameter(torch.tensor(0.1))),
    "a learnable softmax_scale": lambda: workbook.flash_attn_func(
        *rows_first(), softmax_scale=torch.nn.Parameter(torch.tensor(0.1))),
    "a learnable softcap": lambda: workbook.flash_attn_func(
        *rows_first(), softcap=torch.nn.Parameter(torch.tensor(30.0))),
    "learnable slopes": lambda: workbook.flash_attn_func(
        *rows_first(), alibi_slopes=torch.nn.Parameter(torch.tensor([0.25, 0.0625, 0.015625, 0.00390625]))),
    "a scale for each head": lambda: workbook.attention(*tensors(), scale=torch.ones(4)),
}, "a gradient that nobody computes")  # fmt: skip

trials(REFUSED, {
    "float32": lambda: workbook.attention(*tensors(dtype=torch.float32)),
    "float64": lambda: workbook.attention(*tensors(dtype=torch.float64)),
    "int32": lambda: workbook.attention(*(torch.ones(1, 1, 8, 64, dtype=torch.int32, device=device),) * 3),
    "bool": lambda: workbook.attention(*(torch.ones(1, 1, 8, 64, dtype=torch.bool, device=device),) * 3),
    "complex64": lambda: workbook.attention(*(torch.ones(1, 1, 8, 64, dtype=torch.complex64, device=device),) * 3),
    "float8": lambda: workbook.attention(*(torch.ones(1, 1, 8, 64, device=device).to(torch.float8_e4m3fn),) * 3),
    "fp16 and bf16": lambda: workbook.attention(*tensors()[:2], tensors(dtype=torch.bfloat16)[2]),
    "float32 in flash_attn_func": lambda: workbook.flash_attn_func(*rows_first(dtype=torch.float32)),
}, "types")  # fmt: skip

trials(REFUSED, {
    "3 axes": lambda: workbook.attention(*(x[0] for x in tensors())),
    "5 axes": lambda: workbook.attention(*(x[None] for x in tensors())),
    "H no multiple of Hkv": lambda: workbook.attention(*tensors(H=4, Hkv=3)),
    "more K/V heads": lambda: workbook.attention(*tensors(H=2, Hkv=4)),
    "another d of K": lambda: workbook.attention(tensors(d=128)[0], *tensors()[1:]),
    "another N of V": lambda: workbook.attention(*tensors()[:2], tensors(N=69)[2]),
    "another B": lambda: workbook.attention(*tensors()[:1], *tensors(B=1)[1:]),
    "d = 72": lambda: workbook.attention(*tensors(d=72)),
    "d = 256": lambda: workbook.attention(*tensors(d=256)),
    "d = 256, padded": lambda: workbook.attention(*tensors(d=256), pad=True),
    "d = 0": lambda: workbook.attention(*(torch.ones(1, 1, 8, 0, dtype=torch.float16, device=device),) * 3),
    "V narrower": lambda: workbook.attention(*tensors(d=128)[:2], tensors()[2]),
    "no heads": lambda: workbook.attention(*tensors(H=0, grad=False)),
    "qkv with 2 parts": lambda: workbook.flash_attn_qkvpacked_func(torch.stack(rows_first(), 2)[:, :, :2]),
    "no tensors": lambda: workbook.attention([[1.0]], [[1.0]], [[1.0]]),
    "None": lambda: workbook.attention(tensors()[0], None, None),
    "a tensor and an array": lambda: workbook.attention(
        tensors()[0], *(x.detach().cpu().numpy() for x in tensors()[1:])),
}, "shapes")  # fmt: skip

@trial()
def devices_that_differ():
    """Also "meta", whose operators compute nothing."""
    Q, K, V = given = tensors(grad=False)
    q, k, v = rows_first()
    cq, ck, cv = cache = with_cache()
    new = [x.detach()[:, :1].clone() for x in rows_first(H=2)[1:]]
    before = [x.clone() for x in (ck, cv)]
    append = lambda *kv: workbook.flash_attn_with_kvcache(*cache, *kv, cache_seqlens=starts(5, 5)[1:])
    for other in ["meta"] if device == "cpu" else ["meta", "cpu"]:
        to = lambda x: x.detach().to(other)
        at = f"allowed: {Q.device}, as "
        for options in ({}, {"fallback": True}, {"pad": True}, {"return_lse": True}, {"lengths": (30, 40)}):
            refuses(f"key.device = {other}: {at}query", lambda: workbook.attention(Q, to(K), V, **options))
            refuses(f"value.device = {other}: {at}query", lambda: workbook.attention(Q, K, to(V), **options))
            refuses(f"allowed: {other}, as query", lambda: workbook.attention(to(Q), K, V, **options))
        for options in ({}, {"dropout_p": 0.5, "fallback": True}):
            refuses(f"k.device = {other}: {at}q", lambda: workbook.flash_attn_func(q, to(k), v, **options))
        refuses(f"v.device = {other}: {at}q",
                lambda: workbook.flash_attn_varlen_func(q[0], k[0], to(v[0]), [0, 70], [0, 70], 70, 70))  # fmt: skip
        refuses(f"kv.device = {other}: {at}q",
                lambda: workbook.flash_attn_kvpacked_func(q, to(torch.stack([k, v], 2))))  # fmt: skip
        for i, name in enumerate("kv"):
            kv = [to(x) if i == j else x for j, x in enumerate(new)]
            refuses(f"{name}.device = {other}: {at}q", lambda: append(*kv))
            caches = [to(x) if i == j else x for j, x in enumerate((ck, cv))]
            refuses(f"{name}_cache.device = {other}: {at}q", lambda: workbook.flash_attn_with_kvcache(cq, *caches))
        refuses(f"k_cache.device = {Q.device}: allowed: {other}, as q",
                lambda: workbook.flash_attn_with_kvcache(to(cq), ck, cv, cache_seqlens=starts(5, 5)[1:]))  # fmt: skip
        refuses("rotary_cos.device", lambda: workbook.flash_attn_with_kvcache(
            *cache, *new, *(torch.zeros(_N, 8, device=other),) * 2, cache_seqlens=5))  # fmt: skip
    require(all(torch.equal(*x) for x in zip(before, (ck, cv))), "a refused call changes the caches")
    require(workbook.attention(*(x.to("meta") for x in given)).is_meta, "tensors on meta")


@trial()
def fallback_of_wrong_arguments():
    """fallback=True hides no wrong shape, type or number of columns, whether or not a stage serves d."""
    for d in (64, 72):
        q, k, v = tensors(d=d)
        wide, cu = tensors(d=d + 8)[2], [0, 30, _N]
        for said, x in {
            f"key.shape = (1, 4, 70, {d}): allowed: (2, 4, 70, {d})": (q, k[:1], v[:1]),
            f"key.shape = (2, 4, 70, {d}): allowed: (1, 4, 70, {d})": (q[:1], k, v),
            f"value.shape = (2, 4, 50, {d})": (q, k, v[:, :, :50]),
            "key.shape = (2, 4, 70, 32)": (q, k[..., :32], v),
            f"value.shape = (2, 4, 70, {d + 8})": (q, k, wide),
            f"value.shape = (2, 4, 70, {d}): allowed: (2, 2, 70, {d})": (q, k[:, :2], v),
            "key: torch.bfloat16 on ": (q, k.bfloat16(), v),
        }.items():
            for options in ({}, {"mask": "causal"}, {"mask": "causal+alibi"}, {"mask": "window=9,0"}, {"return_lse": 1}):
                refuses(said, lambda: workbook.attention(*x, **options, fallback=True))
            said = said.replace("key", "k").replace("value", "v")
            for p in (0, 0.5):
                rows = [y.transpose(1, 2) for y in x]
                text = said.split(" = ")[0] if " = " in said else said
                refuses(text, lambda: workbook.flash_attn_func(*rows, dropout_p=p, fallback=True))
        short = [x[0].transpose(0, 1) for x in (q, k, v[:, :, :50])]
        for p in (0, 0.5):
            refuses("v.shape = (50, 4", lambda: workbook.flash_attn_varlen_func(
                *short, cu, cu, 70, 70, dropout_p=p, fallback=True))  # fmt: skip
        padded = workbook.attention(q, k, wide, fallback=True, pad=True)
        near(padded, reference(q, k, wide)[0])
        near(workbook.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, wide)), dropout_p=1e-9, fallback=True,
                                      pad=True), padded.transpose(1, 2))  # fmt: skip


@trial(limit=120)
def fallback_compiled_with_a_dynamic_length():
    made = compiled(lambda *x: workbook.attention(*x, causal=True, fallback=True), dynamic=True)
    for N in (33, 40, 64):
        given = tensors(N=N, d=72)
        near(made(*given), reference(*given, True)[0])


trials(REFUSED, {
    "mask of bool": lambda: workbook.attention(*tensors(), mask=torch.ones(_N, _N, dtype=torch.bool)),
    "windows=3": lambda: workbook.attention(*tensors(), mask="windows=3"),
    "window=3": lambda: workbook.attention(*tensors(), mask="window=3"),
    "causal+": lambda: workbook.attention(*tensors(), mask="causal+"),
    "an empty text": lambda: workbook.attention(*tensors(), mask=""),
    "softcap=0": lambda: workbook.attention(*tensors(), mask="softcap=0"),
    "causal, and a mask": lambda: workbook.attention(*tensors(), causal=True, mask="window=3,0"),
    "causal = 'yes'": lambda: workbook.attention(*tensors(), causal="yes"),
    "scale = nan": lambda: workbook.attention(*tensors(), scale=float("nan")),
    "sinks of other heads": lambda: workbook.attention(*tensors(), sink=torch.zeros(3, device=device)),
    "sinks (1, H, 1, 1)": lambda: workbook.attention(*tensors(), sink=torch.zeros(1, 4, 1, 1, device=device)),
    "a sink of whole numbers, as text": lambda: workbook.attention(*tensors(), sink="1"),
    "lengths that add up to less": lambda: workbook.attention(*tensors(), lengths=(30, 30)),
    "a negative length": lambda: workbook.attention(*tensors(), lengths=(-1, 71)),
    "lengths as floats": lambda: workbook.attention(*tensors(), lengths=(30.0, 40.0)),
    "lengths as one number": lambda: workbook.attention(*tensors(), lengths=70),
    "window of floats": lambda: workbook.flash_attn_func(*rows_first(), window_size=(3.5, 0)),
    "window of 3": lambda: workbook.flash_attn_func(*rows_first(), window_size=(3, 0, 1)),
    "softcap = -1": lambda: workbook.flash_attn_func(*rows_first(), softcap=-1.0),
    "softcap = nan": lambda: workbook.flash_attn_func(*rows_first(), softcap=float("nan")),
    "dropout": lambda: workbook.flash_attn_func(*rows_first(), dropout_p=0.1),
    "other slopes": lambda: workbook.flash_attn_func(*rows_first(), alibi_slopes=torch.rand(4, device=device)),
    "slopes of 6 heads": lambda: workbook.flash_attn_func(*rows_first(H=6), alibi_slopes=torch.rand(6, device=device)),
    "slopes as a list": lambda: workbook.flash_attn_func(*rows_first(), alibi_slopes=[0.25, 0.0625, 0.015625, 0.0039]),
    "causal+sink": lambda: workbook.attention(*tensors(), mask="causal+sink", sink=torch.zeros(4, device=device)),
    "causal+cache": lambda: workbook.attention(*tensors(), mask="causal+cache=30,40"),
    "a scale that is 0 as a float": lambda: workbook.attention(*tensors(), scale=1e-300),
    "sinks of other heads in bf16": lambda: workbook.attention(
        *tensors(), sink=torch.zeros(3, device=device, dtype=torch.bfloat16)),
    "dropout of everything": lambda: workbook.flash_attn_func(*rows_first(), dropout_p=1.0, fallback=True),
    "fallback of int32": lambda: workbook.attention(
        *(torch.ones(1, 1, 8, 64, dtype=torch.int32, device=device),) * 3, fallback=True),
    "fallback of 4 and 3 heads": lambda: workbook.attention(*tensors(H=4, Hkv=3), fallback=True),
    "activate('yes')": lambda: workbook.activate("yes"),
}, "options")  # fmt: skip

trials(PYTORCH, {
    "is_causal=": lambda: workbook.attention(*tensors(), is_causal=True),
    "attn_mask=": lambda: workbook.attention(*tensors(), attn_mask=None),
    "dropout_p= of attention()": lambda: workbook.attention(*tensors(), dropout_p=0.0),
    "max_seqlen left out": lambda: workbook.flash_attn_varlen_func(*(x[0] for x in rows_first(1)), [0, 70], [0, 70]),
}, "names")  # fmt: skip


def varlen(cu_q, cu_k=None, T=_N, causal=True, **options):
    q, k, v = (x[0].detach().requires_grad_() for x in rows_first(1, N=T, H=4, Hkv=2))
    cu_k = cu_q if cu_k is None else cu_k
    return workbook.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 70, 70, causal=causal, **options)


@trial()
def cu_seqlens_of_every_kind():
    right = varlen(starts(30, 0, 40))
    kinds = (
        starts(30, 0, 40, dtype=torch.int64), starts(30, 0, 40, on="cpu"), [0, 30, 30, 70], (0, 30, 70),
        starts(30, 40, 0), torch.tensor([0, 99, 30, 99, 70], device=device)[::2],
    )  # fmt: skip
    for cu in kinds:
        near(varlen(cu), right)
    for T in (1, 2):
        near(varlen(starts(*[1] * T), T=T), varlen([0, *range(1, T + 1)], T=T))


@trial()
def cu_seqlens_of_no_rows():
    for cu in (starts(), starts(0), starts(0, 0)):
        out = varlen(cu, T=0)
        require(out.shape == (0, 4, 64), f"{tuple(out.shape)}")
        out.sum().backward()


@trial()
def cu_seqlens_of_q_and_k_that_differ():
    q = tensors(1, 4, 50)[0]
    _, k, v = tensors(1, 4, 90, Hkv=2)
    sink = torch.zeros(4, device=device, requires_grad=True)
    rows = [x[0].transpose(0, 1) for x in (q, k, v)]
    O, lse, _ = workbook.flash_attn_varlen_func(
        *rows, starts(20, 30), starts(45, 45), 30, 45, causal=True, sink=sink, return_attn_probs=True
    )
    parts = [reference(q[:, :, :20], k[:, :, :45], v[:, :, :45], True, sink=sink),
             reference(q[:, :, 20:], k[:, :, 45:], v[:, :, 45:], True, sink=sink)]  # fmt: skip
    right, right_lse = (torch.cat(x, 2)[0] for x in zip(*parts))
    near(O, right.transpose(0, 1))
    near(lse, right_lse, "LSE")
    mine = torch.autograd.grad(O.float().pow(2).sum() + lse.sum(), (q, k, v, sink))
    theirs = torch.autograd.grad(right.pow(2).sum() + right_lse.sum(), (q, k, v, sink))
    for name, x, y in zip(("dQ", "dK", "dV", "dsink"), mine, theirs):
        near(x, y, name, 2)


trials(REFUSED, {
    "not from 0": lambda: varlen(torch.tensor([1, 30, 70], device=device)),
    "not to the end": lambda: varlen(starts(30, 30)),
    "past the end": lambda: varlen(starts(30, 50)),
    "descending": lambda: varlen(torch.tensor([0, 60, 30, 70], device=device)),
    "floats": lambda: varlen(starts(30, 40, dtype=torch.float32)),
    "2 axes": lambda: varlen(starts(30, 40)[None]),
    "0 axes": lambda: varlen(torch.tensor(70, device=device)),
    "empty": lambda: varlen(torch.tensor([], dtype=torch.int32, device=device)),
    "None": lambda: varlen(None),
    "lengths instead": lambda: varlen(torch.tensor([30, 40], device=device)),
    "other numbers of sequences": lambda: varlen(starts(30, 40), starts(70)),
    "q with 4 axes": lambda: workbook.flash_attn_varlen_func(*rows_first(1), starts(70), starts(70), 70, 70),
    "a paged cache": lambda: varlen(starts(70), block_table=torch.zeros(1, 1, dtype=torch.int32, device=device)),
}, "cu_seqlens")  # fmt: skip


@trial(REFUSED, limit=120)
def compile_cu_seqlens_not_to_the_end():
    q, k, v = (x[0].detach() for x in rows_first(1))
    compiled(lambda q, k, v, c: workbook.flash_attn_varlen_func(q, k, v, c, c, 70, 70))(q, k, v, starts(30, 30))


@trial(limit=120)
def many_sequences():
    """70,000 sequences, more than 65,535, of which the first and last ones are compared with calls of their own."""
    S = 70_000 if device != "cpu" else 60
    lengths = torch.randint(0, 20, (S,), generator=torch.Generator().manual_seed(1))
    T = int(lengths.sum())
    q, k, v = (x[0].detach().requires_grad_() for x in rows_first(1, N=T, H=2))
    cu = starts(*lengths.tolist())
    begin = time.monotonic()
    O, lse, _ = workbook.flash_attn_varlen_func(q, k, v, cu, cu, 20, 20, causal=True, return_attn_probs=True)
    dO = torch.randn(O.shape, device=device).to(O.dtype)
    got = torch.autograd.grad(O, (q, k, v), dO)
    found = [x[0, 0, 0].item() for x in (O, got[0], got[1])]
    seconds = time.monotonic() - begin
    for part in (slice(0, min(200, S // 2)), slice(S - min(200, S // 2), S)):
        first, last = int(lengths[: part.start].sum()), int(lengths[: part.stop].sum())
        rows = [x.detach()[first:last].requires_grad_() for x in (q, k, v)]
        cu_part = starts(*lengths[part].tolist())
        right = workbook.flash_attn_varlen_func(*rows, cu_part, cu_part, 20, 20, causal=True)
        near(O[first:last], right)
        for x, y in zip(got, torch.autograd.grad(right, rows, dO[first:last])):
            near(x[first:last], y, "a gradient", 2)
    return f"{S} sequences, {T} rows, {seconds:.1f} s ({found[0]:.2g})"


@trial(on_gpu=True, limit=120)
def many_sequences_of_which_q_and_k_differ():
    S = 2000
    lengths = torch.randint(1, 20, (S,), generator=torch.Generator().manual_seed(1)).tolist()
    q, k, v = (x[0].detach().requires_grad_() for x in rows_first(1, N=sum(lengths), H=2))
    begin = time.monotonic()
    workbook.flash_attn_varlen_func(q, k, v, starts(*lengths), starts(*lengths[::-1]), 20, 20).sum().backward()
    torch.cuda.synchronize()
    return f"{S} sequences, {time.monotonic() - begin:.1f} s"


@trial(on_gpu=True, limit=120)
def a_batch_of_70000():
    """Up to 2.3·10^9 elements, in both passes; chapters 8 and 9 serve d = 32."""
    for d, options in ((64, {"mask": "window=40,0"}), (64, {"causal": True}), (32, {"causal": True})):
        torch.manual_seed(0)
        given = [torch.randn(70_000, 8, 64, d, device=device, dtype=torch.float16).requires_grad_() for _ in "QKV"]
        O = workbook.attention(*given, **options)
        got = (O, *torch.autograd.grad(O, given, torch.ones_like(O)))
        for part in (slice(0, 3), slice(32767, 32770), slice(65534, 65538), slice(69998, 70000)):
            rows = [x.detach()[part].clone().requires_grad_() for x in given]
            right = workbook.attention(*rows, **options)
            right = (right, *torch.autograd.grad(right, rows, torch.ones_like(right)))
            for name, x, y in zip(("O", "dQ", "dK", "dV"), got, right):
                near(x[part], y, f"{name}, {part}, d = {d}, {options}", 2)
        del given, O, got


# --- Memory layouts, empty tensors -----------------------------------------------------------------------------------


@trial()
def views_of_every_kind():
    base = torch.randn(2, 4, _N + 1, 64 + 8, device=device).half() / 2
    kinds = {
        "a slice of d": base[..., :64], "a slice at an odd address": base[:, :, 1:, 3:67],
        "transposed": base[:, :, :_N, :64].transpose(1, 2).contiguous().transpose(1, 2),
        "d first": base[:, :, :_N, :64].transpose(2, 3).contiguous().transpose(2, 3),
        "flipped": base[..., :64].flip(2), "expanded heads": base[:, :1, :, :64].expand(2, 4, _N + 1, 64),
        "every second row": base[:, :, ::2, :64],
        "channels_last": base[..., :64].contiguous(memory_format=torch.channels_last),
        "expanded batch": base[:1, :, :, :64].expand(2, 4, _N + 1, 64),
    }  # fmt: skip
    for name, x in kinds.items():
        given = [x.detach().requires_grad_() for _ in "QKV"]
        O, right = workbook.attention(*given, causal=True), reference(*given, True)[0]
        near(O, right, name)
        dO = torch.randn(O.shape, device=device)
        for a, b in zip(torch.autograd.grad(O, given, dO.to(O.dtype)), torch.autograd.grad(right, given, dO)):
            near(a, b, f"a gradient, {name}", 2)
    given = tensors()
    O, right = workbook.attention(*given), reference(*given)[0]
    for dO in (torch.ones((), device=device).expand(O.shape), torch.randn(2, _N, 4, 64, device=device).transpose(1, 2)):
        mine, theirs = (torch.autograd.grad(x, given, dO.to(x.dtype), retain_graph=True) for x in (O, right))
        for a, b in zip(mine, theirs):
            near(a, b, "a gradient, where dO is a view", 2)


@trial()
def packed_forms_and_windows_without_an_end():
    given = rows_first()
    packed, causal = torch.stack(given, 2), workbook.flash_attn_func(*given, causal=True)
    for O in (
        workbook.flash_attn_qkvpacked_func(packed, causal=True),
        workbook.flash_attn_kvpacked_func(given[0], packed[:, :, 1:], causal=True),
    ):
        require(torch.equal(O, causal) and O.is_contiguous(), "a packed form")
    for window in (None, (None, None), -1, (-7, -2), torch.tensor([-1, -1])):
        O = workbook.flash_attn_func(*given, causal=True, window_size=window, softcap=None)
        require(torch.equal(O, causal), f"window_size = {window}")


@trial()
def empty_tensors():
    for B, H, Nq, Nk in ((0, 4, 5, 5), (2, 4, 0, 5), (2, 4, 5, 0), (0, 4, 0, 0)):
        for options in ({}, {"causal": True}, {"mask": "window=3,0"}, {"sink": torch.zeros(H, device=device)}):
            Q, K, V = tensors(B, H, Nq, Nk=Nk) if Nk else (*tensors(B, H, Nq)[:1], *tensors(B, H, 0)[1:])
            O, lse = workbook.attention(Q, K, V, **options, return_lse=True)
            require(O.shape == Q.shape and not O.any(), f"{B, Nq, Nk}, {options}")
            (O.sum() + torch.where(lse.isfinite(), lse, 0).sum()).backward()


@trial()
def a_single_query_of_a_long_row():
    given = tensors(1, 4, 1, Nk=1001, Hkv=2)
    near(workbook.attention(*given, causal=True), reference(*given, True)[0])


# --- Autograd --------------------------------------------------------------------------------------------------------


@trial(REFUSED)
def double_backward():
    Q, K, V = tensors()
    first = torch.autograd.grad(workbook.attention(Q, K, V).float().pow(2).sum(), Q, create_graph=True)[0]
    first.float().pow(2).sum().backward()


@trial(REFUSED)
def gradient_penalty_through_flash_attn_func():
    given = rows_first()
    out = workbook.flash_attn_func(*given, causal=True)
    (g,) = torch.autograd.grad(out.float().sum(), given[0], create_graph=True)
    torch.autograd.grad(g.float().norm(), given[0])


@trial(REFUSED)
def func_grad():
    Q, K, V = tensors(grad=False)
    torch.func.grad(lambda q: workbook.attention(q, K, V).float().sum())(Q)


@trial(REFUSED)
def func_vjp():
    Q, K, V = tensors(grad=False)
    torch.func.vjp(lambda q: workbook.attention(q, K, V), Q)[1](torch.ones_like(Q))


@trial(REFUSED)
def func_jvp():
    Q, K, V = tensors(grad=False)
    torch.func.jvp(lambda q: workbook.attention(q, K, V), (Q,), (Q,))


@trial(REFUSED)
def func_jacrev():
    Q, K, V = tensors(1, 1, 2, grad=False)
    torch.func.jacrev(lambda q: workbook.attention(q, K, V))(Q)


@trial(REFUSED)
def func_hessian():
    Q, K, V = tensors(1, 1, 2, grad=False)
    torch.func.hessian(lambda q: workbook.attention(q, K, V).float().sum())(Q)


@trial(REFUSED)
def forward_derivatives():
    from torch.autograd import forward_ad

    Q, K, V = tensors(grad=False)
    with forward_ad.dual_level():
        workbook.flash_attn_func(*(forward_ad.make_dual(x, x).transpose(1, 2) for x in (Q, K, V)))


@trial()
def vmap_over_an_ensemble():
    Q, K, V = (torch.stack([x, x + 1, x - 1]) for x in tensors(grad=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = torch.func.vmap(lambda q, k, v: workbook.attention(q, k, v, causal=True))(Q, K, V)
    near(got, torch.stack([workbook.attention(*x, causal=True) for x in zip(Q, K, V)]))


@trial()
def vmap_over_k_and_v_alone():
    Q, K, V = tensors(grad=False)
    K, V = (torch.stack([x, x + 1]) for x in (K, V))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = torch.func.vmap(lambda k, v: workbook.attention(Q, k, v, causal=True))(K, V)
    near(got, torch.stack([workbook.attention(Q, *x, causal=True) for x in zip(K, V)]))


@trial()
def functional_call():
    module, x = model(), ids()
    near(torch.func.functional_call(module, dict(module.named_parameters()), (x,))[0], module(x)[0])


@trial()
def functional_jacobian():
    Q, K, V = tensors(1, 1, 2, grad=False)
    got = torch.autograd.functional.jacobian(lambda q: workbook.attention(q, K, V), Q)
    near(got, torch.autograd.functional.jacobian(lambda q: reference(q, K, V)[0].to(q.dtype), Q), factor=4)


@trial()
def functional_jacobian_vectorized():
    Q, K, V = tensors(1, 1, 2, grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = torch.autograd.functional.jacobian(lambda q: workbook.attention(q, K, V), Q, vectorize=True)
    near(got, torch.autograd.functional.jacobian(lambda q: reference(q, K, V)[0].to(q.dtype), Q), factor=4)


@trial()
def gradients_of_a_batch_of_dO():
    """is_grads_batched=True, which autograd computes with vmap."""
    given = tensors()
    O = workbook.attention(*given, causal=True)
    dO = torch.randn(3, *O.shape).to(device, O.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = torch.autograd.grad(O, given, dO, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        for x, y in zip(got, torch.autograd.grad(O, given, dO[i], retain_graph=True)):
            near(x[i], y, "a gradient")


@trial(REFUSED)
def gradcheck():
    torch.autograd.gradcheck(lambda *x: workbook.attention(*x), tensors(1, 1, 4, dtype=torch.float64))


@trial()
def checkpointing():
    from torch.utils.checkpoint import checkpoint

    module, x = model(), ids().requires_grad_()
    for reentrant in (False, True):
        same_model(module, x, lambda y: checkpoint(module, y, use_reentrant=reentrant), 2)


@trial()
def anomaly_mode_and_hooks():
    Q, K, V = tensors()
    seen = []
    hook = Q.register_hook(lambda g: seen.append(g.shape))
    with warnings.catch_warnings(), torch.autograd.detect_anomaly():
        warnings.simplefilter("ignore")
        workbook.attention(Q, K, V).sum().backward()
    hook.remove()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.cpu(), lambda x: x.to(device)):
        workbook.attention(Q, K, V).sum().backward()
    require(len(seen) == 1 and Q.grad is not None, f"{seen}")


@trial()
def backward_twice_with_retain_graph():
    given = tensors()
    O = workbook.attention(*given)
    for x, y in zip(*(torch.autograd.grad(O.sum(), given, retain_graph=True) for _ in range(2))):
        near(x, y, "a gradient")


@trial(PYTORCH)
def backward_twice_without():
    O = workbook.attention(*tensors()).sum()
    O.backward()
    O.backward()


@trial(PYTORCH)
def an_input_changed_before_backward():
    Q, K, V = tensors()
    k = K * 1
    O = workbook.attention(Q, k, V)
    k.add_(1)
    O.sum().backward()


@trial()
def inference_mode():
    module, x = model().eval(), ids()
    right = module(x)[0]
    with torch.inference_mode():
        near(module(x)[0], right)
        given = tensors(grad=False)
    near(workbook.attention(*given), reference(*given)[0])


@trial()
def gradients_of_some_inputs():
    for which in ((0,), (1,), (2,), (0, 2)):
        given = tensors(grad=False)
        for i in which:
            given[i].requires_grad_()
        O, right = workbook.attention(*given, causal=True), reference(*given, True)[0]
        chosen = [given[i] for i in which]
        for x, y in zip(torch.autograd.grad(O.sum(), chosen), torch.autograd.grad(right.sum(), chosen)):
            near(x, y, f"gradient of {which}", 2)


@trial()
def deterministic_algorithms():
    """torch.use_deterministic_algorithms(True): gradients are the same bits in every call."""
    N, count = (500, 20) if device != "cpu" else (130, 2)
    given = tensors(2, 4, N, dtype=torch.bfloat16)
    torch.use_deterministic_algorithms(True)
    try:
        for function, x in ((workbook.attention, given), (workbook.flash_attn_func, rows_first(2, N, 4))):
            O = function(*x, causal=True)
            found = [torch.autograd.grad(O, x, torch.ones_like(O), retain_graph=True) for _ in range(count)]
            require(all(torch.equal(a, b) for f in found for a, b in zip(f, found[0])), "the gradients differ")
    finally:
        torch.use_deterministic_algorithms(False)


# --- Models ----------------------------------------------------------------------------------------------------------


@trial()
def copies_of_a_model():
    module, x = model(), ids()
    near(copy.deepcopy(module)(x)[0], module(x)[0])
    copied = copy.deepcopy(workbook.attention)
    require(copied is workbook.attention, "a copy of the function")
    require(pickle.loads(pickle.dumps(workbook.flash_attn_func)) is workbook.flash_attn_func, "pickle")
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = model(seed=9)
    other.load_state_dict(torch.load(file))
    near(other(x)[0], module(x)[0])
    near(module.float().half().eval()(ids(torch.float16))[0], model().half()(ids(torch.float16))[0])


@trial(on_gpu=True)
def grad_scaler():
    module, x = model(dtype=torch.float32), ids(torch.float32)
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.AdamW(module.parameters(), lr=1e-3)
    losses = []
    for _ in range(10):
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(module(x))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    require(losses[-1] < losses[0], f"{losses}")


@trial()
def default_device_and_type():
    given = tensors()
    right = reference(*given, True)[0]
    torch.set_default_device(device)
    try:
        near(workbook.attention(*given, causal=True), right)
        near(varlen(starts(30, 40)), varlen([0, 30, 70]))
        near(workbook.attention(*given, causal=True, sink=[-1e4] * 4), right)
        workbook.attention(*given, causal=True, lengths=((30, 40), (40, 30)))
    finally:
        torch.set_default_device(None)


@trial()
def modes_and_counters():
    from torch.utils.flop_counter import FlopCounterMode

    given = tensors()
    of_two = (30, 40), (50, 20)
    for lengths, pairs in ((None, _N * _N), ((30, 40), 30 * 30 + 40 * 40), (of_two, 30 * 50 + 40 * 20)):
        with FlopCounterMode(display=False) as counter:
            workbook.attention(*given, causal=True, lengths=lengths).sum().backward()
        got, right = counter.get_total_flops(), 2 * (2 + 5) * 2 * 4 * pairs * 64
        require(got == right, f"{got} FLOPs, not {right}, with lengths = {lengths}")
    with FlopCounterMode(display=False) as counter:
        varlen(starts(30, 40), causal=False).sum().backward()
    require(counter.get_total_flops() == 2 * (2 + 5) * 4 * (30 * 30 + 40 * 40) * 64, "FLOPs of cu_seqlens")
    q, k_cache, v_cache = with_cache()
    with FlopCounterMode(display=False) as counter:
        workbook.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=60)
        workbook.flash_attn_with_kvcache(q, k_cache, v_cache, block_table=torch.zeros(2, 3, device=device).int())
    require(counter.get_total_flops() == 2 * 2 * 2 * 4 * _N * 64 * (1 + 3), "FLOPs with a KV cache")


@trial()
def subclasses():
    class Tagged(torch.Tensor):
        pass

    given = tensors(grad=False)
    got = workbook.attention(*(x.as_subclass(Tagged) for x in given))
    near(got.as_subclass(torch.Tensor), reference(*given)[0])
    near(workbook.attention(*(torch.nn.Parameter(x) for x in given)), reference(*given)[0])


@trial(on_gpu=True)
def activate_in_pytorchs_own_modules():
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, restore_flash_attention_impl, sdpa_kernel

    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True).to(device, torch.bfloat16)
    given, x = tensors(), ids()
    with sdpa_kernel(SDPBackend.MATH):
        right, right_layer = F.scaled_dot_product_attention(*given, is_causal=True), layer(x)
    workbook.activate()
    workbook.activate()
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            near(F.scaled_dot_product_attention(*given, is_causal=True), right)
            near(layer(x), right_layer)
            near(compiled(lambda *y: F.scaled_dot_product_attention(*y, is_causal=True))(*given), right)
            shared = tensors(Hkv=2)
            near(F.scaled_dot_product_attention(*shared, enable_gqa=True), reference(*shared)[0])
    finally:
        restore_flash_attention_impl()
    near(F.scaled_dot_product_attention(*given, is_causal=True), right)


@trial(REFUSED, on_gpu=True)
def activate_and_dropout():
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, restore_flash_attention_impl, sdpa_kernel

    workbook.activate()
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(*tensors(), dropout_p=0.1)
    finally:
        restore_flash_attention_impl()


@trial(on_gpu=True)
def activate_with_fallback():
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, restore_flash_attention_impl, sdpa_kernel

    workbook.activate(fallback=True)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(*tensors(), dropout_p=0.1).sum().backward()
            given = tensors(d=96)
            near(F.scaled_dot_product_attention(*given), reference(*given)[0])
    finally:
        restore_flash_attention_impl()


@trial(on_gpu=True)
def activate_with_an_empty_batch_and_its_warning():
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, restore_flash_attention_impl, sdpa_kernel

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        workbook.activate()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # which excludes cuDNN: no second warning
            workbook.activate()
    try:
        said = [text for text in (str(warning.message) for warning in heard) if text.startswith("activate()")]
        require(len(said) == 1 and "cuDNN" in said[0], f"{[str(w.message) for w in heard]}")  # PyTorch may warn too
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            given = tensors(B=0)
            O = F.scaled_dot_product_attention(*given, is_causal=True)
            O.sum().backward()
            require(O.shape == given[0].shape and given[0].grad.shape == O.shape, "an empty batch")
    finally:
        restore_flash_attention_impl()


# --- A KV cache ------------------------------------------------------------------------------------------------------


def with_cache(dtype=None):
    """q, k_cache, v_cache."""
    return [x.detach().to(dtype or torch.float16) for x in (rows_first(N=1)[0], *rows_first(H=2)[1:])]


@trial()
def cache_under_autocast():
    q, k_cache, v_cache = with_cache()
    right = workbook.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=60)
    k = v = torch.zeros(2, 1, 2, 64, device=device)
    with torch.autocast(torch.device(device).type, torch.float16):
        near(workbook.flash_attn_with_kvcache(q.float(), k_cache, v_cache, cache_seqlens=60), right)
        O = workbook.flash_attn_with_kvcache(q.float(), k_cache, v_cache, k, v, cache_seqlens=60)
    near(O, workbook.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=61))


@trial()
def cache_lengths_of_every_kind():
    given = with_cache()
    right = workbook.flash_attn_with_kvcache(*given, cache_seqlens=60)
    for lengths in ([60, 60], torch.tensor([60, 60], device=device), torch.tensor(60, device=device)):
        near(workbook.flash_attn_with_kvcache(*given, cache_seqlens=lengths), right)


@trial()
def paged_cache_with_a_fork():
    q, k, v = with_cache()
    cache = workbook.PagedCache(20, 16, 2, 64, q)
    one, two = cache.add(), cache.add()
    right = workbook.flash_attn_with_kvcache(q, k, v)
    with torch.no_grad():
        near(cache.attend([one, two], q, k, v), right)
        fork = cache.fork(one)
        cache.attend([fork], q[:1], k[:1, :1], v[:1, :1])  # in a page of its own
        near(cache.attend([one, two], q), right)
    cache.free(one)
    require(cache.length(fork) == _N + 1 and cache.free_pages == 20 - 5 - 5, f"{cache.free_pages} free pages")


@trial(limit=180)
def compile_cache_with_a_dynamic_batch():
    q, k_cache, v_cache = [torch.cat([x] * 3) for x in with_cache()]
    new = [x.detach()[:, :1].repeat(3, 1, 1, 1) for x in rows_first(H=2)[1:]]
    lengths, table = starts(*range(5, 11))[:6] + 5, torch.arange(12, device=device).view(6, 2).int() % 6
    plain = lambda q, K, V, n: workbook.flash_attn_with_kvcache(q, K, V, cache_seqlens=n, return_softmax_lse=True)
    pages = lambda q, K, V, k, v, n, t: workbook.flash_attn_with_kvcache(
        q, K, V, k, v, cache_seqlens=n, block_table=t, causal=True)  # fmt: skip
    for dynamic in (None, True):
        for as_lengths in (lambda B: lengths[:B], lambda B: 20 + B):
            made = compiled(plain, dynamic=dynamic)
            for B in (2, 3, 5):
                given = q[:B], k_cache[:B], v_cache[:B], as_lengths(B)
                for x, y in zip(made(*given), plain(*given)):
                    near(x, y, "O or LSE")
        made = compiled(pages, dynamic=dynamic)
        for B in (2, 3, 5):
            given = *(x[:B] for x in new), lengths[:B], table[:B]
            mine, right = ([x.clone() for x in (k_cache, v_cache)] for _ in "ab")
            near(made(q[:B], *mine, *given), pages(q[:B], *right, *given))
            require(all(map(torch.equal, mine, right)), "the caches")


@trial()
def lists_of_pages_beside_lengths_on_the_device():
    """They are checked whether or not the host knows the lengths."""
    q, k_cache, v_cache = with_cache()
    new = [x.detach()[:, :1].clone() for x in rows_first(H=2)[1:]]
    before = [x.clone() for x in (k_cache, v_cache)]
    at = torch.device(device)
    for kind in (lambda n: torch.tensor([n, n], device=at), lambda n: n, lambda n: [n, n]):
        call = lambda *kv, **options: workbook.flash_attn_with_kvcache(
            q, k_cache, v_cache, *kv, cache_seqlens=kind(60), **options)  # fmt: skip
        for kv in ((), new):
            for page in (2, 2_000_000, -1):
                refuses(f"block_table[0, 0] = {page}: allowed: 0 to 1", lambda: call(*kv, block_table=[[page], [0]]))
                refuses(f"cache_batch_idx[1] = {page}: allowed: 0 to 1", lambda: call(*kv, cache_batch_idx=[0, page]))
        near(call(cache_batch_idx=[1, 0]), call(block_table=torch.tensor([[1], [0]], device=at)))
        near(call(block_table=[[1], [0]]), call(cache_batch_idx=torch.tensor([1, 0], device=at)))
    require(all(torch.equal(*x) for x in zip(before, (k_cache, v_cache))), "a refused call changes the caches")


@trial(REFUSED, on_gpu=True)
def graph_with_cache_lengths_as_a_list():
    given = with_cache()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        workbook.flash_attn_with_kvcache(*given, cache_seqlens=[60, 60])


trials(REFUSED, {
    "float32": lambda: workbook.flash_attn_with_kvcache(*with_cache(torch.float32), cache_seqlens=60),
    "q alone in float32": lambda: workbook.flash_attn_with_kvcache(
        with_cache()[0].float(), *with_cache()[1:], cache_seqlens=60),
    "pages of d = 96": lambda: workbook.PagedCache(20, 16, 2, 96, with_cache()[0]),
    "a list with a length past the end": lambda: workbook.flash_attn_with_kvcache(
        *with_cache(), cache_seqlens=[60, 71]),
    "a page past the end": lambda: workbook.flash_attn_with_kvcache(
        *with_cache(), cache_seqlens=5, block_table=[[0], [2]]),
    "a row past the end": lambda: workbook.flash_attn_with_kvcache(
        *with_cache(), cache_seqlens=5, cache_batch_idx=[0, 2]),
    "lengths as floats": lambda: workbook.flash_attn_with_kvcache(*with_cache(), cache_seqlens=[60.0, 60.0]),
    "a length past the end": lambda: workbook.flash_attn_with_kvcache(*with_cache(), cache_seqlens=71),
    "a window": lambda: workbook.flash_attn_with_kvcache(*with_cache(), cache_seqlens=60, window_size=(8, 0)),
    "new keys without their number": lambda: workbook.flash_attn_with_kvcache(
        *with_cache(), *(torch.zeros(2, 1, 2, 64, device=device).half(),) * 2),
}, "a KV cache")  # fmt: skip


@trial(REFUSED, on_gpu=True)
def tensors_on_the_host_without_a_simulator():
    workbook.attention(*(x.cpu() for x in tensors()))


@trial(REFUSED, on_gpu=True)
def k_on_the_host():
    Q, K, V = tensors()
    workbook.attention(Q, K.cpu(), V)


@trial(REFUSED, on_gpu=True)
def sinks_on_the_host():
    workbook.attention(*tensors(), sink=torch.zeros(4))


@trial()
def fallback_of_what_is_not_served():
    for options in ({"causal": True}, {"mask": "window=9,0+softcap=20"}, {"mask": "causal+alibi"}):
        given = tensors(d=72)
        O = workbook.attention(*given, **options, fallback=True)
        O.sum().backward()
        require(O.shape == given[0].shape, f"{options}")
    given = tensors(dtype=torch.float32)
    near(workbook.attention(*given, causal=True, fallback=True), reference(*given, True)[0])
    workbook.flash_attn_func(*rows_first(), dropout_p=0.5, fallback=True).sum().backward()
    for dtype in (torch.float16, torch.bfloat16):  # with rows that see no key, and the LSE
        for options in ({"causal": True}, {"mask": "window=9,0"}):
            Q, K, V = tensors(N=90, Nk=50, d=72, dtype=dtype)
            O = workbook.attention(Q, K, V, **options, fallback=True)
            with_lse, lse = workbook.attention(Q, K, V, **options, fallback=True, return_lse=True)
            require(not O[:, :, :40].any() and bool(torch.isneginf(lse[:, :, :40]).all()), f"{options}, {dtype}")
            near(O, with_lse, "O beside the one with the LSE")
            require(all(x.isfinite().all() for x in torch.autograd.grad(O.sum(), (Q, K, V))), "gradients")


@trial(limit=120)
def fallback_compiled():
    for d in (64, 72):
        way = lambda q, k, v: workbook.attention(q, k, v, mask="window=9,0+softcap=20", fallback=True)
        same_with_gradients(compiled(way), way, tensors(d=d))


@trial(limit=120)
def fallback_of_packed_sequences():
    q, k, v = (x[0].detach().requires_grad_() for x in rows_first(1, d=72))
    c = starts(30, 40)
    way = lambda q, k, v, c: workbook.flash_attn_varlen_func(q, k, v, c, c, 40, 40, causal=True, fallback=True)
    O = way(q, k, v, c)
    near(O[:30], reference(*(x[None, :30].transpose(1, 2) for x in (q, k, v)), True)[0][0].transpose(0, 1))
    O = workbook.flash_attn_varlen_func(q, k, v, c, c, 40, 40, dropout_p=1e-9, causal=True, fallback=True)
    near(O, way(q, k, v, c))


@trial(limit=120)
def padded_to_what_serves_the_call():
    """Shared heads, and a loss of the LSE, which not every stage for a small d has."""
    for d in (16, 32):
        given = tensors(d=d, Hkv=2)
        for way in (workbook.attention, compiled(workbook.attention)):
            O, lse = way(*given, pad=True, return_lse=True)
            right = reference(*given)
            for x, y in ((O, right[0]), (lse, right[1])):
                near(x, y, f"d = {d}")
                both = [torch.autograd.grad(z.float().pow(2).sum(), given[:2], retain_graph=True) for z in (x, y)]
                for a, b in zip(*both):
                    near(a, b, f"a gradient, d = {d}", 2)
            with torch.no_grad():
                near(way(*given, pad=True), right[0], f"d = {d}, without gradients")


@trial(limit=120)
def padded_head_dimensions():
    for d in (8, 40, 72, 80, 96, 127):
        given = tensors(d=d)
        O, right = workbook.attention(*given, causal=True, pad=True), reference(*given, True)[0]
        near(O, right, f"d = {d}")
        for x, y in zip(torch.autograd.grad(O.sum(), given), torch.autograd.grad(right.sum(), given)):
            near(x, y, f"a gradient, d = {d}", 2)
    for columns in (32, 100):  # of V
        given = *tensors(d=72)[:2], tensors(d=columns)[2]
        way = lambda *x: workbook.attention(*x, causal=True, pad=True)
        near(way(*given), reference(*given, True)[0], f"{columns} columns of V")
        same_with_gradients(compiled(way), way, given)


# --- The table of notes/pytorch.md: features in eager code, under torch.compile(fullgraph=True), in a CUDA graph -----


def features():
    """For each, a function of Q, K, V or of a cache, and whether it works compiled and recorded."""
    a, f, var = workbook.attention, workbook.flash_attn_func, workbook.flash_attn_varlen_func
    cache = workbook.flash_attn_with_kvcache
    sink, number = torch.linspace(-1, 1, 4, device=device), torch.tensor(0.2, device=device)
    slopes, cu = [0.25, 0.0625, 0.015625, 0.00390625], starts(30, 40)
    slopes_there, n = torch.tensor(slopes, device=device), torch.tensor([60, 50], device=device)
    qkv, one, rows = tensors(), [x.detach()[:1].requires_grad_() for x in tensors(Hkv=2)], rows_first()
    packed, with_keys = [x[0].detach().requires_grad_() for x in rows_first(1)], with_cache()
    table = torch.tensor([[1], [0]], device=device)
    found = {
        "causal, the LSE": (lambda *x: a(*x, causal=True, return_lse=True), qkv, True, True),
        "deterministic": (lambda *x: a(*x, causal=True, deterministic=True), qkv, True, True),
        "window, softcap, ALiBi": (lambda *x: a(*x, mask="window=9,0+softcap=5+alibi"), one, True, True),
        "sinks": (lambda *x: a(*x, causal=True, sink=sink), one, True, True),
        "sinks as a list": (lambda *x: a(*x, sink=[0.0, 1.0, 2.0, 3.0]), one, True, False),
        "slopes as a list": (lambda *x: f(*x, alibi_slopes=slopes), rows, True, True),
        "slopes as a tensor": (lambda *x: f(*x, alibi_slopes=slopes_there), rows, False, False),
        "a scale as a tensor": (lambda *x: a(*x, scale=number), qkv, False, False),
        "lengths as a list": (lambda *x: a(*x, causal=True, lengths=(31, 39)), qkv, True, True),
        "two lists of lengths": (lambda *x: a(*x, causal=True, lengths=((31, 39), (50, 20))), qkv, True, True),
        "cu_seqlens as a list": (lambda *x: var(*x, [0, 32, 70], [0, 32, 70], 1, 1), packed, True, True),
        "cu_seqlens on the device": (lambda *x: var(*x, cu, cu, 1, 1), packed, True, device == "cpu"),
        "pad": (lambda *x: a(*x, causal=True, pad=True), tensors(d=72), True, True),
        "fallback": (lambda *x: a(*x, causal=True, fallback=True), tensors(d=72), True, True),
        "fallback of a window, softcap, sinks and the LSE": (
            lambda *x: a(*x, mask="window=9,0+softcap=5", sink=sink, fallback=True, return_lse=True),
            tensors(d=72), True, True),
        "fallback of ALiBi": (lambda *x: a(*x, mask="causal+alibi", fallback=True), tensors(d=72), True, True),
        "fallback and lengths": (lambda *x: a(*x, lengths=(31, 39), fallback=True), tensors(d=72), True, True),
        "dropout_p with fallback": (lambda *x: f(*x, dropout_p=1e-9, fallback=True), rows, True, True),
        "a KV cache, on the device": (lambda *x: cache(*x, cache_seqlens=n, block_table=table), with_keys, True, True),
        "a KV cache, one length": (lambda *x: cache(*x, cache_seqlens=60), with_keys, True, True),
        "a KV cache, lists": (
            lambda *x: cache(*x, cache_seqlens=[60, 50], block_table=[[1], [0]]), with_keys, True, False),
    }  # fmt: skip
    if any("rope" in stage.masks for stage in workbook.stages("sim" if device == "cpu" else "cuda")):
        rope = lambda *x: a(*x, mask="causal+rope+dropout=0.1,7")
        found["RoPE and dropout as a mask"] = rope, qkv, True, True
    return found


def with_gradients(function, given):
    """The results are detached: a graph of autograd that lives on would spoil the next recording."""
    results = function(*given)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum(x.float().pow(2).sum() for x in results)
    gradients = torch.autograd.grad(loss, given) if given[0].requires_grad else ()
    return [x.detach() for x in (*results, *gradients)]


@trial(limit=600)
def every_feature_in_every_mode():
    wrong = []
    for name, (function, given, in_compiler, in_graph) in features().items():
        right = with_gradients(function, given)

        def compare(got):
            for x, y in zip(got, right, strict=True):
                near(x, y, name, 2)

        def recorded():
            graph, caught, got = torch.cuda.CUDAGraph(), None, None
            warmed_up(lambda: with_gradients(function, given))
            try:
                with torch.cuda.graph(graph):
                    try:
                        got = with_gradients(function, given)
                    except Exception as error:  # raised after the recording's end, which may have an error of its own
                        caught = error
            finally:
                if caught is not None:
                    raise caught
            graph.replay()
            compare(got)

        modes = {"compiled": (lambda: compare(with_gradients(compiled(function), given)), in_compiler)}
        if device != "cpu":
            modes["recorded"] = recorded, in_graph
        for mode, (call, works) in modes.items():
            try:
                call()
                error = None
            except Exception as caught:
                error = caught
            if (error is None) != works:
                wrong.append(f"{name}, {mode}: {'no error' if error is None else repr(error)[:300]}")
    require(not wrong, " || ".join(wrong))


def run(name, expected, limit, function):
    def too_long(*_):
        raise TimeoutError(f"longer than {limit} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(limit)
    begin, kind, text, known = time.monotonic(), "ok", "", (workbook.NotServed, workbook.Unavailable)
    try:
        said = function()
        text = said if isinstance(said, str) else ""
        if expected != WORKS:
            kind, text = "FAULT", f"no error; expected: {expected}"
        if device != "cpu":
            torch.cuda.synchronize()
    except Exception as error:
        in_compiler = "_dynamo" in type(error).__module__ and "allowed: " in str(error)  # the text is among others
        text = " | ".join(str(error).splitlines())[:900]
        if expected == REFUSED and (isinstance(error, known) or in_compiler):
            kind = "refused"
        elif expected == PYTORCH and not isinstance(error, (AssertionError, *known)):
            kind, text = "PyTorch", f"{type(error).__name__}: {text[:200]}"
        else:
            kind, text = "FAULT", f"{type(error).__name__}: {text}"
    finally:
        signal.alarm(0)
    text = ": " + text if text else ""
    print(f"{kind:7} {name.replace('_', ' ')} ({time.monotonic() - begin:.1f} s){text}", flush=True)
    return kind


def main():
    global torch, workbook, device, backend
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", help="libraries of ./workbook library, with ':' between them")
    parser.add_argument("--only", default="", help="what names of trials contain, with ',' between them")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--backend", default="inductor", help="of torch.compile, such as aot_eager")
    given = parser.parse_args()
    if given.libraries:
        os.environ["WORKBOOK_LIBRARY"] = given.libraries
    sys.path.insert(0, str(BOOK / "python"))
    import torch
    import torch._dynamo  # it is not there by itself

    import flash_attention_workbook as workbook

    device, backend = given.device, given.backend
    wanted = [part.replace(" ", "_") for part in given.only.split(",")]
    kinds = []
    for name, expected, on_gpu, limit, function in TRIALS:
        if any(part in name.replace(" ", "_") for part in wanted) and not (on_gpu and device == "cpu"):
            kinds.append(run(name, expected, limit, function))
    counts = {kind: kinds.count(kind) for kind in ("ok", "refused", "PyTorch", "FAULT")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 0 if kinds and not counts["FAULT"] else 1


if __name__ == "__main__":
    sys.exit(main())
