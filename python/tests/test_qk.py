"""copes.qk_norm_rope: values, gradients and caches against float64 PyTorch."""

import copes
import ml_dtypes
import numpy as np
import pytest
import reference
import torch

B, N, H, HK, D, E = 2, 5, 4, 2, 16, 6
BLOCKS, PAGE = 3, 4

ROTATIONS = {
    "plain": dict(),
    "offset": dict(offset=1000, pairing="interleaved"),
    "part": dict(rotary_dim=8, rotary_begin=4, amplitude=1.5, inverse=True),
    "grid": dict(grid=(1, 3), prefix=1, suffix=1, offset=(5, 7)),
}
NORMS = {
    "head": dict(),
    "offset": dict(weight_offset=1.0, eps=1e-3),
    "all heads": dict(norm_over="all_heads"),
}


def tensors(device, dtype, requires_grad=False):
    q, k = torch.randn(B, N, H, D), torch.randn(B, N, HK, D)
    return [x.to(device, dtype).requires_grad_(requires_grad) for x in (q, k)]


def theta_of(device, width=D // 2, heads=1):
    return (torch.rand(heads, width) * 2 - 0.5).to(device)


def check(q, k, theta, wq, wk, norm, **rotation):
    """Values and the gradients of q, k and the weights."""
    leaves = [None if x is None else x.detach().requires_grad_() for x in (q, k, wq, wk)]
    made = copes.qk_norm_rope(leaves[0], leaves[1], theta, wq=leaves[2], wk=leaves[3], **norm, **rotation)
    grads = [torch.randn_like(o) for o in made]
    torch.autograd.backward(made, grads)

    wide = [None if x is None else reference.wide(x).requires_grad_() for x in leaves]
    expected = reference.qk_norm_rope(wide[0], wide[1], theta, wide[2], wide[3], norm, **rotation)
    torch.autograd.backward(expected, [reference.wide(grad) for grad in grads])
    for o, wanted, like in zip(made, expected, (q, k)):
        assert o.dtype == like.dtype and o.device == like.device and o.stride() == like.stride()
        reference.assert_close(o, wanted.detach())
    for leaf, wanted in zip(leaves[:2], wide):
        reference.assert_close(leaf.grad, wanted.grad)
    for leaf, wanted in zip(leaves[2:], wide[2:]):
        if leaf is not None:
            assert leaf.grad.dtype == leaf.dtype and leaf.grad.shape == leaf.shape
            terms = dict(rtol=1e-5, atol=1e-4) if q.dtype != torch.float64 else dict(rtol=1e-9, atol=1e-9)
            if leaf.dtype in (torch.float16, torch.bfloat16):
                terms = dict(rtol=torch.finfo(leaf.dtype).eps, atol=1e-4)
            torch.testing.assert_close(reference.wide(leaf.grad), wanted.grad, **terms)


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_values_and_gradients(device, dtype, norm, rotation):
    q, k = tensors(device, dtype)
    rotation = ROTATIONS[rotation]
    theta = theta_of(device, rotation.get("rotary_dim", D) // 2)
    wq, wk = torch.rand(D, device=device) + 0.5, (torch.rand(HK, D, device=device) + 0.5).to(dtype)
    check(q, k, theta, wq if dtype != torch.float64 else wq.double(), wk, NORMS[norm], **rotation)


@pytest.mark.parametrize("has_wq, has_wk", [(False, False), (True, False), (False, True)])
def test_without_norms(device, dtype, has_wq, has_wk):
    q, k = tensors(device, dtype)
    wq, wk = (torch.rand(D, device=device).to(dtype) if has else None for has in (has_wq, has_wk))
    check(q, k, theta_of(device), wq, wk, {})


@pytest.mark.parametrize("shape", [(N,), (B, N), (1, B, N), (2, B, N)])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.float32])
def test_positions(device, shape, kind):
    q, k = tensors(device, torch.float32)
    positions = torch.randint(0, 1000, shape, device=device).to(kind)
    theta = theta_of(device) if len(shape) < 3 or shape[0] == 1 else theta_of(device)[None].expand(2, -1, -1)
    weights = torch.rand(2, D, device=device)
    check(q, k, theta, *weights, {}, positions=positions)


