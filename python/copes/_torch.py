"""The operators in PyTorch: torch.ops.copes.*, their gradients, their fake implementations, and the way around the
dispatcher.

Calls that nothing intercepts (no compiler, no transform, no mode, plain tensors) skip the dispatcher, whose Python
operators cost more than a small call does; they share setup and backward with the registered operators. act and lrpe
run in x's type under autocast, as their arithmetic is in float32 anyway; tpa_decode's inputs are cast to autocast's
type, as attention's are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import is_gradtrackingtensor, peek_interpreter_stack
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling
from torch.nn import Parameter

from ._copes import run
from ._operators import ACT_BACKWARD, ACT_FORWARD, LRPE_BACKWARD, LRPE_FORWARD, TPA_DECODE

if not hasattr(Tensor, "__dlpack_c_exchange_api__"):  # how the extension sees tensors and streams without Python's help
    raise RuntimeError(f"copes needs PyTorch 2.10 or newer; this is {torch.__version__}")

_PLAIN = frozenset((Tensor, Parameter, type(None)))
_SEQUENCE = (1, -3)

_LIBRARY = torch.library.Library("copes", "DEF")
_ACT = "str act, int dim"
_LRPE = (
    "str variant, str pairing, str act, int dim, SymInt[] grid, SymInt[] offset, SymInt prefix, SymInt suffix, "
    "SymInt[] sections, SymInt rotary_dim, bool pad_theta"
)
_TPA_INPUTS = "Tensor aq, Tensor bq, Tensor ak, Tensor bk, Tensor av, Tensor bv, Tensor? kv_len"
_TPA = "float? scale, float? scale_q, float? scale_k, float? scale_v, bool causal"


def _define(name: str, arguments: str, results: str, function, fake) -> None:
    tag = torch.Tag.pt2_compliant_tag
    _LIBRARY.define(f"{name}({arguments}) -> {results}", tags=(tag,))
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, function, key)
    torch.library.register_fake(f"copes::{name}", fake, lib=_LIBRARY)


def _is_plain(x: Tensor, *others: Tensor | None) -> bool:
    """Would the dispatcher go straight to the library?"""
    return (
        not is_compiling()
        and type(x) in _PLAIN
        and _PLAIN.issuperset(map(type, others))
        and (x.is_cpu or x.is_cuda)
        and _len_torch_dispatch_stack() == 0
        and peek_interpreter_stack() is None
        and _get_tracing_state() is None
        and not x.is_neg()
        and not is_gradtrackingtensor(x)
    )


def _function(compute, setup, gradient):
    """An autograd.Function of what an operator registers, to be called where _is_plain is true. (With a setup_context of
    its own a call costs far more; and Function's own apply looks for transforms and what is left of them once more.)"""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            output = compute(*inputs)
            setup(ctx, inputs, output)
            return output

        backward = staticmethod(gradient)

    return super(torch.autograd.Function, Function).apply


def _refuse_other_arrays(**inputs) -> None:
    for name, x in inputs.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x)}; beside a PyTorch tensor it must be one, too")


def _refuse_out_with_grad(*inputs: Tensor | None) -> None:
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
        raise RuntimeError(
            "out: an input requires grad, and what is written to out has no gradient; use torch.no_grad()"
        )


# ---- act -------------------------------------------------------------------------------------------------------------


def act(x, act, dim, out):
    dim = -1 if dim is None else dim
    plain = _is_plain(x)
    if out is not None:
        _refuse_other_arrays(out=out)
        _refuse_out_with_grad(x)
        if plain:
            return run(ACT_FORWARD, x, out, act, dim)
        torch.ops.copes.act.out(x, act, dim, out=out)
        return out
    if not plain:
        return torch.ops.copes.act.default(x, act, dim)
    if x.requires_grad and torch.is_grad_enabled():
        return _act_with_grad(x, act, dim)
    return _act(x, act, dim)


def _act(x, act, dim):
    return run(ACT_FORWARD, x, None, act, dim)


def _act_out(x, act, dim, *, out):
    run(ACT_FORWARD, x, out, act, dim)


def _act_backward(x, grad_o, o, act, dim):
    return run(ACT_BACKWARD, x, grad_o, o, None, act, dim)


def _setup_act(ctx, inputs, output):
    x, ctx.act, ctx.dim = inputs
    softmax = ctx.act == "softmax"
    ctx.save_for_backward(None if softmax or ctx.act == "none" else x, output if softmax else None)


