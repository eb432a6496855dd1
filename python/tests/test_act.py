"""copes.act: values and gradients against float64 PyTorch, for every activation, type and layout."""

import copes
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import reference
import torch

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "sliced": lambda x: x[:, ::2, 1:],
    "expanded": lambda x: x[:, :1].expand(-1, 7, -1),
}


def check(x, act, dim):
    x = x.detach().requires_grad_()
    o = copes.act(x, act, dim)
    grad_o = torch.randn_like(o)
    o.backward(grad_o)

    wide = reference.wide(x).requires_grad_()
    expected = reference.act(wide, act, dim)
    reference.assert_close(o, expected.detach())
    assert o.dtype == x.dtype and o.device == x.device and o.shape == x.shape
    if act == "softmax":  # its backward takes the stored output, rounding included
        stored, g = reference.wide(o), reference.wide(grad_o)
        reference.assert_close(x.grad, stored * (g - (stored * g).sum(dim, keepdim=True)))
    elif act == "sigmoid":  # likewise
        reference.assert_close(x.grad, reference.wide(grad_o) * reference.wide(o) * (1 - reference.wide(o)))
    else:
        expected.backward(reference.wide(grad_o))
        reference.assert_close(x.grad, wide.grad)


@pytest.mark.parametrize("act", reference.ACTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_and_gradients(device, dtype, act, layout):
    x = LAYOUTS[layout](torch.randn(3, 10, 33, device=device, dtype=dtype))
    for dim in (-1, 0, 1) if act == "softmax" else (-1,):
        check(x, act, dim)


@hypothesis.settings(max_examples=30, deadline=None, derandomize=True)
@hypothesis.given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=5), act=st.sampled_from(reference.ACTS), data=st.data()
)
def test_any_shape_and_permutation(shape, act, data):
    order = data.draw(st.permutations(range(len(shape))))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    check(torch.randn(shape).permute(order), act, dim)


@pytest.mark.parametrize("act", reference.ACTS)
def test_gradcheck(act):
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: copes.act(x, act, 0), x)


def test_special_values(device):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 100.0, -100.0], device=device)
    for act in ("relu", "sigmoid", "silu"):
        expected = reference.act(reference.wide(x), act)
        if act == "silu":
            expected[2] = torch.nan  # -inf * 0, as the formula says
        torch.testing.assert_close(reference.wide(copes.act(x, act)), expected, equal_nan=True, rtol=1e-6, atol=1e-37)


def test_empty(device):
    x = torch.empty(3, 0, 4, device=device, requires_grad=True)
    o = copes.act(x, "softmax")
    o.sum().backward()
    assert o.shape == x.shape and x.grad.shape == x.shape


def test_out_and_in_place(device):
    x = torch.randn(4, 5, device=device)
    expected = copes.act(x, "silu")
    out = torch.empty(5, 4, device=device).t()
    assert copes.act(x, "silu", out=out) is out
    assert torch.equal(out, expected)
    assert copes.act(x, "silu", out=x) is x
    assert torch.equal(x, expected)


def bits(mask, length):
    """Of the mask's bytes, the least significant first."""
    return (mask[..., None] >> torch.arange(8, device=mask.device) & 1).flatten(-2)[..., :length].bool()


