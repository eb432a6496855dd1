"""copes.softmax_lse and the `lse` of act and lrpe, for softmax whose axis lies in shares: values, derivatives, what PyTorch asks
of operators, and NumPy."""

import copes
import numpy as np
import pytest
import reference
import torch
from torch import func
from torch.library import opcheck

OPERATORS = torch.ops.copes
CUTS = (0, 3, 3, 7, 12)  # an empty share is among them


def cut(x, dim):
    return [x.narrow(dim, begin, end - begin) for begin, end in zip(CUTS, CUTS[1:])]


def lse_of_all(shares, dim):
    return torch.stack([copes.softmax_lse(x, dim) for x in shares]).logsumexp(0)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_act_in_shares(device, dtype, dim):
    x = torch.randn(12, 12, 12, dtype=torch.float64).to(device, dtype)
    shares = cut(x, dim)
    lse = lse_of_all(shares, dim)
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    made = torch.cat([copes.act(x, "softmax", dim, lse=lse) for x in shares], dim)
    reference.assert_close(made, reference.wide(x).softmax(dim))
    assert (copes.softmax_lse(shares[1], dim) == -torch.inf).all()
    out = torch.empty_like(shares[0])
    assert copes.act(shares[0], "softmax", dim, lse=lse, out=out) is out
    assert torch.equal(out, made.narrow(dim, 0, 3))


def encode(name, x, theta, **options):
    return getattr(copes, name)(x, theta, act="softmax", dim=1, **options)


@pytest.mark.parametrize("name", ["lrpe_rotate", "lrpe_cosine"])
@pytest.mark.parametrize("heads", [None, 3])
def test_lrpe_in_shares(device, name, heads):
    shape = (2, 12, 8) if heads is None else (2, 12, heads, 8)
    x = torch.randn(shape, dtype=torch.float64, device=device)
    theta = torch.rand(heads or 1, 4 if name == "lrpe_rotate" else 8, device=device)
    lse = lse_of_all(cut(x, 1), 1)
    lse = lse if heads is None else lse[:, 0]
    made = [encode(name, x, theta, lse=lse, offset=first) for x, first in zip(cut(x, 1), CUTS)]
    torch.testing.assert_close(torch.cat(made, 1), encode(name, x, theta), rtol=1e-9, atol=1e-12)


def test_derivatives(device):
    """By the chain of both calls, those of the whole; in both modes, and of lse alone."""
    x = torch.randn(2, 5, 2, 4, dtype=torch.float64, device=device, requires_grad=True)
    theta = torch.rand(2, 2, dtype=torch.float32, device=device)

    def whole(x):
        return copes.lrpe_rotate(x, theta, act="softmax", dim=1)

    def chained(x):
        return copes.lrpe_rotate(x, theta, act="softmax", dim=1, lse=copes.softmax_lse(x, 1)[:, 0])

    def alone(x):
        return copes.act(x, "softmax", 1, lse=copes.softmax_lse(x, 1))

    slope = torch.randn_like(x)
    for function, same in ((chained, whole), (alone, lambda x: x.softmax(1))):
        (got,), (wanted,) = (torch.autograd.grad(each(x), x, slope) for each in (function, same))
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12)
        got, wanted = (func.jvp(each, (x.detach(),), (slope,))[1] for each in (function, lambda x: same(x) * 1))
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12)
    lse = torch.randn(2, 2, 4, dtype=torch.float64, device=device, requires_grad=True)
    torch.autograd.gradcheck(lambda x, lse: copes.lrpe_rotate(x, theta, act="softmax", dim=1, lse=lse), (x, lse))
    with pytest.raises(RuntimeError, match="positions requires grad"):
        copes.lrpe_rotate(
            x, theta, act="softmax", dim=1, lse=lse, positions=torch.arange(5.0, device=device, requires_grad=True)
        )


