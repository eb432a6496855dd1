"""torch.ops.copes: what PyTorch asks of an operator, and what a gradient keeps."""

import subprocess
import sys

import copes
import pytest
import torch
from test_tpa import make
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

ROTATE = ("rotate", "half", "silu", -1, [], [3], 1, 0, [], 0, 0, None, False, False)
COSINE = ("cosine", "half", "none", -1, [2, 3], [0], 0, 0, [], 0, 0, None, False, False)
SEQUENCE = ("cosine", "half", "softmax", 1, [], [0], 0, 0, [], 0, 0, None, False, True)  # theta has half of the angles
PADDED = ("rotate", "interleaved", "none", -1, [], [3], 0, 0, [], 0, 0, 1.5, True, True)
PLACED = ("rotate", "half", "none", -1, None, [0], 0, 0, None, 4, 2, 1.5, True, False)  # with positions
THETA = torch.rand(2, 4)


def x_of(device, **options):
    return torch.randn(2, 6, 2, 8, device=device, **options)


def samples(device):
    """(operator, arguments, keyword arguments) of every operator."""
    operators = torch.ops.copes
    theta, x, grad = THETA.to(device), x_of(device), x_of(device, requires_grad=True)
    tpa = make(device, torch.float32)
    tpa = (tpa[0], tpa[3], tpa[1], tpa[4], tpa[2], tpa[5], None, None, 0.5, None, None, True, 1, 2, 90)
    yield operators.act.default, (grad, "silu", -1), {}
    yield operators.act.default, (grad.detach().transpose(1, 2).requires_grad_(), "softmax", 1), {}
    yield operators.act.out, (x, "relu", -1), {"out": torch.empty_like(x)}
    yield operators.act_backward.default, (x, x_of(device), None, "sigmoid", -1), {}
    yield operators.act_backward.default, (None, x_of(device), x.sigmoid(), "sigmoid", -1), {}
    yield operators.relu_mask.default, (grad,), {}
    yield operators.relu_mask.default, (grad.detach()[..., :1].transpose(1, 2).requires_grad_(),), {}
    yield operators.relu_mask_backward.default, (grad, torch.ones(2, 6, 2, 1, dtype=torch.uint8, device=device)), {}
    yield operators.lrpe.default, (grad, theta, None, None, *ROTATE), {}
    yield operators.lrpe.default, (grad, theta, None, None, *COSINE), {}
    yield operators.lrpe_lse.default, (grad, theta, None, None, *SEQUENCE), {}
    yield operators.lrpe.out, (x, theta, None, None, *ROTATE), {"out": torch.empty_like(x)}
    yield operators.lrpe_backward.default, (x, theta, None, None, x_of(device), None, *ROTATE), {}
    yield operators.tpa_decode.default, tpa, {}
    yield operators.tpa_decode_lse.default, tpa, {}
    yield operators.tpa_decode.out, tpa, {"out": torch.empty(2, 1, 6, 16, device=device)}
    yield operators.tpa_decode_lse.out, tpa, {"out": torch.empty(2, 1, 6, 16, device=device)}
    yield operators.lrpe.default, (grad, theta[:, :3], None, None, *PADDED), {}
    learned, positions = theta[:, :2].clone().requires_grad_(), torch.rand(2, 6, device=device)
    offsets = torch.tensor([5, 2**40], device=device)
    yield operators.lrpe.default, (grad, learned, positions, None, *PLACED), {}
    yield operators.lrpe_lse.default, (grad, theta.clone().requires_grad_(), None, offsets, *SEQUENCE), {}
    yield operators.lrpe.out, (x, theta[:, :2], positions, None, *PLACED), {"out": torch.empty_like(x)}
    backward = (x, theta[:, :2], positions, None, x_of(device), None, *PLACED)
    yield operators.lrpe_backward.default, backward, {}
    yield operators.lrpe_backward_theta.default, backward, {}


@pytest.mark.parametrize("index", range(23))
def test_opcheck(device, index):
    copes.act(torch.ones(1), "relu")  # registers the operators
    operator, arguments, keywords = list(samples(device))[index]
    opcheck(operator, arguments, keywords)


def kept(o):
    """The tensors that o's gradient keeps, by their addresses."""
    return {t.data_ptr() for t in o.grad_fn.saved_tensors if t is not None}


def test_only_what_backward_needs_is_saved(device):
    theta, x = THETA.to(device), x_of(device, requires_grad=True)
    assert kept(copes.act(x, "none")) == set()
    assert kept(copes.act(x, "silu")) == {x.data_ptr()}
    for act in ("sigmoid", "softmax"):
        o = copes.act(x, act)
        assert kept(o) == {o.data_ptr()}
    o = copes.act(x, "relu")
    (mask,) = o.grad_fn.saved_tensors
    assert mask.dtype == torch.uint8 and mask.shape == (2, 6, 2, 1)
    assert kept(torch.ops.copes.act(x, "relu", -1)).isdisjoint({x.data_ptr()})
    assert kept(copes.lrpe_rotate(x, theta)) == {theta.data_ptr()}
    assert kept(copes.lrpe_cosine(x, theta, act="none", grid=(2, 3))) == {theta.data_ptr()}
    assert kept(copes.lrpe_rotate(x, theta, act="silu")) == {x.data_ptr(), theta.data_ptr()}
    assert len(kept(copes.lrpe_rotate(x, theta, act="softmax", dim=1))) == 3  # and lse


