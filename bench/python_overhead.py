#!/usr/bin/env python3
"""What a call on a tiny tensor costs from Python, beside the same call from C and beside empty operators of PyTorch.

usage: python_overhead.py [--c build/bench/tiny_call] [--device cpu]

Each figure is the least of 300 rounds of 200 calls, in microseconds. An empty operator takes the same arguments and
returns torch.empty_like(x); one is made by torch.library.custom_op, one by torch.library.Library, and their backward is
empty too."""

import argparse
import inspect
import subprocess
import timeit
from collections.abc import Sequence
from functools import partial

import copes
import torch
from torch import Tensor

LIBRARY = torch.library.Library("overhead", "DEF")


def empty_act(x: Tensor, act: str, dim: int) -> Tensor:
    return torch.empty_like(x)


def empty_lrpe(
    x: Tensor,
    theta: Tensor,
    positions: Tensor | None,
    offsets: Tensor | None,
    variant: str,
    pairing: str,
    act: str,
    dim: int,
    grid: Sequence[int],
    offset: Sequence[int],
    prefix: int,
    suffix: int,
    sections: Sequence[int],
    rotary_dim: int,
    rotary_begin: int,
    amplitude: float | None,
    inverse: bool,
    pad_theta: bool,
) -> Tensor:
    return torch.empty_like(x)


def empty_operators(body):
    """(how, operator) for a body, with a backward."""
    name, count = body.__name__, len(inspect.signature(body).parameters)
    custom = torch.library.custom_op(f"overhead::custom_{name}", body, mutates_args=())
    schema = torch.library.infer_schema(body, mutates_args=())
    LIBRARY.define(f"{name}{schema}")
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, body, key)
    for each in (f"custom_{name}", name):
        torch.library.register_autograd(f"overhead::{each}", lambda ctx, grad: (grad,) + (None,) * (count - 1))
    return ("custom_op", custom), ("Library", getattr(torch.ops.overhead, name).default)


def microseconds(call):
    call()
    return min(timeit.repeat(call, number=200, repeat=300)) / 200 * 1e6


def rows(device):
    x, theta = torch.ones(1, 2, 1, 4, device=device), torch.ones(1, 2, device=device)
    leaf, out = x.clone().requires_grad_(), torch.empty_like(x)
    if device == "cpu":
        a, t, o = x.numpy(), theta.numpy(), out.numpy()
        yield "NumPy   act, out=", lambda: copes.act(a, "silu", out=o)
        yield "NumPy   act", lambda: copes.act(a, "silu")
        yield "NumPy   lrpe_rotate, out=", lambda: copes.lrpe_rotate(a, t, offset=3, out=o)
        yield "NumPy   lrpe_rotate", lambda: copes.lrpe_rotate(a, t, offset=3)
    yield "PyTorch act, out=", lambda: copes.act(x, "silu", out=out)
    yield "PyTorch act", lambda: copes.act(x, "silu")
    yield "PyTorch lrpe_rotate", lambda: copes.lrpe_rotate(x, theta, offset=3)
    yield "PyTorch act, with gradient", lambda: copes.act(leaf, "silu")
    yield "PyTorch lrpe_rotate, with gradient", lambda: copes.lrpe_rotate(leaf, theta, offset=3)
    lrpe = (theta, None, None, "rotate", "half", "none", -1, [], [3], 0, 0, [], 0, 0, None, False, False)
    for body, others in ((empty_act, ("silu", -1)), (empty_lrpe, lrpe)):
        for how, empty in empty_operators(body):
            name = f"PyTorch {body.__name__}, {how}"
            yield name, partial(empty, x, *others)
            yield f"{name}, with gradient", partial(empty, leaf, *others)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--c", help="the program bench/tiny_call of a build, to set beside")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.c:
        for line in subprocess.run([arguments.c], check=True, capture_output=True, text=True).stdout.splitlines():
            name, nanoseconds = line.split()
            print(f"{'C       ' + name:42s} {float(nanoseconds) / 1000:6.2f} us")
    for name, call in rows(arguments.device):
        print(f"{name:42s} {microseconds(call):6.2f} us", flush=True)


if __name__ == "__main__":
    main()
