"""torch.ops.copes.qk_norm_rope: what PyTorch asks of an operator, transforms, and derivatives that do not exist."""

import copes
import pytest
import reference
import torch
from test_qk import BLOCKS, HK, PAGE, B, D, E, H, N, theta_of
from torch import func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

SLOTS = torch.tensor([[0, 11, 5, -1, 6], [10, 3, 8, 7, -(2**40)]])  # one token a place, as the last to come is any
QK = ("half", None, [3], 0, 0, None, 0, 0, None, False, False, None, 0.0, "head", False)
OTHER = ("interleaved", None, [0], 0, 0, None, 8, 2, 1.5, True, False, 1e-3, 1.0, "all_heads", True)


def randn(*shape, device="cpu", dtype=torch.float32, **options):
    return torch.randn(*shape, device=device, dtype=dtype, **options)


def queries(device="cpu", **options):
    return randn(B, N, H, D, device=device, **options), randn(B, N, HK, D, device=device, **options)


def samples(device):
    """(operator, arguments, keyword arguments)."""
    operators = torch.ops.copes
    q, k = queries(device, requires_grad=True)
    plain_q, plain_k = queries(device)
    theta, turned = theta_of(device), theta_of(device, 4)
    wq, wk = (torch.rand(D, device=device, requires_grad=True) for _ in range(2))
    positions, offsets = torch.randint(0, 99, (B, N), device=device), torch.tensor([5, 2**40], device=device)
    v, slots = randn(B, N, HK, E, device=device), SLOTS.to(device)
    k_cache, v_cache = randn(BLOCKS, PAGE, HK, D, device=device), randn(BLOCKS, PAGE, HK, E, device=device)
    yield operators.qk_norm_rope.default, (q, k, theta, None, None, None, None, *QK), {}
    yield operators.qk_norm_rope.default, (q, k, theta, None, offsets, wq, wk, *QK), {}
    yield operators.qk_norm_rope.default, (q, k, turned, positions, None, wq, None, *OTHER), {}
    yield operators.qk_norm_rope.default, (q.transpose(1, 2), None, theta, None, None, wq, None, *QK), {}
    inputs = (theta, None, None, wq, wk, v, slots, None, None)
    caches = dict(k_cache=k_cache, v_cache=v_cache)
    yield operators.qk_norm_rope_cache.default, (q, k, *inputs, True, *QK), caches
    yield operators.qk_norm_rope_cache.default, (q, k, *inputs, False, *QK), caches
    of_values = (plain_q, None, theta, None, None, None, None, v, slots, None, None)
    yield operators.qk_norm_rope_cache.default, (*of_values, False, *QK), dict(k_cache=None, v_cache=v_cache)
    outs = dict(out=torch.empty_like(plain_q), k_out=torch.empty_like(plain_k))
    detached = (theta, None, None, wq.detach(), wk.detach(), v, slots, None, None)
    yield operators.qk_norm_rope.out, (plain_q, plain_k, *detached, *QK), {**outs, **caches}
    grads = (torch.randn_like(plain_q), torch.randn_like(plain_k))
    weights = (plain_q, plain_k, theta, None, None, wq.detach(), wk.detach(), *grads)
    yield operators.qk_norm_rope_backward.default, (*weights, True, *QK), {}
    yield operators.qk_norm_rope_backward.default, (*weights, False, *QK), {}
    linear = (None, None, theta, None, None, None, None)
    yield operators.qk_norm_rope_backward.default, (*linear, grads[0].clone().requires_grad_(), None, False, *QK), {}


@pytest.mark.parametrize("index", range(11))
def test_opcheck(device, index):
    copes.act(torch.ones(1), "relu")  # registers the operators
    operator, arguments, keywords = list(samples(device))[index]
    opcheck(operator, arguments, keywords)


def test_only_what_backward_needs_is_saved(device):
    def kept(o):
        return {t.data_ptr() for t in o.grad_fn.saved_tensors if t is not None}

    q, k = queries(device, requires_grad=True)
    theta, w = theta_of(device), torch.rand(D, device=device)
    assert kept(copes.qk_norm_rope(q, k, theta)[0]) == {theta.data_ptr()}
    assert kept(copes.qk_norm_rope(q, k, theta, wk=w)[0]) == {theta.data_ptr(), w.data_ptr(), k.data_ptr()}


# ---- torch.compile ---------------------------------------------------------------------------------------------------


def attention(q, k, v, theta, w, slots, k_cache, v_cache):
    """Attention over what a cache holds afterwards."""
    written = dict(v=v, slots=slots, k_cache=k_cache, v_cache=v_cache)
    q, k = copes.qk_norm_rope(q * 2, k, theta, wq=w, wk=w, **written)
    return q.sin(), k.cos(), k_cache.sum() + v_cache.sum()


