"""What PyTorch asks of an operator, asked of the book's package on a GPU; what a call costs; a small GPT beside SDPA.

    python3 tests/peers/torch_checks.py [--libraries libworkbook_cuda.so] [--only opcheck,cost] [--limit SECONDS]

Every step prints its numbers and ends in "ok" or "FAILED: why"; one that takes longer than its limit is given up. The
exit code is 0 if none failed.
"""

import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import sys
import threading
import time
import traceback

BOOK = pathlib.Path(__file__).resolve().parents[2]
STEPS = []


def step(limit):
    def add(function):
        STEPS.append((function.__name__, limit, function))
        return function

    return add


def say(*words):
    print("   ", *words, flush=True)


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def inputs(B, H, N, d, dtype, seed=0, Nk=None, requires_grad=False):
    generator = torch.Generator("cuda").manual_seed(seed)
    sizes = [(B, H, N, d)] + [(B, H, Nk or N, d)] * 2
    return [
        torch.randn(size, generator=generator, device="cuda").to(dtype).requires_grad_(requires_grad) for size in sizes
    ]


def reference(Q, K, V, causal, scale=None):
    """In the type of Q, by the definition; 0 in rows that see no key."""
    S = Q @ K.transpose(-1, -2) * (1 / math.sqrt(Q.shape[-1]) if scale is None else scale)
    if causal:
        Nq, Nk = S.shape[-2:]
        S = S.masked_fill(~torch.ones(Nq, Nk, dtype=torch.bool, device=S.device).tril(Nk - Nq), -math.inf)
    return torch.nan_to_num(torch.softmax(S, -1), nan=0.0) @ V


def dtypes():
    elements = {s.element for s in workbook.stages("cuda")}
    return [getattr(torch, name) for name in ("float16", "bfloat16") if name in elements]


def dims():
    of = lambda pass_: {d for s in workbook.stages("cuda") if s.pass_ == pass_ for d in s.head_dims}
    return sorted(of("forward") & of("backward"))


@step(90)
def opcheck():
    """torch.library.opcheck of both operators: schema, autograd, fake tensors, AOT dispatch with dynamic shapes."""
    from flash_attention_workbook import torch_operators

    for dtype in dtypes():
        Q, K, V = inputs(1, 2, 128, 64, dtype, requires_grad=True)
        given = (Q, K, V, 0.125, "causal", False)
        results = torch.library.opcheck(torch_operators._forward, given, rtol=1e-2, atol=1e-2)
        say(dtype, "forward", results)
        if has_masks():
            starts = torch.tensor([0, 100, 128], dtype=torch.int32, device="cuda")
            for packed in (
                (Q, K, V, 0.125, "causal+lengths=100,28", False),
                (Q, K, V, 0.125, "causal", False, None, starts, starts),
            ):
                results = torch.library.opcheck(torch_operators._packed_forward, packed, rtol=1e-2, atol=1e-2)
                say(dtype, "forward, packed", results)
        q, k, v = (x.detach() for x in (Q, K, V))
        O, lse = torch_operators._forward(q, k, v, 0.125, "causal", False)
        # The order of the additions to dQ is any: what two runs differ by is no mistake.
        tests = ("test_schema", "test_faketensor")
        results = torch.library.opcheck(
            torch_operators._backward, (torch.randn_like(O), q, k, v, O, lse, 0.125, "causal", False), test_utils=tests
        )
        say(dtype, "backward", results)


@step(90)
def gradients_against_float64():
    """O, dQ, dK, dV against float64, beside SDPA's math backend in the same precision: at most twice its error."""
    worst = 0.0
    for dtype in dtypes():
        for d in dims():
            for N, Nk in ((1, 1), (64, 64), (113, 203), (257, 257), (512, 256), (1024, 1024)):
                for causal in (False, True):
                    Q, K, V = inputs(2, 3, N, d, dtype, Nk=Nk, requires_grad=True)
                    dO = torch.randn(Q.shape, device="cuda").to(dtype)
                    O = workbook.attention(Q, K, V, causal=causal)
                    got = (O, *torch.autograd.grad(O, (Q, K, V), dO))
                    exact_in = [x.detach().double().requires_grad_() for x in (Q, K, V)]
                    exact = reference(*exact_in, causal)
                    exact = (exact, *torch.autograd.grad(exact, exact_in, dO.double()))
                    low_in = [x.detach().requires_grad_() for x in (Q, K, V)]
                    low = reference(*low_in, causal)
                    low = (low, *torch.autograd.grad(low, low_in, dO))
                    for name, mine, theirs, right in zip(("O", "dQ", "dK", "dV"), got, low, exact):
                        error = (mine.double() - right).abs().max().item()
                        last_place = torch.finfo(dtype).eps * max(right.abs().max().item(), 1e-3)
                        allowed = 2 * (theirs.double() - right).abs().max().item() + 2 * last_place
                        if name in ("dQ", "dK"):  # dP - D in fp32, two sums of d terms, also where the gradient is 0
                            terms = [x.detach().abs().max().item() for x in (dO, V, K if name == "dQ" else Q)]
                            allowed += 2 * d * 2.0**-24 * math.prod(terms) / math.sqrt(d)
                        worst = max(worst, error / allowed)
                        require(error <= allowed, f"{name}, {dtype}, d = {d}, N = {N}, {Nk}, causal = {causal}: "
                                                  f"error {error:.3g}, allowed {allowed:.3g}")  # fmt: skip
    say(f"largest error is {worst:.2f} of what is allowed, d = {dims()}, {dtypes()}")


