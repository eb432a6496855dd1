"""RoPE as one writes it in PyTorch: the halves of a head exchanged, as the transformers package does, with tables of
cosines and sines in the type of x, made beforehand. For a gradient of theta the angles are part of it, in float32."""

import torch

from ..measure import gradients_call


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def _turn_all(cos, sin, *inputs):
    return tuple(turn(x, cos, sin) for x in inputs)


def _turn_in_place(cos, sin, *inputs):
    return tuple(x.copy_(turn(x, cos, sin)) for x in inputs)


def _turn_by_theta(theta, where, *inputs):
    phi = where.float()[..., None] * theta[0]
    phi = torch.cat((phi, phi), -1).unsqueeze(-2)
    cos, sin = phi.cos(), phi.sin()
    return tuple(turn(x, cos, sin).to(x.dtype) for x in inputs)


def tables(case, angles):
    """Cosines and sines of whole heads, (N, 1, D) or (B, N, 1, D): at positions of a tensor a gather, made once for all
    layers of a model."""
    return (torch.cat((table, table), -1).unsqueeze(-2) for table in angles.tables(case.type))


def rope(case, angles, saved, wrap=lambda function: function):
    """`wrap` compiles what it is given."""
    if case.mode == "backward_theta":
        by_theta = wrap(_turn_by_theta)
        leaves = [x.detach().requires_grad_() for x in (*saved, angles.theta)]
        with torch.enable_grad():
            outputs = by_theta(leaves[-1], angles.where, *leaves[:-1])
        gradients = gradients_call(outputs, leaves)
        return lambda inputs, _: gradients(inputs)
    cos, sin = tables(case, angles)
    if case.mode == "forward":
        turn_all = wrap(_turn_in_place if case.in_place else _turn_all)
        return lambda inputs, _: turn_all(cos, sin, *inputs)
    leaves = [x.detach().requires_grad_() for x in saved]
    with torch.enable_grad():
        outputs = wrap(_turn_all)(cos, sin, *leaves)
    gradients = gradients_call(outputs, leaves)
    return lambda inputs, _: gradients(inputs)
