"""RotaryEmbedding's scalings, its positions, and mrope_theta: against the transformers package where that is installed, and
against numbers that it gave (5.24.0)."""

import copes.nn
import pytest
import reference
import torch

CONFIG = dict(
    hidden_size=512,
    num_attention_heads=4,
    head_dim=128,
    rope_theta=10000.0,
    max_position_embeddings=8192,
    rope_scaling={},
)
SHORT, LONG = [1.0 + 0.01 * i for i in range(64)], [1.0 + 0.5 * i for i in range(64)]
PHI3 = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=4096)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=2048
)
DEEPSEEK = dict(
    rope_type="yarn", factor=40, mscale=1.0, mscale_all_dim=0.7, beta_fast=32, beta_slow=1, rope_theta=1e5,
    original_max_position_embeddings=4096,
)  # fmt: skip
SCALINGS = {
    "default": dict(rope_type="default"),
    "partial": dict(rope_type="default", partial_rotary_factor=0.5),
    "linear": dict(rope_type="linear", factor=4.0),
    "dynamic": dict(rope_type="dynamic", factor=2.0),
    "yarn": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=2048),
    "yarn of a ratio": dict(rope_type="yarn", factor=None, original_max_position_embeddings=2048),
    "yarn with mscale": DEEPSEEK,
    "yarn of a small base": dict(rope_type="yarn", factor=4.0, rope_theta=10.0, original_max_position_embeddings=700),
    "yarn that is not truncated": dict(rope_type="yarn", factor=4.0, truncate=False, attention_factor=1.5),
    "longrope": PHI3,
    "longrope with a factor": dict(PHI3, factor=32.0),
    "llama3": LLAMA3,
    "proportional": dict(rope_type="proportional", partial_rotary_factor=0.25, factor=2.0),
}
GIVEN = {  # (scaling, length): frequencies 1, K / 2 and the last, and the amplitude
    ("default", 9000): (8.659644e-01, 1.000000e-02, 1.154782e-04, 1.0),
    ("partial", 9000): (7.498942e-01, 1.000000e-02, 1.333522e-04, 1.0),
    ("linear", 9000): (2.164911e-01, 2.500000e-03, 2.886955e-05, 1.0),
    ("dynamic", 8192): (8.659644e-01, 1.000000e-02, 1.154782e-04, 1.0),
    ("dynamic", 9000): (8.634931e-01, 9.126078e-03, 9.645161e-05, 1.0),
    ("yarn", 9000): (8.659644e-01, 5.200000e-03, 2.886955e-05, 1.138629436111989),
    ("yarn of a ratio", 9000): (8.659644e-01, 5.200000e-03, 2.886955e-05, 1.138629436111989),
    ("yarn with mscale", 9000): (8.353626e-01, 8.131571e-04, 2.992712e-07, 1.0879546075066122),
    ("yarn of a small base", 9000): (9.646617e-01, 3.162278e-01, 7.941946e-02, 1.138629436111989),
    ("yarn that is not truncated", 9000): (8.659644e-01, 8.056971e-03, 2.886955e-05, 1.5),
    ("longrope", 4096): (8.573905e-01, 7.575758e-03, 7.084552e-05, 1.0408329997330663),
    ("longrope", 4097): (5.773095e-01, 5.882353e-04, 3.553175e-06, 1.0408329997330663),
    ("longrope with a factor", 9000): (5.773095e-01, 5.882353e-04, 3.553175e-06, 1.1902380714238083),
    ("llama3", 9000): (8.659644e-01, 7.840188e-03, 1.443477e-05, 1.0),
    ("proportional", 9000): (4.329822e-01, 0.000000e00, 0.000000e00, 1.0),
}


def config_of(scaling, **changes):
    return {**CONFIG, "rope_scaling": dict(scaling), **changes}