@step(60)
def eager():
    """The way without the dispatcher: the operator's results; what it leaves to the operator; what is an error."""
    from flash_attention_workbook import torch_operators

    Q, K, V = inputs(2, 3, 200, 64, torch.float16, requires_grad=True)
    expected = torch_operators._forward(Q, K, V, 0.125, "causal", False)
    got = workbook.attention(Q, K, V, causal=True, return_lse=True)
    require(type(got[0].grad_fn).__name__ == "AttentionBackward", f"not the short way: {got[0].grad_fn}")
    require(all(map(torch.equal, got, expected)), "O or LSE differ from the operator's")
    require(got[1].requires_grad and expected[1].requires_grad, "LSE has no gradient")
    dO = torch.randn_like(Q)
    mine, theirs = (torch.autograd.grad(O, (Q, K, V), dO, retain_graph=True) for O in (got[0], expected[0]))
    for name, a, b in zip(("dQ", "dK", "dV"), mine, theirs):
        require(torch.allclose(a, b, atol=0 if name != "dQ" else 4e-3), f"{name} differs from the operator's")
    only_V = workbook.attention(Q.detach(), K.detach(), V, causal=True)
    require(torch.equal(torch.autograd.grad(only_V, V, dO)[0], mine[2]), "dV where V alone has a gradient")
    with torch.autograd.graph.save_on_cpu():  # what is kept for backward is not what it gets
        O = workbook.attention(Q, K, V, causal=True)
    require(torch.equal(torch.autograd.grad(O, (Q, K, V), dO)[1], mine[1]), "dK under save_on_cpu()")
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            O = workbook.attention(Q, K, V, causal=True)
        require(torch.equal(O, expected[0]) and not O.requires_grad, f"{mode.__name__}")
    with torch.autocast("cuda", torch.bfloat16):  # casts nothing: as the package flash_attn
        require(torch.equal(workbook.attention(Q, K, V, causal=True), expected[0]), "autocast")

    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.autograd import forward_ad

    with FakeTensorMode():
        fake = workbook.attention(*[torch.empty(2, 3, 200, 64, device="cuda", dtype=torch.float16)] * 3)
    require(type(fake).__name__ == "FakeTensor" and fake.shape == Q.shape, "fake tensors")
    meta = workbook.attention(*[torch.empty(2, 3, 200, 64, device="meta", dtype=torch.float16)] * 3)
    require(meta.is_meta and meta.shape == Q.shape, "tensors without data")
    with torch.device("cuda"):  # a mode of functions
        require(torch.equal(workbook.attention(Q, K, V, causal=True), expected[0]), "under a mode")

    def dual():
        with forward_ad.dual_level():
            workbook.attention(forward_ad.make_dual(Q.detach(), dO), K.detach(), V.detach())

    def second():
        first = torch.autograd.grad(workbook.attention(Q, K, V), Q, dO, create_graph=True)[0]
        first.sum().backward()

    errors = {"second derivatives": second, "forward derivatives": dual}
    for name, call in errors.items():
        try:
            call()
        except workbook.NotServed as error:
            say(f"{name}: {error}")
        else:
            raise AssertionError(f"{name}: no error")
    if torch.cuda.device_count() > 1:
        there = [x.detach().to("cuda:1").requires_grad_() for x in (Q, K, V)]
        O = workbook.attention(*there, causal=True)
        require(torch.equal(O.cpu(), expected[0].cpu()), "on a second GPU")
        require(torch.equal(torch.autograd.grad(O, there, dO.to("cuda:1"))[1].cpu(), mine[1].cpu()), "its dK")
        say("a second GPU: equal")
    say("gradients, no_grad, inference_mode, autocast, modes, fake tensors: as the operator")