@once_differentiable
def _backward_act(ctx, grad_o):
    x, o = ctx.saved_tensors
    backward = _act_backward if _is_plain(grad_o, x, o) else torch.ops.copes.act_backward.default
    return backward(x, grad_o, o, ctx.act, ctx.dim), None, None


_act_with_grad = _function(_act, _setup_act, _backward_act)


_define("act", f"Tensor x, {_ACT}", "Tensor", _act, lambda x, act, dim: torch.empty_like(x))
_define("act.out", f"Tensor x, {_ACT}, *, Tensor(a!) out", "()", _act_out, lambda x, act, dim, *, out: None)
_define(
    "act_backward",
    f"Tensor? x, Tensor grad_o, Tensor? o, {_ACT}",
    "Tensor",
    _act_backward,
    lambda x, grad_o, o, act, dim: torch.empty_like(grad_o),
)
torch.library.register_autograd("copes::act", _backward_act, setup_context=_setup_act, lib=_LIBRARY)


# ---- lrpe ------------------------------------------------------------------------------------------------------------


def lrpe(x, theta, attributes, out):
    plain = theta is not None and _is_plain(x, theta) and not is_gradtrackingtensor(theta)
    if not plain:
        _refuse_other_arrays(theta=theta)
    if out is not None:
        _refuse_other_arrays(out=out)
        _refuse_out_with_grad(x, theta)
        if plain:
            return run(LRPE_FORWARD, x, theta, out, None, *attributes)
        torch.ops.copes.lrpe.out(x, theta, *_explicit(*attributes), out=out)
        return out
    grad = (x.requires_grad or theta.requires_grad) and torch.is_grad_enabled()
    if plain and not grad:
        return run(LRPE_FORWARD, x, theta, None, None, *attributes)
    keeps_lse = grad and attributes[2] == "softmax" and attributes[3] in _SEQUENCE
    if plain:
        return _lrpe_lse_with_grad(x, theta, *attributes)[0] if keeps_lse else _lrpe_with_grad(x, theta, *attributes)
    attributes = _explicit(*attributes)
    if keeps_lse:
        return torch.ops.copes.lrpe_lse.default(x, theta, *attributes)[0]
    return torch.ops.copes.lrpe.default(x, theta, *attributes)


def _explicit(variant, pairing, act, dim, grid, offset, prefix, suffix, sections, rotary_dim, pad_theta):
    """The attributes as the operators' schema has them, which knows no None."""
    return (
        variant,
        pairing,
        act,
        dim or 0,
        list(grid or ()),
        list(offset) if isinstance(offset, (list, tuple)) else [offset],
        prefix,
        suffix,
        list(sections or ()),
        rotary_dim or 0,
        pad_theta,
    )


def _lrpe(x, theta, *attributes):
    return run(LRPE_FORWARD, x, theta, None, None, *attributes)


def _lrpe_lse(x, theta, *attributes):
    return run(LRPE_FORWARD, x, theta, None, True, *attributes)


def _lrpe_out(x, theta, *attributes, out):
    run(LRPE_FORWARD, x, theta, out, None, *attributes)


def _lrpe_backward(x, theta, grad_o, lse, *attributes):
    return run(LRPE_BACKWARD, x, theta, grad_o, lse, None, *attributes)


def _setup_lrpe(ctx, inputs, output):
    x, theta, *ctx.attributes = inputs
    if ctx.needs_input_grad[1]:
        raise RuntimeError("lrpe: theta requires grad, but there is no gradient of theta; pass theta.detach()")
    lse = None
    if isinstance(output, tuple):
        lse = output[1]
        ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(None if ctx.attributes[2] == "none" else x, theta, lse)


@once_differentiable
def _backward_lrpe(ctx, grad_o, grad_lse=None):
    x, theta, lse = ctx.saved_tensors
    if _is_plain(grad_o, x, theta, lse):
        grad_x = _lrpe_backward(x, theta, grad_o, lse, *ctx.attributes)
    else:
        grad_x = torch.ops.copes.lrpe_backward.default(x, theta, grad_o, lse, *_explicit(*ctx.attributes))
    return grad_x, *(None,) * (1 + len(ctx.attributes))


_lrpe_with_grad = _function(_lrpe, _setup_lrpe, _backward_lrpe)
_lrpe_lse_with_grad = _function(_lrpe_lse, _setup_lrpe, _backward_lrpe)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _fake_lrpe(x, theta, variant, *attributes):
    if variant == "rotate":
        return torch.empty_like(x)
    return x.new_empty((*x.shape[:-1], 2 * x.shape[-1]))