def test_offsets(device):
    q, k = tensors(device, torch.float32)
    check(q, k, theta_of(device), None, None, {}, offsets=torch.tensor([3, 2**20], device=device))


def test_thetas_of_each_head(device):
    q, k = torch.randn(B, N, H, D, device=device), torch.randn(B, N, H, D, device=device)
    check(q, k, theta_of(device, heads=H), torch.rand(H, D, device=device), None, {})


def test_layouts(device):
    """Views of one packed projection, and heads before tokens."""
    packed = torch.randn(B, N, (H + 2 * HK) * D, device=device)
    q, k = (part.unflatten(-1, (-1, D)) for part in packed.split((H * D, HK * D, HK * D), -1)[:2])
    theta, w = theta_of(device), torch.rand(D, device=device)
    expected = copes.qk_norm_rope(q.contiguous(), k.contiguous(), theta, wq=w, wk=w)
    for made, wanted in zip(copes.qk_norm_rope(q, k, theta, wq=w, wk=w), expected):
        assert torch.equal(made, wanted)
    first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k)]
    for made, wanted, x in zip(copes.qk_norm_rope(*first, theta, wq=w, wk=w), expected, first):
        assert torch.equal(made, wanted) and made.stride() == x.stride()


def test_rounding_between(device):
    """As a model that norms in float32, casts, and turns."""
    q, k = tensors(device, torch.bfloat16)
    theta, w = theta_of(device), torch.rand(D, device=device) + 0.5
    made = copes.qk_norm_rope(q, k, theta, wq=w, wk=w, round_between=True)
    once = copes.qk_norm_rope(q, k, theta, wq=w, wk=w)
    for x, o, other in zip((q, k), made, once):
        normed = copes.qk_norm_rope(x, None, torch.zeros_like(theta), wq=w)
        expected = reference.lrpe_rotate(reference.wide(normed), theta)
        reference.assert_close(o, expected)
        with pytest.raises(AssertionError):
            reference.assert_close(other, expected)


def test_queries_alone(device):
    q, k = tensors(device, torch.float32)
    theta, w = theta_of(device), torch.rand(D, device=device)
    q.requires_grad_()
    alone = copes.qk_norm_rope(q, None, theta, wq=w)
    assert torch.equal(alone, copes.qk_norm_rope(q, k, theta, wq=w)[0])
    (gradient,) = torch.autograd.grad(alone.square().sum(), q)
    (beside,) = torch.autograd.grad(copes.qk_norm_rope(q, k, theta, wq=w)[0].square().sum(), q)
    assert torch.equal(gradient, beside)


def test_in_place(device):
    q, k = tensors(device, torch.float32)
    theta, w = theta_of(device), torch.rand(D, device=device)
    expected = copes.qk_norm_rope(q, k, theta, wq=w)
    made = copes.qk_norm_rope(q, k, theta, wq=w, out=(q, k))
    assert made[0] is q and made[1] is k
    assert all(map(torch.equal, made, expected))
    alone = q.clone()
    assert copes.qk_norm_rope(q, None, theta, out=alone) is alone
    assert torch.equal(alone, copes.qk_norm_rope(q, None, theta))


def test_empty(device):
    q, k = torch.empty(B, 0, H, D, device=device, requires_grad=True), torch.empty(B, 0, HK, D, device=device)
    w = torch.rand(D, device=device, requires_grad=True)
    made = copes.qk_norm_rope(q, k, theta_of(device), wq=w)
    made[0].sum().backward()
    assert [o.shape for o in made] == [q.shape, k.shape] and not w.grad.any()


# ---- caches ----------------------------------------------------------------------------------------------------------

SLOTS = torch.tensor([[0, 11, 5, -1, 6], [12, 3, 2**40, 7, -(2**40)]])


