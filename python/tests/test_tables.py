"""apply_rotary_transformers: RoPE by given cosines and sines. test_hf_kernels.py has it in a model of transformers."""

import copes
import pytest
import reference
import torch
from torch.utils._python_dispatch import TorchDispatchMode


def turned(x, cos, sin, unsqueeze_dim=1):
    """As transformers has it, in float64."""
    x, cos, sin = reference.wide(x), *(reference.wide(table).unsqueeze(unsqueeze_dim) for table in (cos, sin))
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def make(device, dtype=torch.float32, dim=8):
    """q with the memory of (B, N, H, D), as a model has it, and k; tables with halves of their own."""
    q = torch.randn(2, 5, 4, dim, device=device, dtype=dtype).transpose(1, 2)
    k, cos, sin = (torch.randn(*shape, dim, device=device, dtype=dtype) for shape in ((2, 2, 5), (2, 5), (1, 5)))
    return q, k, cos, sin.expand_as(cos)


def bound(x, cos, sin):
    """Two roundings, each of at most the sum of both products."""
    return 2 * torch.finfo(x.dtype).eps * x.abs().max().item() * (cos.abs().max() + sin.abs().max()).item()


def test_values(device, dtype):
    q, k, cos, sin = make(device, dtype)
    for x, o in zip((q, k), copes.apply_rotary_transformers(q, k, cos, sin)):
        assert o.dtype == dtype and o.stride() == x.stride()
        torch.testing.assert_close(reference.wide(o), turned(x, cos, sin), rtol=0, atol=bound(x, cos, sin))


def test_heads_last(device):
    q, k, cos, sin = make(device)
    first = copes.apply_rotary_transformers(q, k, cos, sin)
    last = copes.apply_rotary_transformers(q.transpose(1, 2), k.transpose(1, 2), cos, sin, unsqueeze_dim=2)
    assert all(torch.equal(a, b.transpose(1, 2)) for a, b in zip(first, last))


def test_half_tables(device):
    """Where both halves turn alike, one is enough, as GPT-OSS has it."""
    q, k, cos, sin = make(device)
    cos, sin = cos[..., :4], sin[..., :4]
    whole = copes.apply_rotary_transformers(q, k, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1))
    half = copes.apply_rotary_transformers(q, k, cos, sin)
    assert all(map(torch.equal, whole, half))


def test_wide_tables(device):
    """Of float32 beside 16-bit tensors: one rounding."""
    q, k, cos, sin = make(device)
    q, k = q.bfloat16(), k.bfloat16()
    for x, o in zip((q, k), copes.apply_rotary_transformers(q, k, cos, sin)):
        assert o.dtype == torch.bfloat16
        torch.testing.assert_close(reference.wide(o), turned(x, cos, sin), rtol=2**-8, atol=1e-5)


def test_gradients(device):
    q, k, cos, sin = make(device, torch.float64)
    inputs = [x.contiguous().requires_grad_() for x in (q, k)]

    def apply(q, k):
        return copes.apply_rotary_transformers(q, k, cos, sin)

    assert torch.autograd.gradcheck(apply, inputs) and torch.autograd.gradgradcheck(apply, inputs)


def test_func_grad(device):
    q, k, cos, sin = make(device)
    gradient = torch.func.grad(lambda q: copes.apply_rotary_transformers(q, k, cos, sin)[0].square().sum())(q)
    q.requires_grad_()
    o, _ = copes.apply_rotary_transformers(q, k, cos, sin)
    torch.testing.assert_close(gradient, torch.autograd.grad(o.square().sum(), q)[0])


@pytest.mark.parametrize("grad", [False, True])
def test_compile(device, grad):
    q, k, cos, sin = make(device)
    inputs = [x.detach().requires_grad_(grad) for x in (q, k)]
    compiled = torch.compile(copes.apply_rotary_transformers, fullgraph=True, backend="aot_eager")
    results = []
    for apply in (copes.apply_rotary_transformers, compiled):
        o = apply(*inputs, cos, sin)
        results.append((o, torch.autograd.grad(sum(x.square().sum() for x in o), inputs) if grad else None))
    torch.testing.assert_close(*results)


class Log(TorchDispatchMode):
    """The operators that make or write a tensor, and do not only look at one."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if not operator.is_view:
            self.names.append(operator.name().partition("::")[2])
        return operator(*args, **(kwargs or {}))


def test_no_copies(device):
    """Six launches, of which two make the results: neither forward nor backward copies anything."""
    q, k, cos, sin = make(device)
    passes = 2 * ["mul.Tensor", "addcmul_", "addcmul_"]
    inputs = [x.detach().requires_grad_() for x in (q, k)]
    with Log() as forward:
        o = copes.apply_rotary_transformers(*inputs, cos, sin)
    assert forward.names == passes
    gradients = [torch.ones_like(x) for x in o]
    with Log() as backward:
        torch.autograd.grad(o, inputs, gradients)
    assert [name for name in backward.names if name != "detach"] == passes


@pytest.mark.parametrize(
    "shapes, message",
    [
        ((7, 7, 7, 7), "q and k have 7 and 7 features; both must have the same even number"),
        ((8, 6, 8, 8), "q and k have 8 and 6 features; both must have the same even number"),
        ((8, 8, 6, 6), "cos has 6 features; it must have 8, as q and k, or half as many"),
        ((8, 8, 8, 4), r"sin has shape \(1, 5, 4\); it must be \(1, 5, 8\), as cos"),
    ],
)
def test_errors(shapes, message):
    q, k, cos, sin = shapes
    with pytest.raises(ValueError, match=message):
        copes.apply_rotary_transformers(
            torch.ones(1, 2, 5, q), torch.ones(1, 2, 5, k), torch.ones(1, 5, cos), torch.ones(1, 5, sin)
        )


@pytest.mark.parametrize("name", ["cos", "sin"])
def test_tables_have_no_gradient(name):
    q, k, cos, sin = make("cpu")
    tables = {"cos": cos.clone(), "sin": sin.clone()}
    tables[name].requires_grad_()
    with pytest.raises(RuntimeError, match=rf"{name} requires grad, but has no gradient; pass {name}.detach\(\)"):
        copes.apply_rotary_transformers(q, k, **tables)
    with torch.no_grad():
        copes.apply_rotary_transformers(q, k, **tables)
