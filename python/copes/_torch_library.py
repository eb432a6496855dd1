"""How operators are registered with PyTorch, and the rules of PyTorch that they keep: for derivatives in both modes and
under torch.func's transforms, and for tensors that are written to; and what operators ask of their inputs.

torch.library.register_autograd knows neither forward mode nor transforms nor out=, so the kernels of the keys Autograd
and ADInplaceOrView are here."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Mapping

import torch
from torch import _C, Tensor
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import is_gradtrackingtensor, peek_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling
from torch.nn import Parameter

# PyTorch's operators are torch.ops.copes.*. Where a loader imports this package by another name, beside an installed one
# perhaps, theirs goes with it.
NAMESPACE = __package__.replace(".", "_")
OPERATORS = getattr(torch.ops, NAMESPACE)

_LIBRARY = torch.library.Library(NAMESPACE, "DEF")

_PLAIN = frozenset((Tensor, Parameter))

if not hasattr(Tensor, "__dlpack_c_exchange_api__"):  # how the extension sees tensors and streams without Python's help
    raise RuntimeError(f"copes needs PyTorch 2.10 or newer; this is {torch.__version__}")


def is_plain(x: Tensor, *others: Tensor) -> bool:
    """Would the dispatcher go straight to the library? (It sees to negative views, too, but so does the extension.)"""
    if is_compiling():
        return False
    if type(x) not in _PLAIN or not _PLAIN.issuperset(map(type, others)):
        _load_sharding()
        return False
    return (
        (x.is_cpu or x.is_cuda)
        and forward_ad._current_level < 0  # no tensor has a tangent
        and _len_torch_dispatch_stack() == 0
        and peek_interpreter_stack() is None
        and _get_tracing_state() is None
        and not is_gradtrackingtensor(x)
        and not any(map(is_gradtrackingtensor, others))
    )


def _load_sharding() -> None:
    """The rules for DTensor, once there may be one."""
    if "torch.distributed.tensor" in sys.modules:
        _import_sharding()


@functools.cache
def _import_sharding() -> None:
    """A PyTorch may have another DTensor than the rules know: it then refuses DTensors, and others go on."""
    try:
        importlib.import_module("._torch_sharding", __package__)
    except (ImportError, AttributeError) as error:
        warnings.warn(f"copes has no rules for the DTensor of PyTorch {torch.__version__}: {error}", stacklevel=2)


def _with_sharding(kernel):
    def load_and_run(keyset, *inputs, **outs):
        _load_sharding()
        return kernel(keyset, *inputs, **outs)

    return load_and_run


def define(name: str, arguments: str, results: str, compute, fake, *, autograd=None, batched=None) -> None:
    """Registers torch.ops.copes.<name>. `fake` makes its results without values, `autograd` is what function() or
    without_derivatives() made, `batched` the rule of torch.vmap, which only what writes nothing can have. What is
    written to are the keyword arguments. A name that ends in .out is of what writes the first of the same results to them
    and returns the others; it has no derivatives."""
    _LIBRARY.define(f"{name}({arguments}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, compute, key)
    base, _, overload = name.partition(".")
    operator = getattr(getattr(OPERATORS, base), overload or "default")
    torch.library.register_fake(f"{NAMESPACE}::{name}", _fake_of_out(fake) if overload == "out" else fake, lib=_LIBRARY)
    kernel = _autograd_of_out(operator) if overload == "out" else autograd(operator)
    _LIBRARY.impl(name, _with_sharding(kernel), "Autograd", with_keyset=True)
    if operator._schema.is_mutable:
        _LIBRARY.impl(name, _write_to_outs(operator), "ADInplaceOrView", with_keyset=True)
        _LIBRARY.impl(name, _resolve_negative(operator), "Negative")
    if batched is not None:
        torch.library.register_vmap(f"{NAMESPACE}::{name}", batched, lib=_LIBRARY)


# ---- inputs of operators ---------------------------------------------------------------------------------------------


def given(*tensors: Tensor | None) -> list[Tensor]:
    return [x for x in tensors if x is not None]


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_devices(names, tensors) -> None:
    """All must be where the first is."""
    for name, other in zip(names[1:], tensors[1:]):
        if other is not None and other.device != tensors[0].device:
            raise ValueError(f"{name} is on {other.device}; it must be where {names[0]} is, on {tensors[0].device}")


def refuse_constants(operator: str, names, needed) -> None:
    for name, is_needed in zip(names, needed):
        if is_needed:
            raise RuntimeError(f"{operator}: {name} requires grad, but has no gradient; pass {name}.detach()")


# ---- derivatives -----------------------------------------------------------------------------------------------------


def function(setup, backward, jvp, refuse=lambda needed: None):
    """Two ways to compute(*inputs) with derivatives: apply(compute, *inputs), where is_plain() is true, and the kernels
    of the key Autograd.

    setup(ctx, inputs, output) keeps what backward needs; backward(ctx, *gradients) returns one for each input.
    jvp(ctx, kept, *tangents) returns the output's tangent; an input without one has None, and what is kept are the
    inputs, None for what is no tensor, and the outputs. refuse(needed) raises where a derivative that is needed, by a
    flag for each input, does not exist."""

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, compute, *inputs):
            output = compute(*inputs)
            setup(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx, *gradients):
            return None, *backward(ctx, *gradients)

    class Registered(Plain):
        @staticmethod
        def forward(ctx, compute, *inputs):
            output = Plain.forward(ctx, compute, *inputs)
            ctx.set_materialize_grads(False)
            outputs = output if isinstance(output, tuple) else (output,)
            ctx.save_for_forward(*(x if isinstance(x, Tensor) else None for x in inputs), *outputs)
            return output

        @staticmethod
        def backward(ctx, *gradients):
            if all(each is None for each in gradients):  # zero
                return (None,) * len(ctx.needs_input_grad)
            return Plain.backward(ctx, *gradients)

        @staticmethod
        def jvp(ctx, _, *tangents):
            # PyTorch has turned forward mode off, but a transform around this one may be forward mode, too.
            with forward_ad._set_fwd_grad_enabled(True):
                refuse([x is not None for x in tangents])
                kept = [x if x is None else torch._VF._unpack_dual(x, level=0)[0] for x in ctx.saved_tensors]
                return jvp(ctx, kept, *tangents)

    apply = _apply_of(Registered)

    def kernel_of(operator):
        def kernel(keyset, *inputs, **outs):
            _refuse_gradients(refuse, inputs)
            compute = _below_autograd(operator, keyset)
            if outs:
                _check_outs(outs)
                compute = functools.partial(compute, **outs)
            return _apply_at_level(apply, compute, *inputs)

        return kernel

    return _apply_of(Plain), kernel_of


def _apply_of(cls):
    """A Function's apply without its search for transforms, which the dispatcher does; with a setup_context of its own a
    call costs far more."""
    return super(torch.autograd.Function, cls).apply


def _apply_at_level(apply, *inputs):
    """apply(*inputs) in a kernel of the key Autograd. It is called for one of torch.func's levels at a time."""
    if peek_interpreter_stack() is None:
        return apply(*inputs)
    with enable_single_level_autograd_function():
        return apply(*inputs)


