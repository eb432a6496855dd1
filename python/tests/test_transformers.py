"""Models of the transformers package that turn by copes against the same models untouched: tiny, random, of every family
that docs/python.md lists."""

import copy

import pytest
import torch

transformers = pytest.importorskip("transformers")
import zoo  # noqa: E402
from copes.integrations.transformers import use  # noqa: E402

N = 40
BOUND = 1e-5  # relative, in float32
MODELS = [*zoo.TEXT, *zoo.VISION]


@pytest.fixture(autouse=True)
def one_thread():
    """The models are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tokens(*shape):
    return torch.randint(4, zoo.VOCABULARY - 2, shape, generator=torch.Generator().manual_seed(1))


def inputs_of(name, batch=2, dtype=torch.float32):
    return zoo.images(name, dtype) if name in zoo.VISION else dict(input_ids=tokens(batch, N))


def results(model, **inputs):
    """Logits, and the gradient of every parameter."""
    model.zero_grad()
    logits = model(use_cache=False, **inputs).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), inputs["input_ids"].flatten()).backward()
    gradients = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach().double(), **gradients}


def assert_close(result, expected):
    """Logits, and each gradient, which may vanish beside the others (a bias that softmax cancels)."""
    assert result.keys() == expected.keys()
    whole = torch.cat([value.flatten() for name, value in expected.items() if name != "logits"]).norm()
    for name, value in expected.items():
        size = value.norm() if name == "logits" else value.norm() + 1e-2 * whole
        assert (result[name] - value).norm() <= BOUND * size, name


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name):
    model, inputs = zoo.model(name), inputs_of(name)
    untouched = results(model, **inputs)
    with use(model):
        assert_close(results(model, **inputs), untouched)
    after = results(model, **inputs)
    assert all(torch.equal(after[each], value) for each, value in untouched.items())
    assert not any("copes" in each for each, _ in model.named_buffers())


def errors(exact, result):
    """Of logits and of all gradients together."""
    square = {name: (result[name] - value).square().sum() for name, value in exact.items()}
    logits = square.pop("logits")
    return torch.stack((logits, torch.stack(list(square.values())).sum())).sqrt()


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name):
    """No further from float64 than the untouched model, in the geometric mean of several random ones, as attention's
    other roundings and the choice of experts are noise. Qwen3-VL's gradients gain less than the noise of 12."""
    ratios = []
    for seed in range(72 if name == "qwen3-vl" else 12):
        exact = results(zoo.model(name, torch.float64, seed), **inputs_of(name, 4, torch.float64))
        model, inputs = zoo.model(name, torch.bfloat16, seed), inputs_of(name, 4, torch.bfloat16)
        untouched = errors(exact, results(model, **inputs))
        with use(model):
            ratios.append(errors(exact, results(model, **inputs)) / untouched)
    ratio = torch.stack(ratios).log().mean(0).exp()
    print(name, ratio)
    assert (ratio <= 1).all(), ratio


# ---- positions -------------------------------------------------------------------------------------------------------


def generated(model, **inputs):
    made = model.generate(**inputs, max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_scores=True)
    return made.sequences, torch.stack(made.scores).double()


def padded(name):
    """Rows of 12 and 17 tokens behind padding, or images."""
    if name in zoo.VISION:
        return zoo.images(name)
    mask = (torch.arange(17) >= torch.tensor([[5], [0]])).long()
    return dict(input_ids=tokens(2, 17) * mask, attention_mask=mask)


@pytest.mark.parametrize("name", MODELS)
def test_generate(name):
    """With a cache, and with left padding, so that rows are at different positions."""
    model = zoo.model(name)
    sequences, scores = generated(model, **padded(name))
    with use(model):
        turned_sequences, turned_scores = generated(model, **padded(name))
        if name in zoo.TEXT and zoo.TEXT[name][1].get("rope_parameters", {}).get("rope_type") != "longrope":
            alone, _ = generated(model, input_ids=padded(name)["input_ids"][:1, 5:])
            assert torch.equal(alone, turned_sequences[:1, 5:])
    assert torch.equal(turned_sequences, sequences)
    assert (turned_scores - scores).norm() <= BOUND * scores.norm()


def varlen(module, query, key, value, attention_mask, scaling, cu_seq_lens_q=None, **_):
    """Attention with FlashAttention's arguments for packed sequences."""
    outputs = []
    for begin, end in zip(cu_seq_lens_q[:-1].tolist(), cu_seq_lens_q[1:].tolist()):
        parts = (x[:, :, begin:end] for x in (query, key, value))
        outputs.append(
            torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, scale=scaling, enable_gqa=True)
        )
    return torch.cat(outputs, 2).transpose(1, 2), None