@pytest.mark.parametrize("dtype", reference.TOLERANCE)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 64, 133])
def test_relu_mask(device, dtype, length):
    if device == "cuda" and dtype == torch.float64:
        pytest.skip("float64 is the CPU's")
    x = torch.randn(3, 5, length, device=device).to(dtype)
    x[0, 0, 0] = torch.nan
    x[0, 1, 0] = 0
    o, mask = copes.relu_mask(x)
    torch.testing.assert_close(o, x.relu(), rtol=0, atol=0, equal_nan=True)
    assert mask.shape == (3, 5, -(-length // 8)) and torch.equal(bits(mask, length), x > 0)
    grad_o = torch.randn_like(x)
    for kept in ({"x": x}, {"o": o}, {"mask": mask}):
        assert torch.equal(copes.act_backward(grad_o, "relu", **kept), grad_o * (x > 0))
    o, mask = copes.relu_mask(x.transpose(0, 2))
    assert torch.equal(bits(mask, 3), x.transpose(0, 2) > 0)


def test_relu_mask_has_derivatives(device):
    x = torch.randn(3, 11, device=device, requires_grad=True)
    w = torch.randn(3, 11, device=device, requires_grad=True)
    o, mask = copes.relu_mask(x)
    assert not mask.requires_grad
    (grad,) = torch.autograd.grad((o * w).sum(), x, create_graph=True)
    assert torch.equal(grad, w * (x > 0))
    assert torch.equal(torch.autograd.grad(grad.sum(), w)[0], (x > 0).to(w.dtype))  # the second derivative by x is 0
    primal, tangent = torch.func.jvp(lambda x: copes.relu_mask(x)[0], (x.detach(),), (w.detach(),))
    assert torch.equal(primal, o) and torch.equal(tangent, w * (x > 0))
    if device == "cpu":
        double = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: copes.relu_mask(x)[0], double)


def test_relu_under_transforms(device):
    x = torch.randn(4, 3, 10, device=device)
    for axis in range(3):
        o, mask = torch.vmap(copes.relu_mask, axis)(x)
        assert torch.equal(o, x.relu().movedim(axis, 0))
        assert torch.equal(bits(mask, o.shape[-1]), o > 0)
    assert torch.equal(torch.func.grad(lambda x: copes.act(x, "relu").sum())(x), (x > 0).to(x.dtype))
    rows = torch.vmap(torch.func.grad(lambda x: copes.act(x, "relu").square().sum()))(x)
    torch.testing.assert_close(rows, 2 * x.relu())


def test_relu_compiles_for_any_length(device):
    def step(x):
        return copes.act(x, "relu").square().sum() + copes.act(x, "sigmoid").sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (5, 8, 17, 64):
        x = torch.randn(3, length, device=device, requires_grad=True)
        compiled(x).backward()
        expected = 2 * x.relu() + x.sigmoid() * (1 - x.sigmoid())
        torch.testing.assert_close(x.grad, expected.detach())


def test_backward_of_arrays():
    x, grad_o = (np.random.default_rng(i).standard_normal((3, 11), np.float32) for i in range(2))
    o, mask = map(np.asarray, copes.relu_mask(x))
    assert mask.dtype == np.uint8 and np.array_equal(np.unpackbits(mask, -1, 11, "little").astype(bool), x > 0)
    assert np.array_equal(np.asarray(copes.act_backward(grad_o, "relu", mask=mask)), grad_o * (x > 0))
    for act in ("sigmoid", "silu", "softmax"):
        wide = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        reference.act(wide, act, -1).backward(torch.tensor(grad_o).double())
        o = np.asarray(copes.act(x, act))
        for kept in [{"x": x}] * (act != "softmax") + [{"o": o}] * (act != "silu"):
            made = np.asarray(copes.act_backward(grad_o, act, **kept))
            np.testing.assert_allclose(made, wide.grad.numpy(), rtol=2e-5, atol=1e-6)


def test_backward_refuses():
    x = torch.randn(3, 8)
    o, mask = copes.relu_mask(x)
    with pytest.raises(ValueError, match="mask is given; it must be None but for relu, and act is 'silu'"):
        copes.act_backward(x, "silu", mask=mask)
    with pytest.raises(TypeError, match="mask has type float32; it must be uint8"):
        copes.act_backward(x, "relu", mask=mask.float())
    with pytest.raises(ValueError, match=r"mask has shape \(3, 8\); it must be \(3, 1\)"):
        copes.act_backward(x, "relu", mask=x.byte())
    with pytest.raises(TypeError, match="x is NULL; the backward of relu needs x, o or mask"):
        copes.act_backward(x, "relu")
    with pytest.raises(TypeError, match="o is a <class 'numpy.ndarray'>; beside a PyTorch tensor it must be one, too"):
        copes.act_backward(x, "relu", o=o.numpy())
