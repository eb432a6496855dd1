"""The operators torch.ops.copes.tpa_decode and tpa_decode_lse, which have no derivatives, and their fake implementations."""

from __future__ import annotations

from . import _torch_vmap
from ._copes import run
from ._operators import TPA_DECODE
from ._torch_library import define, wide, without_derivatives

_TPA_INPUTS = "Tensor aq, Tensor bq, Tensor ak, Tensor bk, Tensor av, Tensor bv, Tensor? kv_len"
_TPA = (
    "float? scale, float? scale_q, float? scale_k, float? scale_v, bool causal, SymInt kv_first, SymInt kv_stride, "
    "SymInt? kv_total"
)
TPA_NAMES = ("aq", "bq", "ak", "bk", "av", "bv", "kv_len")


def refuse_factors(needed) -> None:
    for name, is_needed in zip(TPA_NAMES, needed):
        if is_needed:
            raise NotImplementedError(
                f"tpa_decode: {name} requires grad, but it is for decoding and has no gradient; use torch.no_grad()"
            )


def _tpa(*arguments):
    return run(TPA_DECODE, *arguments[:7], None, None, *arguments[7:])


def _tpa_lse(*arguments):
    return run(TPA_DECODE, *arguments[:7], None, True, *arguments[7:])


def _tpa_out(*arguments, out):
    run(TPA_DECODE, *arguments[:7], out, None, *arguments[7:])


def _tpa_lse_out(*arguments, out):
    return run(TPA_DECODE, *arguments[:7], out, True, *arguments[7:])[1]


def _fake_tpa(aq, bq, ak, bk, av, bv, *others):
    return aq.new_empty((*aq.shape[:3], bv.shape[-1]))


def _fake_tpa_lse(aq, *others):
    return _fake_tpa(aq, *others), aq.new_empty(aq.shape[:3], dtype=wide(aq.dtype))


define(
    "tpa_decode",
    f"{_TPA_INPUTS}, {_TPA}",
    "Tensor",
    _tpa,
    _fake_tpa,
    autograd=without_derivatives(refuse_factors),
    batched=_torch_vmap.tpa_decode,
)
define(
    "tpa_decode_lse",
    f"{_TPA_INPUTS}, {_TPA}",
    "(Tensor, Tensor)",
    _tpa_lse,
    _fake_tpa_lse,
    autograd=without_derivatives(refuse_factors),
    batched=_torch_vmap.tpa_decode_lse,
)
define("tpa_decode.out", f"{_TPA_INPUTS}, {_TPA}, *, Tensor(a!) out", "()", _tpa_out, _fake_tpa)
define(
    "tpa_decode_lse.out",
    f"{_TPA_INPUTS}, {_TPA}, *, Tensor(a!) out",
    "Tensor",
    _tpa_lse_out,
    _fake_tpa_lse,
)