def requires_grad(*inputs) -> bool:
    return torch.is_grad_enabled() and _C._any_requires_grad(*inputs)


def _below_autograd(operator, keyset):
    """What computes the operator below the key Autograd, from a Function or not: that has turned both modes off, but
    one of torch.func's levels computes the level below it, which may ask for derivatives of its own."""
    reverse, forward = torch.is_grad_enabled(), _C._is_fwd_grad_enabled()

    def compute(*inputs, **outs):
        with (
            torch.set_grad_enabled(reverse),
            forward_ad._set_fwd_grad_enabled(forward),
            _C._AutoDispatchBelowAutograd(),
        ):
            return operator.redispatch(keyset & _C._after_autograd_keyset, *inputs, **outs)

    return compute


def _refuse_gradients(refuse, inputs) -> None:
    if requires_grad(*inputs):
        refuse([isinstance(x, Tensor) and x.requires_grad for x in inputs])


def without_derivatives(refuse):
    """The kernels of the key Autograd for operators that have none, which call function()'s refuse before anything is
    computed."""
    refuse_tangents = _tangents_refused(refuse)

    def kernel_of(operator):
        def kernel(keyset, *inputs):
            _refuse_gradients(refuse, inputs)
            refuse_tangents(*inputs)
            return _below_autograd(operator, keyset)(*inputs)

        return kernel

    return kernel_of


