"""Negative views, whose memory has the other sign: PyTorch makes them of conjugated complex tensors. Each tensor of each
operator may be one."""

import copes
import pytest
import torch
from test_operators import COSINE, ROTATE, SEQUENCE, THETA, x_of
from test_tpa import make

copes.act(torch.ones(1), "relu")  # registers the operators


def negative(x):
    """x as a negative view."""
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg() and torch.equal(view, x)
    return view


def check(function, *tensors):
    expected = function(*tensors)
    for i, x in enumerate(tensors):
        if x is not None and x.is_floating_point():
            result = function(*tensors[:i], negative(x), *tensors[i + 1 :])
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


def gradient(function):
    """The gradient of function(x, *others), of x, for the gradient of the result that comes last."""

    def compute(x, *others):
        *others, grad_o = others
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(function(leaf, *others), leaf, grad_o)[0]

    return compute


@pytest.mark.parametrize("act", ["none", "silu", "softmax"])
def test_functions(device, act):
    x, theta = x_of(device), THETA.to(device)
    for function in (
        lambda x: copes.act(x, act),
        lambda x: torch.ops.copes.act(x, act, -1),
        lambda x, grad_o, o: torch.ops.copes.act_backward(x, grad_o, o, act, -1),
    ):
        check(function, *(x, x_of(device), x_of(device))[: function.__code__.co_argcount])
    check(gradient(lambda x: copes.act(x, act)), x, x_of(device))
    for dim in (-1, 1):
        check(lambda x, theta: copes.lrpe_rotate(x, theta, act=act, dim=dim), x, theta)
        check(gradient(lambda x, theta: copes.lrpe_rotate(x, theta, act=act, dim=dim)), x, theta, x_of(device))
    with torch.no_grad():
        check(lambda x, theta: copes.lrpe_cosine(x, theta, act=act), x, torch.cat((theta, theta), 1))


def test_operators(device):
    x, theta, operators = x_of(device), THETA.to(device), torch.ops.copes
    check(lambda x, theta: operators.lrpe(x, theta, None, None, *ROTATE), x, theta)
    check(lambda x, theta: operators.lrpe_lse(x, theta, None, None, *SEQUENCE), x, theta)
    grad_o = torch.cat((x_of(device), x_of(device)), -1)
    _, lse = operators.lrpe_lse(x, theta, None, None, *SEQUENCE)
    check(
        lambda x, theta, g, lse: operators.lrpe_backward(x, theta, None, None, g, lse, *SEQUENCE), x, theta, grad_o, lse
    )
    check(lambda theta, g: operators.lrpe_backward(None, theta, None, None, g, None, *COSINE), theta, grad_o)


def test_tpa_decode(device):
    inputs = make(device, torch.float32)
    check(lambda *inputs: copes.tpa_decode(*inputs, return_lse=True), *inputs)

    def operator(aq, ak, av, bq, bk, bv):
        return torch.ops.copes.tpa_decode(aq, bq, ak, bk, av, bv, None, None, None, None, None, False, 0, 1, None)

    check(operator, *inputs)


def test_out(device):
    x = x_of(device)
    for function in (
        lambda x, out: copes.act(x, "silu", out=out),
        lambda x, out: copes.lrpe_rotate(x, THETA.to(device), out=out),
        lambda x, out: torch.ops.copes.act.out(x, "silu", -1, out=out),
    ):
        expected, out = torch.empty_like(x), negative(x_of(device))
        function(x, expected)
        function(x, out)
        assert out.is_neg() and torch.equal(out, expected)


def test_results_are_not_negative(device):
    o = copes.act(negative(x_of(device)), "silu")
    assert not o.is_neg()


def test_the_extension_itself(device):
    """Where PyTorch's side of the package does not see the tensors."""
    x, out = x_of(device), negative(x_of(device))
    before = out.clone()
    with pytest.raises(ValueError, match="out is a negative view"):
        copes._copes.run(0, x, None, out, None, None, "silu", -1)
    assert torch.equal(out, before)
    assert torch.equal(copes._copes.run(0, negative(x), None, None, None, None, "silu", -1), copes.act(x, "silu"))
