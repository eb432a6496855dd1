"""PyTorch's rules for what is written to: each scenario goes through an operator of PyTorch and through copes', in every
way there is to call it, and both must raise or both must return the same."""

import copes
import pytest
import torch
from test_operators import ROTATE, THETA, x_of
from test_qk_torch import QK
from torch.autograd import forward_ad

copes.act(torch.ones(1), "relu")  # registers the operators
FACTORS = [torch.rand(shape) for shape in [(2, 6, 8, 4), (2, 5, 2, 2), (2, 5, 2, 4), (2, 5, 2, 2), (2, 5, 2, 8)]]


def tpa_decode(x, out):
    bq, ak, bk, av, bv = (f.to(x.device) for f in FACTORS)
    copes.tpa_decode(x, ak, av, bq, bk, bv, out=out)


def tpa_operator(name):
    def call(x, out):
        attributes = (None, None, None, None, None, False, 0, 1, None)
        getattr(torch.ops.copes, name).out(x, *(f.to(x.device) for f in FACTORS), *attributes, out=out)

    return call


def merged(x, call, **options):
    """Of two shares alike, of which the second has three times the weight."""
    lse = torch.tensor([0.0, 1.0986], device=x.device)[:, None, None, None].expand(2, *x.shape[:-1])
    return call(x.expand(2, *x.shape), lse, **options)


CALLS = {
    "act": lambda x, out: copes.act(x, "sigmoid", out=out),
    "softmax": lambda x, out: copes.act(x, "softmax", 1, out=out),
    "lrpe": lambda x, out: copes.lrpe_rotate(x, THETA.to(x.device), act="silu", out=out),
    "lrpe at positions": lambda x, out: copes.lrpe_rotate(
        x, THETA.to(x.device), positions=x[..., 0, 0].detach(), out=out
    ),
    "tpa_decode": tpa_decode,
    "qk_norm_rope": lambda x, out: copes.qk_norm_rope(
        x, None, THETA.to(x.device), wq=torch.ones(8, device=x.device), out=out
    ),
    "attention_merge": lambda x, out: merged(x, copes.attention_merge, out=out),
    "attention_merge.out": lambda x, out: merged(x, torch.ops.copes.attention_merge.out, base="e", out=out),
    "act.out": lambda x, out: torch.ops.copes.act.out(x, "sigmoid", -1, out=out),
    "lrpe.out": lambda x, out: torch.ops.copes.lrpe.out(x, THETA.to(x.device), None, None, *ROTATE, out=out),
    "qk_norm_rope.out": lambda x, out: torch.ops.copes.qk_norm_rope.out(
        x, None, THETA.to(x.device), *[None] * 8, *QK, out=out, k_out=None, k_cache=None, v_cache=None
    ),
    "tpa_decode.out": tpa_operator("tpa_decode"),
    "tpa_decode_lse.out": tpa_operator("tpa_decode_lse"),
}


def torchs(x, out):
    torch.sigmoid(x, out=out)


# ---- scenarios -------------------------------------------------------------------------------------------------------

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def moved(call, x, out):
    """By how much the version of out moves."""
    before = out._version
    call(x, out)
    return out._version - before


def made_in_inference_mode(device, **options):
    with torch.inference_mode():
        return x_of(device, **options)


@scenario
def plain(call, device):
    return moved(call, x_of(device), x_of(device))


@scenario
def leaf(call, device):
    return moved(call, x_of(device), x_of(device, requires_grad=True))


@scenario
def parameter(call, device):
    return moved(call, x_of(device), torch.nn.Parameter(x_of(device)))


@scenario
def history(call, device):
    return moved(call, x_of(device), x_of(device, requires_grad=True) * 2)


@scenario
def x_requires_grad(call, device):
    return moved(call, x_of(device, requires_grad=True), x_of(device))


@scenario
@torch.no_grad()
def without_grad(call, device):
    x, out = x_of(device, requires_grad=True), x_of(device, requires_grad=True)
    return moved(call, x, x_of(device)), moved(call, x_of(device), out), moved(call, x, out), out.requires_grad


