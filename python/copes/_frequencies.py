"""Frequencies of rotary embeddings in double precision, and the scalings of them that checkpoints name.

Where each formula is from:

    linear        Chen et al. 2023, "Extending context window of large language models via positional interpolation"
    dynamic       NTK-aware scaling by the length of the sequence (Peng et al. 2023, appendix B.2)
    yarn          Peng et al. 2023, "YaRN: Efficient context window extension of large language models"; mscale and
                  mscale_all_dim are DeepSeek-V2's
    longrope      Ding et al. 2024, "LongRoPE"; the amplitude is Phi-3's
    llama3        Llama 3.1, apply_scaling of its reference code
    proportional  Barbero et al. 2024, "Round and round we go! What makes rotary positional encodings useful?": p-RoPE

The names of parameters are those of a Hugging Face config's rope_parameters (before: rope_scaling)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Scaled(NamedTuple):
    rows: list[list[float]]  # one, or longrope's two: of short sequences and of long ones
    amplitude: float = 1.0


class Rope(NamedTuple):
    """RoPE before it is scaled."""

    dim: int  # features that turn
    base: float
    max_position: int | None  # of the checkpoint

    def frequencies(self) -> list[float]:
        return [self.base ** (-2 * i / self.dim) for i in range(-(-self.dim // 2))]


def kind_of(parameters: Mapping[str, Any]) -> str:
    """The scaling's name. mrope, as old configs have it, scales nothing."""
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    kind = "default" if kind == "mrope" else kind
    if kind not in _SCALINGS:
        raise ValueError(f"scaling: rope_type is {kind!r}; it must be one of {', '.join(_SCALINGS)}")
    return kind


