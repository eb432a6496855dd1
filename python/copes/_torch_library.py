"""How operators are registered with PyTorch, and the rules of PyTorch that they keep: for derivatives in both modes and
under torch.func's transforms, and for tensors that are written to.

torch.library.register_autograd knows neither forward mode nor transforms nor out=, so the kernels of the keys Autograd
and ADInplaceOrView are here."""

from __future__ import annotations

import torch
from torch import Tensor, _C
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import is_gradtrackingtensor, peek_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling
from torch.nn import Parameter

_LIBRARY = torch.library.Library("copes", "DEF")


_PLAIN = frozenset((Tensor, Parameter))

if not hasattr(Tensor, "__dlpack_c_exchange_api__"):  # how the extension sees tensors and streams without Python's help
    raise RuntimeError(f"copes needs PyTorch 2.10 or newer; this is {torch.__version__}")


def is_plain(x: Tensor, *others: Tensor) -> bool:
    """Would the dispatcher go straight to the library? (It sees to negative views, too, but so does the extension.)"""
    return (
        not is_compiling()
        and type(x) in _PLAIN
        and _PLAIN.issuperset(map(type, others))
        and (x.is_cpu or x.is_cuda)
        and not in_forward_mode()
        and _len_torch_dispatch_stack() == 0
        and peek_interpreter_stack() is None
        and _get_tracing_state() is None
        and not is_gradtrackingtensor(x)
        and not any(map(is_gradtrackingtensor, others))
    )


def define(name: str, arguments: str, results: str, compute, fake, *, autograd=None, batched=None) -> None:
    """Registers torch.ops.copes.<name>. `fake` makes its results without values, `autograd` is what differentiable() or
    without_gradient() made, `batched` the rule of torch.vmap. A name that ends in .out is of what writes the first of
    the same results to `out` and returns the others; it has neither derivatives nor a rule."""
    _LIBRARY.define(f"{name}({arguments}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, compute, key)
    base, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.copes, base), overload or "default")
    torch.library.register_fake(f"copes::{name}", _fake_of_out(fake) if overload == "out" else fake, lib=_LIBRARY)
    if overload == "out":
        _LIBRARY.impl(name, _autograd_of_out(operator), "Autograd", with_keyset=True)
        _LIBRARY.impl(name, _write_to_out(operator), "ADInplaceOrView", with_keyset=True)
        _LIBRARY.impl(name, _resolve_negative(operator), "Negative")
    else:
        _LIBRARY.impl(name, autograd(operator), "Autograd", with_keyset=True)
        torch.library.register_vmap(f"copes::{name}", batched, lib=_LIBRARY)


# ---- derivatives -----------------------------------------------------------------------------------------------------


def function(setup, backward, jvp):
    """apply(compute, *inputs), which is compute(*inputs) and has derivatives.

    setup(ctx, inputs, output) keeps what backward needs; backward(ctx, *gradients) returns one for each input.
    jvp(ctx, kept, *tangents) returns the output's tangent; an input without one has None, and what is kept are the
    inputs, None for what is no tensor, and the outputs. (This is an autograd.Function's apply without its search for
    transforms, which the dispatcher does; with a setup_context of its own a call costs far more.)"""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, compute, *inputs):
            output = compute(*inputs)
            setup(ctx, inputs, output)
            if in_forward_mode():
                ctx.set_materialize_grads(False)
                outputs = output if isinstance(output, tuple) else (output,)
                ctx.save_for_forward(*(x if isinstance(x, Tensor) else None for x in inputs), *outputs)
            return output

        @staticmethod
        def backward(ctx, *gradients):
            return None, *backward(ctx, *gradients)

        @staticmethod
        def jvp(ctx, _, *tangents):
            # PyTorch has turned forward mode off, but a transform around this one may be forward mode, too.
            with forward_ad._set_fwd_grad_enabled(True):
                kept = [x if x is None else forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors]
                return jvp(ctx, kept, *tangents)

    return super(torch.autograd.Function, Function).apply


def in_forward_mode() -> bool:
    """May a tensor have a tangent?"""
    return forward_ad._current_level >= 0


