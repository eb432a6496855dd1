"""torch.vmap's rules for the operators: the mapped axis joins the batch, or for angles of its own the heads, so that one
call computes all of it. They are called as torch.library.register_vmap says: rule(info, in_dims, *arguments) returns
the results and their mapped axes."""

from __future__ import annotations

import torch

from ._torch_library import OPERATORS


def _operator(name):
    return getattr(OPERATORS, name).default


def _mapped(info, in_dims, tensors):
    """The tensors with the mapped axis first, which one that has none gets without a copy."""
    for x, dim in zip(tensors, in_dims):
        if x is None:
            yield None
        elif dim is None:
            yield x.expand(info.batch_size, *x.shape)
        else:
            yield x.movedim(dim, 0)


def for_each(name, count):
    """The rule of a call for each, for an operator of `count` tensors and attributes."""

    def rule(info, in_dims, *arguments):
        return _call_for_each(name, info.batch_size, arguments[:count], in_dims[:count], arguments[count:])

    return rule


def _into_batch(x):
    return None if x is None else x.flatten(0, 1)


def _out_of_batch(result, sizes, axis=0):
    """A result, which may be several, with the mapped axis in front of the batch, which is at this axis, and where that is.
    One that there is not is empty and has none."""
    if isinstance(result, tuple):
        there = [o.dim() > 1 for o in result]
        results = tuple(o.unflatten(axis, sizes) if is_there else o for o, is_there in zip(result, there))
        return results, tuple(axis if is_there else None for is_there in there)
    return result.unflatten(axis, sizes), axis


# ---- act -------------------------------------------------------------------------------------------------------------


def _act_rank(mapped):
    """The rank of the tensors without the mapped axis."""
    rank = next(x.dim() for x in mapped if x is not None) - 1
    if rank == 0:
        raise ValueError("x has rank 0 under torch.vmap; it must be 1 or more")
    return rank


def _act_rule(name, count):
    """For an operator of `count` tensors of one shape, act and dim."""

    def rule(info, in_dims, *arguments):
        tensors = list(_mapped(info, in_dims, arguments[:count]))
        act, dim = arguments[count:]
        rank = _act_rank(tensors)
        if not -rank <= dim < 0:  # what was out of range stays so
            dim += 1 if dim >= 0 else -1
        return _operator(name)(*tensors, act, dim), 0

    return rule


act = _act_rule("act", 1)
act_backward = _act_rule("act_backward", 3)


def _mask_rule(name):
    """A mask has its bits along the last axis, which stays that."""

    def rule(info, in_dims, *arguments):
        tensors = list(_mapped(info, in_dims, arguments))
        _act_rank(tensors)
        results = _operator(name)(*tensors)
        return results, (0, 0) if isinstance(results, tuple) else 0

    return rule


relu_mask = _mask_rule("relu_mask")
relu_mask_backward = _mask_rule("relu_mask_backward")


# ---- lrpe ------------------------------------------------------------------------------------------------------------

_THETA, _POSITIONS, _OFFSETS = 1, 2, 3  # places among the operators' tensors
_THETA_AXIS = -3  # of the mapped axis in front of theta's heads


def _lrpe_rule(name, joined, theta_apart=False):
    """For an operator of tensors, x or its gradient at least one of the `joined`, and attributes. `joined` says for each
    where its heads are: at axis 2 of x, 1 of lse; None for positions and offsets, which have none. Where each has a
    theta of its own, or a gradient of it (`theta_apart`), the mapped axis joins the heads, else the batch. Heads share
    positions, so that where both are mapped there is a call for each."""

    def rule(info, in_dims, *arguments):
        count = len(joined)
        tensors, dims, attributes = arguments[:count], in_dims[:count], arguments[count:]
        apart = theta_apart or dims[_THETA] is not None
        if apart and (dims[_POSITIONS] is not None or dims[_OFFSETS] is not None):
            return _call_for_each(name, info.batch_size, tensors, dims, attributes)
        mapped = list(_mapped(info, dims, tensors))
        like = next(x for x, axis in zip(mapped, joined) if x is not None and axis == 2)
        if not apart:
            inputs = list(map(_into_batch, mapped))
            inputs[_THETA] = tensors[_THETA]
            inputs[_POSITIONS] = _positions_into_batch(*(x[_POSITIONS] for x in (tensors, dims, mapped)), like.shape[1])
            return _out_of_batch(_operator(name)(*inputs, *attributes), like.shape[:2])
        heads = like.shape[3] if like.dim() == 5 else 1
        own = mapped[_THETA].shape[-2]
        if own == 1:
            mapped[_THETA] = mapped[_THETA].expand(*mapped[_THETA].shape[:-2], heads, -1)
        inputs = [
            whole if axis is None or x is None else _into_heads(x, axis)
            for x, whole, axis in zip(mapped, tensors, joined)
        ]
        results = _operator(name)(*inputs, *attributes)
        return _out_of_heads(results, (info.batch_size, heads), like.dim() == 5, own if theta_apart else None)

    return rule


