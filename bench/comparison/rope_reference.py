"""RoPE in float64, straight from its definition: the last sequence's first head, and the whole gradient of theta."""

import torch

TOKENS = 4096  # of a sequence that are summed at once


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def forward_tables(angles, entry):
    """Of a sequence, (N, 1, K)."""
    where = angles.where if angles.positions is None else angles.positions[entry]
    return _tables(angles, where, "forward")


def _tables(angles, where, mode):
    """With the sine of the opposite angle for the backward."""
    cos, sin = (table[:, None] for table in angles.tables(torch.float64, where))
    return cos, sin if mode == "forward" else -sin


def _theta_gradient(angles, x, gradient):
    """The sum of p (g_b a - g_a b) over sequences, tokens and heads, g the gradient at x = (a, b)."""
    total = torch.zeros_like(angles.theta, dtype=torch.float64)
    for entry in range(x.shape[0]):
        where = angles.where if angles.positions is None else angles.positions[entry]
        for first in range(0, x.shape[1], TOKENS):
            part = slice(first, first + TOKENS)
            cos, sin = _tables(angles, where[part], "backward")
            a, b = x[entry, part].double().chunk(2, -1)
            g_a, g_b = turn(gradient[entry, part].double(), cos, sin).chunk(2, -1)
            total += ((g_b * a - g_a * b).sum(1) * where[part, None].double()).sum(0)
    return total


def slices(case, results):
    """The parts of a provider's results that the reference covers."""
    turned = len(case.heads)
    return [result[-1:, :, :1] for result in results[:turned]] + list(results[turned:])


def expected(case, angles, inputs, saved):
    """What `slices` must be. `saved`: the forward's x."""
    where = angles.where if angles.positions is None else angles.positions[-1]
    cos, sin = _tables(angles, where, case.mode)
    truth = [turn(x[-1:, :, :1].double(), cos, sin) for x in inputs]
    if case.mode == "backward_theta":
        truth.append(sum(_theta_gradient(angles, x, gradient) for x, gradient in zip(saved, inputs)))
    return truth
