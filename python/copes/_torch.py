"""The functions for PyTorch's tensors: the operators torch.ops.copes.*, or the way around the dispatcher.

Calls that nothing intercepts (no compiler, no transform, no mode, plain tensors) skip the dispatcher, whose Python
operators cost more than a small call does; they share setup and backward with the registered operators. act and lrpe
run in x's type under autocast, as their arithmetic is in float32 anyway; tpa_decode's inputs are cast to autocast's
type, as attention's are."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import _torch_merge as merge
from . import _torch_qk as qk
from . import _torch_shares as shares
from ._copes import run
from ._operators import ACT_FORWARD, LRPE_FORWARD, MERGE_FORWARD, QK_FORWARD, TPA_DECODE
from ._torch_act import act_with_grad, compute_act, compute_relu_mask, relu_with_grad
from ._torch_library import OPERATORS, given, is_plain, refuse_outs, requires_grad
from ._torch_lrpe import (
    LRPE_NAMES,
    SEQUENCE,
    compute_lrpe,
    compute_lrpe_lse,
    explicit,
    lrpe_lse_with_grad,
    lrpe_with_grad,
    refuse_positions,
)
from ._torch_tpa import TPA_NAMES, refuse_factors

_OPTIONAL = {"x", "o", "mask", "positions", "offsets", "lse", "kv_len", "out", *qk.OPTIONAL}


def _refuse_other_arrays(names, inputs, out) -> None:
    for name, x in zip((*names, "out"), (*inputs, out)):
        if not isinstance(x, Tensor) and not (x is None and name in _OPTIONAL):
            raise TypeError(f"{name} is a {type(x)}; beside a PyTorch tensor it must be one, too")


def _run_to(out, inputs, *arguments):
    """run(*arguments), which writes to `out`."""
    refuse_outs({"out": out}, *inputs)
    result = run(*arguments)
    increment_version(out)
    return result


def act(x, act, dim, out):
    dim = -1 if dim is None else dim
    if out is not None:
        if is_plain(x, out) and not out.is_neg():
            return _run_to(out, (x,), ACT_FORWARD, x, None, out, None, None, act, dim)
        _refuse_other_arrays((), (), out)
        OPERATORS.act.out(x, act, dim, out=out)
        return out
    if act == "relu" and dim == -1 and keeps_mask(x):
        return relu_mask(x)[0]
    if not is_plain(x):
        return OPERATORS.act.default(x, act, dim)
    if x.requires_grad and torch.is_grad_enabled():
        return act_with_grad(compute_act, x, act, dim)
    return run(ACT_FORWARD, x, None, None, None, None, act, dim)


def keeps_mask(x):
    """Is there a backward, and one to have a mask? Not that of a DTensor, whose last axis may be sharded anyhow: it has the output."""
    return torch.is_grad_enabled() and x.requires_grad and x.dim() > 0 and not hasattr(x, "placements")


def relu_mask(x):
    if not is_plain(x):
        return OPERATORS.relu_mask.default(x)
    if requires_grad(x):
        return relu_with_grad(compute_relu_mask, x)
    return compute_relu_mask(x)


def act_backward(grad_o, act, dim, x, o, mask):
    _refuse_other_arrays(("x", "o", "mask"), (x, o, mask), None)
    dim = -1 if dim is None else dim
    if mask is not None and act == "relu":
        return OPERATORS.relu_mask_backward.default(grad_o, mask)
    if mask is not None:
        raise ValueError(f"mask is given; it must be None but for relu, and act is {act!r}")
    return OPERATORS.act_backward.default(x, grad_o, o, act, dim)


def softmax_lse(x, dim):
    dim = -1 if dim is None else dim
    if not is_plain(x):
        return OPERATORS.softmax_lse.default(x, dim)
    if requires_grad(x):
        return shares.lse_with_grad(shares.compute_lse, x, dim)
    return shares.compute_lse(x, dim)


def softmax_of_lse(x, lse, dim, out):
    _refuse_other_arrays(("lse",), (lse,), out)
    dim = -1 if dim is None else dim
    if out is not None:
        OPERATORS.softmax_of_lse.out(x, lse, dim, out=out)
        return out
    if not is_plain(x, lse):
        return OPERATORS.softmax_of_lse.default(x, lse, dim)
    if requires_grad(x, lse):
        return shares.of_lse_with_grad(shares.compute_of_lse, x, lse, dim)
    return shares.compute_of_lse(x, lse, dim)


def lrpe_of_lse(inputs, attributes, out):
    """inputs are lrpe's and lse."""
    _refuse_other_arrays((*LRPE_NAMES, "lse"), inputs, out)
    if out is not None:
        OPERATORS.lrpe_of_lse.out(*inputs, *explicit(*attributes), out=out)
        return out
    if not is_plain(*given(*inputs)):
        return OPERATORS.lrpe_of_lse.default(*inputs, *explicit(*attributes))
    if requires_grad(*given(*inputs)):
        refuse_positions([x is not None and x.requires_grad for x in inputs])
        return shares.lrpe_with_grad(shares.compute_lrpe_of_lse, *inputs, *attributes)
    return shares.compute_lrpe_of_lse(*inputs, *attributes)