def theirs(scaling, seq_len=None):
    """(frequencies, amplitude)."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = dict(scaling)
    scaling.setdefault("rope_theta", CONFIG["rope_theta"])
    plain = {name: value for name, value in CONFIG.items() if name not in ("rope_scaling", "rope_theta")}
    config = transformers.LlamaConfig(**plain, rope_parameters=scaling)
    if scaling["rope_type"] == "default":
        from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

        return Phi3RotaryEmbedding.compute_default_rope_parameters(config)
    return ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=seq_len)


def frequencies(rope, length=None):
    """Those that a call takes, in float64: by one token at position 1, whose pairs are (1, 0)."""
    x = torch.zeros(1, 1, 1, rope.dim, dtype=torch.float64)
    x[..., : rope.rotary_dim // 2] = 1
    rope.amplitude, amplitude = 1.0, rope.amplitude
    o = rope(x, positions=torch.ones(1, dtype=torch.int64), length=1 if length is None else length)[0, 0, 0]
    rope.amplitude = amplitude
    return torch.atan2(o[rope.rotary_dim // 2 : rope.rotary_dim], o[: rope.rotary_dim // 2])


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("length", [None, 8192, 9000, 100000])
def test_as_transformers(name, length):
    expected, amplitude = theirs(SCALINGS[name], length)
    rope = copes.nn.RotaryEmbedding.from_config(config_of(SCALINGS[name]))
    assert rope.amplitude == pytest.approx(amplitude, rel=1e-12)
    for given in (length, None if length is None else torch.tensor(length)):
        theta = frequencies(rope, given)
        torch.testing.assert_close(theta, expected.double(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name, length", GIVEN)
def test_as_given(name, length):
    rope = copes.nn.RotaryEmbedding.from_config(config_of(SCALINGS[name]))
    theta = frequencies(rope, length)
    result = (*theta[[1, len(theta) // 2, -1]].tolist(), rope.amplitude)
    assert result == pytest.approx(GIVEN[name, length], rel=2e-6, abs=1e-12)


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_length_by_itself(device, name):
    """Offset and tokens, or the positions' largest, say how long the sequence is; no position is read on the host."""
    rope = copes.nn.RotaryEmbedding.from_config(config_of(SCALINGS[name]), device=device)
    x, start = torch.randn(2, 3, 1, 128, device=device), 9000
    expected = rope(x, start, length=start + 3)
    assert not torch.equal(expected, rope(x, start, length=1))
    assert torch.equal(rope(x, start), expected)
    tokens, starts = torch.arange(3, device=device), torch.full((2,), start, device=device)
    for where in (dict(positions=tokens + start), dict(positions=tokens, offset=start), dict(offsets=starts)):
        torch.testing.assert_close(rope(x, **where), expected, rtol=1e-6, atol=1e-6)
    first = copes.nn.RotaryEmbedding.from_config(config_of(SCALINGS[name]), device=device, heads_first=True)
    assert torch.equal(first(x.transpose(1, 2), start).transpose(1, 2), expected)


