"""copes.act: values and gradients against float64 PyTorch, for every activation, type and layout."""

import copes
import hypothesis
import hypothesis.strategies as st
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
