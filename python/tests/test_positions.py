"""lrpe at positions that a tensor has, with a theta for each dimension, theta's gradient, and the attributes amplitude,
inverse and rotary_begin, against float64 PyTorch."""

import copes
import numpy as np
import pytest
import reference
import torch
from test_negative import check as check_negative
from test_negative import gradient
from torch import func
from torch._dynamo.backends.common import aot_autograd

B, N, H, D = 2, 12, 3, 16
ANGLES = {"lrpe_rotate": D // 2, "lrpe_cosine": D}
FUNCTIONS = list(ANGLES)
INTEGERS = [torch.int32, torch.int64]


def packed():
    """Two sequences in one row, each counted from 0, as attention over packed sequences has them."""
    return torch.cat((torch.arange(5), torch.arange(N - 5))).to(torch.int32)


POSITIONS = {  # name: (m, positions and what goes with them)
    "(N)": (1, lambda: dict(positions=torch.randint(-1000, 1000, (N,)))),
    "(B, N)": (1, lambda: dict(positions=torch.randint(-1000, 1000, (B, N), dtype=torch.int32), offset=7)),
    "(m, B, N)": (3, lambda: dict(positions=torch.randint(-99, 99, (3, B, N)), offset=(1, 2, 3))),
    "fractions": (1, lambda: dict(positions=torch.randn(B, N) * 100)),
    "packed": (1, lambda: dict(positions=packed())),
    "broadcast": (1, lambda: dict(positions=torch.arange(N).expand(B, N))),
    "one for all": (2, lambda: dict(positions=torch.tensor(3.5).expand(2, B, N))),
    "strides": (2, lambda: dict(positions=torch.randint(-99, 99, (N, B, 4))[..., ::2].permute(2, 1, 0))),
    "offsets": (1, lambda: dict(offsets=torch.tensor([5, -70]), prefix=1, suffix=2)),
    "offsets of float32": (1, lambda: dict(offsets=torch.tensor([0.5]).expand(B), offset=3)),
}


def thetas(m, count):
    """What theta may be, in float64."""
    yield "(H, E)", torch.rand(H, -(-count // m)) - 0.5
    yield "(m, H, K)", torch.rand(m, H, count) - 0.5
    yield "(m, 1, K)", torch.rand(m, 1, count) - 0.5
    if m == 1:
        yield "(H, 1)", torch.rand(H, 1) - 0.5
        yield "(1, 1)", torch.rand(1, 1) - 0.5


def check(function, x, theta, act="none", dim=None, **where):
    """Values and both gradients."""
    x, theta = x.detach().requires_grad_(), theta.detach().requires_grad_()
    o = getattr(copes, function)(x, theta, act=act, dim=dim, **where)
    grad_o = torch.randn_like(o)
    o.backward(grad_o)

    leaf, wide = reference.wide(x).requires_grad_(), reference.wide(theta).requires_grad_()
    expected = getattr(reference, function)(leaf, wide, act, dim, **where)
    expected.backward(reference.wide(grad_o))
    reference.assert_close(o, expected.detach())
    reference.assert_close(x.grad, leaf.grad)
    assert theta.grad.shape == theta.shape and theta.grad.dtype == theta.dtype
    bound = 1e-6 * (reference.wide(theta.grad).abs().max() + wide.grad.abs().max() + 1)
    assert (reference.wide(theta.grad) - wide.grad).abs().max() <= bound


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", POSITIONS)
def test_positions(device, dtype, function, name):
    m, make = POSITIONS[name]
    where = {key: v.to(device) if isinstance(v, torch.Tensor) else v for key, v in make().items()}
    for _, theta in thetas(m, ANGLES[function]):
        x = torch.randn(B, N, H, D, device=device, dtype=dtype)
        check(function, x, theta.to(device), **where)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("act, dim", [("relu", None), ("silu", None), ("softmax", -1), ("softmax", 1)])
def test_activations(device, function, act, dim):
    x, theta = torch.randn(B, N, H, D, device=device), torch.rand(H, ANGLES[function], device=device)
    check(function, x, theta, act, dim, positions=torch.randint(0, 99, (B, N), device=device))


def test_sections_and_padding(device):
    x, positions = torch.randn(B, N, H, D, device=device), torch.randint(0, 99, (3, B, N), device=device)
    check("lrpe_rotate", x, torch.rand(H, 8, device=device), positions=positions, sections=(4, 3, 1))
    check("lrpe_cosine", x, torch.rand(H, 5, device=device), positions=positions[0], pad_theta=True)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("grid, offset", [(None, 5), ((3, 4), (2, 1))])
def test_theta_learns_on_grids(device, function, grid, offset):
    m, x = len(grid or (1,)), torch.randn(B, N, H, D, device=device)
    for _, theta in thetas(m, ANGLES[function]):
        check(function, x, theta.to(device), "silu", grid=grid, offset=offset)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("turns", [dict(), dict(rotary_dim=4), dict(rotary_begin=10, rotary_dim=4)])
def test_attributes(device, dtype, pairing, turns):
    x = torch.randn(B, N, H, D, device=device, dtype=dtype)
    theta = torch.rand(1, turns.get("rotary_dim", D) // 2, device=device)
    where = dict(positions=torch.randint(0, 99, (B, N), device=device), amplitude=1.5, inverse=True)
    check("lrpe_rotate", x, theta, "silu", pairing=pairing, **turns, **where)
    check("lrpe_cosine", x, torch.rand(1, D, device=device), "silu", **where)


def test_rotary_begin_alone(device):
    x, theta = torch.randn(B, N, H, D, device=device), torch.rand(1, 4, device=device)
    o = copes.lrpe_rotate(x, theta, rotary_begin=8)
    assert torch.equal(o[..., :8], x[..., :8])
    assert torch.equal(o[..., 8:], copes.lrpe_rotate(x[..., 8:], theta))


def test_inverse_undoes(device):
    x, theta, positions = torch.randn(B, N, H, D, device=device), torch.rand(1, 8, device=device), torch.randn(N)
    where = dict(positions=positions.to(device))
    o = copes.lrpe_rotate(
        copes.lrpe_rotate(x, theta, amplitude=2.0, **where), theta, inverse=True, amplitude=0.5, **where
    )
    torch.testing.assert_close(o, x, rtol=1e-5, atol=1e-6)


def test_positions_are_the_grids(device):
    """To the bit, and theta of the smaller types."""
    x = torch.randn(B, N, H, D, device=device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        theta, count = torch.rand(H, 8, device=device).to(dtype), torch.arange(N, device=device)
        line = copes.lrpe_rotate(x, theta, offset=100)
        for positions in (count + 100, (count + 100).int(), (count + 100).float(), (count + 100).expand(B, N)):
            assert torch.equal(copes.lrpe_rotate(x, theta, positions=positions), line)
        assert torch.equal(copes.lrpe_rotate(x, theta, offsets=torch.full((B,), 100, device=device)), line)
    grid = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")).to(device)
    positions, theta = grid.reshape(2, 1, N).expand(2, B, N), torch.rand(H, 8, device=device)
    where = dict(sections=(5, 3))
    expected = copes.lrpe_rotate(x, theta, grid=(3, 4), **where)
    assert torch.equal(copes.lrpe_rotate(x, theta, positions=positions, **where), expected)


# ---- frameworks ------------------------------------------------------------------------------------------------------


def as_numpy(x):
    return x.numpy()


def as_jax(x):
    jax = pytest.importorskip("jax")
    return jax.numpy.asarray(x.numpy())


@pytest.mark.parametrize("convert", [as_numpy, as_jax])
def test_other_arrays(convert):
    x, theta, positions = torch.randn(B, N, H, D), torch.rand(2, 1, 8), torch.randint(0, 99, (2, B, N)).int()
    o = copes.lrpe_rotate(*map(convert, (x, theta)), positions=convert(positions), amplitude=2.0, inverse=True)
    expected = copes.lrpe_rotate(x, theta, positions=positions, amplitude=2.0, inverse=True)
    assert np.array_equal(np.asarray(o), expected.numpy())
    o = copes.lrpe_cosine(convert(x), convert(torch.rand(1, D) * 0), offsets=convert(torch.ones(B).int()))
    assert np.array_equal(np.asarray(o)[..., :D], x.numpy())


def test_numpy_out_and_strides():
    x, theta, positions = np.ones((B, N, H, D), "f4"), np.ones((1, 8), "f4"), np.arange(2 * N)[::2]
    out = np.empty_like(x)
    assert copes.lrpe_rotate(x, theta, positions=positions, out=out) is out
    assert np.array_equal(out, copes.lrpe_rotate(x, theta, positions=positions.astype(np.int32)))


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("act, dim", [("none", None), ("sigmoid", None), ("softmax", -1), ("softmax", 1)])
@pytest.mark.parametrize("m", [1, 2])
def test_gradcheck(function, act, dim, m):
    """Of x and theta. Theta is float32 to the operator: steps of 2^-10 from its multiples are exact there, and what is
    left of the difference quotient's error is p^3 step^2 / 6."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 2, 4, dtype=torch.float64)
    count, positions = ANGLES[function] * 4 // D, torch.randint(-3, 4, (m, 2, 3))
    encode = getattr(copes, function)

    def f(x, theta):
        return encode(x, theta.float(), act=act, dim=dim, positions=positions, amplitude=1.25, inverse=True)

    for heads in (1, 2):
        theta = torch.randint(-(2**10), 2**10, (m, heads, count)).double() / 2**10
        learned = theta.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda theta: f(x, theta), learned, eps=2**-10, atol=1e-4, rtol=1e-4)
        assert torch.autograd.gradcheck(lambda x: f(x, theta), x.clone().requires_grad_())


def test_what_a_learned_theta_keeps(device):
    """x, which an activation keeps, too; and no copies."""
    x, theta = torch.randn(B, N, H, D, device=device), torch.rand(1, 8, device=device, requires_grad=True)
    positions = torch.arange(N, device=device)
    o = copes.lrpe_rotate(x, theta, positions=positions)
    kept = {t.data_ptr() for t in o.grad_fn.saved_tensors if t is not None}
    assert kept == {x.data_ptr(), theta.data_ptr(), positions.data_ptr()}
    with torch.no_grad():
        x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_thetas_gradient_has_its_type(device):
    x, positions = torch.randn(B, N, H, D, device=device), torch.arange(N, device=device)
    for dtype in (torch.float16, torch.bfloat16):
        theta = torch.rand(1, 8, device=device).to(dtype).requires_grad_()
        copes.lrpe_rotate(x, theta, positions=positions).square().sum().backward()
        assert theta.grad.dtype == dtype


def model(x, theta, positions, offsets):
    y = copes.lrpe_rotate(x, theta, act="silu", positions=positions, amplitude=1.5)
    return copes.lrpe_cosine(y, torch.cat((theta, theta), 1), act="softmax", dim=1, offsets=offsets, inverse=True)


@pytest.mark.parametrize("learns", [False, True])
def test_compile_keeps_one_graph(device, learns):
    """With one graph for all lengths."""
    torch.compiler.reset()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    aot = aot_autograd(fw_compiler=count)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=aot)
    for tokens in (5, 6, 9):
        x = torch.randn(2, tokens, H, D, device=device, requires_grad=True)
        theta = torch.rand(1, 8, device=device, requires_grad=learns)
        inputs = x, theta, torch.randint(0, 99, (2, tokens), device=device), torch.tensor([1, 2], device=device)
        wanted = (x, theta) if learns else (x,)
        for each, expected in zip(*(torch.autograd.grad(f(*inputs).square().sum(), wanted) for f in (compiled, model))):
            torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-6)
    assert len(graphs) <= 2  # forward and backward


VMAPPED = {  # in_dims of x, theta, positions, offsets
    "x": (0, None, None, None),
    "positions": (None, None, 1, None),
    "x and positions": (1, None, 0, None),
    "x and theta": (0, 1, None, None),
    "theta and positions": (None, 0, 1, None),
    "offsets": (None, None, None, 0),
    "theta and offsets": (0, 0, None, 0),
}


@pytest.mark.parametrize(
    "name, shape",
    [(name, shape) for name in VMAPPED for shape in [(N,), (B, N), (2, B, N)][: 1 if "offsets" in name else 3]],
)
@pytest.mark.parametrize("heads", [1, H])
def test_vmap(name, shape, heads):
    dims, m = VMAPPED[name], 2 if len(shape) == 3 else 1
    x, theta = torch.randn(4, B, N, H, D, dtype=torch.float64), torch.rand(4, *(m, heads, 8)[m == 1 :])
    with_offsets = "offsets" in name
    positions = None if with_offsets else torch.randint(0, 99, (4, *shape))
    whole = (x, theta, positions, torch.randint(0, 99, (4, B)) if with_offsets else None)
    each = [[t if t is None else t[0 if dim is None else i] for t, dim in zip(whole, dims)] for i in range(4)]
    inputs = [t if t is None else t[0] if dim is None else t.movedim(0, dim) for t, dim in zip(whole, dims)]
    dims = tuple(None if t is None else dim for t, dim in zip(inputs, dims))

    def f(x, theta, positions, offsets):
        return copes.lrpe_rotate(x, theta, positions=positions, offsets=offsets, act="silu")

    gradients = func.grad(lambda *inputs: f(*inputs).square().sum() + f(*inputs).sum(), (0, 1))
    for function in (f, lambda *inputs: gradients(*inputs)[0], lambda *inputs: gradients(*inputs)[1]):
        expected = torch.stack([function(*one) for one in each])
        torch.testing.assert_close(torch.vmap(function, dims)(*inputs), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 8), (H, 8), (1, 1, 8), (1, H, 8)])
def test_vmap_of_thetas_gradient(shape):
    """By the operator itself: autograd would sum what has the heads' axis too many."""
    x, grad_o, theta = torch.randn(B, N, H, D), torch.randn(4, B, N, H, D), torch.rand(shape)
    attributes = ("rotate", "half", "silu", -1, None, None, 0, 0, None, 0, 0, None, False, False)

    def f(grad_o):
        return torch.ops.copes.lrpe_backward_theta(x, theta, None, None, grad_o, None, *attributes)

    for result, expected in zip(torch.vmap(f)(grad_o), zip(*map(f, grad_o))):
        torch.testing.assert_close(result, torch.stack(expected), rtol=1e-5, atol=1e-4)


def test_forward_mode_of_x():
    x, theta, positions = torch.randn(B, N, H, D), torch.rand(1, 8), torch.arange(N)

    def f(x):
        return copes.lrpe_rotate(x, theta, positions=positions, act="silu", amplitude=2.0, inverse=True)

    def expected(x):
        return reference.lrpe_rotate(x, theta, "silu", positions=positions, amplitude=2.0, inverse=True)

    tangent = torch.randn_like(x)
    result = func.jvp(f, (x,), (tangent,))[1]
    wide = func.jvp(expected, (x.double(),), (tangent.double(),))[1]
    torch.testing.assert_close(result.double(), wide, rtol=1e-5, atol=1e-5)


def test_negative_views(device):
    x, theta = torch.randn(B, N, H, D, device=device), torch.rand(1, 8, device=device)
    positions, offsets = torch.rand(N, device=device), torch.rand(B, device=device)

    def f(x, theta, positions):
        return copes.lrpe_rotate(x, theta, positions=positions, act="silu")

    def by_operator(x, theta, positions, grad_o):
        attributes = ("rotate", "half", "silu", -1, None, None, 0, 0, None, 0, 0, None, False, False)
        both = torch.ops.copes.lrpe_backward_theta(x, theta, positions, None, grad_o, None, *attributes)
        return torch.cat([each.flatten() for each in both])

    check_negative(f, x, theta, positions)
    check_negative(gradient(f), x, theta, positions, torch.randn_like(x))
    check_negative(lambda offsets: copes.lrpe_rotate(x, theta, offsets=offsets), offsets)
    check_negative(by_operator, x, theta, positions, torch.randn_like(x))


def test_meta():
    x, theta, positions = (torch.empty(s, device="meta") for s in ((B, N, H, D), (2, 1, 8), (2, B, N)))
    assert copes.lrpe_rotate(x, theta, positions=positions).shape == x.shape
    with pytest.raises(ValueError, match="positions is on cpu; it must be where x is, on meta"):
        copes.lrpe_rotate(x, theta, positions=torch.ones(N))


def test_out(device):
    x, theta, positions = torch.randn(B, N, H, D, device=device), torch.rand(1, 8, device=device), torch.arange(N)
    positions = positions.to(device)
    expected = copes.lrpe_rotate(x, theta, positions=positions)
    out = torch.empty_like(x)
    assert copes.lrpe_rotate(x, theta, positions=positions, out=out) is out and torch.equal(out, expected)
    with pytest.raises(RuntimeError, match="out: an input requires grad"):
        copes.lrpe_rotate(x, theta.requires_grad_(), positions=positions, out=out)
    with torch.no_grad():
        assert copes.lrpe_rotate(x, theta, positions=positions, out=x) is x and torch.equal(x, expected)


# ---- refusals --------------------------------------------------------------------------------------------------------

X, THETA, PLACES = torch.ones(B, N, H, D), torch.ones(1, 8), torch.arange(N)
REFUSED = [
    (ValueError, r"positions has shape \(11,\); it must be \(12,\)", dict(positions=PLACES[1:])),
    (ValueError, r"positions has shape \(3, 12\)", dict(positions=PLACES.expand(3, N))),
    (ValueError, r"positions has shape \(5, 2, 12\); .* m of 1 to 4", dict(positions=PLACES.expand(5, B, N))),
    (ValueError, r"positions has shape \(1, 1, 2, 12\)", dict(positions=PLACES.expand(1, 1, B, N))),
    (TypeError, "positions has type int16; it must be int32", dict(positions=PLACES.short())),
    (TypeError, "positions has type float64; it must be", dict(positions=PLACES.double())),
    (TypeError, "positions has type bool; it must be", dict(positions=PLACES.bool())),
    (ValueError, "grid.* is .*; with positions it must be 0", dict(positions=PLACES, grid=(3, 4))),
    (ValueError, "prefix is 1; with positions it must be 0", dict(positions=PLACES, prefix=1)),
    (ValueError, "suffix is 1; with positions it must be 0", dict(positions=PLACES, suffix=1)),
    (ValueError, "offsets is given; with positions", dict(positions=PLACES, offsets=PLACES[:B])),
    (ValueError, "offsets is given; with a 2-d grid", dict(offsets=PLACES[:B], grid=(3, 4))),
    (ValueError, r"offsets has shape \(3,\); it must be \(2,\)", dict(offsets=PLACES[:3])),
    (TypeError, "offsets has type float64", dict(offsets=PLACES[:B].double())),
    (ValueError, r"offset\[1\] is 2; .* 1-d positions", dict(positions=PLACES, offset=(1, 2))),
    (ValueError, "amplitude is 0; it must be another number, or None for 1", dict(amplitude=0.0)),
    (ValueError, "amplitude is inf; it must be finite", dict(amplitude=float("inf"))),
    (TypeError, "amplitude is 'a'; it must be a number", dict(amplitude="a")),
    (TypeError, "inverse is 'no'; it must be True or False", dict(inverse="no")),
    (ValueError, "rotary_begin is 17; with 16 features", dict(rotary_begin=17)),
    (ValueError, "rotary_dim is 8; with 6 features from rotary_begin on", dict(rotary_begin=10, rotary_dim=8)),
]


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_refusal(index):
    kind, message, arguments = REFUSED[index]
    with pytest.raises(kind, match=message):
        copes.lrpe_rotate(X, THETA, **arguments)
    arguments = {name: v.numpy() if isinstance(v, torch.Tensor) else v for name, v in arguments.items()}
    with pytest.raises(kind, match=message):
        copes.lrpe_rotate(X.numpy(), THETA.numpy(), **arguments)


def test_thetas_of_rank_3_that_do_not_fit():
    positions = PLACES.expand(2, B, N)
    for shape in ((1, 1, 8), (2, 1, 7), (2, 2, 8), (3, 1, 8)):
        with pytest.raises(ValueError, match="theta has shape .*m, H, K"):
            copes.lrpe_rotate(X, torch.ones(shape), positions=positions)
    with pytest.raises(ValueError, match="sections is given; with a theta of rank 3"):
        copes.lrpe_rotate(X, torch.ones(2, 1, 8), positions=positions, sections=(4, 4))


def test_positions_of_another_framework():
    for name, value in (("positions", np.arange(N)), ("offsets", np.arange(B))):
        with pytest.raises(
            TypeError, match=f"^{name} is a <class 'numpy.ndarray'>; beside a PyTorch tensor it must be one"
        ):
            copes.lrpe_rotate(X, THETA, **{name: value})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_devices_are_not_mixed():
    with pytest.raises(ValueError, match="positions"):
        copes.lrpe_rotate(X.cuda(), THETA.cuda(), positions=PLACES)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_replay_at_other_positions():
    x, theta, positions = torch.randn(B, N, H, D, device="cuda"), torch.rand(1, 8, device="cuda"), PLACES.cuda()
    offsets = torch.tensor([3, 4], device="cuda")
    copes.lrpe_rotate(x, theta, positions=positions)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = copes.lrpe_rotate(x, theta, positions=positions), copes.lrpe_rotate(x, theta, offsets=offsets)
    positions += 100
    offsets.copy_(torch.tensor([9, 2**40]))
    graph.replay()
    expected = copes.lrpe_rotate(x, theta, positions=positions), copes.lrpe_rotate(x, theta, offsets=offsets)
    assert all(map(torch.equal, results, expected))