def scale(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    return _SCALINGS[kind_of(parameters)](rope, parameters)


def turning(parameters: Mapping[str, Any], dim: int) -> int:
    """How many of so many features turn. Where proportional all do, some by 0."""
    share = parameters.get("partial_rotary_factor")
    return dim if share is None or kind_of(parameters) == "proportional" else int(dim * share)


def need(parameters: Mapping[str, Any], name: str, otherwise: Any = None) -> Any:
    """A parameter that must be there, or what stands in for it."""
    value = parameters.get(name)
    value = otherwise if value is None else value
    if value is None:
        raise ValueError(f"scaling {kind_of(parameters)}: {name} is missing")
    return value


def _original(rope: Rope, parameters: Mapping[str, Any]) -> int:
    """The longest sequence of the training before the scaling."""
    return need(parameters, "original_max_position_embeddings", rope.max_position)


def _extension(rope: Rope, parameters: Mapping[str, Any], original: int) -> float:
    """By how much sequences are longer than that."""
    return need(parameters, "factor", None if rope.max_position is None else rope.max_position / original)


def _default(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    return Scaled([rope.frequencies()])


def _linear(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    factor = need(parameters, "factor")
    return Scaled([[f / factor for f in rope.frequencies()]])


def _dynamic(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    """Up to max_position. Beyond, the length scales them (see RotaryEmbedding)."""
    need(parameters, "factor")
    if rope.max_position is None:
        raise ValueError("scaling dynamic: max_position is missing")
    return _default(rope, parameters)


def _yarn(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    original = _original(rope, parameters)
    factor = _extension(rope, parameters, original)

    def pair_of(turns: float) -> float:
        """The pair, by its number, that turns so often in the original length."""
        return rope.dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low = pair_of(need(parameters, "beta_fast", 32))
    high = pair_of(need(parameters, "beta_slow", 1))
    if need(parameters, "truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    width = high - low or 0.001
    ramp = [min(max((i - low) / width, 0), 1) for i in range(rope.dim // 2)]
    rows = [f * (1 - r) + f / factor * r for f, r in zip(rope.frequencies(), ramp)]
    return Scaled([rows], need(parameters, "attention_factor", _yarn_amplitude(factor, parameters)))


def _yarn_amplitude(factor: float, parameters: Mapping[str, Any]) -> float:
    def grown(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1

    mscale, mscale_all_dim = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return grown(mscale) / grown(mscale_all_dim) if mscale and mscale_all_dim else grown(1)


def _longrope(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    original = _original(rope, parameters)
    factor = _extension(rope, parameters, original)
    frequencies = rope.frequencies()
    rows = []
    for name in ("short_factor", "long_factor"):
        divisors = need(parameters, name)
        if len(divisors) != len(frequencies):
            raise ValueError(
                f"scaling longrope: {name} has {len(divisors)} numbers; it must have {len(frequencies)}, one for a pair"
            )
        rows.append([f / divisor for f, divisor in zip(frequencies, divisors)])
    amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return Scaled(rows, need(parameters, "attention_factor", amplitude))


def _llama3(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    factor, original = need(parameters, "factor"), _original(rope, parameters)
    low, high = need(parameters, "low_freq_factor"), need(parameters, "high_freq_factor")

    def scaled(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)  # in the original length
        if turns > high or turns < low:
            return frequency if turns > high else frequency / factor
        smooth = (turns - low) / (high - low)
        return (1 - smooth) * frequency / factor + smooth * frequency

    return Scaled([list(map(scaled, rope.frequencies()))])


def _proportional(rope: Rope, parameters: Mapping[str, Any]) -> Scaled:
    """A share of the pairs turns, by frequencies of all the features; the others stand still."""
    turning = int(need(parameters, "partial_rotary_factor", 1.0) * rope.dim // 2)
    factor = need(parameters, "factor", 1.0)
    return Scaled([[f / factor if i < turning else 0.0 for i, f in enumerate(rope.frequencies())]])


_SCALINGS: dict[str, Callable[[Rope, Mapping[str, Any]], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def axes(sections: Sequence[int], interleaved: bool) -> list[int]:
    """Of M-RoPE: which position each angle follows."""
    if not interleaved:
        return [j for j, section in enumerate(sections) for _ in range(section)]
    m = len(sections)
    mixed = [i % m if i < m * sections[i % m] else 0 for i in range(sum(sections))]
    if [mixed.count(j) for j in range(m)] != list(sections):
        raise ValueError(f"sections are {tuple(sections)}; one is too long to be interleaved")
    return mixed


# ---- a model's config ------------------------------------------------------------------------------------------------


def _field(config: Any, *names: str) -> Any:
    """The first that there is, and is not None."""
    values = (config.get(name) if isinstance(config, Mapping) else getattr(config, name, None) for name in names)
    return next((value for value in values if value is not None), None)


def read_config(config: Any, layer_type: str | None = None) -> dict[str, Any]:
    """What RotaryEmbedding takes, from a Hugging Face config (the object, or config.json as a dict) of any age."""
    field = functools.partial(_field, config)
    parameters = dict(_of_layer(field("rope_parameters", "rope_scaling") or {}, layer_type))
    beside = {
        "rope_theta": field("rope_theta", "rotary_emb_base"),
        "partial_rotary_factor": field("partial_rotary_factor", "rotary_pct"),
    }
    parameters = {**beside, **parameters}
    original = field("original_max_position_embeddings")  # Phi-3 has it beside the parameters, and then it rules
    if original is not None:
        parameters["original_max_position_embeddings"] = original
    parameters = {name: value for name, value in parameters.items() if value is not None}
    dim = field("qk_rope_head_dim", "head_dim")
    if dim is None:
        dim = field("hidden_size") // field("num_attention_heads")
    return {"dim": dim, "scaling": parameters, "max_position": field("max_position_embeddings")}


def read_norm(config: Any) -> dict[str, Any]:
    """What QKNormRotary takes besides."""
    fields = {
        "eps": _field(config, "rms_norm_eps"),
        "heads": _field(config, "num_attention_heads"),
        "kv_heads": _field(config, "num_key_value_heads"),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _of_layer(parameters: Mapping[str, Any], layer_type: str | None) -> Mapping[str, Any]:
    """Some models have parameters for each type of layer."""
    types = [name for name, value in parameters.items() if isinstance(value, Mapping)]
    if not types:
        return parameters
    if layer_type not in types:
        raise ValueError(f"layer_type is {layer_type!r}; with this config it must be one of {', '.join(types)}")
    return parameters[layer_type]