def _has_tangent(x) -> bool:
    return isinstance(x, Tensor) and in_forward_mode() and forward_ad.unpack_dual(x).tangent is not None


def requires_grad(*inputs) -> bool:
    return torch.is_grad_enabled() and _C._any_requires_grad(*inputs)


def _below_autograd(operator, keyset):
    def compute(*inputs, **out):
        with _C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & _C._after_autograd_keyset, *inputs, **out)

    return compute


def differentiable(apply, refuse=None):
    """The kernels of the key Autograd for operators whose derivatives function() has made; refuse(inputs) raises for
    those by which there is none."""

    def kernel_of(operator):
        def kernel(keyset, *inputs):
            compute = _below_autograd(operator, keyset)
            if not in_forward_mode() and not requires_grad(*inputs):
                return compute(*inputs)
            if refuse is not None:
                refuse(inputs)
            if peek_interpreter_stack() is None:
                return apply(compute, *inputs)
            with enable_single_level_autograd_function():
                return apply(_in_these_modes(compute), *inputs)

        return kernel

    return kernel_of


def _in_these_modes(compute):
    """compute, for a function of one of torch.func's levels. It computes the level below, which asks for derivatives of
    its own, and PyTorch has turned both modes off when it gets there."""
    reverse, forward = torch.is_grad_enabled(), _C._is_fwd_grad_enabled()

    def compute_below(*inputs):
        with torch.set_grad_enabled(reverse), forward_ad._set_fwd_grad_enabled(forward):
            return compute(*inputs)

    return compute_below


def without_gradient(refuse):
    """The kernels of the key Autograd for operators that have no derivatives: refuse(inputs) raises for an input that
    is tracked(), before anything is computed."""

    def kernel_of(operator):
        def kernel(keyset, *inputs):
            refuse(inputs)
            return _below_autograd(operator, keyset)(*inputs)

        return kernel

    return kernel_of


def tracked(x) -> bool:
    """Would a result computed from x need a derivative?"""
    return isinstance(x, Tensor) and (requires_grad(x) or _has_tangent(x))


# ---- out -------------------------------------------------------------------------------------------------------------


def refuse_out(out: Tensor, *inputs: Tensor | None) -> None:
    """What PyTorch asks of every out=, before it is written to."""
    if requires_grad(out, *inputs):
        what = "out requires grad" if out.requires_grad else "an input requires grad"
        raise RuntimeError(f"out: {what}, and what is written to out has no gradient; use torch.no_grad()")
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError("out: it is an inference tensor, which only torch.inference_mode() may write to; clone it")


def _fake_of_out(fake):
    def check(*inputs, out):
        made = fake(*inputs)
        o, *others = made if isinstance(made, tuple) else (made,)
        for name in ("shape", "dtype", "device"):
            if getattr(out, name) != getattr(o, name):
                raise ValueError(f"out has {name} {getattr(out, name)}; it must be {getattr(o, name)}")
        return others[0] if others else None

    return check


def _autograd_of_out(operator):
    def kernel(keyset, *inputs, out):
        refuse_out(out, *inputs)
        if any(map(_has_tangent, (out, *inputs))):
            raise NotImplementedError("out: a tensor has a tangent, and what is written to out has no derivative")
        return _below_autograd(operator, keyset)(*inputs, out=out)

    return kernel


def _write_to_out(operator):
    """The kernel that counts the write in out's version, by which autograd knows what has changed since it was kept."""

    def kernel(keyset, *inputs, out):
        refuse_out(out)
        result = operator.redispatch(keyset & _C._after_ADInplaceOrView_keyset, *inputs, out=out)
        increment_version(out)
        return result

    return kernel


def _resolve_negative(operator):
    """The kernel for negative views, as PyTorch's own wants operators that return what they have written to."""

    def kernel(*inputs, out):
        with _C._AutoDispatchBelowADInplaceOrView():
            memory = out.resolve_neg()
            inputs = (x.resolve_neg() if isinstance(x, Tensor) else x for x in inputs)
            result = operator(*inputs, out=memory)
            if memory is not out:
                out.copy_(memory)
        return result

    return kernel