def _call_for_each(name, size, tensors, dims, attributes):
    results = [
        _operator(name)(*(x if dim is None else x.select(dim, i) for x, dim in zip(tensors, dims)), *attributes)
        for i in range(size)
    ]
    if isinstance(results[0], tuple):
        return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])
    return torch.stack(results), 0


def _positions_into_batch(whole, dim, mapped, batch):
    """(N) for all stays; else (N), (B, N) and (m, B, N), each with the mapped axis first, become (B, N) or (m, B, N)."""
    if whole is None or (dim is None and whole.dim() == 1):
        return whole
    if mapped.dim() == 2:
        mapped = mapped[:, None].expand(-1, batch, -1)
    axis = mapped.dim() - 3
    return mapped.movedim(0, axis).flatten(axis, axis + 1)


def _into_heads(x, axis):
    """x with the mapped axis, its first, in the heads, which are at this axis of x without it. (x, gradients and results
    may have no axis of heads; lse and theta always have.)"""
    x = x.movedim(0, axis)
    return x.flatten(axis, axis + 1) if axis != 2 or x.dim() == 5 else x


def _out_of_heads(result, sizes, has_heads, theta_heads):
    """Of o alone, or with lse, or with the gradient of a theta of so many heads."""
    o, *second = result if isinstance(result, tuple) else (result,)
    o = o.unflatten(2, sizes) if has_heads else o
    if not second:
        return o, 2
    if theta_heads is None:
        return (o, second[0].unflatten(1, sizes)), (2, 1)
    grad_theta = second[0].unflatten(-2, sizes).movedim(_THETA_AXIS, 0)
    return (o, grad_theta.sum(-2, keepdim=True) if theta_heads == 1 else grad_theta), (2, 0)


_FORWARD = (2, _THETA_AXIS, None, None)
_BACKWARD = (*_FORWARD, 2, 1)
lrpe = _lrpe_rule("lrpe", _FORWARD)
lrpe_lse = _lrpe_rule("lrpe_lse", _FORWARD)
lrpe_backward = _lrpe_rule("lrpe_backward", _BACKWARD)
lrpe_backward_theta = _lrpe_rule("lrpe_backward_theta", _BACKWARD, theta_apart=True)


# ---- qk_norm_rope ----------------------------------------------------------------------------------------------------

_QK_THETA, _QK_POSITIONS, _WEIGHTS = 2, 3, slice(5, 7)  # places among the operators' tensors


def _qk_rule(name, count):
    """For an operator of `count` tensors, in the backward a flag for the gradients of weights, and attributes. The mapped
    axis joins the batch; where each has a theta or weights of its own, or gradients of weights, there is a call for
    each."""

    def rule(info, in_dims, *arguments):
        tensors, dims, others = arguments[:count], in_dims[:count], arguments[count:]
        learned = others[0] is True and any(w is not None for w in tensors[_WEIGHTS])
        if learned or any(dim is not None for dim in (dims[_QK_THETA], *dims[_WEIGHTS])):
            return _call_for_each(name, info.batch_size, tensors, dims, others)
        mapped = list(_mapped(info, dims, tensors))
        batch = next(x for x in mapped if x is not None and x.dim() == 5).shape[:2]
        inputs = list(map(_into_batch, mapped))
        inputs[_QK_THETA], inputs[_WEIGHTS] = tensors[_QK_THETA], tensors[_WEIGHTS]
        where = (x[_QK_POSITIONS] for x in (tensors, dims, mapped))
        inputs[_QK_POSITIONS] = _positions_into_batch(*where, batch[1])
        return _out_of_batch(_operator(name)(*inputs, *others), batch)

    return rule


qk_norm_rope = _qk_rule("qk_norm_rope", 7)
qk_norm_rope_backward = _qk_rule("qk_norm_rope_backward", 9)


# ---- tpa_decode ------------------------------------------------------------------------------------------------------


def _tpa_rule(name):
    def rule(info, in_dims, *arguments):
        mapped = list(_mapped(info, in_dims, arguments[:7]))
        inputs = map(_into_batch, mapped)
        return _out_of_batch(_operator(name)(*inputs, *arguments[7:]), mapped[0].shape[:2])

    return rule


tpa_decode = _tpa_rule("tpa_decode")
tpa_decode_lse = _tpa_rule("tpa_decode_lse")


# ---- attention_merge -------------------------------------------------------------------------------------------------


def _merge_rule(name, joined, results):
    """For an operator of tensors and attributes. `joined` says where the tensors' batch is, 1 where they have an axis of
    shares, else 0, and `results` the same of the results."""

    def rule(info, in_dims, *arguments):
        count = len(joined)
        mapped = list(_mapped(info, in_dims, arguments[:count]))
        sizes = mapped[1].shape[0], mapped[1].shape[2]
        inputs = (
            None if x is None else x.movedim(0, axis).flatten(axis, axis + 1) for x, axis in zip(mapped, joined)
        )
        return _out_of_batch(_operator(name)(*inputs, *arguments[count:]), sizes, results)

    return rule


attention_merge = _merge_rule("attention_merge", (1, 1), 0)
attention_merge_lse = _merge_rule("attention_merge_lse", (1, 1), 0)
attention_merge_backward = _merge_rule("attention_merge_backward", (1, 1, 0, 0), 1)