@pytest.mark.parametrize("attention", ["sdpa", "varlen"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "cohere", "gpt-neox", "gpt-j"])
def test_packed(name, attention):
    """Several sequences in one row: the same as each for itself."""
    transformers.AttentionInterface.register("varlen", varlen)
    transformers.AttentionMaskInterface.register("varlen", lambda *_, **__: None)
    lengths, row = [13, 7, 20], tokens(1, N)
    packed = dict(input_ids=row, position_ids=torch.cat([torch.arange(each) for each in lengths])[None])
    if attention == "varlen":
        ends = torch.tensor([0, *lengths]).cumsum(0).int()
        packed.update(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=20, max_length_k=20)
    model = zoo.model(name).requires_grad_(False)
    alone = torch.cat([model(each).logits for each in row.split(lengths, 1)], 1)
    model.set_attn_implementation(attention)
    with use(model):
        logits = model(**packed, use_cache=False).logits
    assert (logits - alone).norm() <= BOUND * alone.norm()


@torch.no_grad()
def test_far_positions():
    """Attention depends on distances only, also where the untouched model's angles have lost their digits."""
    model, positions = zoo.model("llama"), torch.arange(N)[None]

    def logits(begin):
        return model(tokens(1, N), position_ids=positions + begin, use_cache=False).logits

    near = logits(0)
    assert (logits(10**6) - near).norm() > 1e-3 * near.norm()
    with use(model):
        assert (logits(10**6) - near).norm() <= BOUND * near.norm()


def test_sections():
    """M-RoPE in sections is copes's own; interleaved it takes a theta of each dimension."""
    for name, buffers in (("qwen2-vl", []), ("qwen3-vl", ["copes_selection"])):
        text = zoo.model(name).model.language_model
        with use(text):
            assert [each for each, _ in text.rotary_emb.named_buffers() if "copes" in each] == buffers


@pytest.mark.parametrize("name", ["llama, dynamic", "phi-3"])
def test_lengths(name):
    """Frequencies follow the length of the sequence, up and down; backward has those of its own forward."""
    model = zoo.model(name)
    rows = [tokens(1, each) for each in (8, N, 12, 20)]
    untouched = [results(model, input_ids=row) for row in rows]
    with use(model):
        for row, expected in zip(rows, untouched):
            assert_close(results(model, input_ids=row), expected)
        model.zero_grad()
        first, _ = (model(rows[i], use_cache=False).logits for i in (1, 0))
        loss = torch.nn.functional.cross_entropy(first.flatten(0, 1).double(), rows[1].flatten())
        loss.backward()
    gradients = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    assert_close({"logits": first.detach().double(), **gradients}, untouched[1])


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["llama", "gemma 3", "gpt-oss", "deepseek-v3", "gpt-j", "qwen2-vl", "qwen3-vl"])
def test_gradient_checkpointing(name, reentrant):
    model, inputs = zoo.model(name), inputs_of(name)
    untouched = results(model, **inputs)
    model.train().gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    with use(model):
        assert_close(results(model, **inputs), untouched)


@pytest.mark.parametrize("name", ["llama", "gemma 3", "phi-3", "gpt-neox", "gpt-j", "cohere"])
def test_compile(name):
    """In one graph, with gradients."""
    model, inputs = zoo.model(name), dict(input_ids=tokens(2, N), position_ids=torch.arange(N).expand(2, -1))
    untouched = results(model, **inputs)
    torch._dynamo.reset()
    with use(model):
        forward, model.forward = model.forward, torch.compile(model.forward, fullgraph=True, backend="aot_eager")
        turned = results(model, **inputs)
        model.forward = forward
    assert_close(turned, untouched)


@torch.no_grad()
def test_compile_to_code():
    model, inputs = zoo.model("llama", num_hidden_layers=1), dict(input_ids=tokens(2, N), use_cache=False)
    untouched = model(**inputs).logits
    torch._dynamo.reset()
    with use(model):
        logits = torch.compile(model, fullgraph=True)(**inputs).logits
    assert (logits - untouched).norm() <= BOUND * untouched.norm()