def test_compiled_with_caches(device):
    """The caches are as without a compiler, at lengths that change."""
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend="aot_eager")
    theta, w = theta_of(device), torch.rand(D, device=device)
    for tokens in (N, 3, 4):
        q, k, v, slots = (
            x[:, :tokens] for x in (*queries(device), randn(B, N, HK, E, device=device), SLOTS.to(device))
        )
        results = []
        for function in (attention, compiled):
            caches = torch.zeros(BLOCKS, PAGE, HK, D, device=device), torch.zeros(BLOCKS, PAGE, HK, E, device=device)
            results.append([*function(q, k, v, theta, w, slots, *caches), *caches])
        for made, expected in zip(*results):
            torch.testing.assert_close(made, expected, rtol=1e-6, atol=1e-6)
        assert results[1][-1].any()


def loss(q, k, theta, wq, wk, offset):
    q, k = copes.qk_norm_rope(q * 2, k, theta, wq=wq, wk=wk, offset=offset)
    return q.square().mean() + k.sin().mean()


def test_compiled_gradients(device):
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    theta = theta_of(device)
    for tokens, offset in ((N, 0), (3, 4), (4, 7)):
        leaves = [x[:, :tokens].detach().requires_grad_() for x in queries(device)]
        leaves += [torch.rand(D, device=device, requires_grad=True) for _ in range(2)]
        results = []
        for function in (loss, compiled):
            results.append(torch.autograd.grad(function(*leaves[:2], theta, *leaves[2:], offset), leaves))
        for made, expected in zip(*results):
            torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)


