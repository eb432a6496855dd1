"""The prologue in float64, straight from its definition: the last sequence's first head, and weights' gradients whole, by
autograd in parts."""

import torch

from .prologue import EPS
from .rope_reference import TOKENS, forward_tables, turn


def norm(x, weight):
    """Over the features of a head."""
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def _prologue(case, x, weight, cos, sin):
    return turn(norm(x, weight) if case.norm else x, cos, sin)


def _weights(case, setting):
    return [weight.double() for weight in setting.weights] or [None, None]


def _first_head(x):
    return x[-1:, :, :1]


def _gradient(case, setting, x, weight, arriving):
    """At the last sequence's first head of x."""
    leaf = _first_head(x).double().requires_grad_()
    with torch.enable_grad():
        out = _prologue(case, leaf, weight, *forward_tables(setting.angles, -1))
    return torch.autograd.grad(out, leaf, _first_head(arriving).double())[0]


def _weight_gradient(case, setting, x, weight, arriving):
    total = torch.zeros_like(weight)
    leaf = weight.detach().requires_grad_()
    for entry in range(case.batch):
        cos, sin = forward_tables(setting.angles, entry)
        for first in range(0, case.n, TOKENS):
            part = slice(first, first + TOKENS)
            with torch.enable_grad():
                out = _prologue(case, x[entry, part].double(), leaf, cos[part], sin[part])
            total += torch.autograd.grad(out, leaf, arriving[entry, part].double())[0]
    return total


def slices(case, setting, results):
    """The parts of a provider's results that the reference covers."""
    if case.cache:
        q, *caches = results
        return [_first_head(q), *(cache.flatten(0, 1)[setting.slots[-1]][None, :, :1] for cache in caches)]
    return [_first_head(result) for result in results[:2]] + list(results[2:])


def expected(case, setting, inputs):
    """What `slices` must be."""
    weights, turned = _weights(case, setting), inputs[:2]
    if case.mode == "forward":
        tables = forward_tables(setting.angles, -1)
        truth = [_prologue(case, _first_head(x).double(), w, *tables) for x, w in zip(turned, weights)]
        return [*truth, *(_first_head(v).double() for v in inputs[2:])]
    triples = list(zip(setting.saved, weights, turned))
    truth = [_gradient(case, setting, *each) for each in triples]
    if case.mode == "backward_weights":
        truth += [_weight_gradient(case, setting, *each) for each in triples]
    return truth