@pytest.mark.parametrize("name", MODELS)
def test_no_table(name, monkeypatch):
    """Nothing computes a cosine."""
    model = zoo.model(name).requires_grad_(False)

    def refuse(*_):
        raise AssertionError("a cosine")

    with use(model):
        for owner in (torch, torch.Tensor):
            monkeypatch.setattr(owner, "cos", refuse)
        model(use_cache=False, **inputs_of(name))


# ---- what use() touches and refuses ----------------------------------------------------------------------------------


def test_other_models():
    """Of the same class: they stay as they are, and each handle is its model's."""
    first, second, row = zoo.model("llama"), zoo.model("llama", seed=1), dict(input_ids=tokens(1, N))
    untouched = results(second, **row)
    apply = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
    handle = use(first)
    assert all(torch.equal(value, untouched[name]) for name, value in results(second, **row).items())
    other = use(second)
    copied = copy.deepcopy(second)
    handle.remove()
    handle.remove()
    assert_close(results(second, **row), untouched)
    assert_close(results(copied, **row), untouched)
    other.remove()
    assert transformers.models.llama.modeling_llama.apply_rotary_pos_emb is apply
    assert all(torch.equal(value, untouched[name]) for name, value in results(second, **row).items())


def test_parts():
    """A part of a model turns alone."""
    model, inputs = zoo.model("qwen2-vl"), zoo.images("qwen2-vl")
    untouched = results(model, **inputs)
    for part in (model.model.language_model, model.model.visual):
        with use(part):
            assert sum("forward" in vars(module) for module in model.modules()) == 1
            assert_close(results(model, **inputs), untouched)


def refused(model, message):
    namespace = dict(vars(transformers.models.llama.modeling_llama))
    with pytest.raises(ValueError, match=message):
        use(model)
    assert namespace == vars(transformers.models.llama.modeling_llama)
    assert not any("forward" in vars(module) for module in model.modules() if type(module).__name__ != "Hooked")


def test_refuses_models_without_rotary_modules():
    refused(torch.nn.Linear(2, 2), "Linear has no rotary module")


def test_refuses_twice():
    model = zoo.model("llama")
    with use(model), pytest.raises(ValueError, match="LlamaRotaryEmbedding.forward was replaced, by copes or by hooks"):
        use(model)


def test_refuses_hooks():
    """As accelerate leaves them on models that are spread over devices."""
    model = zoo.model("llama")
    rotary = model.model.rotary_emb
    rotary.forward = rotary.forward
    with pytest.raises(ValueError, match="forward was replaced"):
        use(model)


def test_refuses_meta():
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(zoo.model("llama").config)
    refused(model, "LlamaRotaryEmbedding is on the meta device")


@pytest.mark.parametrize("change", ["positions", "squares", "complex"])
def test_refuses_other_angles(monkeypatch, change):
    model = zoo.model("llama")
    rotary = type(model.model.rotary_emb)
    forward = rotary.forward

    def changed(self, x, position_ids):
        if change == "positions":
            return forward(self, x, position_ids * 2)
        cos, sin = forward(self, x, position_ids)
        return (cos**2, sin) if change == "squares" else torch.complex(cos, sin)

    monkeypatch.setattr(rotary, "forward", changed)
    refused(model, r"LlamaRotaryEmbedding \(rope type 'llama3'\) does not return the cosines and sines of")


@pytest.mark.parametrize("change", ["sign", "order", "name"])
def test_refuses_other_pairs(monkeypatch, change):
    model = zoo.model("llama")
    file = transformers.models.llama.modeling_llama
    apply = file.apply_rotary_pos_emb

    def changed(q, k, cos, sin, unsqueeze_dim=1):
        if change == "sign":
            return apply(q, k, cos, -sin, unsqueeze_dim)
        return tuple(x.flip(-1) for x in apply(q, k, cos, sin, unsqueeze_dim))

    def renamed(q, k, c, s):
        return apply(q, k, c, s)

    monkeypatch.setattr(file, "apply_rotary_pos_emb", renamed if change == "name" else changed)
    unknown = (
        r"hands its cosines to apply_rotary_pos_emb\(\)" if change == "name" else "copes does not know how pairs turn"
    )
    refused(model, unknown)


def test_refuses_what_computes_with_cosines():
    """Qwen2.5-VL's images reorder them; its text is taken alone."""
    config = transformers.Qwen2_5_VLConfig(
        text_config=zoo.model("qwen2-vl").config.text_config.to_dict(),
        vision_config=dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=4, out_hidden_size=64),
    )
    model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    refused(model, "Qwen2_5_VisionTransformerPretrainedModel computes with its cosines")
    use(model.model.language_model).remove()
