"""What an installed copes must do on a GPU that PyTorch finds: operators and derivatives as on the CPU in float64, and a graph."""

import sys

import copes
import torch

# A result's error, as a share of the largest number in it; gradients of theta and of weights are long sums in float32.
BOUND = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
BATCH, TOKENS, HEADS, DIM = 2, 3000, 8, 64
torch.manual_seed(0)


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


def theta():
    return (10000 ** (-torch.arange(0, DIM, 2) / DIM))[None]


def decoding():
    a, b = [(1, HEADS, 3), (TOKENS, HEADS, 2), (TOKENS, HEADS, 2)], [(1, 3, DIM), (TOKENS, 2, DIM), (TOKENS, 2, DIM)]
    return [random(BATCH, *shape) for shape in a + b]


# A call, its inputs of the type that is tried, and those of float32; theta is float32 on the CPU too, beside float64.
CASES = {
    "softmax": (lambda x: copes.act(x, "softmax", 1), [random(BATCH, TOKENS, HEADS, DIM)], []),
    "RoPE after silu": (
        lambda x, theta: copes.lrpe_rotate(x, theta, offset=4096, act="silu"),
        [random(BATCH, TOKENS, HEADS, DIM)],
        [theta()],
    ),
    "cosine encoding": (
        lambda x, theta: copes.lrpe_cosine(x, theta.repeat(1, 2), offset=4096),
        [random(BATCH, TOKENS, HEADS, DIM)],
        [theta()],
    ),
    "norm and RoPE": (
        lambda q, k, wq, wk: copes.qk_norm_rope(q, k, theta().to(wq.device), wq=wq, wk=wk, offset=4096),
        [random(BATCH, TOKENS, HEADS, DIM), random(BATCH, TOKENS, 2, DIM)],
        [random(DIM), random(DIM)],
    ),
    "merge": (copes.attention_merge, [random(4, BATCH, TOKENS, HEADS, DIM)], [random(4, BATCH, TOKENS, HEADS)]),
    "decoding": (copes.tpa_decode, decoding(), []),
}


def results(call, tensors, seeds):
    """The outputs, and where the operator has a derivative the inputs' gradients."""
    made = call(*(tensor.requires_grad_(seeds is not None) for tensor in tensors))
    outputs = made if isinstance(made, tuple) else (made,)
    if seeds is None:
        return outputs
    return *outputs, *torch.autograd.grad(outputs, tensors, [seed.to(o) for seed, o in zip(seeds, outputs)])


def check(name, dtype):
    call, narrow, wide = CASES[name]
    on_gpu = [x.to("cuda", dtype) for x in narrow] + [x.to("cuda", torch.float32) for x in wide]
    on_cpu = [y.cpu().to(x.dtype) for x, y in zip(narrow + wide, on_gpu)]
    seeds = None
    if name != "decoding":
        made = call(*on_cpu)
        seeds = [random(*o.shape).to(dtype) for o in (made if isinstance(made, tuple) else (made,))]
    worst = 0
    for got, want in zip(results(call, on_gpu, seeds), results(call, on_cpu, seeds), strict=True):
        assert got.device.type == "cuda" and got.shape == want.shape, name
        error = ((got.cpu().double() - want).abs().max() / want.abs().max()).item()
        assert error <= BOUND[got.dtype], f"{name}, {dtype}: off by {error:.3g} of the largest number"
        worst = max(worst, error)
    print(f"{name}, {dtype}: off by {worst:.3g} of the largest number")


def check_graph():
    x, rows = random(BATCH, TOKENS, HEADS, DIM).float().cuda(), theta().cuda()

    def call():
        return copes.lrpe_rotate(x, rows, act="softmax", dim=1)

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = call()
    x.normal_()
    graph.replay()
    assert torch.equal(o, call())
    print("a replayed graph gives the same bits")


if not torch.cuda.is_available():
    sys.exit("PyTorch finds no GPU")
print(f"copes {copes.__version__}, PyTorch {torch.__version__}, {torch.cuda.get_device_name()}: {copes.devices()}")
for case in CASES:
    for type in BOUND:
        check(case, type)
check_graph()