def caches(device, dtype):
    shapes = (BLOCKS, PAGE, HK, D), (BLOCKS, PAGE, HK, E)
    if dtype == torch.uint8:
        return [torch.randint(0, 120, shape, device=device, dtype=dtype) for shape in shapes]
    return [torch.randn(shape).to(device, dtype) for shape in shapes]


@pytest.mark.parametrize("return_k", [True, False])
def test_caches(device, dtype, return_k):
    q, k = tensors(device, dtype)
    v, theta, w = torch.randn(B, N, HK, E).to(device, dtype), theta_of(device), torch.rand(D).to(device, dtype)
    before, slots = caches(device, dtype), SLOTS.to(device)
    k_cache, v_cache = (cache.clone() for cache in before)
    written = dict(v=v, slots=slots, k_cache=k_cache, v_cache=v_cache)
    made = copes.qk_norm_rope(q, k, theta, wq=w, wk=w, return_k=return_k, **written)
    q_out, k_out = copes.qk_norm_rope(q, k, theta, wq=w, wk=w)
    assert all(map(torch.equal, made, (q_out, k_out))) if return_k else torch.equal(made, q_out)
    assert torch.equal(k_cache, reference.write_cache(before[0], SLOTS, k_out))
    assert torch.equal(v_cache, reference.write_cache(before[1], SLOTS, v))
    assert k_cache._version == v_cache._version == 1