@step(60)
def cuda_graph():
    """A graph of forward and backward, replayed with new inputs: bit by bit what calls give (dQ up to its order)."""
    Q, K, V = inputs(2, 4, 500, 64, torch.float16, requires_grad=True)
    dO = torch.randn_like(Q)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(workbook.attention(Q, K, V, causal=True), (Q, K, V), dO)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        O = workbook.attention(Q, K, V, causal=True)
        gradients = torch.autograd.grad(O, (Q, K, V), dO)
    for seed in (1, 2, 3):
        new = inputs(2, 4, 500, 64, torch.float16, seed)
        with torch.no_grad():
            for tensor, value in zip((Q, K, V), new):
                tensor.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        again = [x.clone().requires_grad_() for x in new]
        expected = workbook.attention(*again, causal=True)
        require(torch.equal(O, expected), f"seed {seed}: O differs by {(O - expected).abs().max().item()}")
        for name, a, b in zip(("dQ", "dK", "dV"), gradients, torch.autograd.grad(expected, again, dO)):
            difference = (a - b).abs().max().item()
            require(difference <= (0 if name != "dQ" else 4e-3), f"seed {seed}: {name} differs by {difference}")
    say("3 replays with new inputs: O, dK, dV equal, dQ up to the order of its sums")


@step(90)
def masks():
    """A window, softcap, ALiBi, sinks and packed sequences at once, with shared heads: eagerly and as an operator."""
    if not has_masks():
        return say("not asked: no stage of the library serves packed sequences")
    from flash_attention_workbook import torch_operators

    H, G, lengths, cap = 8, 4, (100, 37, 300), 5.0
    N = sum(lengths)
    for dtype in dtypes():
        Q = inputs(2, H, N, 64, dtype, requires_grad=True)[0]
        K, V = inputs(2, H // G, N, 64, dtype, 1, requires_grad=True)[1:]
        sink = torch.linspace(-1, 2, H, device="cuda").requires_grad_()
        dO = torch.randn_like(Q)
        options = {"mask": "window=50,3+softcap=5+alibi", "lengths": lengths}
        O = workbook.attention(Q, K, V, sink=sink, **options)
        got = (O, *torch.autograd.grad(O, (Q, K, V, sink), dO))
        text = options["mask"] + "+sink+lengths=" + ",".join(map(str, lengths))
        by_operator = torch_operators._forward(Q, K, V, 0.125, text, False, sink)[0]
        operators = (by_operator, *torch.autograd.grad(by_operator, (Q, K, V, sink), dO))
        q, k, v, s = (x.detach().double().requires_grad_() for x in (Q, K, V, sink))
        distance = torch.arange(N, device="cuda")[:, None] - torch.arange(N, device="cuda")
        of = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).cuda()
        attends = (distance <= 50) & (distance >= -3) & (of[:, None] == of)
        slope = 2.0 ** (-8 * torch.arange(1, H + 1, device="cuda").double() / H)
        S = cap * torch.tanh(q @ k.repeat_interleave(G, 1).transpose(-1, -2) * 0.125 / cap)
        S = (S - slope[:, None, None] * distance.abs()).masked_fill(~attends, -math.inf)
        S = torch.cat([S, s[:, None, None].expand(2, H, N, 1)], -1)
        exact = torch.softmax(S, -1)[..., :-1] @ v.repeat_interleave(G, 1)
        exact = (exact, *torch.autograd.grad(exact, (q, k, v, s), dO.double()))
        for name, x, y, right in zip(("O", "dQ", "dK", "dV", "dsink"), got, operators, exact):
            require(x.shape == right.shape, f"{name} has the shape {tuple(x.shape)}")
            for result in (x, y):
                error = ((result.double() - right).norm() / right.norm()).item()
                allowed = 5e-3 if dtype == torch.float16 else 3e-2
                require(error <= allowed, f"{name}, {dtype}: relative error {error:.2g}, allowed {allowed:.2g}")
        say(dtype, "O, dQ, dK, dV and dsink, eagerly and by the operator: as in float64")


def has_masks():
    """Whether the library has the masks of chapters 15, 18 and 19 in both passes."""
    of = lambda pass_: any("packed" in s.masks for s in workbook.stages("cuda") if s.pass_ == pass_)
    return of("forward") and of("backward")


def close(name, got, right, dtype):
    error = ((got.double() - right).norm() / right.norm().clamp(min=1e-9)).item()
    allowed = 5e-3 if dtype == torch.float16 else 3e-2
    require(got.shape == right.shape and error <= allowed, f"{name}: {tuple(got.shape)}, relative error {error:.2g}")