def _fake_lrpe_lse(x, theta, *attributes):
    heads = x.shape[2] if x.dim() == 4 else 1
    return _fake_lrpe(x, theta, *attributes), x.new_empty((x.shape[0], heads, x.shape[-1]), dtype=_wide(x.dtype))


def _fake_lrpe_backward(x, theta, grad_o, lse, variant, *attributes):
    if variant == "rotate":
        return torch.empty_like(grad_o)
    return grad_o.new_empty((*grad_o.shape[:-1], grad_o.shape[-1] // 2))


_define("lrpe", f"Tensor x, Tensor theta, {_LRPE}", "Tensor", _lrpe, _fake_lrpe)
_define("lrpe_lse", f"Tensor x, Tensor theta, {_LRPE}", "(Tensor, Tensor)", _lrpe_lse, _fake_lrpe_lse)
_define("lrpe.out", f"Tensor x, Tensor theta, {_LRPE}, *, Tensor(a!) out", "()", _lrpe_out, lambda *inputs, out: None)
_define(
    "lrpe_backward",
    f"Tensor? x, Tensor theta, Tensor grad_o, Tensor? lse, {_LRPE}",
    "Tensor",
    _lrpe_backward,
    _fake_lrpe_backward,
)
for _name in ("lrpe", "lrpe_lse"):
    torch.library.register_autograd(f"copes::{_name}", _backward_lrpe, setup_context=_setup_lrpe, lib=_LIBRARY)


# ---- tpa_decode ------------------------------------------------------------------------------------------------------


def tpa_decode(inputs, attributes, return_lse, out):
    plain = _is_plain(*inputs)
    device = inputs[0].device.type
    autocast = torch.is_autocast_enabled(device)
    if not plain or autocast:
        names = ("aq", "bq", "ak", "bk", "av", "bv") + (() if inputs[-1] is None else ("kv_len",))
        _refuse_other_arrays(**dict(zip(names, inputs)))
    if autocast:
        dtype = torch.get_autocast_dtype(device)
        inputs = (*(x.to(dtype) for x in inputs[:-1]), inputs[-1])
    if out is not None:
        _refuse_other_arrays(out=out)
        _refuse_out_with_grad(*inputs)
    needs_autograd = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    if plain and not needs_autograd:
        return run(TPA_DECODE, *inputs, out, return_lse, *attributes)
    if out is None:
        decode = torch.ops.copes.tpa_decode_lse if return_lse else torch.ops.copes.tpa_decode
        return decode.default(*inputs, *attributes)
    if return_lse:
        return out, torch.ops.copes.tpa_decode_lse.out(*inputs, *attributes, out=out)
    torch.ops.copes.tpa_decode.out(*inputs, *attributes, out=out)
    return out


def _tpa(*arguments):
    return run(TPA_DECODE, *arguments[:7], None, None, *arguments[7:])


def _tpa_lse(*arguments):
    return run(TPA_DECODE, *arguments[:7], None, True, *arguments[7:])


def _tpa_out(*arguments, out):
    run(TPA_DECODE, *arguments[:7], out, None, *arguments[7:])


def _tpa_lse_out(*arguments, out):
    return run(TPA_DECODE, *arguments[:7], out, True, *arguments[7:])[1]


def _fake_tpa(aq, bq, ak, bk, av, bv, *others):
    return aq.new_empty((*aq.shape[:3], bv.shape[-1]))


def _fake_tpa_lse(aq, *others):
    return aq.new_empty(aq.shape[:3], dtype=_wide(aq.dtype))


def _backward_tpa(ctx, *gradients):
    raise NotImplementedError("tpa_decode: it is for decoding and has no gradient")


_define("tpa_decode", f"{_TPA_INPUTS}, {_TPA}", "Tensor", _tpa, _fake_tpa)
_define(
    "tpa_decode_lse",
    f"{_TPA_INPUTS}, {_TPA}",
    "(Tensor, Tensor)",
    _tpa_lse,
    lambda *inputs: (_fake_tpa(*inputs), _fake_tpa_lse(*inputs)),
)
_define("tpa_decode.out", f"{_TPA_INPUTS}, {_TPA}, *, Tensor(a!) out", "()", _tpa_out, lambda *inputs, out: None)
_define(
    "tpa_decode_lse.out",
    f"{_TPA_INPUTS}, {_TPA}, *, Tensor(a!) out",
    "Tensor",
    _tpa_lse_out,
    lambda *inputs, out: _fake_tpa_lse(*inputs),
)
for _name in ("tpa_decode", "tpa_decode_lse"):
    torch.library.register_autograd(f"copes::{_name}", _backward_tpa, lib=_LIBRARY)
