"""Operators of DTensors, whose shards are on the GPUs: values, gradients and placements."""

import copes
import torch
from measure import UNITS
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

BATCH, TOKENS, HEADS, DIM = 8, 96, 8, 64


def silu(x, theta):
    return copes.act(x, "silu")


def softmax(x, theta):
    return copes.act(x, "softmax", -1)


def rotate(x, theta):
    return copes.lrpe_rotate(x, theta, act="silu")


CALLS = {  # the axes that may be sharded without a word between GPUs, and is the gradient checked?
    silu: ((0, 1, 2, 3), True),
    softmax: ((0, 1, 2), False),  # DTensor of PyTorch 2.11 takes no operator whose first argument is None
    rotate: ((0, 1, 2), True),
}


def results(call, x, theta, slope):
    """The values, and with a slope the gradient."""
    o = call(x, theta)
    return (o,) if slope is None else (o, torch.autograd.grad(o, x, slope)[0])


def check_dtensors(checks, world):
    mesh = init_device_mesh("cuda", (world,))
    made = torch.Generator("cuda").manual_seed(world)
    theta = 10000 ** -(torch.arange(DIM // 2, device="cuda") / (DIM // 2))[None]
    for dtype in UNITS:
        x, slopes = (torch.randn(BATCH, TOKENS, HEADS, DIM, device="cuda", generator=made).to(dtype) for _ in range(2))
        for call, (axes, differentiates) in CALLS.items():
            slope = slopes if differentiates else None
            wanted = results(call, x.clone().requires_grad_(), theta, slope)
            for axis in axes:
                where = [Shard(axis)]
                shards = results(
                    call,
                    distribute_tensor(x, mesh, where).requires_grad_(),
                    distribute_tensor(theta, mesh, [Replicate()]),
                    None if slope is None else distribute_tensor(slope, mesh, where),
                )
                for part, each, whole in zip(("values", "gradient"), shards, wanted, strict=False):
                    name = f"DTensor {call.__name__} {part} {dtype} sharded by axis {axis}"
                    checks.expect(f"{name}: a DTensor", isinstance(each, DTensor) and list(each.placements) == where)
                    checks.expect(name, torch.equal(each.full_tensor(), whole))