def exact(Q, K, V, sink):
    """O and LSE in float64, with gradients; causal, Nq = Nk."""
    N = Q.shape[2]
    S = Q.double() @ K.double().transpose(-1, -2) * Q.shape[-1] ** -0.5
    S = S.masked_fill(~torch.ones(N, N, dtype=torch.bool, device=S.device).tril(), -math.inf)
    if sink is not None:
        S = torch.cat([S, sink.double()[:, None, None].expand(*S.shape[:3], 1)], -1)
    return torch.softmax(S, -1)[..., :N] @ V.double(), torch.logsumexp(S, -1)


@step(90)
def lse_gradient():
    """A loss that contains the LSE, of O too or alone: eagerly, by the operator and compiled, against float64."""
    from flash_attention_workbook import torch_operators

    sinks = (None, torch.linspace(-1, 2, 4, device="cuda")) if has_masks() else (None,)
    torch._dynamo.reset()
    compiled_attention = torch.compile(
        lambda q, k, v, sink: workbook.attention(q, k, v, causal=True, sink=sink, return_lse=True), fullgraph=True
    )
    for dtype in dtypes():
        for sink in sinks:
            Q, K, V = inputs(2, 4, 200, 64, dtype, requires_grad=True)
            given = (Q, K, V) if sink is None else (Q, K, V, sink.clone().requires_grad_())
            dO, dlse = torch.randn_like(Q), torch.randn(Q.shape[:3], device="cuda")
            right = exact(Q, K, V, None if sink is None else given[3])
            mask = "causal" if sink is None else "causal+sink"
            ways = {
                "attention()": lambda *x: workbook.attention(*x[:3], causal=True, sink=x[3], return_lse=True),
                "the operator": lambda *x: torch_operators._forward(*x[:3], 0.125, mask, False, x[3]),
                "compiled": compiled_attention,
            }
            for name, way in ways.items():
                for of_O in (1, 0):
                    O, lse = way(*given, *(() if sink is not None else (None,)))
                    loss = (O.double() * dO).sum() * of_O + (lse.double() * dlse).sum()
                    expected = (right[0] * dO).sum() * of_O + (right[1] * dlse).sum()
                    got = torch.autograd.grad(loss, given)
                    exact_gradients = torch.autograd.grad(expected, given, retain_graph=True)
                    for x, y, of in zip(got, exact_gradients, ("dQ", "dK", "dV", "dsink")):
                        close(f"{of}, {name}, {dtype}, sink = {sink is not None}, O {of_O}", x, y.double(), dtype)
                    lse = way(*given, *(() if sink is not None else (None,)))[1]
                    dV = torch.autograd.grad(lse.sum(), V, allow_unused=True)[0]
                    require(dV is None or not dV.any(), f"{name}: dV of a loss of the LSE alone")
    say("dQ, dK, dV and dsink of losses of O and the LSE: as in float64; dV of the LSE alone is 0")


@step(120)
def varlen():
    """flash_attn_varlen_func with cu_seqlens on the GPU, eagerly and compiled; lengths of Q and K that differ, or 0."""
    if not has_masks():
        return say("not asked: no stage of the library serves packed sequences")
    torch._dynamo.reset()
    call = lambda *given: workbook.flash_attn_varlen_func(*given, 300, 300, causal=True, return_attn_probs=True)
    compiled_call = torch.compile(call, fullgraph=True)
    same = [((100, 37, 300),) * 2, ((0, 50, 0, 130),) * 2, ((64,),) * 2]
    for of_queries, of_keys in (*same, ((70, 0, 30), (20, 50, 300))):
        starts = [torch.tensor([0, *x], device="cuda").cumsum(0).to(torch.int32) for x in (of_queries, of_keys)]
        q = torch.randn(sum(of_queries), 8, 64, device="cuda").half().requires_grad_()
        k, v = (torch.randn(sum(of_keys), 2, 64, device="cuda").half().requires_grad_() for _ in "kv")
        dO, dlse = torch.randn_like(q), torch.randn(8, q.shape[0], device="cuda")
        expected, at_q, at_k = [], 0, 0
        for m, n in zip(of_queries, of_keys):
            part = q[at_q : at_q + m], k[at_k : at_k + n], v[at_k : at_k + n]
            result = workbook.flash_attn_func(*(x[None] for x in part), causal=True, return_attn_probs=True)
            expected.append((result[0][0], result[1][0]))
            at_q, at_k = at_q + m, at_k + n
        O, lse = torch.cat([x for x, _ in expected]), torch.cat([x for _, x in expected], 1)
        finite = torch.isfinite(lse)
        loss = lambda O, lse: (O.float() * dO).sum() + (torch.where(finite, lse, 0) * dlse).sum()
        right = torch.autograd.grad(loss(O, lse), (q, k, v))
        for name, way in (("eager", call), ("compiled", compiled_call)):
            got, got_lse, _ = way(q, k, v, *starts)
            require(torch.equal(got, O) and torch.equal(got_lse, lse), f"{name}, lengths {of_queries}: O or LSE differ")
            for x, y, of in zip(torch.autograd.grad(loss(got, got_lse), (q, k, v)), right, ("dq", "dk", "dv")):
                require(torch.allclose(x, y, atol=1e-2, rtol=1e-2), f"{name}, lengths {of_queries}: {of} differs")
    qkv = torch.randn(437, 3, 4, 64, device="cuda").half()
    starts = torch.tensor([0, 100, 137, 437], device="cuda", dtype=torch.int32)
    packed = workbook.flash_attn_varlen_qkvpacked_func(qkv, starts, 300, causal=True)
    q, k, v = qkv.unbind(1)
    require(torch.equal(packed, call(q, k, v, starts, starts)[0]), "qkvpacked")
    require(packed.is_contiguous() and packed.view(437, 4 * 64).shape == (437, 256), "O is not contiguous")
    kvpacked = workbook.flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], starts, starts, 300, 300, causal=True)
    require(torch.equal(kvpacked, packed), "kvpacked")
    by_lengths = lambda q, k, v: workbook.attention(q, k, v, causal=True, lengths=(100, 37, 300))
    given = [x.transpose(0, 1)[None] for x in (q, k, v)]
    require(torch.equal(by_lengths(*given)[0].transpose(0, 1), packed), "lengths")
    made = torch.compile(by_lengths, fullgraph=True)
    require(torch.equal(made(*given), by_lengths(*given)), "lengths, compiled")
    say("O, LSE and gradients: as a call for each sequence; fullgraph=True")


