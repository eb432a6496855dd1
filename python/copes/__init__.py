"""Fused operators for sequence models, on PyTorch tensors, NumPy arrays and whatever else speaks DLPack.

    act             relu, sigmoid, silu, or softmax along any axis
    softmax_lse     log sum exp along an axis: what softmax needs of a share of it
    lrpe_rotate     RoPE: half or interleaved pairs, on grids of one to four dimensions or at any positions, after an
                    activation
    lrpe_cosine     linearized relative positional encoding by x cos and x sin, likewise
    md_lrpe_cosine  lrpe_cosine of a grid (images, video), with tokens before it
    qk_norm_rope    RMSNorm and RoPE of queries and keys, and the writing of a paged cache, in one pass
    tpa_decode      attention over a factored (tensor-product) key and value cache
    attention_merge attention over keys in shares, of that over each of them
    devices         what the library can run on

An operator runs where its arrays are, takes any strides without a copy, and returns a new array of the same framework
and device, or writes to `out`. Types are float32, float16 and bfloat16 (NumPy's comes from ml_dtypes), on the CPU also
float64; arithmetic is in float32 (float64 for float64), rounded once. Angles are exact at every position.

PyTorch: the operators are torch.ops.copes.*, with derivatives in both modes, under torch.compile, torch.func, autocast
and CUDA graphs, on DTensors, on the current stream; copes.nn has layers, copes.distributed what several devices share, and
copes.integrations.transformers.use makes a model turn by copes. CuPy's arrays are used on CuPy's current stream. Others
come and go through DLPack; where their arrays cannot be written to (JAX), `out` is refused. copes.jax has the operators for
JAX's programs: under jit, grad, vmap and shard_map.

Wrong arguments raise ValueError or TypeError, a failing device RuntimeError, before anything is written, and the
message names the argument, what it was and what it must be."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._copes import devices
from ._copes import version as __version__
from ._functions import act, act_backward, lrpe_cosine, lrpe_rotate, md_lrpe_cosine, relu_mask, softmax_lse, tpa_decode
from ._merge import attention_merge
from ._qk import qk_norm_rope

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import integrations as integrations
    from . import jax as jax
    from . import layers as layers
    from . import nn as nn
    from ._tables import apply_rotary_transformers as apply_rotary_transformers
else:

    def __getattr__(name):
        """What needs PyTorch or JAX, loaded when it is first asked for."""
        if name == "apply_rotary_transformers":
            return importlib.import_module("._tables", __name__).apply_rotary_transformers
        if name in ("distributed", "integrations", "jax", "layers", "nn"):
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module 'copes' has no attribute {name!r}")


__all__ = [
    "__version__",
    "act",
    "act_backward",
    "attention_merge",
    "devices",
    "lrpe_cosine",
    "lrpe_rotate",
    "md_lrpe_cosine",
    "qk_norm_rope",
    "relu_mask",
    "softmax_lse",
    "tpa_decode",
]