def model(x, theta, offset):
    y = copes.lrpe_rotate(x, theta, act="silu", offset=offset)
    y = copes.act(copes.lrpe_cosine(y * 2, torch.cat((theta, theta), 1), act="softmax", dim=1), "sigmoid")
    return copes.act(y, "relu", out=torch.empty_like(y)) if not torch.is_grad_enabled() else y


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_keeps_one_graph(device, backend):
    if backend == "inductor" and device == "cpu":
        pytest.skip("Inductor needs a C++ compiler and its time on the CPU; aot_eager covers the graph")
    theta, compiled = THETA.to(device), torch.compile(model, fullgraph=True, backend=backend)
    for offset in (0, 3, 4):
        x = x_of(device, requires_grad=True)
        compiled(x, theta, offset).square().sum().backward()
        gradient, x.grad = x.grad, None
        model(x, theta, offset).square().sum().backward()
        torch.testing.assert_close(gradient, x.grad, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, theta, 3), model(x, theta, 3))


def test_compile_imports_the_operators_itself(tmp_path):
    """The first call of the process may be a compiled one, with copes imported before PyTorch."""
    code = (
        "import copes, sys; assert 'torch' not in sys.modules; import torch\n"
        "f = torch.compile(lambda x: copes.act(x, 'silu'), fullgraph=True, backend='eager')\n"
        "x = torch.ones(3); assert torch.equal(f(x), copes.act(x, 'silu'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_no_grad_and_inference_mode(device):
    x, theta = x_of(device, requires_grad=True), THETA.to(device)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            o = copes.lrpe_rotate(x, theta, act="silu")
        assert not o.requires_grad
        torch.testing.assert_close(o, copes.lrpe_rotate(x, theta, act="silu").detach())


def test_autocast(device):
    inputs = make(device, torch.float32)
    with torch.autocast(device, torch.bfloat16):
        x = x_of(device)
        assert copes.act(x, "silu").dtype == torch.float32
        assert copes.lrpe_rotate(x.bfloat16(), THETA.to(device)).dtype == torch.bfloat16
        o = copes.tpa_decode(inputs[0].bfloat16(), *inputs[1:])
    assert torch.equal(o, copes.tpa_decode(*(t.bfloat16() for t in inputs)))


def test_modes_see_the_operators(device):
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Record():
        copes.act(x_of(device), "silu")
    assert "copes.act.default" in seen


def test_fake_and_meta_tensors():
    with FakeTensorMode():
        assert copes.lrpe_cosine(torch.empty(2, 6, 2, 8), torch.empty(2, 8)).shape == (2, 6, 2, 16)
    o = copes.lrpe_cosine(torch.empty(2, 6, 2, 8, device="meta"), torch.empty(2, 8, device="meta"))
    assert o.is_meta and o.shape == (2, 6, 2, 16)


def test_layout_stays(device):
    x = torch.randn(2, 3, 6, 8, device=device).transpose(1, 2)
    assert copes.lrpe_rotate(x, torch.rand(3, 4, device=device)).stride() == x.stride()


def test_gradients_that_do_not_exist(device):
    x, theta = x_of(device, requires_grad=True), THETA.to(device)
    with pytest.raises(RuntimeError, match="positions.detach"):
        copes.lrpe_rotate(x.detach(), theta, positions=torch.zeros(6, device=device).requires_grad_())
    with pytest.raises(RuntimeError, match="out: an input requires grad"):
        copes.act(x, "silu", out=torch.empty_like(x))
    o = copes.act(x, "silu")
    (gradient,) = torch.autograd.grad(o.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="silu has no second derivative"):
        gradient.sum().backward()


def test_what_a_transform_left_behind(device):
    """A tensor that outlives torch.func.grad is still a wrapper, which has no memory of its own."""
    left = []

    def keep(x):
        left.append(x * 1)
        return left[0].sum()

    x = torch.randn(2, 6, 2, 8, device=device)
    torch.func.grad(keep)(x)
    torch.testing.assert_close(copes.act(left[0], "silu"), copes.act(x, "silu"))
    torch.testing.assert_close(copes.lrpe_rotate(left[0], THETA.to(device)), copes.lrpe_rotate(x, THETA.to(device)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_streams_and_graphs():
    x, theta = x_of("cuda"), THETA.cuda()
    expected = copes.lrpe_rotate(x, theta, act="softmax", dim=1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        side = copes.lrpe_rotate(x, theta, act="softmax", dim=1)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(side, expected)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = copes.lrpe_rotate(x, theta, act="softmax", dim=1)
    x.normal_()
    graph.replay()
    assert torch.equal(o, copes.lrpe_rotate(x, theta, act="softmax", dim=1))