@scenario
@torch.no_grad()
def parameter_without_grad(call, device):
    return moved(call, x_of(device), torch.nn.Parameter(x_of(device)))


@scenario
def view_of_a_leaf(call, device):
    return moved(call, x_of(device), x_of(device, requires_grad=True)[:])


@scenario
def view_of_a_leaf_made_without_grad(call, device):
    x = x_of(device, requires_grad=True)
    with torch.no_grad():
        view = x[:]
    return moved(call, x_of(device), view)


@scenario
def base_of_a_view(call, device):
    base = torch.zeros(3, 6, 2, 8, device=device)
    before = base._version
    call(x_of(device), base[:2])
    return base._version - before


@scenario
def inside_inference_mode(call, device):
    with torch.inference_mode():
        out = x_of(device)
        call(x_of(device), out)
        return out.is_inference()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_tensors_from_before_inference_mode(device, requires_grad):
    for call in (torchs, *CALLS.values()):
        out = x_of(device, requires_grad=requires_grad)
        with torch.inference_mode():
            call(x_of(device), out)
        assert out._version == 1


@scenario
def inference_tensor(call, device):
    call(x_of(device), made_in_inference_mode(device))


@scenario
def nothing_but_inference_tensors(call, device):
    call(made_in_inference_mode(device), made_in_inference_mode(device))


@scenario
@torch.no_grad()
def inference_tensor_without_grad(call, device):
    call(x_of(device), made_in_inference_mode(device))


@scenario
def inference_input(call, device):
    return moved(call, made_in_inference_mode(device), x_of(device))


def kept_by_autograd(call, device, alias):
    w, h = x_of(device, requires_grad=True), x_of(device)
    y = h * w
    call(x_of(device), alias(h))
    y.sum().backward()


@scenario
def kept(call, device):
    kept_by_autograd(call, device, lambda h: h)


@scenario
def kept_and_written_through_a_detached_alias(call, device):
    kept_by_autograd(call, device, torch.Tensor.detach)


@scenario
def kept_and_written_through_a_view(call, device):
    kept_by_autograd(call, device, lambda h: h[:])


@scenario
def kept_and_written_through_data(call, device):
    kept_by_autograd(call, device, lambda h: h.data)


@scenario
def kept_by_copes(call, device):
    h = x_of(device, requires_grad=True)
    y = copes.act(h, "silu")
    with torch.no_grad():
        call(x_of(device), h)
    y.sum().backward()


@scenario
def result_kept_by_copes(call, device):
    y = copes.act(x_of(device, requires_grad=True), "softmax")
    with torch.no_grad():
        call(x_of(device), y)
    y.sum().backward()


@scenario
def theta_kept_by_copes(call, device):
    theta = x_of(device)
    y = copes.lrpe_rotate(x_of(device, requires_grad=True), theta[0, 0, :, :4])
    call(x_of(device), theta)
    y.sum().backward()


@scenario
def positions_kept_by_copes(call, device):
    positions = x_of(device)
    y = copes.lrpe_rotate(x_of(device, requires_grad=True), THETA.to(device), positions=positions[:, :, 0, 0])
    call(x_of(device), positions)
    y.sum().backward()


@scenario
def expanded(call, device):
    call(x_of(device), x_of(device)[:1].expand(2, -1, -1, -1))


@scenario
def overlapping(call, device):
    memory = torch.rand(2 * 6 * 2 * 8 + 1, device=device)
    call(memory[1:].view(2, 6, 2, 8), memory[:-1].view(2, 6, 2, 8))


@scenario
def a_tangent_of_x(call, device):
    with forward_ad.dual_level():
        call(forward_ad.make_dual(x_of(device), x_of(device)), x_of(device))


@scenario
@torch.no_grad()
def a_tangent_of_x_without_grad(call, device):
    a_tangent_of_x(call, device)


@scenario
def a_tangent_of_out(call, device):
    with forward_ad.dual_level():
        call(x_of(device), forward_ad.make_dual(x_of(device), x_of(device)))