def _tangents_refused(refuse):
    """check(*inputs), which calls refuse(needed) where one has a tangent. (The only sure sign of tangents is that PyTorch
    asks for the output's; what is_plain() reads is not kept in compiled code.)"""

    class Check(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.set_materialize_grads(False)
            return ()

        @staticmethod
        def jvp(ctx, *tangents):
            refuse([x is not None for x in tangents])

    apply = _apply_of(Check)
    return lambda *inputs: _apply_at_level(apply, *inputs)


# ---- out -------------------------------------------------------------------------------------------------------------


def refuse_outs(outs: Mapping[str, Tensor | None], *inputs: Tensor | None) -> None:
    """What PyTorch asks of every out=, before it is written to; of an `out` whose history is that of inputs, them too."""
    for name, out in outs.items():
        if out is None:
            continue
        if requires_grad(out, *inputs):
            what = f"{name} requires grad" if out.requires_grad else "an input requires grad"
            raise RuntimeError(f"{name}: {what}, and what is written to {name} has no gradient; use torch.no_grad()")
        if out.is_inference() and not torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"{name}: it is an inference tensor, which only torch.inference_mode() may write to; clone it"
            )


def _fake_of_out(fake):
    def check(*inputs, **outs):
        made = fake(*inputs)
        made = made if isinstance(made, tuple) else (made,)
        for (out_name, out), o in zip(outs.items(), made):
            for name in ("shape", "dtype", "device"):
                if out is not None and getattr(out, name) != getattr(o, name):
                    raise ValueError(f"{out_name} has {name} {getattr(out, name)}; it must be {getattr(o, name)}")
        others = made[len(outs) :]
        return others[0] if others else None

    return check


def _refuse_tangents_of_out(needed):
    raise NotImplementedError("out: a tensor has a tangent, and what is written to out has no derivative")


_refuse_tangents = _tangents_refused(_refuse_tangents_of_out)


def _check_outs(outs, *inputs) -> None:
    refuse_outs(outs, *inputs)
    _refuse_tangents(*outs.values(), *inputs)


def _autograd_of_out(operator):
    def kernel(keyset, *inputs, **outs):
        _check_outs(outs, *inputs)
        return _below_autograd(operator, keyset)(*inputs, **outs)

    return kernel


def _write_to_outs(operator):
    """The kernel that counts the write in versions, by which autograd knows what has changed since it was kept."""

    def kernel(keyset, *inputs, **outs):
        refuse_outs(outs)
        result = operator.redispatch(keyset & _C._after_ADInplaceOrView_keyset, *inputs, **outs)
        increment_version([out for out in outs.values() if out is not None])
        return result

    return kernel


def _resolve_negative(operator):
    """The kernel for negative views, as PyTorch's own wants operators that return what they have written to."""

    def resolved(x):
        return x.resolve_neg() if isinstance(x, Tensor) else x

    def kernel(*inputs, **outs):
        with _C._AutoDispatchBelowADInplaceOrView():
            memory = {name: resolved(out) for name, out in outs.items()}
            result = operator(*map(resolved, inputs), **memory)
            for name, out in outs.items():
                if memory[name] is not out:
                    out.copy_(memory[name])
        return result

    return kernel
