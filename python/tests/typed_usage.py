"""What a type checker makes of calls; test_types.py runs mypy on it. A line that is wrong says so: an ignored error that
mypy does not find is an error, too."""

import copes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import assert_type

x, theta = torch.ones(1, 4, 2, 8), torch.ones(1, 4)
a: NDArray[np.float32] = np.ones((1, 4, 2, 8), np.float32)
t: NDArray[np.float16] = np.ones((1, 4), np.float16)
flag = bool(x.any())

assert_type(copes.act(x, "silu"), Tensor)
assert_type(copes.act(x, "softmax", 1, out=x), Tensor)
assert_type(copes.act(a, "relu"), NDArray[np.float32])
assert_type(copes.lrpe_rotate(x, theta, offset=3, grid=(2, 2), sections=[2, 2], pairing="interleaved"), Tensor)
assert_type(copes.lrpe_rotate(a, t, rotary_dim=4, pad_theta=True, act="silu", out=a), NDArray[np.float32])
assert_type(copes.lrpe_cosine(x, theta, dim=1, act="softmax"), Tensor)
assert_type(copes.lrpe_rotate(x, theta, positions=x, amplitude=2.0, inverse=True, rotary_begin=2), Tensor)
assert_type(copes.lrpe_cosine(a, t, offsets=np.ones(1, np.int64)), NDArray[np.float32])
assert_type(copes.md_lrpe_cosine(x, theta, (2, 2), 0), Tensor)
assert_type(copes.qk_norm_rope(x, x, theta, wq=x, wk=x, offset=3, norm_over="all_heads"), tuple[Tensor, Tensor])
assert_type(copes.qk_norm_rope(x, x, theta, out=(x, x), weight_offset=1), tuple[Tensor, Tensor])
assert_type(copes.qk_norm_rope(x, None, theta, out=x), Tensor)
assert_type(copes.qk_norm_rope(x, x, theta, slots=x, k_cache=x, return_k=False), Tensor)
assert_type(copes.qk_norm_rope(x, x, theta, slots=x, k_cache=x, return_k=flag), Tensor | tuple[Tensor, Tensor])
assert_type(copes.qk_norm_rope(a, a, t, wq=t), tuple[NDArray[np.float32], NDArray[np.float32]])
assert_type(copes.attention_merge(x, x), Tensor)
assert_type(copes.attention_merge(x, x, base="2", return_lse=True), tuple[Tensor, Tensor])
assert_type(copes.attention_merge(a, a), NDArray[np.float32])
assert_type(copes.softmax_lse(x, 1), Tensor)
assert_type(copes.softmax_lse(a), NDArray[np.float32])
assert_type(copes.act(x, "softmax", 1, lse=x), Tensor)
assert_type(copes.lrpe_rotate(x, theta, act="softmax", dim=1, lse=x), Tensor)
assert_type(copes.tpa_decode(x, x, x, x, x, x), Tensor)
assert_type(copes.tpa_decode(x, x, x, x, x, x, return_lse=False, out=x), Tensor)
assert_type(copes.tpa_decode(x, x, x, x, x, x, return_lse=True), tuple[Tensor, Tensor])
assert_type(copes.tpa_decode(x, x, x, x, x, x, return_lse=flag), Tensor | tuple[Tensor, Tensor])
assert_type(copes.tpa_decode(a, a, a, a, a, a, kv_len=np.ones(1, np.int32)), NDArray[np.float32])
assert_type(copes.devices(), list[tuple[str, int, str]])
assert_type(copes.__version__, str)

copes.act(x, "gelu")  # type: ignore[arg-type]
copes.act([1.0], "silu")  # type: ignore[type-var]
copes.act(x, None)  # type: ignore[arg-type]
copes.lrpe_rotate(x, 10000.0)  # type: ignore[arg-type]
copes.lrpe_rotate(x, theta, pairing="third")  # type: ignore[arg-type]
copes.lrpe_cosine(x, theta, pairing="half")  # type: ignore[call-arg]
copes.qk_norm_rope(x, x, theta, norm_over="heads")  # type: ignore[call-overload]
copes.qk_norm_rope(x, x, theta, out=x)  # type: ignore[call-overload]
copes.qk_norm_rope(x, x, theta, act="silu")  # type: ignore[call-overload]
copes.nothing  # type: ignore[attr-defined]

rope = copes.nn.RotaryEmbedding(8, pairing="interleaved")
assert_type(rope.forward(x, offset=3, positions=x), Tensor)
assert_type(copes.nn.RotaryEmbedding.from_config({"head_dim": 8}, heads_first=True), copes.nn.RotaryEmbedding)
assert_type(copes.nn.mrope_theta((2, 1, 1), interleaved=True), Tensor)
assert_type(copes.nn.LRPE(2, 8, learnable=True, theta=x).forward(x, positions=x), Tensor)
norm_rope = copes.nn.QKNormRotary.from_config({"head_dim": 8}, weight_offset=1)
assert_type(norm_rope, copes.nn.QKNormRotary)
assert_type(norm_rope.forward(x, x, positions=x), tuple[Tensor, Tensor])
assert_type(norm_rope.forward(x, x, slots=x, k_cache=x, return_k=False), Tensor)
copes.lrpe_rotate(x, theta, positions=3)  # type: ignore[arg-type]
assert_type(copes.nn.LRPE(2, 8, variant="rotate", act="silu").theta, Tensor)
cache = copes.nn.TPADecodeCache(1, 8, 2, 8, dtype=torch.float16)
assert_type(cache.decode(x, x), Tensor)
assert_type(len(cache), int)
copes.nn.RotaryEmbedding(8, pairing="third")  # type: ignore[arg-type]
copes.nn.LRPE(2, 8, variant="sine")  # type: ignore[arg-type]
cache.append(x, x, x, a)  # type: ignore[arg-type]