def test_values_alone(device):
    """Of a layer that shares another's keys."""
    q, _ = tensors(device, torch.float32)
    v, slots, before = torch.randn(B, N, HK, E, device=device), SLOTS.to(device), caches(device, torch.float32)[1]
    v_cache = before.clone()
    made = copes.qk_norm_rope(q, None, theta_of(device), v=v, slots=slots, v_cache=v_cache)
    assert made.shape == q.shape and torch.equal(v_cache, reference.write_cache(before, SLOTS, v))


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.uint8])
@pytest.mark.parametrize("each_head", [True, False])
def test_float8_caches(device, kind, each_head):
    q, k = tensors(device, torch.float32)
    k[0, 0] *= 1e5  # past 448
    v, theta = torch.randn(B, N, HK, E, device=device), theta_of(device)
    before = caches(device, torch.uint8)
    k_cache, v_cache = (cache.clone().view(kind) for cache in before)
    k_scale, v_scale = (torch.rand(HK if each_head else 1, device=device) + 0.5 for _ in range(2))
    written = dict(v=v, slots=SLOTS.to(device), k_cache=k_cache, v_cache=v_cache, k_scale=k_scale, v_scale=v_scale)
    _, k_out = copes.qk_norm_rope(q, k, theta, **written)
    for cache, earlier, source, scale in zip((k_cache, v_cache), before, (k_out, v), (k_scale, v_scale)):
        stored = (source / scale[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(cache.view(torch.uint8), reference.write_cache(earlier, SLOTS, stored))


def test_caches_with_gradients(device):
    """Gradients flow through q_out and k_out, not through what is stored."""
    q, k = tensors(device, torch.float32, requires_grad=True)
    v = torch.randn(B, N, HK, E, device=device, requires_grad=True)
    theta, w = theta_of(device), torch.rand(D, device=device, requires_grad=True)
    k_cache, v_cache = caches(device, torch.float32)
    written = dict(v=v, slots=SLOTS.to(device), k_cache=k_cache, v_cache=v_cache)

    def gradients(**more):
        made = copes.qk_norm_rope(q, k, theta, wq=w, wk=w, **more)
        loss = sum(o.square().sum() for o in (made if isinstance(made, tuple) else (made,)))
        return torch.autograd.grad(loss, (q, k, w, v), allow_unused=True)

    expected = gradients()
    made = gradients(**written)
    assert all(map(torch.equal, made[:3], expected[:3])) and made[3] is None
    assert not k_cache.requires_grad and not v_cache.requires_grad
    of_q = gradients(return_k=False, **written)
    assert torch.equal(of_q[0], expected[0]) and of_q[1] is None
    with pytest.raises(RuntimeError, match="k_cache: k_cache requires grad"):
        gradients(**{**written, "k_cache": k_cache.clone().requires_grad_()})


def test_only_what_is_used_has_gradients(device):
    """A loss of one result alone, and weights that do not learn."""
    q, k = tensors(device, torch.float32, requires_grad=True)
    wq, wk = torch.rand(2, D, device=device).unbind()
    wk = wk.clone().requires_grad_()
    made = copes.qk_norm_rope(q, k, theta_of(device), wq=wq, wk=wk)
    made[1].square().sum().backward()
    assert not q.grad.any() and k.grad.any() and wk.grad.any()


# ---- other frameworks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_numpy(kind):
    torch.manual_seed(0)
    q, k = (x.numpy().astype(kind) for x in tensors("cpu", torch.float32))
    v = np.random.default_rng(0).standard_normal((B, N, HK, E)).astype(kind)
    theta, w = theta_of("cpu").numpy(), np.linspace(0.5, 1.5, D).astype(kind)
    k_cache, v_cache = np.ones((BLOCKS, PAGE, HK, D), kind), np.ones((BLOCKS, PAGE, HK, E), kind)
    written = dict(v=v, slots=SLOTS.numpy(), k_cache=k_cache, v_cache=v_cache)
    q_out, k_out = copes.qk_norm_rope(q, k, theta, wq=w, wk=w, **written)
    wide = [torch.from_numpy(x.astype(np.float64)) for x in (q, k, w)]
    expected = reference.qk_norm_rope(*wide[:2], torch.from_numpy(theta), wide[2], wide[2])
    dtype = getattr(torch, np.dtype(kind).name)
    for made, wanted in zip((q_out, k_out), expected):
        assert isinstance(made, np.ndarray) and made.dtype == kind
        reference.assert_close(torch.from_numpy(made.astype(np.float64)), wanted, dtype)
    places = k_cache.reshape(-1, HK, D)
    assert (places[11] == k_out[0, 1]).all() and (v_cache.reshape(-1, HK, E)[3] == v[1, 1]).all()
    assert (places[1] == 1).all()
    assert copes.qk_norm_rope(q, k, theta, out=(q, k))[1] is k


def test_numpy_float8():
    q, k = (x.numpy() for x in tensors("cpu", torch.float32))
    theta, slots = theta_of("cpu").numpy(), SLOTS.numpy()
    bits, floats = (np.zeros((BLOCKS, PAGE, HK, D), kind) for kind in (np.uint8, ml_dtypes.float8_e4m3fn))
    for cache in (bits, floats):
        copes.qk_norm_rope(q, k, theta, slots=slots, k_cache=cache, return_k=False)
    assert bits.any() and (bits == floats.view(np.uint8)).all()


def test_read_only_caches():
    q, k = (x.numpy() for x in tensors("cpu", torch.float32))
    cache = np.zeros((BLOCKS, PAGE, HK, D), np.float32)
    cache.flags.writeable = False
    with pytest.raises(ValueError, match="k_cache is a read-only array"):
        copes.qk_norm_rope(q, k, theta_of("cpu").numpy(), slots=SLOTS.numpy(), k_cache=cache)


def test_jax():
    jax = pytest.importorskip("jax")
    q, k = (jax.numpy.asarray(x.numpy()) for x in tensors("cpu", torch.float32))
    theta = jax.numpy.asarray(theta_of("cpu").numpy())
    made = copes.qk_norm_rope(q, k, theta)
    expected = copes.qk_norm_rope(*map(np.asarray, (q, k, theta)))
    assert all(isinstance(o, jax.Array) and (np.asarray(o) == wanted).all() for o, wanted in zip(made, expected))
    with pytest.raises(ValueError, match="k_cache is a read-only array"):
        cache = jax.numpy.zeros((BLOCKS, PAGE, HK, D))
        copes.qk_norm_rope(q, k, theta, slots=jax.numpy.zeros((B, N), int), k_cache=cache)