@step(60)
def streams_and_threads():
    """On another stream, nothing waits for the default one; two threads at once, each on its stream."""
    Q, K, V = inputs(2, 8, 1024, 64, torch.float16)
    expected = workbook.attention(Q, K, V)
    torch.cuda.synchronize()
    stream, end = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        workbook.attention(Q, K, V)  # so that its memory is there
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # the default stream is busy for about a tenth of a second
    with torch.cuda.stream(stream):
        O = workbook.attention(Q, K, V)
        end.record()
    end.synchronize()
    require(not torch.cuda.default_stream().query(), "the call waited for the default stream, or used it")
    torch.cuda.synchronize()
    require(torch.equal(O, expected), "another stream")

    wrong = []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensors = inputs(1, 4, 300 + seed, 64, torch.float16, seed, requires_grad=True)
            first = None
            for _ in range(200):
                result = workbook.attention(*tensors, causal=True)
                dK = torch.autograd.grad(result, tensors, torch.ones_like(result))[1]
                now = (result.detach().clone(), dK.clone())
                first = first or now
                if not all(torch.equal(a, b) for a, b in zip(first, now)):
                    wrong.append(seed)
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    require(not wrong, f"threads {sorted(set(wrong))} got other results in other calls")
    say("another stream: equal, and it did not wait; two threads, 200 calls each: O and dK equal in all")