def test_fake_and_meta_tensors():
    def shapes(device):
        q, k, cache = (torch.empty(B, N, heads, D, device=device) for heads in (H, HK, HK))
        slots = torch.zeros(B, N, dtype=torch.int64, device=device)
        made = copes.qk_norm_rope(q, k, torch.empty(1, D // 2, device=device), slots=slots, k_cache=cache)
        return [o.shape for o in made]

    with FakeTensorMode():
        assert shapes("cpu") == [(B, N, H, D), (B, N, HK, D)]
    assert shapes("meta") == [(B, N, H, D), (B, N, HK, D)]


def test_registered_as_plain(device):
    """Through the dispatcher the same values, the caches' too, and what is wrong is refused with the same words."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            return function(*arguments, **keywords or {})

    q, k = queries(device)
    v, theta, w = randn(B, N, HK, E, device=device), theta_of(device), torch.rand(D, device=device)

    def made(**more):
        caches = torch.zeros(BLOCKS, PAGE, HK, D, device=device), torch.zeros(BLOCKS, PAGE, HK, E, device=device)
        written = dict(v=v, slots=SLOTS.to(device), k_cache=caches[0], v_cache=caches[1])
        return [*copes.qk_norm_rope(q, k, theta, wq=w, wk=w, **written, **more), *caches]

    plain = made()
    with Mode():
        registered, to_out = made(), made(out=(torch.empty_like(q), torch.empty_like(k)))
        with pytest.raises(ValueError, match="v is given; without v_cache it must be NULL"):
            copes.qk_norm_rope(q, k, theta, v=v)
        with pytest.raises(TypeError, match="^k_cache is a <class 'numpy.ndarray'>; beside a PyTorch tensor"):
            copes.qk_norm_rope(q, k, theta, slots=SLOTS.to(device), k_cache=torch.zeros(BLOCKS, PAGE, HK, D).numpy())
    assert all(map(torch.equal, registered, plain)) and all(map(torch.equal, to_out, plain))


# ---- transforms ------------------------------------------------------------------------------------------------------


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def wide_inputs():
    q, k = queries(dtype=torch.float64)
    return q, k, torch.rand(D, dtype=torch.float64), torch.rand(HK, D, dtype=torch.float64)


THETA = theta_of("cpu")


def both(q, k, wq=None, wk=None):
    return copes.qk_norm_rope(q, k, THETA, wq=wq, wk=wk, offset=3)


def expected_of(q, k, wq=None, wk=None):
    return tuple(reference.qk_norm_rope(q, k, THETA, wq, wk, offset=3))


def test_gradcheck():
    leaves = [x.requires_grad_() for x in wide_inputs()]
    assert torch.autograd.gradcheck(both, leaves)
    assert torch.autograd.gradcheck(lambda q, k: both(q, k)[1], leaves[:2])


@pytest.mark.parametrize("argnums", [(0, 1), (0, 1, 2, 3), (2,)])
def test_reverse_mode(argnums):
    inputs = wide_inputs()

    def gradients(function):
        return func.grad(lambda *x: sum(o.pow(3).sum() for o in function(*x)), argnums)(*inputs)

    close(gradients(both), gradients(expected_of))


def test_without_a_norm_it_is_linear():
    """It has derivatives of forward mode and of second order, as lrpe_rotate has."""
    q, k, *_ = wide_inputs()
    tangents = torch.randn_like(q), torch.randn_like(k)
    close(func.jvp(both, (q, k), tangents), func.jvp(expected_of, (q, k), tangents))
    close(
        func.jvp(lambda k: both(q, k)[1], (k,), tangents[1:]),
        func.jvp(lambda k: expected_of(q, k)[1], (k,), tangents[1:]),
    )
    small = q[:1, :2], k[:1, :2]
    scalar = lambda function: lambda q, k: sum(o.pow(3).sum() for o in function(q, k))  # noqa: E731
    close(func.hessian(scalar(both), (0, 1))(*small), func.hessian(scalar(expected_of), (0, 1))(*small))
    assert torch.autograd.gradgradcheck(both, [x.clone().requires_grad_() for x in small])


def test_a_norm_has_no_second_derivative():
    q, k, wq, wk = wide_inputs()
    leaves = [q.requires_grad_(), wq.requires_grad_()]
    for gradient in torch.autograd.grad(both(q, k, wq)[0].square().sum(), leaves, create_graph=True):
        with pytest.raises(NotImplementedError, match="qk_norm_rope: its norm has no second derivative"):
            gradient.sum().backward(retain_graph=True)
    with pytest.raises(NotImplementedError, match="qk_norm_rope: its norm has no derivative in forward mode"):
        func.jvp(lambda k: both(q.detach(), k, wk=wk), (k,), (k,))


@pytest.mark.parametrize("name", ["theta", "positions", "offsets", "k_scale"])
def test_constants_have_no_gradient(device, name):
    q, k = queries(device)
    constants = dict(
        theta=theta_of(device), positions=torch.ones(N, device=device), offsets=torch.ones(B, device=device)
    )
    constants["k_scale"] = torch.ones(1, device=device)
    value = constants[name].requires_grad_()
    options = dict(theta=theta_of(device)) | {name: value}
    if name == "k_scale":
        cache = torch.zeros(BLOCKS, PAGE, HK, D, dtype=torch.uint8, device=device)
        options.update(slots=SLOTS.to(device), k_cache=cache)
    theta = options.pop("theta")
    torch.compiler.reset()
    call = lambda: copes.qk_norm_rope(q, k, theta, **options)  # noqa: E731
    for f in (call, torch.compile(call, backend="aot_eager")):
        with pytest.raises(RuntimeError, match=f"qk_norm_rope: {name} requires grad.*{name}.detach"):
            f()
        with torch.no_grad():
            f()


# ---- vmap ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_vmap(axis, monkeypatch):
    """One call."""
    q, k, wq, wk = wide_inputs()
    q, k = torch.stack([q, q.flip(0), q * 2]), torch.stack([k, k * 3, k.flip(1)])
    expected = [torch.stack(each) for each in zip(*(both(*each, wq, wk) for each in zip(q, k)))]
    calls = []
    monkeypatch.setattr("copes._torch_qk.run", lambda *a: calls.append(a[0]) or copes._copes.run(*a))
    made = torch.vmap(both, (axis, axis, None, None))(q.movedim(0, axis), k.movedim(0, axis), wq, wk)
    assert len(calls) == 1
    close(made, tuple(expected))
    alone = torch.vmap(lambda q: copes.qk_norm_rope(q, None, THETA, offset=3))(q)
    close(alone, torch.stack([both(each, k[0])[0] for each in q]))


def test_vmap_of_positions_and_weights():
    q, k, wq, wk = wide_inputs()
    positions, weights = torch.randint(0, 99, (3, N)), torch.stack([wq, wq * 2, wq.flip(0)])

    def f(positions, w):
        return copes.qk_norm_rope(q, k, THETA, positions=positions, wq=w)

    for in_dims, arguments in (
        ((0, None), (positions, wq)),
        ((None, 0), (positions[0], weights)),
        ((0, 0), (positions, weights)),
    ):
        each = [f(*(x if dim is None else x[i] for x, dim in zip(arguments, in_dims))) for i in range(3)]
        close(torch.vmap(f, in_dims)(*arguments), tuple(map(torch.stack, zip(*each))))


def test_vmap_of_gradients():
    """Of each sample, weights' too."""
    q, k, wq, wk = wide_inputs()
    q, k = torch.stack([q, q.flip(0)]), torch.stack([k, k * 3])
    gradient = func.grad(lambda *x: sum(o.pow(3).sum() for o in both(*x)), (0, 1, 2, 3))
    made = torch.vmap(gradient, (0, 0, None, None))(q, k, wq, wk)
    close(made, tuple(torch.stack(each) for each in zip(*(gradient(*each, wq, wk) for each in zip(q, k)))))


def test_vmap_has_no_rule_for_caches():
    q, k = queries()
    cache = torch.zeros(BLOCKS, PAGE, HK, D)
    with pytest.raises(RuntimeError, match="vmap|Batching rule"):
        torch.vmap(lambda q: copes.qk_norm_rope(q, k, THETA, slots=SLOTS, k_cache=cache))(q[None])
    assert not cache.any()