def lrpe(inputs, attributes, out):
    tensors = given(*inputs)
    plain = is_plain(*tensors, *given(out))
    if not plain:
        _refuse_other_arrays(LRPE_NAMES, inputs, out)
    if out is not None:
        if plain and not out.is_neg():
            return _run_to(out, inputs, LRPE_FORWARD, *inputs, None, out, None, *attributes)
        OPERATORS.lrpe.out(*inputs, *explicit(*attributes), out=out)
        return out
    grad = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if plain and not grad:
        return run(LRPE_FORWARD, *inputs, None, None, None, *attributes)
    keeps_lse = grad and attributes[2] == "softmax" and attributes[3] in SEQUENCE
    if plain:
        if len(tensors) > 2:
            refuse_positions([x is not None and x.requires_grad for x in inputs])
        if keeps_lse:
            return lrpe_lse_with_grad(compute_lrpe_lse, *inputs, *attributes)[0]
        return lrpe_with_grad(compute_lrpe, *inputs, *attributes)
    attributes = explicit(*attributes)
    if keeps_lse:
        return OPERATORS.lrpe_lse.default(*inputs, *attributes)[0]
    return OPERATORS.lrpe.default(*inputs, *attributes)


def tpa_decode(inputs, attributes, return_lse, out):
    plain = is_plain(*given(*inputs, out)) and (out is None or not out.is_neg())
    device = inputs[0].device.type
    autocast = torch.is_autocast_enabled(device)
    if not plain or autocast:
        _refuse_other_arrays(TPA_NAMES, inputs, out)
    if autocast:
        dtype = torch.get_autocast_dtype(device)
        inputs = (*(x.to(dtype) for x in inputs[:-1]), inputs[-1])
    if plain:
        if requires_grad(*inputs):
            refuse_factors([x is not None and x.requires_grad for x in inputs])
        if out is not None:
            return _run_to(out, inputs, TPA_DECODE, *inputs, out, return_lse, *attributes)
        return run(TPA_DECODE, *inputs, None, return_lse, *attributes)
    if out is None:
        decode = OPERATORS.tpa_decode_lse if return_lse else OPERATORS.tpa_decode
        return decode.default(*inputs, *attributes)
    if return_lse:
        return out, OPERATORS.tpa_decode_lse.out(*inputs, *attributes, out=out)
    OPERATORS.tpa_decode.out(*inputs, *attributes, out=out)
    return out


def attention_merge(inputs, base, return_lse, out):
    plain = is_plain(*inputs, *given(out)) and (out is None or not out.is_neg())
    if not plain:
        _refuse_other_arrays(merge.NAMES, inputs, out)
    if plain and out is not None:
        return _run_to(out, inputs, MERGE_FORWARD, *inputs, out, return_lse, base)
    if plain and not requires_grad(*inputs):
        return run(MERGE_FORWARD, *inputs, None, return_lse, base)
    if plain:
        apply, compute = (merge.lse_with_grad, merge.compute_lse) if return_lse else (merge.with_grad, merge.compute)
        return apply(compute, *inputs, base)
    operator = OPERATORS.attention_merge_lse if return_lse else OPERATORS.attention_merge
    if out is None:
        return operator.default(*inputs, base)
    made = operator.out(*inputs, base, out=out)
    return (out, made) if return_lse else out


def qk_norm_rope(inputs, outs, attributes):
    """outs are those of run()."""
    out, keys, *caches = outs
    written = dict(zip(("out", *qk.WRITTEN), (out, None if isinstance(keys, bool) else keys, *caches)))
    tensors = given(*written.values())
    if not is_plain(*given(*inputs), *tensors) or any(x.is_neg() for x in tensors):
        _refuse_other_arrays((*qk.NAMES, *qk.WRITTEN), (*inputs, *(written[name] for name in qk.WRITTEN)), out)
        return _registered_qk(inputs, written, keys, qk.explicit(*attributes))
    refuse_outs(written, *(() if out is None else inputs))
    if requires_grad(*inputs):
        qk.refuse_constants([x is not None and x.requires_grad for x in inputs])
        made = qk.with_grad(functools.partial(qk.compute, outs), *inputs, *attributes)
    else:
        made = run(QK_FORWARD, *inputs, *outs, *attributes)
    increment_version(tensors)
    return made


def _registered_qk(inputs, written, keys, attributes):
    out, k_out, *caches = written.values()
    if out is not None:
        OPERATORS.qk_norm_rope.out(*inputs, *attributes, **written)
        return out if k_out is None else (out, k_out)
    if given(*inputs[qk.PURE :], *caches):
        caches = dict(zip(qk.CACHES, caches))
        made = OPERATORS.qk_norm_rope_cache.default(*inputs, keys, *attributes, **caches)
    else:
        made = OPERATORS.qk_norm_rope.default(*inputs[: qk.PURE], *attributes)
    return made if keys else made[0]