@scenario
def no_tangent_in_forward_mode(call, device):
    with forward_ad.dual_level():
        return moved(call, x_of(device), x_of(device))


@scenario
def inside_a_gradient(call, device):
    def loss(x):
        call(x, torch.empty_like(x))
        return x.sum()

    torch.func.grad(loss)(x_of(device))


@scenario
def inside_a_gradient_of_something_else(call, device):
    out, constant = torch.zeros(2, 6, 2, 8, device=device), x_of(device)

    def loss(x):
        call(constant, out)
        return x.sum()

    torch.func.grad(loss)(x_of(device))
    return out._version, bool(out.any())


def returning_out(call):
    def f(x):
        out = torch.empty_like(x)
        call(x, out)
        return out

    return f


@scenario
def inside_jvp(call, device):
    torch.func.jvp(returning_out(call), (x_of(device),), (x_of(device),))


@scenario
def inside_vmap(call, device):
    torch.vmap(returning_out(call))(torch.rand(3, 2, 6, 2, 8, device=device))


@scenario
def other_devices(call, device):
    call(x_of(device), x_of("meta"))


@scenario
def other_types(call, device):
    call(x_of(device), x_of(device).int())


@scenario
def zeros_without_memory(call, device):
    call(x_of(device), torch._efficientzerotensor((2, 6, 2, 8), device=device))


@scenario
def negative_view(call, device):
    out = torch.full((2, 6, 2, 8), 7j, device=device).conj().imag
    assert out.is_neg()
    return moved(call, torch.zeros(2, 6, 2, 8, device=device), out), bool((out >= 0).all()), out.is_neg()


def outcome(run, call, device):
    try:
        return "returned", run(call, device)
    except (RuntimeError, ValueError, TypeError) as error:
        assert str(error)
        return "raised", None


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("way", CALLS)
def test_as_pytorch(device, name, way):
    assert outcome(SCENARIOS[name], CALLS[way], device) == outcome(SCENARIOS[name], torchs, device)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("way", ["act", "lrpe", "tpa_decode", "act.out"])
def test_compiled_as_pytorch(device, name, way):
    """By torch.compile, where PyTorch's own operators are silent about tangents; so copes may do as in eager mode."""

    def compiled(call):
        torch.compiler.reset()
        return outcome(SCENARIOS[name], torch.compile(call, backend="aot_eager"), device)

    assert compiled(CALLS[way]) in (compiled(torchs), outcome(SCENARIOS[name], torchs, device))


def test_values_are_written(device):
    """In every way, and to no more than out."""
    x = x_of(device)
    for way, call in CALLS.items():
        expected, memory = torch.empty_like(x), torch.full((2, 7, 2, 8), 7.0, device=device)
        call(x, expected)
        call(x, memory[:, :6])
        assert torch.equal(memory[:, :6], expected) and (memory[:, 6:] == 7).all(), way


@pytest.mark.parametrize("way", ["act", "lrpe", "act.out", "lrpe.out"])
def test_gradients_after_a_write_in_place(device, way):
    """The gradient of w needs h, which is no more; PyTorch's in-place operators say so."""
    h, w = x_of(device), torch.randn(8, 8, device=device, requires_grad=True)
    y = h @ w
    CALLS[way](h, h)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


WRONG = {
    "shape": lambda x: x.new_empty(2, 6, 2, 7),
    "type": lambda x: x.double(),
    "rank": lambda x: x.new_empty(2, 6, 2),
}


@pytest.mark.parametrize("what", WRONG)
def test_nothing_is_cast_or_resized(device, what):
    """Where PyTorch would, with or without a warning."""
    x = x_of(device)
    for way, call in CALLS.items():
        out = WRONG[what](x)
        before, version = out.clone(), out._version
        for f in (call, torch.compile(call, backend="aot_eager")):
            with pytest.raises((ValueError, TypeError, RuntimeError), match="out|o has"):
                f(x, out)
        assert out._version == version and torch.equal(out.nan_to_num(), before.nan_to_num()), way
