"""copes.attention_merge against float64 PyTorch: values, derivatives, transforms, and what PyTorch asks of it."""

import math

import copes
import numpy as np
import pytest
import reference
import torch
from test_operators import kept
from torch import func
from torch.library import opcheck

OPERATORS = torch.ops.copes
CHOICES = [(base, lse) for base in ("e", "2") for lse in (False, True)]


def make(device, dtype=torch.float64, shape=(3, 2, 1, 4, 16)):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    lse = torch.randn(shape[:-1], dtype=torch.float64).to(device, wide)
    return torch.randn(shape, dtype=torch.float64).to(device, dtype), lse


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def pair(base, return_lse):
    """(copes, reference) of o_shares and lse_shares."""

    def expected(o, lse):
        made = reference.attention_merge(o, lse, base)
        return made if return_lse else made[0]

    return lambda o, lse: copes.attention_merge(o, lse, base=base, return_lse=return_lse), expected


@pytest.mark.parametrize("base", ["e", "2"])
@pytest.mark.parametrize("shares", [1, 2, 8, 33])
def test_values(device, dtype, base, shares):
    o_shares, lse_shares = make(device, dtype, (shares, 2, 3, 4, 40))
    o, lse = copes.attention_merge(o_shares, lse_shares, base=base, return_lse=True)
    expected_o, expected_lse = reference.attention_merge(reference.wide(o_shares), reference.wide(lse_shares), base)
    reference.assert_close(o, expected_o)
    reference.assert_close(lse, expected_lse)
    assert torch.equal(o, copes.attention_merge(o_shares, lse_shares, base=base))


def test_empty_shares(device, dtype):
    """Whatever their o holds, it neither shows nor has a gradient; NaN, which is no sign of emptiness, shows."""
    o_shares, lse_shares = make(device, dtype, (4, 3, 1, 2, 24))
    lse_shares[0, 0], lse_shares[1, 0], lse_shares[:, 1] = torch.inf, -torch.inf, -torch.inf
    lse_shares[2, 2, 0, 0] = torch.nan
    o_shares[:2, 0], o_shares[:, 1] = torch.nan, torch.inf
    o_shares.requires_grad_()
    lse_shares.requires_grad_()
    o, lse = copes.attention_merge(o_shares, lse_shares, return_lse=True)
    full = map(reference.wide, (o_shares[2:, 0], lse_shares[2:, 0]))
    reference.assert_close(o[0], reference.attention_merge(*full)[0])
    assert (o[1] == 0).all() and (lse[1] == -torch.inf).all()
    assert o[2, 0, 0].isnan().all() and lse[2, 0, 0].isnan() and o[2, 0, 1].isfinite().all()
    (o[:2].float().sum() + lse[0].sum()).backward()
    for x in (o_shares, lse_shares):
        assert (x.grad[:2, 0] == 0).all() and (x.grad[:, 1] == 0).all() and (x.grad[2:, 0] != 0).any()


def test_layouts_and_out(device, dtype):
    """As an all-to-all leaves it: the shares' axis is not the slowest."""
    o_shares, lse_shares = make(device, dtype)
    o_shares, lse_shares = (x.movedim(0, 2).contiguous().movedim(2, 0) for x in (o_shares, lse_shares))
    expected = copes.attention_merge(o_shares.contiguous(), lse_shares.contiguous(), return_lse=True)
    out = torch.empty(2, 4, 1, 16, device=device, dtype=dtype).transpose(1, 2)
    o, lse = copes.attention_merge(o_shares, lse_shares, out=out, return_lse=True)
    assert o is out and torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
    assert copes.attention_merge(o_shares, lse_shares, out=out) is out


def test_numpy():
    o_shares, lse_shares = make("cpu", torch.float32)
    o, lse = copes.attention_merge(o_shares.numpy(), lse_shares.numpy(), return_lse=True)
    expected = copes.attention_merge(o_shares, lse_shares, return_lse=True)
    assert isinstance(o, np.ndarray) and (o == expected[0].numpy()).all() and (lse == expected[1].numpy()).all()


