"""Derivatives in both modes, of second order where they exist, and torch.func's transforms, against the reference in
float64; what does not exist is refused."""

import copes
import pytest
import reference
import torch
from test_tpa import make
from torch import func
from torch.autograd import forward_ad

B, N, H, D = 2, 6, 3, 8
POSITIONS = dict(grid=(2, 2), prefix=1, suffix=1, offset=(3, 2))
SOFTMAX = [("softmax", -1), ("softmax", 1)]
EACH = [(act, None) for act in reference.ACTS[:-1]] + SOFTMAX
LINEAR = [("none", None), ("relu", None)]


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


THETA = {"lrpe_rotate": torch.rand(H, D // 2), "lrpe_cosine": torch.rand(H, D)}


def functions(act, dim):
    """(copes, reference) of one tensor (B, N, H, D)."""
    axis = -1 if dim is None else dim
    yield lambda x: copes.act(x, act, dim), lambda x: reference.act(x, act, axis)
    for name, theta in THETA.items():
        yield (
            lambda x, name=name, theta=theta: getattr(copes, name)(x, theta, act=act, dim=dim, **POSITIONS),
            lambda x, name=name, theta=theta: getattr(reference, name)(x, theta, act, axis, **POSITIONS),
        )


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def dual(f, x, tangent):
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(f(forward_ad.make_dual(x, tangent))))


@pytest.mark.parametrize("act, dim", EACH)
def test_forward_mode(act, dim):
    x, tangent = randn(B, N, H, D), randn(B, N, H, D)
    for f, expected in functions(act, dim):
        close(func.jvp(f, (x,), (tangent,)), func.jvp(expected, (x,), (tangent,)))
        close(dual(f, x, tangent), dual(expected, x, tangent))
        with torch.no_grad():
            close(dual(f, x, tangent), dual(expected, x, tangent))
        leaf = x.clone().requires_grad_()
        close(dual(f, leaf, tangent)[1].detach(), dual(expected, x, tangent)[1])
        o = f(leaf)  # the level has gone, and with it the tangents
        assert o.grad_fn is not None and not hasattr(o, "tangent")


@pytest.mark.parametrize("act, dim", EACH)
def test_reverse_mode(act, dim):
    x = randn(B, N, H, D)
    for f, expected in functions(act, dim):
        close(func.grad(lambda x: f(x).square().sum())(x), func.grad(lambda x: expected(x).square().sum())(x))
        o, pull = func.vjp(f, x)
        cotangent = torch.randn_like(o)
        close(pull(cotangent), func.vjp(expected, x)[1](cotangent))


@pytest.mark.parametrize("act, dim", EACH)
def test_jacobians(act, dim):
    x = randn(1, N, H, D)
    for f, expected in functions(act, dim):
        wanted = func.jacrev(expected)(x)
        close(func.jacrev(f)(x), wanted)
        close(func.jacfwd(f)(x), wanted)


@pytest.mark.parametrize("act, dim", EACH)
@pytest.mark.parametrize("axis", [0, 2, -1])
def test_vmap(act, dim, axis):
    x = randn(4, B, N, H, D)
    for f, _ in functions(act, dim):
        expected = torch.stack([f(each) for each in x])
        close(torch.vmap(f, in_dims=axis)(x.movedim(0, axis)), expected)
        gradient = func.grad(lambda x: f(x).square().sum())
        close(torch.vmap(gradient)(x), torch.stack([gradient(each) for each in x]))


def test_vmap_is_one_call(monkeypatch):
    calls = []
    for module in ("_torch_act", "_torch_lrpe"):
        monkeypatch.setattr(f"copes.{module}.run", lambda *a: calls.append(a[0]) or copes._copes.run(*a))
    torch.vmap(lambda x: copes.act(x, "silu"))(randn(5, B, N, H, D))
    torch.vmap(lambda x: copes.lrpe_rotate(x, THETA["lrpe_rotate"]))(randn(5, B, N, H, D))
    assert len(calls) == 2


@pytest.mark.parametrize("rank, heads", [(3, 1), (4, H), (4, 1)])
@pytest.mark.parametrize("act, dim", [("silu", None), ("softmax", 1)])
@pytest.mark.parametrize("in_dims", [(0, 0), (None, 1), (1, None)])
def test_vmap_with_thetas(rank, heads, act, dim, in_dims):
    x, theta = randn(4, B, N, *(H, D)[4 - rank :]), torch.rand(4, heads, D)
    arguments = [t[0] if axis is None else t.movedim(0, axis) for t, axis in zip((x, theta), in_dims)]

    def gradient(x, theta):
        return func.vjp(lambda x: copes.lrpe_cosine(x, theta, act=act, dim=dim), x)[1](
            torch.ones(*x.shape[:-1], 2 * D, dtype=x.dtype)
        )[0]

    for f in (lambda x, theta: copes.lrpe_cosine(x, theta, act=act, dim=dim), gradient):
        expected = [
            f(*(t if axis is None else t.select(axis, i) for t, axis in zip(arguments, in_dims))) for i in range(4)
        ]
        close(torch.vmap(f, in_dims=in_dims)(*arguments), torch.stack(expected))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_vmap_moves_softmaxs_axis(dim):
    x = randn(5, 2, 3, 4)
    close(torch.vmap(lambda x: copes.act(x, "softmax", dim), in_dims=1)(x), x.movedim(1, 0).softmax(dim + (dim >= 0)))


@pytest.mark.parametrize("dim", [3, -4])
def test_vmap_does_not_reach_the_mapped_axis(dim):
    with pytest.raises(ValueError, match="dim"):
        torch.vmap(lambda x: copes.act(x, "softmax", dim))(randn(5, 2, 3, 4))
    with pytest.raises(ValueError, match="rank 0"):
        torch.vmap(lambda x: copes.act(x, "softmax"))(randn(5))


def test_vmap_of_tpa_decode():
    aq, ak, av, bq, bk, bv = (torch.stack([t, t.flip(0), t * 2]) for t in make("cpu", torch.float64))
    lengths = torch.tensor([[5, 37], [9, 2], [0, 1]], dtype=torch.int32)

    def f(aq, bk, kv_len):
        return copes.tpa_decode(aq, ak[0], av[0], bq[0], bk, bv[0], kv_len=kv_len, causal=True, return_lse=True)

    expected = [f(*each) for each in zip(aq, bk, lengths)]
    for result, each in zip(torch.vmap(f)(aq, bk, lengths), zip(*expected)):
        close(result, torch.stack(each))
    close(torch.vmap(f, (0, 1, None))(aq, bk.movedim(0, 1), lengths[0])[0][2], f(aq[2], bk[2], lengths[0])[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("act, dim", [("silu", None), ("softmax", 1)])
def test_compiled(backend, act, dim):
    x = randn(B, N, H, D)
    for f, _ in list(functions(act, dim))[:2]:
        for transform in (
            lambda x, f=f: func.jvp(f, (x,), (x,))[1],
            lambda x, f=f: func.grad(lambda x: f(x).square().sum())(x),
            lambda x, f=f: torch.vmap(f)(x[None]),
            lambda x, f=f: dual(f, x, x)[1],
        ):
            torch.compiler.reset()
            close(torch.compile(transform, backend=backend, fullgraph=True)(x), transform(x))


# ---- second derivatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act, dim", LINEAR)
def test_second_derivatives(act, dim):
    x = randn(1, 4, H, 4) + 0.1
    position = dict(offset=3)
    for name in THETA:
        theta = torch.rand(H, 4 if name == "lrpe_cosine" else 2)

        def loss(function, x, *arguments, **keywords):
            return function(x, theta, *arguments, **keywords, **position).pow(3).sum()

        def f(x):
            return loss(getattr(copes, name), x, act=act)

        def expected(x):
            return loss(getattr(reference, name), x, act)

        wanted = func.hessian(expected)(x)
        close(func.hessian(f)(x), wanted)
        close(func.jacrev(func.jacrev(f))(x), wanted)
        close(func.jacfwd(func.jacfwd(f))(x), wanted)
        close(torch.autograd.functional.hessian(f, x), wanted)
        assert torch.autograd.gradgradcheck(f, x.clone().requires_grad_())
    f = lambda x: copes.act(x, act).pow(3).sum()  # noqa: E731
    close(func.hessian(f)(x), func.hessian(lambda x: reference.act(x, act).pow(3).sum())(x))


@pytest.mark.parametrize("act, dim", [("sigmoid", None), ("silu", None), *SOFTMAX])
def test_second_derivatives_that_do_not_exist(act, dim):
    x = randn(B, N, H, D)
    for f, _ in functions(act, dim):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(f(leaf).sum(), leaf, create_graph=True)
        with pytest.raises(NotImplementedError, match=f"{act} has no second derivative"):
            gradient.sum().backward()
        loss = lambda x: f(x).square().sum()  # noqa: E731
        for second in (
            func.grad(lambda x: func.grad(loss)(x).sum()),
            func.hessian(loss),
            lambda x: func.jvp(func.grad(loss), (x,), (x,)),
            lambda x: func.jvp(lambda x: func.jvp(f, (x,), (x,))[1], (x,), (x,)),
            lambda x: func.grad(lambda x: func.jvp(f, (x,), (x,))[1].sum())(x),
        ):
            with pytest.raises(NotImplementedError, match=f"{act} has no second derivative"):
                second(x)


# ---- what has no derivative ------------------------------------------------------------------------------------------


def test_theta_has_no_derivative_in_forward_mode():
    x, theta = randn(B, N, H, D), torch.rand(1, 4)
    for call in (
        lambda theta: copes.lrpe_rotate(x, theta),
        lambda theta: torch.ops.copes.lrpe_backward(None, theta, None, None, x, None, *ROTATE),
        lambda theta: torch.ops.copes.lrpe_backward_theta(x, theta, None, None, x, None, *ROTATE)[0],
    ):
        for transform in (lambda: func.jvp(call, (theta,), (theta,)), lambda: dual(call, theta, theta)):
            with pytest.raises(NotImplementedError, match="theta.detach"):
                transform()


@pytest.mark.parametrize("act", ["none", "silu"])
def test_theta_has_no_second_derivative(act):
    x, theta = randn(B, N, H, D).requires_grad_(), torch.rand(1, 4, requires_grad=True)

    def loss(x, theta):
        return copes.lrpe_rotate(x, theta, act=act).square().sum()

    gradients = torch.autograd.grad(loss(x, theta), (x, theta), create_graph=True)
    for gradient in gradients:
        with pytest.raises(NotImplementedError, match="theta.detach"):
            gradient.sum().backward(retain_graph=True)
    x, theta = x.detach(), theta.detach()
    for second in (
        lambda: func.hessian(loss, argnums=1)(x, theta),
        lambda: func.grad(lambda theta: func.grad(loss)(x, theta).sum())(theta),
        lambda: func.grad(lambda x: func.grad(loss, 1)(x, theta).sum())(x),
        lambda: func.jvp(lambda x: func.grad(loss, 1)(x, theta), (x,), (x,)),
    ):
        with pytest.raises(NotImplementedError, match="theta.detach|second derivative"):
            second()


@pytest.mark.parametrize("name", ["positions", "offsets"])
def test_positions_have_none(name):
    x, theta, length = randn(B, N, H, D), torch.rand(1, 4), N if name == "positions" else B

    def call(where):
        return copes.lrpe_rotate(x, theta, **{name: where})

    where = torch.ones(length)
    torch.compiler.reset()
    for f in (call, torch.compile(call, backend="aot_eager")):
        with pytest.raises(RuntimeError, match=f"{name}.detach"):
            f(where.clone().requires_grad_())
        with torch.no_grad():
            f(where.clone().requires_grad_())
    for transform in (
        func.grad(lambda where: call(where).sum()),
        lambda where: func.jvp(call, (where,), (where,)),
        lambda where: dual(call, where, where),
    ):
        with pytest.raises(RuntimeError, match=f"{name}.detach"):
            transform(where)


ROTATE = ("rotate", "half", "none", -1, None, None, 0, 0, None, 0, 0, None, False, False)


@pytest.mark.parametrize("index, name", list(enumerate(["aq", "ak", "av", "bq", "bk", "bv"])))
def test_tpa_decode_has_none(device, index, name):
    inputs = list(make(device, torch.float32))
    out = torch.empty(2, 1, 6, 16, device=device)

    def call(factor, **options):
        return copes.tpa_decode(*inputs[:index], factor, *inputs[index + 1 :], **options)

    def operator(factor):
        aq, ak, av, bq, bk, bv = *inputs[:index], factor, *inputs[index + 1 :]
        return torch.ops.copes.tpa_decode(aq, bq, ak, bk, av, bv, None, None, None, None, None, False, 0, 1, None)

    torch.compiler.reset()
    factor = inputs[index]
    for f in (call, operator, torch.compile(call, backend="aot_eager")):
        with pytest.raises(NotImplementedError, match=f"tpa_decode: {name} requires grad"):
            f(factor.clone().requires_grad_())
        with torch.no_grad():
            assert not f(factor.clone().requires_grad_()).requires_grad
    for transform in (
        lambda: func.grad(lambda factor: call(factor).sum())(factor),
        lambda: func.jvp(call, (factor,), (factor,)),
        lambda: dual(call, factor, factor),
    ):
        with pytest.raises(NotImplementedError, match=f"tpa_decode: {name} requires grad"):
            transform()
    with pytest.raises(NotImplementedError, match=f"tpa_decode: {name} requires grad"):
        call(factor.clone().requires_grad_(), out=out)
