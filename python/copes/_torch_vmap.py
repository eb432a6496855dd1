"""torch.vmap's rules for the operators: the mapped axis joins the batch, or for angles of its own the heads, so that one
call computes all of it. They are called as torch.library.register_vmap says: rule(info, in_dims, *arguments) returns
the results and their mapped axes."""

from __future__ import annotations

import torch


def _operator(name):
    return getattr(torch.ops.copes, name).default


def _mapped(info, in_dims, tensors):
    """The tensors with the mapped axis first, which one that has none gets without a copy."""
    for x, dim in zip(tensors, in_dims):
        if x is None:
            yield None
        elif dim is None:
            yield x.expand(info.batch_size, *x.shape)
        else:
            yield x.movedim(dim, 0)


def _into_batch(x):
    return None if x is None else x.flatten(0, 1)


def _out_of_batch(result, sizes):
    """A result, which may be several, with the mapped axis first, and where that is."""
    if isinstance(result, tuple):
        return tuple(o.unflatten(0, sizes) for o in result), (0,) * len(result)
    return result.unflatten(0, sizes), 0


# ---- act -------------------------------------------------------------------------------------------------------------


def _act_rule(name, count):
    """For an operator of `count` tensors of one shape, act and dim."""

    def rule(info, in_dims, *arguments):
        tensors = list(_mapped(info, in_dims, arguments[:count]))
        act, dim = arguments[count:]
        rank = next(x.dim() for x in tensors if x is not None) - 1
        if rank == 0:
            raise ValueError("x has rank 0 under torch.vmap; it must be 1 or more")
        if not -rank <= dim < 0:  # what was out of range stays so
            dim += 1 if dim >= 0 else -1
        return _operator(name)(*tensors, act, dim), 0

    return rule


act = _act_rule("act", 1)
act_backward = _act_rule("act_backward", 3)


# ---- lrpe ------------------------------------------------------------------------------------------------------------


def _lrpe_rule(name, joined):
    """For an operator of tensors, x or its gradient at least one of the `joined` and theta the second, and attributes.
    `joined` says for each where its heads are: at axis 2 of x, 1 of lse, 0 of theta."""

    def rule(info, in_dims, *arguments):
        count = len(joined)
        tensors, attributes = arguments[:count], arguments[count:]
        mapped = list(_mapped(info, in_dims, tensors))
        like = next(x for x, axis in zip(mapped, joined) if x is not None and axis == 2)
        if in_dims[1] is None:
            mapped = list(map(_into_batch, mapped))
            mapped[1] = tensors[1]
            return _out_of_batch(_operator(name)(*mapped, *attributes), like.shape[:2])
        heads = like.shape[3] if like.dim() == 5 else 1
        if mapped[1].shape[1] == 1:
            mapped[1] = mapped[1].expand(-1, heads, -1)
        inputs = [x if x is None else _into_heads(x, axis) for x, axis in zip(mapped, joined)]
        return _out_of_heads(_operator(name)(*inputs, *attributes), (info.batch_size, heads), like.dim() == 5)

    return rule


def _into_heads(x, axis):
    """x with the mapped axis, its first, in the heads, which are at this axis of x without it. (x, gradients and results
    may have no axis of heads; lse always has.)"""
    x = x.movedim(0, axis)
    return x.flatten(axis, axis + 1) if axis != 2 or x.dim() == 5 else x


def _out_of_heads(result, sizes, has_heads):
    o, *lse = result if isinstance(result, tuple) else (result,)
    o = o.unflatten(2, sizes) if has_heads else o
    return ((o, lse[0].unflatten(1, sizes)), (2, 1)) if lse else (o, 2)


lrpe = _lrpe_rule("lrpe", (2, 0))
lrpe_lse = _lrpe_rule("lrpe_lse", (2, 0))
lrpe_backward = _lrpe_rule("lrpe_backward", (2, 0, 2, 1))


# ---- tpa_decode ------------------------------------------------------------------------------------------------------


def _tpa_rule(name):
    def rule(info, in_dims, *arguments):
        mapped = list(_mapped(info, in_dims, arguments[:7]))
        inputs = map(_into_batch, mapped)
        return _out_of_batch(_operator(name)(*inputs, *arguments[7:]), mapped[0].shape[:2])

    return rule


tpa_decode = _tpa_rule("tpa_decode")
tpa_decode_lse = _tpa_rule("tpa_decode_lse")