def test_gradient_of_theta(device):
    x = torch.randn(2, 12, 3, 8, dtype=torch.float64, device=device)
    slope = torch.randn_like(x)
    thetas = [torch.rand(3, 4, device=device).requires_grad_() for _ in range(2)]
    thetas[1].data.copy_(thetas[0].data)
    encode("lrpe_rotate", x, thetas[0]).backward(slope)
    lse = lse_of_all(cut(x, 1), 1)[:, 0]
    for share, first, grad in zip(cut(x, 1), CUTS, cut(slope, 1)):
        encode("lrpe_rotate", share, thetas[1], lse=lse, offset=first).backward(grad)
    torch.testing.assert_close(*(theta.grad for theta in thetas), rtol=1e-5, atol=1e-6)


def arguments(device):
    x, theta = torch.randn(2, 5, 2, 4, device=device), torch.rand(2, 2, device=device)
    along, columns = torch.randn(2, 1, 2, 4, device=device), torch.randn(2, 2, 4, device=device)
    encoding = ("rotate", "half", "softmax", 1, None, [3], 0, 0, None, 0, 0, None, False, False)
    return {
        "softmax_lse": (x, 1),
        "softmax_of_lse": (x, along, 1),
        "softmax_delta": (x, x, 1),
        "softmax_of_delta": (x, x, along, 1),
        "lrpe_of_lse": (x, theta, None, None, columns, *encoding),
        "lrpe_delta": (x, theta, None, None, x, columns, *encoding),
        "lrpe_of_delta": (x, theta, None, None, x, columns, columns, *encoding),
        "lrpe_of_delta_theta": (x, theta, None, None, x, columns, columns, *encoding),
    }


@pytest.mark.parametrize("name", arguments("cpu"))
def test_opcheck(device, name):
    opcheck(getattr(OPERATORS, name).default, arguments(device)[name])


@pytest.mark.parametrize("name", arguments("cpu"))
def test_vmap(device, name):
    """A first tensor for each of three, and the others shared."""
    x, *others = arguments(device)[name]
    many = torch.randn(3, *x.shape, device=device)
    operator = getattr(OPERATORS, name).default
    made, wanted = func.vmap(lambda x: operator(x, *others))(many), [operator(x, *others) for x in many]
    if not isinstance(made, tuple):
        made, wanted = (made,), [(each,) for each in wanted]
    for result, expected in zip(made, zip(*wanted)):
        assert torch.equal(result, torch.stack(expected))


def test_numpy():
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    lse = copes.softmax_lse(x, 0)
    assert lse.shape == (1, 6) and lse.dtype == np.float32
    np.testing.assert_allclose(lse, np.log(np.exp(x).sum(0, keepdims=True)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(copes.act(x[:3], "softmax", 0, lse=lse), np.exp(x[:3] - lse), rtol=1e-6)
    theta = np.ones((1, 3), np.float32)
    whole = copes.lrpe_rotate(x[None], theta, act="softmax", dim=1)
    share = copes.lrpe_rotate(x[None, 1:], theta, act="softmax", dim=1, offset=1, lse=copes.softmax_lse(x[None], 1))
    np.testing.assert_allclose(share, whole[:, 1:], rtol=1e-5, atol=1e-6)


def test_errors(device):
    x = torch.randn(2, 5, 4, device=device)
    lse = torch.zeros(2, 1, 4, device=device)
    with pytest.raises(ValueError, match="lse is given; it must be None but for softmax"):
        copes.act(x, "silu", lse=lse)
    with pytest.raises(ValueError, match="lse_all has shape"):
        copes.act(x, "softmax", 2, lse=lse)
    with pytest.raises(ValueError, match="lse_all is given; it must be NULL but for softmax over the sequence"):
        copes.lrpe_rotate(x, torch.ones(1, 2, device=device), act="softmax", dim=-1, lse=lse)
    with pytest.raises(TypeError, match="lse is a <class 'numpy.ndarray'>"):
        copes.act(x, "softmax", 1, lse=np.zeros((2, 1, 4), np.float32))
