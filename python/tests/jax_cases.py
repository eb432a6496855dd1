"""What the tests of copes.jax share: calls of every operator, beside the same in float64 PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import reference
import torch


def make(*shape, dtype="float32"):
    return jnp.asarray(np.random.standard_normal(shape)).astype(dtype)


def theta_of(width, heads=1, low=0.01):
    return jnp.asarray(np.random.uniform(low, 1, (heads, width)), jnp.float32)


def to_torch(x):
    """In float64, or as it is where it counts something."""
    array = np.asarray(x)
    return torch.from_numpy(array.copy() if array.dtype.kind == "i" else array.astype(np.float64))


def close(result, expected, sums=1.0):
    """To the bounds of reference.py; `sums` widens them by the size of what was added up."""
    bounds = reference.TOLERANCE[getattr(torch, result.dtype.name)]
    bounds = dict(rtol=bounds["rtol"], atol=bounds["atol"] * sums)
    torch.testing.assert_close(to_torch(result), expected.detach().double(), **bounds)


def check(function, expected, inputs, learned, sums=None):
    """function(*inputs) under jit and its gradients by the inputs at the places `learned`, beside expected() of float64 tensors.
    `sums` is by place what a gradient adds up, where it is more than an element's."""
    wide = [None if x is None else to_torch(x) for x in inputs]
    for place in learned:
        wide[place].requires_grad_()
    made, wanted = as_list(jax.jit(function)(*inputs)), as_list(expected(*wide))
    for each, of in zip(made, wanted, strict=True):
        close(each, of)
    weights = [make(*o.shape, dtype=o.dtype) for o in made]

    def loss(*inputs):
        return sum(
            (o * w).sum(dtype=jnp.promote_types(o.dtype, "float32"))
            for o, w in zip(as_list(function(*inputs)), weights)
        )

    grads = jax.jit(jax.grad(loss, argnums=tuple(learned)))(*inputs)
    sum((o * to_torch(w)).sum() for o, w in zip(wanted, weights)).backward()
    for place, grad in zip(learned, grads):
        assert grad.dtype == inputs[place].dtype
        close(grad, wide[place].grad, (sums or {}).get(place, 8.0))
    return made


def as_list(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def tpa_factors(b=2, n=2, m=9, h=3, d=8, e=8, rank=2, dtype="float32"):
    factors = [make(b, length, h, rank, dtype=dtype) for length in (n, m, m)]
    return *factors, *(make(b, length, rank, width, dtype=dtype) for length, width in ((n, d), (m, d), (m, e)))


def softmax_shares(lse, axis):
    """log sum exp of all devices' shares."""
    top = jax.lax.pmax(jax.lax.stop_gradient(lse), axis)
    return top + jnp.log(jax.lax.psum(jnp.exp(lse - top), axis))