@step(120)
def decoding():
    """Tokens one by one, with new keys, in pages: as SDPA for each request; compiled; and as a graph that is replayed
    while the lengths grow on the GPU."""
    if not any("cache" in stage.masks for stage in workbook.stages("cuda")):
        return say("no stage has a cache: build the library with --chapters 21")
    B, H, Hkv, d, size, M = 4, 8, 2, 64, 16, 40
    generator = torch.Generator("cuda").manual_seed(1)
    normal = lambda *sizes: torch.randn(sizes, generator=generator, device="cuda").half()
    table = torch.randperm(B * M, generator=generator, device="cuda").view(B, M).int()
    angles = torch.rand((M * size, d // 2), generator=generator, device="cuda") * 2 * math.pi
    cos, sin = angles.cos().half(), angles.sin().half()
    lengths = torch.tensor([0, 5, 300, 620], dtype=torch.int32, device="cuda")
    caches = [normal(B * M, size, Hkv, d) for _ in "KV"]

    def step(q, k, v, k_cache, v_cache, lengths):
        return workbook.flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, cos, sin, lengths, block_table=table, causal=True, return_softmax_lse=True
        )  # fmt: skip

    def by_pytorch(q, k_cache, v_cache, lengths):
        each = []
        for b, n in enumerate(lengths.tolist()):
            rows = [c[table[b].long()].reshape(-1, Hkv, d)[: n + 1].transpose(0, 1)[None] for c in (k_cache, v_cache)]
            keys, values = (x.double().repeat_interleave(H // Hkv, 1) for x in rows)
            each.append(reference(q[b : b + 1].double().transpose(1, 2), keys, values, False).transpose(1, 2))
        return torch.cat(each)

    def rotated(x):
        c, s = (t[lengths.long()][:, None, None].float() for t in (cos, sin))
        a, b = x.float()[..., ::2], x.float()[..., 1::2]
        return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2).half()

    new = [normal(B, 1, H, d), normal(B, 1, Hkv, d), normal(B, 1, Hkv, d)]
    given, kept = [cache.clone() for cache in caches], [cache.clone() for cache in caches]
    O, lse = step(*new, *given, lengths)
    for b, n in enumerate(lengths.tolist()):
        kept[0][table[b, n // size].long(), n % size] = rotated(new[1])[b, 0]
        kept[1][table[b, n // size].long(), n % size] = new[2][b, 0]
    require(all(torch.equal(a, b) for a, b in zip(given, kept)), "the caches after a step")
    difference = (O.double() - by_pytorch(rotated(new[0]), *kept, lengths)).abs().max().item()
    require(difference < 2e-3, f"O differs from float64 by {difference}")

    given = [cache.clone() for cache in caches]
    compiled = torch.compile(step, fullgraph=True)(*new, *given, lengths)
    require(all(torch.equal(a, b) for a, b in zip(given, kept)), "the caches after a compiled step")
    require((compiled[0] - O).abs().max().item() < 2e-3, "compiled")

    caches = [cache.clone() for cache in caches]
    q, k, v, grows = *[x.clone() for x in new], lengths.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(q, k, v, *[cache.clone() for cache in caches], grows)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        O, _ = step(q, k, v, *caches, grows)
        grows += 1
    grows.copy_(lengths)
    beside = [cache.clone() for cache in caches]
    for i in range(19):  # past the end of a page
        for x in (q, k, v):
            x.copy_(normal(*x.shape))
        expected, _ = step(q, k, v, *beside, lengths + i)
        graph.replay()
        require(torch.equal(O, expected), f"replay {i}")
    require(all(torch.equal(a, b) for a, b in zip(caches, beside)), "the caches after the replays")

    full = {"block_table": table, "causal": True}
    with torch.cuda.graph(torch.cuda.CUDAGraph()):  # one number for all requests needs no copy to the GPU
        workbook.flash_attn_with_kvcache(q, *caches, **full)
        workbook.flash_attn_with_kvcache(q, *caches, cache_seqlens=M * size, **full)
    same = [workbook.flash_attn_with_kvcache(q, *caches, cache_seqlens=n, **full) for n in (None, M * size)]
    same.append(workbook.flash_attn_with_kvcache(q, *caches, cache_seqlens=torch.full_like(lengths, M * size), **full))
    require(torch.equal(same[0], same[1]) and torch.equal(same[0], same[2]), "cache_seqlens as one number")

    whole = step(*new, *[cache.clone() for cache in caches], lengths)[0]
    alone = workbook.flash_attn_with_kvcache(
        new[0][2:3], caches[0].clone(), caches[1].clone(), new[1][2:3], new[2][2:3], cos, sin, lengths[2:3],
        block_table=table[2:3], causal=True, num_splits=8,
    )  # fmt: skip
    require((alone - whole[2:3]).abs().max().item() < 2e-3, "one request alone")
    with_gradient = [new[0].requires_grad_(), *caches]
    try:
        workbook.flash_attn_with_kvcache(*with_gradient, cache_seqlens=lengths, block_table=table)
        raise AssertionError("a gradient was lost")
    except workbook.NotServed as error:
        say(f"{error}")
    with torch.no_grad():
        options = {"cache_seqlens": lengths, "block_table": table}
        cost = microseconds(lambda: workbook.flash_attn_with_kvcache(*with_gradient, **options))
    say(f"a step with new keys, compiled, 19 replays of a graph: as they should be; {cost:.1f} µs of host time a call")


def microseconds(call, count=1000):
    """Of the host, for a call of which the GPU has little to do."""
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - begin) / count * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times[2:])


@step(90)
def cost():
    """Microseconds of the host for a call on a tiny problem, beside SDPA's FlashAttention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from flash_attention_workbook import torch_operators

    found = {}
    Q, K, V = inputs(1, 1, 64, 64, torch.float16)
    lse = torch.empty(1, 1, 64, device="cuda")

    def library_call(pass_, tensors, lse, gradients=0):
        library, plan = torch_operators.plan_for(pass_, Q, K, V, 0.125, "causal", False)
        tensors = (*tensors, lse, *(torch.empty_like(Q) for _ in range(gradients)))
        room = torch.empty(max(plan.workspace, 1), dtype=torch.uint8, device="cuda")
        addresses, stream = [x.data_ptr() for x in tensors], torch.cuda.current_stream().cuda_stream
        kept.append((tensors, room))
        return lambda: library.run(plan, addresses, room.data_ptr(), stream)

    class Nothing(torch.autograd.Function):  # what PyTorch takes for a Function in Python
        @staticmethod
        def forward(ctx, query, key, value):
            O, lse = torch.empty_like(query), query.new_empty(query.shape[:3], dtype=torch.float32)
            ctx.save_for_backward(query, key, value, O, lse)
            return O

        @staticmethod
        def backward(ctx, dO):
            return tuple(map(torch.empty_like, ctx.saved_tensors[:3]))

    kept = []
    with torch.no_grad():
        microseconds(lambda: torch_operators._forward(Q, K, V, 0.125, "causal", False))  # until clocks are up
        found["ours, operator"] = microseconds(lambda: torch_operators._forward(Q, K, V, 0.125, "causal", False))
        found["ours, attention()"] = microseconds(lambda: workbook.attention(Q, K, V, causal=True))
        found["ours, library"] = microseconds(library_call("forward", (Q, K, V, torch.empty_like(Q)), lse))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            found["SDPA"] = microseconds(lambda: scaled_dot_product_attention(Q, K, V, is_causal=True))
    for x in (Q, K, V):
        x.requires_grad_()
    dO = torch.randn_like(Q)
    found["ours, forward and backward"] = microseconds(
        lambda: torch.autograd.grad(workbook.attention(Q, K, V, causal=True), (Q, K, V), dO), 300
    )
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found["SDPA, forward and backward"] = microseconds(
            lambda: torch.autograd.grad(scaled_dot_product_attention(Q, K, V, is_causal=True), (Q, K, V), dO), 300
        )
    found["a Function that computes nothing, forward and backward"] = microseconds(
        lambda: torch.autograd.grad(Nothing.apply(Q, K, V), (Q, K, V), dO), 300
    )
    with torch.no_grad():
        found["ours, library, backward"] = microseconds(library_call("backward", (Q, K, V, Q, dO), lse, 3))
    for name, value in found.items():
        say(f"{name}: {value:.1f} us")
    for ours, theirs in (("attention()", "SDPA"), ("forward and backward", "SDPA, forward and backward")):
        say(f"{ours} costs {found['ours, ' + ours] - found[theirs]:+.1f} us beside SDPA")


@step(60)
def strides():
    """Microseconds of the GPU for calls on tensors without gaps and on views, which are copied."""

    def on_gpu(call, count=20):
        times, events = [], [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(7):
            events[0].record()
            for _ in range(count):
                call()
            events[1].record()
            torch.cuda.synchronize()
            times.append(events[0].elapsed_time(events[1]) * 1e3 / count)
        return statistics.median(times[2:])

    def both(tensors, dO):
        return lambda: torch.autograd.grad(workbook.attention(*tensors, causal=True), tensors, dO)

    for N in (2048, 8192):
        packed = torch.randn(4, N, 4, 16, 64, device="cuda").to(dtypes()[-1])  # (B, N, 4, H, d)
        *views, dO = (x.transpose(1, 2) for x in packed.unbind(2))
        dense = [x.contiguous() for x in views]
        forward = [on_gpu(lambda x=x: workbook.attention(*x, causal=True)) for x in (dense, views)]
        copy = on_gpu(views[0].contiguous)
        say(f"N = {N}: forward {forward[0]:.0f} us, of views {forward[1]:.0f} us; a copy alone {copy:.0f} us")
        for x in (*dense, *views):
            x.requires_grad_()
        cases = {"": (dense, dO.contiguous()), "dO a view": (dense, dO), "all views": (views, dO)}
        say(f"N = {N}: forward and backward", *(f"{name} {on_gpu(both(*x)):.0f} us;" for name, x in cases.items()))


# --- A small GPT -----------------------------------------------------------------------------------------------------


def make_gpt(attend, vocabulary=256, width=512, heads=8, layers=6, context=512):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, N, _ = x.shape
            qkv = self.qkv(self.before(x)).view(B, N, 3, heads, width // heads)
            q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
            x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(B, N, width))
            return x + self.down(nn.functional.gelu(self.up(self.between(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, ids):
            x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.last(x))

    return GPT()


def train_gpt(attend, text, seed, steps, batch=16, context=512):
    """The mean loss of the last 20 steps, and tokens a second. bf16 by autocast, AdamW."""
    torch.manual_seed(seed)
    model = make_gpt(attend, context=context).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=6e-4)
    generator = torch.Generator().manual_seed(seed)
    losses, begin = [], 0.0
    for number in range(steps):
        if number == 20:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        starts = torch.randint(len(text) - context - 1, (batch,), generator=generator)
        rows = torch.stack([text[s : s + context + 1] for s in starts.tolist()]).cuda(non_blocking=True).long()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(rows[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    rate = (steps - 20) * batch * context / (time.perf_counter() - begin)
    return torch.stack(losses[-20:]).mean().item(), rate


@step(240)
def gpt():
    """500 steps of a GPT of 19 million weights on the book's text: the loss with each attention, three seeds."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    text = torch.frombuffer(bytearray((BOOK / "common" / "attention" / "text.txt").read_bytes()), dtype=torch.uint8)
    ours = lambda q, k, v: workbook.attention(q, k, v, causal=True)
    sdpa = lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)
    ways = {
        "ours": (ours, SDPBackend.MATH),  # which it does not ask
        "SDPA FlashAttention-2": (sdpa, SDPBackend.FLASH_ATTENTION),
        "SDPA cuDNN": (sdpa, SDPBackend.CUDNN_ATTENTION),
    }
    steps = int(os.environ.get("WORKBOOK_GPT_STEPS", "500"))
    found = {name: [] for name in ways}
    for seed in (1, 2, 3):
        for name, (attend, backend) in ways.items():
            try:
                with sdpa_kernel(backend):
                    loss, rate = train_gpt(attend, text, seed, steps)
            except RuntimeError as error:
                if name == "ours":
                    raise
                say(f"{name}: {str(error).splitlines()[0]}")
                continue
            found[name].append((loss, rate))
            say(f"seed {seed}, {name}: loss {loss:.4f}, {rate:,.0f} tokens/s")
    for name, runs in found.items():
        if runs:
            losses = [loss for loss, _ in runs]
            say(f"{name}: loss {statistics.mean(losses):.4f}, {min(losses):.4f} to {max(losses):.4f}; "
                f"{statistics.median(rate for _, rate in runs):,.0f} tokens/s")  # fmt: skip
    mine, theirs = ([loss for loss, _ in found[name]] for name in ("ours", "SDPA FlashAttention-2"))
    if mine and theirs:
        difference = abs(statistics.mean(mine) - statistics.mean(theirs))
        noise = max(max(losses) - min(losses) for losses in (mine, theirs))
        say(f"the means differ by {difference:.4f}; three seeds differ by {noise:.4f}")
        require(difference <= noise, "the loss differs by more than seeds do")


@step(60)
def timeline():
    """torch.profiler: the kernels of one forward and backward pass, with their times."""
    from torch.profiler import ProfilerActivity, profile

    Q, K, V = inputs(4, 16, 2048, 64, torch.bfloat16, requires_grad=True)
    for _ in range(3):
        workbook.attention(Q, K, V, causal=True).sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        workbook.attention(Q, K, V, causal=True).sum().backward()
        torch.cuda.synchronize()
    for event in profiler.events():
        if str(event.device_type).endswith("CUDA"):
            time_on_device = event.device_time if hasattr(event, "device_time") else event.cuda_time
            say(f"{time_on_device:9.1f} us  {event.name[:100]}")


# --- Running ---------------------------------------------------------------------------------------------------------


def run_step(name, limit, function):
    print(f"{name}: {' '.join((function.__doc__ or '').split())}", flush=True)

    def too_long(*_):
        raise TimeoutError(f"longer than {limit} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(limit))
    begin, why = time.monotonic(), ""
    try:
        function()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        traceback.print_exc(limit=-6, file=sys.stdout)
    finally:
        signal.alarm(0)
    result = f"FAILED: {why.splitlines()[0]}" if why else "ok"
    print(f"{name}: {result} ({time.monotonic() - begin:.1f} s)\n", flush=True)
    return not why


def main():
    global torch, workbook
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", help="libraries of ./workbook library, with ':' between them")
    parser.add_argument("--only", help="steps, with ',' between them: " + ", ".join(name for name, *_ in STEPS))
    parser.add_argument("--limit", type=float, default=0, help="seconds for each step, instead of its own limit")
    given = parser.parse_args()
    if given.libraries:
        os.environ["WORKBOOK_LIBRARY"] = given.libraries
    sys.path.insert(0, str(BOOK / "python"))
    import torch
    import torch._dynamo  # it is not there by itself

    import flash_attention_workbook as workbook

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {device}")
    for stage in workbook.stages("cuda"):
        print(" ", stage)
    wanted = given.only.split(",") if given.only else [name for name, *_ in STEPS]
    unknown = set(wanted) - {name for name, *_ in STEPS}
    if unknown:
        parser.error(f"--only {','.join(sorted(unknown))}: allowed: {', '.join(name for name, *_ in STEPS)}")
    results = {
        name: run_step(name, given.limit or limit, function) for name, limit, function in STEPS if name in wanted
    }
    print(json.dumps(results))
    print(f"{sum(results.values())} passed, {len(results) - sum(results.values())} failed")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
