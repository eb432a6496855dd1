"""copes.lrpe_rotate, lrpe_cosine and md_lrpe_cosine: values and gradients against float64 PyTorch."""

import math

import copes
import pytest
import reference
import torch

N, H, D = 24, 3, 16
ANGLES = {"lrpe_rotate": D // 2, "lrpe_cosine": D}

POSITIONS = {
    "1-d": dict(),
    "offset": dict(offset=1000),
    "1-d with both ends": dict(prefix=3, suffix=2),
    "2-d": dict(grid=(4, 6)),
    "2-d with both ends": dict(grid=(3, 6), prefix=4, suffix=2, offset=(5, 7)),
    "3-d": dict(grid=(2, 3, 4)),
    "4-d": dict(grid=(2, 3, 2, 2)),
}


def theta_of(width, heads, device, dtype=torch.float32):
    return (torch.rand(heads, width, device=device) * 2 - 0.5).to(dtype)


def check(function, x, theta, act, dim, **attributes):
    x = x.detach().requires_grad_()
    o = getattr(copes, function)(x, theta, act=act, dim=dim, **attributes)
    grad_o = torch.randn_like(o)
    o.backward(grad_o)

    wide = reference.wide(x).requires_grad_()
    expected = getattr(reference, function)(wide, theta, act, dim, **attributes)
    expected.backward(reference.wide(grad_o))
    assert o.dtype == x.dtype and o.device == x.device
    reference.assert_close(o, expected.detach())
    reference.assert_close(x.grad, wide.grad)


@pytest.mark.parametrize("function", ["lrpe_rotate", "lrpe_cosine"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_positions(device, dtype, function, positions):
    x = torch.randn(2, N, H, D, device=device, dtype=dtype)
    check(function, x, theta_of(ANGLES[function], H, device), "none", None, **POSITIONS[positions])


@pytest.mark.parametrize("function", ["lrpe_rotate", "lrpe_cosine"])
@pytest.mark.parametrize("act", reference.ACTS)
@pytest.mark.parametrize("dim", [-1, 1])
def test_activations(device, dtype, function, act, dim):
    x = torch.randn(2, N, H, D, device=device, dtype=dtype)
    check(function, x, theta_of(ANGLES[function], H, device), act, dim)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 8])
def test_pairs(device, dtype, pairing, rotary_dim):
    x = torch.randn(2, N, H, D, device=device, dtype=dtype)
    theta = theta_of((rotary_dim or D) // 2, 1, device)
    check("lrpe_rotate", x, theta, "silu", None, pairing=pairing, rotary_dim=rotary_dim)


@pytest.mark.parametrize("shape", [(H, D), (1, D), (H, 1)])
@pytest.mark.parametrize("theta_dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_thetas(device, shape, theta_dtype):
    x = torch.randn(2, N, H, D, device=device)
    check("lrpe_cosine", x, theta_of(shape[1], shape[0], device, theta_dtype), "none", None)


@pytest.mark.parametrize("width", [1, 5])
def test_theta_that_is_padded(device, width):
    x, theta = torch.randn(2, N, H, D, device=device), theta_of(width, H, device)
    check("lrpe_rotate", x, theta, "silu", None, pad_theta=True, offset=3)
    check("lrpe_cosine", x, theta, "softmax", 1, pad_theta=True, prefix=2)


def test_theta_that_is_short_by_mistake(device):
    """A theta for half of the features, and rotary_dim forgotten."""
    x, theta = torch.randn(2, N, H, D, device=device), theta_of(D // 4, 1, device)
    for call in (copes.lrpe_rotate, lambda x, theta: copes.lrpe_rotate(x, theta, grid=(N,))):
        with pytest.raises(ValueError, match="theta has shape .*rotary_dim.* E must be 8, or 1 .* pad_theta"):
            call(x, theta)
    with pytest.raises(ValueError, match="theta has shape .* E must be 16, or 1 .* pad_theta"):
        copes.lrpe_cosine(x, theta)
    with pytest.raises(ValueError, match="pad_theta is 1; with 2-d positions"):
        copes.md_lrpe_cosine(x, theta, (2, N // 2), pad_theta=True)
    copes.lrpe_rotate(x, theta, rotary_dim=D // 2)


def test_sections(device):
    x = torch.randn(2, N, H, D, device=device)
    check("lrpe_rotate", x, theta_of(D // 2, H, device), "none", None, grid=(2, 3, 4), sections=(4, 3, 1))


@pytest.mark.parametrize("function", ["lrpe_rotate", "lrpe_cosine"])
@pytest.mark.parametrize("act, dim", [("none", None), ("silu", None), ("softmax", 1)])
def test_layouts(device, function, act, dim):
    theta = theta_of(ANGLES[function], H, device)
    check(function, torch.randn(2, H, N, D, device=device).transpose(1, 2), theta, act, dim)
    check(function, torch.randn(2, N, H, 2 * D, device=device)[..., ::2], theta, act, dim)
    check(function, torch.randn(1, N, H, D, device=device).expand(2, -1, -1, -1), theta, act, dim)


def test_rank_3_has_one_head(device):
    x, theta = torch.randn(2, N, D, device=device), theta_of(D, 1, device)
    o = copes.lrpe_cosine(x, theta, act="softmax", dim=1)
    assert torch.equal(o, copes.lrpe_cosine(x[:, :, None], theta, act="softmax", dim=1)[:, :, 0])


def test_md_is_cosine_with_a_prefix(device):
    x, theta = torch.randn(2, 10 + 24, H, D, device=device), theta_of(8, H, device)
    o = copes.md_lrpe_cosine(x, theta, (4, 6), 10)
    assert torch.equal(o, copes.lrpe_cosine(x, theta, grid=(4, 6), prefix=10))
    reference.assert_close(o, reference.lrpe_cosine(reference.wide(x), theta, grid=(4, 6), prefix=10))


def test_positions_are_exact_far_out(device):
    """A float32 product is off by more than this at a position of twenty thousand."""
    position, theta = 2**31 - 5, torch.tensor([[0.7182818, 0.01, 1e-4, 3.0]], device=device)
    x = torch.ones(1, 4, 1, 4, device=device)
    o = reference.wide(copes.lrpe_cosine(x, theta, offset=position))[0, :, 0]
    for token in range(4):
        for i, frequency in enumerate(reference.wide(theta)[0].tolist()):
            phi = math.fmod((position + token) * frequency, 2 * math.pi)  # exact to 1e-6 in float64
            assert o[token, i].item() == pytest.approx(math.cos(phi), abs=3e-6)
            assert o[token, 4 + i].item() == pytest.approx(math.sin(phi), abs=3e-6)


@pytest.mark.parametrize("function", ["lrpe_rotate", "lrpe_cosine"])
@pytest.mark.parametrize("act", reference.ACTS)
@pytest.mark.parametrize("dim", [-1, 1])
def test_gradcheck(function, act, dim):
    x = torch.randn(2, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    theta = theta_of(ANGLES[function] * 4 // D, 2, "cpu")
    assert torch.autograd.gradcheck(lambda x: getattr(copes, function)(x, theta, act=act, dim=dim, offset=3), x)


def test_out_and_in_place(device):
    x, theta = torch.randn(2, N, H, D, device=device), theta_of(D // 2, H, device)
    expected = copes.lrpe_rotate(x, theta)
    assert copes.lrpe_rotate(x, theta, out=x) is x
    assert torch.equal(x, expected)
    out, theta = torch.empty(2, N, H, 2 * D, device=device), theta_of(D, H, device)
    assert copes.lrpe_cosine(x, theta, out=out) is out
    assert torch.equal(out, copes.lrpe_cosine(x, theta))


def test_empty(device):
    x = torch.empty(2, 0, H, D, device=device, requires_grad=True)
    o = copes.lrpe_cosine(x, theta_of(D, H, device), act="silu")
    o.sum().backward()
    assert o.shape == (2, 0, H, 2 * D) and x.grad.shape == x.shape
