"""Checks copes.jax under shard_map on all GPUs of the host, and times it beside the same in JAX alone.

Run by tools/multi_gpu.sh where JAX is installed. A failed check is an exit status of 1."""

import functools
import statistics
import time

import copes.jax
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

HEADS, DIM = 12, 128
SHARES = P(None, "d")


def lse_of_all(lse):
    top = jax.lax.pmax(jax.lax.stop_gradient(lse), "d")
    return top + jnp.log(jax.lax.psum(jnp.exp(lse - top), "d"))


def first_token(x):
    """Of the device's share, among all tokens."""
    return jax.lax.axis_index("d") * x.shape[1]


def softmax(x, theta):
    """Over the sequence of all devices, and then rotated."""
    lse = lse_of_all(copes.jax.softmax_lse(x, 1))
    offsets = jnp.full(x.shape[:1], first_token(x), "int32")
    return copes.jax.lrpe_rotate(x, theta, offsets=offsets, act="softmax", dim=1, lse=lse[:, 0])


def softmax_of_jax(x, theta):
    positions = first_token(x) + jnp.arange(x.shape[1])
    wide = x.astype("float32")
    top = jax.lax.pmax(jax.lax.stop_gradient(wide.max(1, keepdims=True)), "d")
    terms = jnp.exp(wide - top)
    a, b = jnp.split(terms / jax.lax.psum(terms.sum(1, keepdims=True), "d"), 2, axis=-1)
    angles = positions[:, None, None] * theta
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate((a * cos - b * sin, a * sin + b * cos), axis=-1).astype(x.dtype)


def rotate(y, angles):
    a, b = np.split(y, 2, axis=-1)
    return np.concatenate((a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)), axis=-1)


def exact(x, theta, slope):
    """Values and gradient in float64."""
    terms, angles = np.exp(x - x.max(1, keepdims=True)), np.arange(x.shape[1])[:, None, None] * theta
    y, g = terms / terms.sum(1, keepdims=True), rotate(slope, -angles)
    return rotate(y, angles), y * (g - (y * g).sum(1, keepdims=True))


def over(mesh, function):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(SHARES, P()), out_specs=SHARES))


def gradient_over(mesh, function):
    sharded = jax.shard_map(function, mesh=mesh, in_specs=(SHARES, P()), out_specs=SHARES)
    return jax.jit(jax.grad(lambda x, theta, slope: (sharded(x, theta) * slope).sum()))


def inputs(mesh, tokens, dtype):
    rng = np.random.default_rng(tokens)
    place = functools.partial(jax.device_put, device=NamedSharding(mesh, SHARES))
    x, slope = (place(jnp.asarray(rng.standard_normal((1, tokens, HEADS, DIM), "float32"), dtype)) for _ in range(2))
    theta = jnp.asarray(10000.0 ** -(np.arange(DIM // 2) / (DIM // 2)), "float32")[None]
    return x, theta, slope


def check(mesh, tokens, dtype, unit):
    x, theta, slope = inputs(mesh, tokens, dtype)
    wanted = exact(*(np.asarray(each, "float64") for each in (x, theta, slope)))
    made = over(mesh, softmax)(x, theta), gradient_over(mesh, softmax)(x, theta, slope)
    good = {
        name: np.allclose(np.asarray(each, "float64"), exactly, rtol=unit, atol=scale * unit / tokens)
        for name, each, exactly, scale in zip(("values", "gradient"), made, wanted, (1, 4))
    }
    for name, each in good.items():
        print(
            f"shard_map, softmax before rotate, {tokens} tokens, {dtype}, {name}: {'as wanted' if each else 'FAILED'}"
        )
    return all(good.values())


def median_us(call, *arguments, repeats=20):
    times = []
    for _ in range(repeats + 3):
        begin = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times[3:])


def main():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
    print(f"\n{mesh.size} x {jax.devices()[0].device_kind}, JAX {jax.__version__}")
    good = [check(mesh, 512 * mesh.size, dtype, unit) for dtype, unit in (("float32", 1e-5), ("bfloat16", 2**-7))]
    print("\n| tokens | copes.jax | JAX alone | copes.jax, gradient | JAX alone, gradient |\n" + "| ---: " * 5 + "|")
    for tokens in (262144, 1048576):
        x, theta, slope = inputs(mesh, tokens, "bfloat16")
        forward = [median_us(over(mesh, each), x, theta) for each in (softmax, softmax_of_jax)]
        backward = [median_us(gradient_over(mesh, each), x, theta, slope) for each in (softmax, softmax_of_jax)]
        print(f"| {tokens} | " + " | ".join(f"{each:.0f}" for each in forward + backward) + " |")
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
