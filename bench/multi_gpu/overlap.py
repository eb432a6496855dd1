"""Calls on a stream of their own, while another stream is busy: neither waits for the other."""

import copes
import torch
from decode import make_factors

BUSY = 2_000_000_000  # cycles, about a second


def calls():
    """By name, what the call is."""
    factors = make_factors(256, torch.bfloat16, batch=2)
    x, slope = (torch.randn(2, 96, 3, 128, device="cuda") for _ in range(2))
    theta = torch.rand(1, 64, device="cuda")

    def step(function):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(function(leaf), leaf, slope)

    for exchange in ("gather", "heads", "auto"):
        yield (
            f"tpa_decode {exchange}",
            lambda exchange=exchange: copes.distributed.tpa_decode(*factors, exchange=exchange),
        )
    yield "softmax and its gradient", lambda: step(lambda leaf: copes.distributed.softmax(leaf, 1))
    yield "lrpe_rotate and its gradient", lambda: step(lambda leaf: copes.distributed.lrpe_rotate(leaf, theta))


def check_overlap(checks):
    for name, call in calls():
        call()
        torch.cuda.synchronize()
        ends = torch.cuda.Event()
        with torch.cuda.stream(torch.cuda.default_stream()):
            torch.cuda._sleep(BUSY)
            ends.record()
        call()
        torch.cuda.current_stream().synchronize()
        checks.expect(f"{name} does not wait for the default stream", not ends.query())
        torch.cuda.synchronize()
