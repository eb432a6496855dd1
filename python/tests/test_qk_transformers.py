"""Models of transformers whose queries and keys copes.qk_norm_rope norms and turns. (test_transformers.py holds them to the
untouched models, as it does all.)"""

from types import MethodType

import copes
import pytest
import torch

transformers = pytest.importorskip("transformers")
import zoo  # noqa: E402
from copes.integrations import _measure  # noqa: E402
from copes.integrations.transformers import use  # noqa: E402
from test_transformers import BOUND, N, assert_close, inputs_of, one_thread, results, tokens  # noqa: E402, F401

NORMED = {"qwen3": "head", "gemma 3": "head", "olmo 2": "all_heads", "qwen3-vl": "head"}


@pytest.fixture
def calls(monkeypatch):
    """The options of every call of qk_norm_rope by a model."""
    seen = []

    def record(*tensors, **options):
        seen.append(options)
        return copes.qk_norm_rope(*tensors, **options)

    monkeypatch.setattr(_measure, "qk_norm_rope", record)
    return seen


@pytest.mark.parametrize("name", NORMED)
def test_norms_are_part_of_the_turn(name, calls):
    """One call a layer, and no other norm of queries and keys."""
    model, inputs = zoo.model(name).requires_grad_(False), inputs_of(name)
    with use(model):
        calls.clear()
        model(**inputs, use_cache=False)
        assert [each["norm_over"] for each in calls] == [NORMED[name]] * 2
        assert sum(bool(module._forward_pre_hooks) for module in model.modules()) == 2
    assert not any(module._forward_pre_hooks or "forward" in vars(module) for module in model.modules())


def turns_alone(model, calls):
    """The model turns as before by copes, but norms by itself."""
    model.requires_grad_(False)
    untouched = model(tokens(2, N), use_cache=False).logits
    with use(model):
        calls.clear()
        logits = model(tokens(2, N), use_cache=False).logits
        assert not calls
    assert (logits - untouched).norm() <= BOUND * untouched.norm()


def test_norms_of_another_kind(monkeypatch, calls):
    norm = transformers.models.qwen3.modeling_qwen3.Qwen3RMSNorm
    original = norm.forward
    monkeypatch.setattr(norm, "forward", lambda self, x: original(self, x - x.mean(-1, keepdim=True)))
    turns_alone(zoo.model("qwen3"), calls)


BETWEEN = {
    "scale": lambda q: q * 2,
    "other features": lambda q: q.flip(-1),
    "heads of several tokens": lambda q: q.transpose(1, 2).reshape(q.shape),
    "a part": lambda q: q[..., ::2].repeat(1, 1, 1, 2),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_something_in_between(calls, between):
    """Of the norms and the turn."""
    file = transformers.models.olmo2.modeling_olmo2

    def forward(self, hidden_states, position_embeddings, attention_mask=None, **_):
        q = self.q_norm(self.q_proj(hidden_states)).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden_states)).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        cos, sin = position_embeddings
        q, k = file.apply_rotary_pos_emb(BETWEEN[between](q), k, cos, sin)
        o = torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        return self.o_proj(o.transpose(1, 2).flatten(2)), None

    model = zoo.model("olmo 2")
    for layer in model.model.layers:
        layer.self_attn.forward = MethodType(forward, layer.self_attn)
    turns_alone(model, calls)


def test_layers_without_positions(calls):
    """Attention that may be given no cosines norms by itself."""
    file = transformers.models.olmo2.modeling_olmo2

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, **_):
        q = self.q_norm(self.q_proj(hidden_states)).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden_states)).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if position_embeddings is not None:
            q, k = file.apply_rotary_pos_emb(q, k, *position_embeddings)
        o = torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        return self.o_proj(o.transpose(1, 2).flatten(2)), None

    model = zoo.model("olmo 2")
    for layer in model.model.layers:
        layer.self_attn.forward = MethodType(forward, layer.self_attn)
    turns_alone(model, calls)


@pytest.mark.parametrize("name", ["qwen3", "gemma 3", "olmo 2"])
def test_compile(name):
    """In one graph, with gradients, those of norms among them."""
    model, inputs = zoo.model(name), dict(input_ids=tokens(2, N), position_ids=torch.arange(N).expand(2, -1))
    untouched = results(model, **inputs)
    torch._dynamo.reset()
    with use(model):
        forward, model.forward = model.forward, torch.compile(model.forward, fullgraph=True, backend="aot_eager")
        turned = results(model, **inputs)
        model.forward = forward
    assert_close(turned, untouched)
    assert any("q_norm" in each for each in turned)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["qwen3", "olmo 2"])
def test_gradient_checkpointing(name, reentrant):
    model, inputs = zoo.model(name), inputs_of(name)
    untouched = results(model, **inputs)
    model.train().gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    with use(model):
        assert_close(results(model, **inputs), untouched)


def test_weights_that_change():
    """A model in use learns, and loads: its norms are read at each call."""
    model, row = zoo.model("qwen3").requires_grad_(False), tokens(1, N)
    with use(model):
        before = model(row, use_cache=False).logits
        model.model.layers[0].self_attn.q_norm.weight.mul_(1.5)
        after = model(row, use_cache=False).logits
    assert (after - before).norm() > 1e-3 * before.norm()
    untouched = model(row, use_cache=False).logits
    assert (after - untouched).norm() <= BOUND * untouched.norm()