@pytest.mark.parametrize("name", ["yarn", "dynamic", "longrope"])
def test_compiled_with_dynamic_lengths(device, name):
    torch.compiler.reset()
    rope = copes.nn.RotaryEmbedding.from_config(config_of(SCALINGS[name]), device=device)
    compiled = torch.compile(rope, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens, start in ((3, 0), (4, 7), (5, 9000), (6, 9001)):
        x, positions = torch.randn(1, tokens, 2, 128, device=device), torch.arange(tokens, device=device) + start
        torch.testing.assert_close(compiled(x, start), rope(x, start), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(compiled(x, positions=positions), rope(x, positions=positions), rtol=1e-6, atol=1e-6)


def test_arguments(device):
    rope = copes.nn.RotaryEmbedding(16, rotary_begin=8, device=device)
    x, offsets = torch.randn(2, 3, 4, 16, device=device), torch.tensor([5, 9], device=device)
    expected = reference.lrpe_rotate(reference.wide(x), rope.theta, offsets=offsets, rotary_begin=8)
    reference.assert_close(rope(x, offsets=offsets), expected)
    torch.testing.assert_close(rope(rope(x, offsets=offsets), offsets=offsets, inverse=True), x, rtol=1e-5, atol=1e-6)


# ---- configs ---------------------------------------------------------------------------------------------------------


class Config:
    """As transformers' objects."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def same(config, expected, **options):
    rope, plain = copes.nn.RotaryEmbedding.from_config(config, **options), copes.nn.RotaryEmbedding(**expected)
    assert torch.equal(rope.theta, plain.theta)
    for name in ("dim", "base", "rotary_dim", "rotary_begin", "pairing"):
        assert getattr(rope, name) == getattr(plain, name)


def test_configs():
    linear = dict(rope_type="linear", factor=4.0)
    expected = dict(dim=128, scaling=linear)
    for scaling in (linear, dict(type="linear", factor=4.0)):
        same(config_of(scaling), expected)
        same(Config(**config_of(scaling)), expected)
        same({**CONFIG, "rope_scaling": None, "rope_parameters": {**scaling, "rope_theta": 10000.0}}, expected)
    same(dict(hidden_size=512, num_attention_heads=8), dict(dim=64))
    same(dict(hidden_size=512, num_attention_heads=8, rope_scaling=None, rope_theta=5e5), dict(dim=64, base=5e5))
    same(dict(head_dim=64, rotary_pct=0.25, rotary_emb_base=500), dict(dim=64, base=500, rotary_dim=16))
    half = dict(partial_rotary_factor=0.5, rope_type=None)
    same(dict(head_dim=64, rope_parameters=half), dict(dim=64, rotary_dim=32))
    same(dict(head_dim=64, rope_parameters=half), dict(dim=64, scaling=half))
    same(dict(head_dim=192, qk_rope_head_dim=64), dict(dim=64))
    latent = dict(head_dim=192, qk_rope_head_dim=64)
    same(latent, dict(dim=192, rotary_begin=128, rotary_dim=64), dim=192, rotary_begin=128)
    phi3 = {name: value for name, value in PHI3.items() if name != "original_max_position_embeddings"}
    same(config_of(phi3, original_max_position_embeddings=4096), dict(dim=128, scaling=PHI3, max_position=8192))


def test_configs_with_types_of_layers():
    """Gemma 4's."""
    parameters = {
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0),
        "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6),
    }
    config = dict(head_dim=64, rope_parameters=parameters)
    same(config, dict(dim=64), layer_type="sliding_attention")
    full = copes.nn.RotaryEmbedding.from_config(config, layer_type="full_attention")
    assert full.rotary_dim == 64 and full.theta[0, :8].all() and not full.theta[0, 8:].any()
    with pytest.raises(ValueError, match="layer_type is None; .* sliding_attention, full_attention"):
        copes.nn.RotaryEmbedding.from_config(config)


@pytest.mark.parametrize(
    "scaling, message",
    [
        (dict(rope_type="ntk"), "rope_type is 'ntk'; it must be one of default, linear"),
        (dict(rope_type="linear"), "scaling linear: factor is missing"),
        (dict(rope_type="dynamic", factor=2.0), "scaling dynamic: max_position is missing"),
        (dict(rope_type="yarn", factor=2.0), "scaling yarn: original_max_position_embeddings is missing"),
        (dict(LLAMA3, low_freq_factor=None), "scaling llama3: low_freq_factor is missing"),
        (dict(PHI3, factor=2.0, long_factor=[1.0]), "long_factor has 1 numbers; it must have 64"),
        (dict(PHI3, factor=2.0, mrope_section=[16, 24, 24]), "scaling longrope: mrope_section is given"),
    ],
)
def test_refused_scalings(scaling, message):
    with pytest.raises(ValueError, match=message):
        copes.nn.RotaryEmbedding(128, scaling=scaling)


def test_repr():
    rope = copes.nn.RotaryEmbedding(8, rotary_begin=4, scaling=dict(type="linear", factor=2.0))
    assert "short_factor" not in repr(copes.nn.RotaryEmbedding.from_config(config_of(PHI3)))
    assert repr(rope) == (
        "RotaryEmbedding(dim=8, base=10000.0, rotary_dim=4, pairing='half', heads_first=False, rotary_begin=4, "
        "scaling={'type': 'linear', 'factor': 2.0}, max_position=None)"
    )


# ---- M-RoPE ----------------------------------------------------------------------------------------------------------


def qwen_angles(positions, theta, sections, interleaved):
    """(B, N, K), as the models of Qwen2-VL and Qwen3-VL write it."""
    angles = positions[..., None].double() * theta.double()  # (3, B, N, K)
    if not interleaved:
        return torch.cat([each[i % 3] for i, each in enumerate(angles.split(sections, -1))], -1)
    mixed = angles[0].clone()
    for axis in (1, 2):
        mixed[..., axis : 3 * sections[axis] : 3] = angles[axis][..., axis : 3 * sections[axis] : 3]
    return mixed


@pytest.mark.parametrize("sections, interleaved", [([16, 24, 24], False), ([24, 20, 20], True), ([4, 4, 4], True)])
def test_mrope(device, sections, interleaved):
    count = sum(sections)
    scaling = dict(type="mrope", mrope_section=sections, mrope_interleaved=interleaved)
    rope = copes.nn.RotaryEmbedding(2 * count, 1e6, scaling=scaling, device=device)
    x, positions = torch.randn(2, 7, 3, 2 * count, device=device), torch.randint(0, 999, (3, 2, 7), device=device)
    plain = copes.nn.RotaryEmbedding(2 * count, 1e6, device=device)
    phi = qwen_angles(positions.cpu(), plain.theta.cpu(), sections, interleaved)[:, :, None]
    a, b = reference.wide(x).chunk(2, -1)
    expected = torch.cat((a * phi.cos() - b * phi.sin(), a * phi.sin() + b * phi.cos()), -1)
    reference.assert_close(rope(x, positions=positions), expected)

    theta = copes.nn.mrope_theta(sections, base=1e6, interleaved=interleaved, device=device)
    assert theta.shape == (3, 1, count) and torch.equal(theta, rope.theta)
    assert (theta != 0).sum((1, 2)).tolist() == sections and torch.equal(theta.sum(0), plain.theta)
    for where in (dict(offset=5), dict(positions=positions[0]), dict(offsets=positions[0, :, 0])):
        assert torch.equal(rope(x, **where), plain(x, **where))


def test_mrope_of_other_frequencies():
    """Of each head's own, with a gradient."""
    theta = torch.rand(3, 8, requires_grad=True)
    mixed = copes.nn.mrope_theta((5, 3), theta)
    assert mixed.shape == (2, 3, 8) and torch.equal(mixed[0, :, :5], theta[:, :5]) and not mixed[0, :, 5:].any()
    mixed.sum().backward()
    assert torch.equal(theta.grad, torch.ones(3, 8))
    with pytest.raises(ValueError, match="theta has 8 frequencies; with these sections it must have 9"):
        copes.nn.mrope_theta((5, 4), theta)
    with pytest.raises(ValueError, match=r"sections are \(2, 6\); one is too long to be interleaved"):
        copes.nn.mrope_theta((2, 6), theta, interleaved=True)
