"""copes.nn.QKNormRotary, and the example that decodes with it."""

import copes
import pytest
import reference
import torch
from test_nn import example
from test_qk import BLOCKS, HK, PAGE, B, D, E, H, N

QWEN3 = dict(head_dim=D, rms_norm_eps=1e-5, num_attention_heads=H, num_key_value_heads=HK, rope_theta=5e4)


def queries(device, dtype=torch.float32):
    return [torch.randn(B, N, heads, D, device=device, dtype=dtype) for heads in (H, HK)]


def weights(rope):
    """Other ones than at first."""
    with torch.no_grad():
        for parameter in rope.parameters():
            parameter.add_(torch.rand_like(parameter))
    return rope


@pytest.mark.parametrize("norm", [{}, {"norm_over": "all_heads"}, {"weight_offset": 1.0}])
def test_as_the_function(device, norm):
    rope = weights(copes.nn.QKNormRotary.from_config(QWEN3, device=device, **norm))
    q, k = queries(device)
    made = rope(q, k, offset=7)
    wq, wk = (reference.wide(w) for w in (rope.q_norm.weight, rope.k_norm.weight))
    if norm.get("norm_over"):
        wq, wk = wq.unflatten(0, (H, D)), wk.unflatten(0, (HK, D))
    theta = 5e4 ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    expected = reference.qk_norm_rope(
        *map(reference.wide, (q, k)), theta[None].float(), wq, wk, dict(eps=1e-5, **norm), offset=7
    )
    for o, wanted in zip(made, expected):
        reference.assert_close(o.detach(), wanted)
    first = weights(copes.nn.QKNormRotary.from_config(QWEN3, heads_first=True, device=device, **norm))
    first.load_state_dict(rope.state_dict())
    for o, wanted in zip(first(q.transpose(1, 2), k.transpose(1, 2), 7), made):
        assert torch.equal(o.transpose(1, 2), wanted)


def test_caches(device):
    rope = weights(copes.nn.QKNormRotary(D, device=device))
    (q, k), v = queries(device), torch.randn(B, N, HK, E, device=device)
    slots = torch.randperm(BLOCKS * PAGE, device=device)[: B * N].reshape(B, N)
    positions = torch.randint(0, 99, (B, N), device=device)
    k_cache, v_cache = (torch.zeros(BLOCKS, PAGE, HK, width, device=device) for width in (D, E))
    alone = rope(q, k, positions=positions, v=v, slots=slots, k_cache=k_cache, v_cache=v_cache, return_k=False)
    q_out, k_out = rope(q, k, positions=positions)
    assert torch.equal(alone, q_out)
    assert torch.equal(k_cache.flatten(0, 1)[slots], k_out) and torch.equal(v_cache.flatten(0, 1)[slots], v)
    rope.heads_first = True
    other = torch.zeros_like(v_cache)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    rope(q, k, positions=positions, v=v, slots=slots, k_cache=k_cache, v_cache=other)
    assert torch.equal(other, v_cache)


def test_gradients_and_checkpoints(device):
    rope = copes.nn.QKNormRotary(D, weight_offset=1.0, device=device)
    assert {name: tuple(value.shape) for name, value in rope.state_dict().items()} == {
        "q_norm.weight": (D,),
        "k_norm.weight": (D,),
    }
    assert not rope.q_norm.weight.any()  # their distance from 1
    assert (copes.nn.QKNormRotary(D, device=device).k_norm.weight == 1).all()
    sum(o.square().sum() for o in rope(*queries(device))).backward()
    assert all(parameter.grad.any() for parameter in rope.parameters())


def test_casts_and_devices(device):
    """Weights are cast with the model, frequencies are not; a layer may start on the meta device."""
    rope = copes.nn.QKNormRotary(D, device=device).bfloat16()
    assert rope.q_norm.weight.dtype == torch.bfloat16 and rope.theta.dtype == torch.float32
    assert all(o.dtype == torch.bfloat16 for o in rope(*queries(device, torch.bfloat16)))
    with torch.device("meta"):
        late = copes.nn.QKNormRotary(D)
    kept = {name: torch.full((D,), 2.0, device=device) for name in late.state_dict()}
    late.load_state_dict(kept, assign=True)
    late.theta = late.theta.new_empty(late.theta.shape, device=device)
    made = late(*queries(device))
    assert (late.q_norm.weight == 2).all() and all(torch.isfinite(o).all() for o in made)


def test_refusals():
    with pytest.raises(ValueError, match="norm_over is 'heads'; it must be head or all_heads"):
        copes.nn.QKNormRotary(D, norm_over="heads")
    with pytest.raises(ValueError, match="heads is None; with norm_over='all_heads' it must be their number"):
        copes.nn.QKNormRotary(D, norm_over="all_heads")


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_lengths(scaling):
    """Frequencies follow the length, as RotaryEmbedding's."""
    parameters = {
        "dynamic": dict(rope_type="dynamic", factor=2.0),
        "longrope": dict(
            rope_type="longrope",
            short_factor=[1.0] * (D // 2),
            long_factor=[3.0] * (D // 2),
            original_max_position_embeddings=8,
        ),
    }[scaling]
    rope = copes.nn.QKNormRotary(D, scaling=parameters, max_position=16, eps=1e-30)
    plain = copes.nn.RotaryEmbedding(D, scaling=parameters, max_position=16)
    q, k = (torch.nn.functional.normalize(x, dim=-1) * D**0.5 for x in queries("cpu"))
    for length in (None, 64):
        for o, x in zip(rope(q, k, length=length), (q, k)):
            torch.testing.assert_close(o.detach(), plain(x, length=length), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(rope(q, k)[0], rope(q, k, length=64)[0])


def test_paged_decode():
    """Tokens of several prompts at once, through a paged cache, are those of generate()."""
    pytest.importorskip("transformers")
    paged = example("paged_decode")
    model = paged.tiny()
    prompts = [torch.randint(1, 300, (length,)) for length in paged.PROMPTS]
    made, expected = paged.decode(model, prompts, 20), paged.generate(model, prompts, 20)
    assert torch.equal(made, expected)
    assert len(set(map(tuple, expected.tolist()))) == len(prompts) and len(expected.unique()) > 8