def test_merges_what_tpa_decode_made_of_shares(device):
    """Shares of a cache, unequal and an empty one, make what the whole cache does."""
    from test_tpa import make as make_factors

    aq, ak, av, bq, bk, bv = make_factors(device, torch.float32, m=37)
    parts = [
        copes.tpa_decode(aq, *(x[:, a:b] for x in (ak, av)), bq, *(x[:, a:b] for x in (bk, bv)), return_lse=True)
        for a, b in ((0, 5), (5, 5), (5, 37))
    ]
    o, lse = copes.attention_merge(*map(torch.stack, zip(*parts)), return_lse=True)
    expected = copes.tpa_decode(aq, ak, av, bq, bk, bv, return_lse=True)
    torch.testing.assert_close((o, lse), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("base, return_lse", CHOICES)
def test_derivatives(base, return_lse):
    f, expected = pair(base, return_lse)
    inputs, tangents = make("cpu"), make("cpu")
    close(func.jvp(f, inputs, tangents), func.jvp(expected, inputs, tangents))
    for transform in (func.jacrev, func.jacfwd):
        close(transform(f, argnums=(0, 1))(*inputs), transform(expected, argnums=(0, 1))(*inputs))
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(f, leaves, check_forward_ad=True)


@pytest.mark.parametrize("base, return_lse", CHOICES)
@pytest.mark.parametrize("in_dims", [(0, 0), (2, None), (None, -1)])
def test_vmap(base, return_lse, in_dims):
    f, expected = pair(base, return_lse)
    inputs = [x if axis is None else torch.stack([x, 2 * x, x - 1], axis) for x, axis in zip(make("cpu"), in_dims)]
    close(torch.vmap(f, in_dims)(*inputs), torch.vmap(expected, in_dims)(*inputs))
    for argument in (0, 1):
        gradient = [func.grad(lambda *x, of=of: sum(map(torch.sum, of(*x))), argument) for of in (f, expected)]
        close(*(torch.vmap(g, in_dims)(*inputs) for g in gradient))


@pytest.mark.parametrize("return_lse", [False, True])
def test_compile_keeps_one_graph(device, return_lse):
    f, _ = pair("2", return_lse)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    inputs = [x.requires_grad_() for x in make(device, torch.float32)]
    grads = []
    for of in (compiled, f):
        made = of(*inputs)
        grads.append(torch.autograd.grad(sum(map(torch.sum, made if return_lse else [made])), inputs))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("index", range(6))
def test_opcheck(device, index):
    copes.act(torch.ones(1), "relu")  # registers the operators
    o_shares, lse_shares = make(device, torch.float32)
    grad_o, leaves = torch.randn_like(o_shares[0]), [x.clone().requires_grad_() for x in (o_shares, lse_shares)]
    out = {"out": torch.empty_like(grad_o)}
    operator, arguments, keywords = [
        (OPERATORS.attention_merge.default, (*leaves, "e"), {}),
        (OPERATORS.attention_merge_lse.default, (*leaves, "2"), {}),
        (OPERATORS.attention_merge.out, (o_shares, lse_shares, "e"), out),
        (OPERATORS.attention_merge_lse.out, (o_shares, lse_shares, "e"), out),
        (OPERATORS.attention_merge_backward.default, (o_shares, lse_shares, grad_o, lse_shares[0], True, "2"), {}),
        (OPERATORS.attention_merge_backward.default, (None, lse_shares, grad_o, None, False, "e"), {}),
    ][index]
    opcheck(operator, arguments, keywords)


def test_what_a_gradient_keeps(device):
    o_shares, lse_shares = make(device, torch.float32)
    o = copes.attention_merge(o_shares.clone().requires_grad_(), lse_shares)
    assert kept(o) == {lse_shares.data_ptr()}
    leaves = [x.requires_grad_() for x in (o_shares, lse_shares)]
    assert kept(copes.attention_merge(*leaves)) == {x.data_ptr() for x in leaves}
    (gradient,) = torch.autograd.grad(copes.attention_merge(*leaves).sum(), lse_shares, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention_merge: it has no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    "kind, message, call",
    [
        (ValueError, r"o_shares has shape \(3, 2, 4\); it must be \(S, B", lambda o, lse: (o[:, :, 0, :, 0], lse)),
        (ValueError, r"lse_shares has shape \(2, 2, 1, 4\); it must be \(3, 2, 1, 4\)", lambda o, lse: (o, lse[1:])),
        (TypeError, "lse_shares has type float64; it must be float32", lambda o, lse: (o.float(), lse)),
        (TypeError, "lse_shares is a <class 'numpy.ndarray'>", lambda o, lse: (o, lse.numpy())),
    ],
)
def test_refusals(kind, message, call):
    with pytest.raises(kind, match=message):
        copes.attention_merge(*call(*make("cpu")))


def test_base_is_a_name():
    for base, kind in (("10", ValueError), (2, TypeError)):
        with pytest.raises(kind, match="base is"):
            copes.attention_merge(*make("cpu"), base=base)
    o, lse = make("cpu")
    close(copes.attention_merge(o, lse), copes.attention_merge(o, lse / math.log(2), base="2"))
