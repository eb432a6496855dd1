"""copes through its Python package."""

import functools
import importlib

import torch

from ..measure import gradients_call
from ..prologue import EPS, OP
from . import pytorch_prologue
from .base import Provider, import_error
from .pytorch_prologue import gradients_of


def _package():
    return importlib.import_module("copes")


def _heads_first(encode, case, x, theta, dim):
    """x is stored (B, H, N, D), and so is the result, as with the other providers, where one may be handed in."""
    out = None if x.requires_grad else x.new_empty(case.output_shape).transpose(1, 2)
    encoded = encode(x.transpose(1, 2), theta, case.grid, case.prefix, act=case.act, dim=dim, out=out)
    return encoded.transpose(1, 2)


class Copes(Provider):
    name = family = "copes"

    def missing(self, device):
        return import_error(_package)

    def version(self):
        return getattr(_package(), "__version__", "")

    def runs(self, case):
        return True

    def function(self, case, inputs):
        copes = _package()
        if case.op == "act":
            axis = case.softmax_axis if case.act == "softmax" else None
            return lambda x: copes.act(x, case.act, dim=axis)
        if case.op == "tpa_decode":
            return copes.tpa_decode
        dim = None if case.act != "softmax" else 1 if case.over_tokens else 3
        if case.op == "md_lrpe_cosine":
            return lambda x, theta: _heads_first(copes.md_lrpe_cosine, case, x, theta, dim)
        encode = getattr(copes, case.op)
        return lambda x, theta: encode(x, theta, act=case.act, dim=dim)

    def prologue(self, case, setting):
        angles = setting.angles
        wq, wk = setting.weights or (None, None)
        call = functools.partial(_package().qk_norm_rope, theta=angles.theta, positions=angles.positions, eps=EPS)
        if case.mode != "forward":
            return gradients_of(lambda q, k, wq=None, wk=None: call(q, k, wq=wq, wk=wk), case, setting)
        if not case.cache:
            return lambda inputs, outputs: call(*inputs, wq=wq, wk=wk, out=tuple(outputs))

        def run(inputs, outputs):
            (q, k, v), (q_out, k_cache, v_cache) = inputs, outputs
            caches = {"slots": setting.slots, "k_cache": k_cache, "v_cache": v_cache}
            call(q, k, wq=wq, wk=wk, v=v, **caches, return_k=False, out=q_out)
            return outputs

        return run

    def rope(self, case, angles, saved):
        """The gradient in place is the rotation by the opposite angles, as a program has it that keeps no graph."""
        turn = functools.partial(_package().lrpe_rotate, positions=angles.positions)
        if case.mode == "forward" or case.in_place:
            settings = {"inverse": case.mode == "backward"}
            return lambda inputs, outputs: [turn(x, angles.theta, out=o, **settings) for x, o in zip(inputs, outputs)]
        leaves = [x.detach().requires_grad_() for x in saved]
        theta = angles.theta.detach().requires_grad_(case.mode == "backward_theta")
        with torch.enable_grad():
            outputs = [turn(x, theta) for x in leaves]
        gradients = gradients_call(outputs, [*leaves, theta] if theta.requires_grad else leaves)
        return lambda inputs, _: gradients(inputs)


class CopesRotate(Copes):
    """What there was before qk_norm_rope: copes' rotation of queries and of keys, after PyTorch's norm and before its write
    to the cache."""

    name = "copes-rotate"

    def runs(self, case):
        return case.op == OP

    def prologue(self, case, setting):
        if case.rotates:
            return self.rope(case, setting.angles, setting.saved)
        angles = setting.angles
        turn = functools.partial(_package().lrpe_rotate, theta=angles.theta, positions=angles.positions)
        return pytorch_prologue.steps(case, setting, turn)
