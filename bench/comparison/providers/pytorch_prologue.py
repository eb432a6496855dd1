"""The prologue as one writes it in PyTorch: its RMSNorm, a rotation, and an assignment by index to the caches."""

import torch

from ..measure import gradients_call
from ..prologue import EPS
from .pytorch_rope import tables, turn


def _norm(x, weight):
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


def _turned(rotate, q, k, wq=None, wk=None):
    """`rotate` is a function of x."""
    return tuple(rotate(x if w is None else _norm(x, w)) for x, w in ((q, wq), (k, wk)))


def _replace(inputs, outputs):
    """In place."""
    for x, out in zip(inputs, outputs):
        x.copy_(out)
    return inputs


def _write(cache, slots, x):
    cache.flatten(0, 1)[slots.flatten()] = x.flatten(0, 1)


def gradients_of(function, case, setting):
    """The backward of a function of q, k and the weights, from a forward that has run."""
    leaves = [x.detach().requires_grad_() for x in setting.saved]
    learned = case.mode == "backward_weights"
    weights = [w.detach().requires_grad_(learned) for w in setting.weights]
    with torch.enable_grad():
        outputs = function(*leaves, *weights)
    gradients = gradients_call(outputs, leaves + weights if learned else leaves)
    return lambda inputs, _: gradients(inputs)


def _forward(function, setting):
    """With caches, which hold the keys and values, as calls of their own to write them."""

    def run(inputs, outputs):
        q, k, *values = inputs
        q_out, k_out = function(q, k, *setting.weights)
        if not values:
            return q_out, k_out
        for cache, x in zip(outputs[1:], (k_out, *values)):
            _write(cache, setting.slots, x)
        return [q_out, *outputs[1:]]

    return run


def steps(case, setting, rotate):
    """One after the other, with a rotation of somebody's."""

    def function(*tensors):
        outputs = _turned(rotate, *tensors)
        return _replace(tensors[:2], outputs) if case.in_place else outputs

    return gradients_of(function, case, setting) if case.mode != "forward" else _forward(function, setting)


def prologue(case, setting, wrap=lambda function: function):
    """`wrap` compiles what it is given: all of a row at once."""
    cos, sin = tables(case, setting.angles)

    def function(cos, sin, q, k, *weights):
        outputs = _turned(lambda x: turn(x, cos, sin), q, k, *weights)
        return _replace((q, k), outputs) if case.in_place else outputs

    def cached(cos, sin, slots, weights, inputs, caches):
        q, k, v = inputs
        q_out, k_out = function(cos, sin, q, k, *weights)
        for cache, x in zip(caches, (k_out, v)):
            _write(cache, slots, x)
        return q_out

    if case.mode != "forward":
        compiled = wrap(function)
        return gradients_of(lambda *tensors: compiled(cos, sin, *tensors), case, setting)
    if not case.cache:
        compiled = wrap(function)
        return lambda inputs, _: compiled(cos, sin, *inputs, *setting.weights)
    compiled = wrap(cached)

    def run(inputs, outputs):
        return [compiled(cos, sin, setting.slots, setting.weights, inputs, outputs[1:]), *outputs[1:]]

    return run
