"""The rule of jax.vmap for an operator's call: the mapped axis joins the batch, so that one call computes all of it. Where each
has a theta, weights or caches of its own, or gradients that are sums over the batch, there is a call for each, in a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_SHARED = ("theta", "wq", "wk", "k_scale", "v_scale", "k_cache", "v_cache")  # inputs without a batch
_SUMS = ("grad_theta", "grad_wq", "grad_wk", "k_cache", "v_cache")  # outputs without one
_MOST_DIMENSIONS = 8


def rule(again, what, size, batched, *arrays):
    """again(what, *arrays) is the call of other arrays."""
    if _is_apart(what, batched, arrays):
        results = _call_for_each(again, what, batched, arrays)
    elif _is_act(what):  # its axes count from the end
        results = again(what, *_mapped(size, batched, arrays))
    else:
        results = _in_batch(again, what, size, batched, arrays)
    return results, [True] * len(results)


def _is_act(what):
    return what.name.startswith("act_")


def _is_apart(what, batched, arrays):
    """Does each need a call of its own?"""
    if _is_act(what):
        return max(x.ndim - is_batched for x, is_batched in zip(arrays, batched)) == _MOST_DIMENSIONS
    shared = any(is_batched and name in _SHARED for name, is_batched in zip(what.names, batched))
    return shared or any(name in _SUMS for name in what.wanted)


def _call_for_each(again, what, batched, arrays):
    def one(own):
        own = iter(own)
        return again(what, *(next(own) if is_batched else x for x, is_batched in zip(arrays, batched)))

    return jax.lax.map(one, [x for x, is_batched in zip(arrays, batched) if is_batched])


def _mapped(size, batched, arrays):
    """The arrays with the mapped axis first."""
    return [
        x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
        for x, is_batched in zip(arrays, batched, strict=True)
    ]


def _in_batch(again, what, size, batched, arrays):
    names = what.names
    mapped = dict(zip(names, _mapped(size, batched, arrays)))
    first = next(name for name in names if name not in (*_SHARED, "positions"))
    batch = mapped[first].shape[1 + _axis(first)]
    inputs = []
    for name, x, is_batched in zip(names, arrays, batched):
        if name in _SHARED or (name == "positions" and not is_batched and x.ndim == 1):
            inputs.append(x)
        elif name == "positions":
            inputs.append(_positions(mapped[name], batch))
        else:
            inputs.append(_join(mapped[name], _axis(name)))
    results = again(what, *inputs)
    return [_split(o, _axis(name), (size, batch)) for name, o in zip(what.wanted, results)]


def _axis(name):
    """Where a tensor's batch is: behind the shares, where it has some."""
    return 1 if name.endswith("_shares") else 0


def _join(x, axis):
    """x with its first axis in the one that is at this place without it."""
    x = jnp.moveaxis(x, 0, axis)
    return x.reshape(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])


def _split(o, axis, sizes):
    return jnp.moveaxis(o.reshape(*o.shape[:axis], *sizes, *o.shape[axis + 1 :]), axis, 0)


def _positions(x, batch):
    """(N), (B, N) or (m, B, N), each with the mapped axis first, as (B, N) or (m, B, N)."""
    if x.ndim == 2:
        x = jnp.broadcast_to(x[:, None], (x.shape[0], batch, x.shape[1]))
    return _join(x, x.ndim - 3)
