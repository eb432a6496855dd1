"""Layers for Hugging Face's package kernels, which puts their forward in place of another layer's: those of the names
ReLU, Sigmoid and SiLU, such as transformers' SiLUActivation, and of transformers' apply_rotary_pos_emb. They hold
nothing, as that package demands. docs/hf_kernels.md has more; layers for models of your own are in copes.nn."""

from __future__ import annotations

from torch import Tensor, nn

from . import _tables
from . import _torch  # noqa: F401 - registers the operators
from ._functions import act

__all__ = ["ReLU", "Sigmoid", "SiLU", "apply_rotary_transformers"]


class ReLU(nn.Module):
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        return act(input, "relu")


class Sigmoid(nn.Module):
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        return act(input, "sigmoid")


class SiLU(nn.Module):
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        return act(input, "silu")


class apply_rotary_transformers(nn.Module):  # noqa: N801 - the name by which transformers asks a kernel for it
    can_torch_compile = True

    def forward(
        self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        return _tables.apply_rotary_transformers(q, k, cos, sin, unsqueeze_dim)
