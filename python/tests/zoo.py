"""Tiny random models of the transformers package, one for each family. Positions stay below 512, as the package's angles
are float32 products: there a cosine is off by up to 512 * 2**-24, which is 3e-5."""

import torch
import transformers

VOCABULARY = 60

SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)


def _rope(kind, **parameters):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **parameters))


_LLAMA3 = _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
_YARN = _rope("yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=64)
_LONGROPE = _rope(
    "longrope",
    short_factor=[1.0 + 0.1 * i for i in range(8)],
    long_factor=[2.0 + 0.5 * i for i in range(8)],
    original_max_position_embeddings=16,
)
_GEMMA3 = dict(
    layer_types=["sliding_attention", "full_attention"],
    sliding_window=8,
    query_pre_attn_scalar=1,  # attention is flat without it, as queries and keys have norms of their own
    rope_parameters={
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0),
        "full_attention": dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
    },
)
_EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
_DEEPSEEK = dict(
    moe_intermediate_size=16,
    n_routed_experts=4,
    n_group=2,
    topk_group=1,
    num_experts_per_tok=2,
    first_k_dense_replace=1,
    kv_lora_rank=16,
    q_lora_rank=24,
    qk_rope_head_dim=8,
    qk_nope_head_dim=16,
    v_head_dim=16,
    head_dim=8,
    num_key_value_heads=4,
)
_GPTJ = dict(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=None)

TEXT = {  # name: (transformers' name of the configuration, what differs from SIZES, or all of it)
    "llama": ("Llama", _LLAMA3),
    "llama, dynamic": ("Llama", dict(max_position_embeddings=24, **_rope("dynamic", factor=2.0))),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "olmo 2": ("Olmo2", {}),
    "mistral": ("Mistral", dict(sliding_window=8)),
    "gemma 3": ("Gemma3Text", _GEMMA3),
    "phi-3": ("Phi3", dict(original_max_position_embeddings=16, **_LONGROPE)),
    "gpt-oss": ("GptOss", dict(**_EXPERTS, **_YARN)),
    "deepseek-v3": ("DeepseekV3", dict(**_DEEPSEEK, **_YARN)),
    "deepseek-v3, half": ("DeepseekV3", dict(rope_interleave=False, **_DEEPSEEK, **_YARN)),
    "gpt-neox": ("GPTNeoX", _rope("default", partial_rotary_factor=0.5)),
    "gpt-j": ("GPTJ", dict(rotary_dim=8, **_GPTJ)),
    "gpt-j, all features": ("GPTJ", dict(rotary_dim=16, **_GPTJ)),
    "cohere": ("Cohere", {}),
}


_SCORES = ("q_proj", "q_b_proj", "k_proj", "kv_a_proj", "qkv", "query_key_value")
_OUTPUT = ("o_proj", "out_proj")


def sharpen(model):
    """As they are, attention would hardly depend on positions, nor the result on attention."""
    names = [name for name, parameter in model.named_parameters() if parameter.dim() == 2]
    fused = any("qkv_proj" in name for name in names)  # scales values, too
    with torch.no_grad():
        for name in names:
            if any(part in name for part in (_SCORES if fused else _SCORES + _OUTPUT)):
                model.get_parameter(name).mul_(12)
    return model.eval()


def _made(config, kind, dtype, seed):
    torch.manual_seed(seed)
    model = sharpen(getattr(transformers, kind)._from_config(config, experts_implementation="eager"))
    return model if dtype == torch.float32 else cast(model, dtype)


def model(name, dtype=torch.float32, seed=0, **more):
    """One of TEXT or VISION; the same weights each time."""
    if name in VISION:
        return _vision(VISION[name], dtype, seed)
    kind, differs = TEXT[name]
    config = getattr(transformers, f"{kind}Config")(**{**({} if kind == "GPTJ" else SIZES), **differs, **more})
    return _made(config, f"{kind.removesuffix('Text')}ForCausalLM", dtype, seed)


def cast(model, dtype):
    """Frequencies stay float32, as they do in models that are loaded in this type."""
    kept = {name: buffer for name, buffer in model.named_buffers() if buffer.dtype == torch.float32}
    model = model.to(dtype)
    for name, buffer in kept.items():
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, buffer)
    return model


# ---- text and images -------------------------------------------------------------------------------------------------

_IMAGE, _VIDEO = VOCABULARY - 1, VOCABULARY - 2
_TOWER = dict(num_heads=4, depth=2, patch_size=4, temporal_patch_size=2, spatial_merge_size=2)
_TOWERS = {
    "Qwen2VL": dict(embed_dim=32, hidden_size=64, mlp_ratio=2),
    "Qwen3VL": dict(
        hidden_size=32,
        out_hidden_size=64,
        intermediate_size=48,
        num_position_embeddings=16,
        deepstack_visual_indexes=[0],
    ),
}
VISION = {"qwen2-vl": "Qwen2VL", "qwen3-vl": "Qwen3VL"}
GRIDS = torch.tensor([[1, 4, 6], [1, 8, 4], [2, 4, 4]])  # patches of two images and a video: time, height, width


def _vision(kind, dtype, seed):
    """Of text and images; its rotary positions in three dimensions are in sections (Qwen2-VL), or interleaved."""
    text_config = {**SIZES, **_rope("default", mrope_section=[4, 2, 2])}
    if kind == "Qwen2VL":
        del text_config["head_dim"]
    config = getattr(transformers, f"{kind}Config")(
        text_config=text_config,
        vision_config={**_TOWER, **_TOWERS[kind]},
        image_token_id=_IMAGE,
        video_token_id=_VIDEO,
        vision_start_token_id=2,
        vision_end_token_id=3,
    )
    return _made(config, f"{kind}ForConditionalGeneration", dtype, seed)


def images(name, dtype=torch.float32):
    """A row with two images between words, and one with a video, which Qwen3-VL has words (times) in."""
    between = 1 if name == "qwen3-vl" else 0
    generator = torch.Generator().manual_seed(2)
    patches = GRIDS.prod(1).tolist()
    first, second, video = (count // 4 for count in patches)

    def words(count):
        return torch.randint(4, _VIDEO, (count,), generator=generator)

    image, frame = torch.tensor([_IMAGE]), torch.tensor([_VIDEO] * (video // 2))
    rows = [
        torch.cat((words(3), image.expand(first), words(2), image.expand(second), words(5))),
        torch.cat((words(9), frame, words(between), frame, words(7 - between))),
    ]
    input_ids = torch.stack(rows)
    pixels = torch.randn(sum(patches), 3 * 2 * 4 * 4, generator=generator).to(dtype)
    images_end = sum(patches[:2])
    return dict(
        input_ids=input_ids,
        pixel_values=pixels[:images_end],
        image_grid_thw=GRIDS[:2],
        pixel_values_videos=pixels[images_end:],
        video_grid_thw=GRIDS[2:],
        mm_token_type_ids=(input_ids == _IMAGE).int() + 2 * (input_ids == _VIDEO).int(),
    )
