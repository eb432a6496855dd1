"""Decoding with a paged key and value cache that copes.nn.QKNormRotary writes: one call a layer norms queries and keys,
turns them and stores keys and values; attention is PyTorch's, over the pages of each sequence. A tiny random Qwen3 of
the transformers package decodes several prompts at once, to the tokens that its own generate() gives each alone.

    python examples/paged_decode.py [--tokens 24]
"""

import argparse

import copes.nn
import torch
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

PAGE = 8  # tokens of a block
PROMPTS = (5, 17, 11)  # their lengths


def tiny():
    torch.manual_seed(0)
    sizes = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=8, vocab_size=300)
    config = Qwen3Config(**sizes, num_key_value_heads=2, head_dim=32, eos_token_id=None, pad_token_id=0)
    return Qwen3ForCausalLM(config).eval()


class PagedAttention:
    """A layer's attention with its part of the cache: (blocks, page, heads, features) of keys and of values."""

    def __init__(self, attention, config, blocks):
        self.attention, self.dim = attention, config.head_dim
        self.rope = copes.nn.QKNormRotary.from_config(config)
        weights = attention.state_dict()
        self.rope.load_state_dict({name: weights[name] for name in ("q_norm.weight", "k_norm.weight")})
        shape = (blocks, PAGE, config.num_key_value_heads, config.head_dim)
        self.k_cache, self.v_cache = torch.zeros(shape), torch.zeros(shape)

    def __call__(self, x, positions, slots, table):
        projections = (self.attention.q_proj, self.attention.k_proj, self.attention.v_proj)
        q, k, v = (project(x).unflatten(-1, (-1, self.dim)) for project in projections)
        cache = dict(slots=slots, k_cache=self.k_cache, v_cache=self.v_cache)
        q = self.rope(q, k, positions=positions, v=v, **cache, return_k=False)

        k, v = (pages[table].flatten(1, 2) for pages in (self.k_cache, self.v_cache))  # (batch, places, heads, dim)
        seen = torch.arange(k.shape[1]) <= positions[:, :, None]  # place i of a sequence has its token i
        heads_first = (each.transpose(1, 2) for each in (q, k, v))
        o = F.scaled_dot_product_attention(*heads_first, attn_mask=seen[:, None], enable_gqa=True)
        return self.attention.o_proj(o.transpose(1, 2).flatten(2))


def slots_of(positions, lengths, table):
    """Where tokens at these positions are stored; those past the length of their sequence are padding, and are not."""
    slots = table.gather(1, positions // PAGE) * PAGE + positions % PAGE
    return torch.where(positions < lengths[:, None], slots, -1)


def forward(model, attentions, tokens, positions, slots, table):
    """Logits of every token."""
    x = model.model.embed_tokens(tokens)
    for layer, attention in zip(model.model.layers, attentions):
        x = x + attention(layer.input_layernorm(x), positions, slots, table)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.lm_head(model.model.norm(x))


@torch.no_grad()
def decode(model, prompts, count):
    """The most likely `count` tokens after each prompt, (batch, count)."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    pages = -(-(int(lengths.max()) + count) // PAGE)
    table = torch.randperm(len(prompts) * pages).reshape(len(prompts), pages)  # blocks are anyone's
    attentions = [PagedAttention(layer.self_attn, model.config, table.numel()) for layer in model.model.layers]

    tokens = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    positions = torch.arange(tokens.shape[1]).expand(len(prompts), -1)
    logits = forward(model, attentions, tokens, positions, slots_of(positions, lengths, table), table)
    made = [logits[torch.arange(len(prompts)), lengths - 1].argmax(-1)]
    while len(made) < count:
        positions, lengths = lengths[:, None], lengths + 1
        slots = slots_of(positions, lengths, table)
        made.append(forward(model, attentions, made[-1][:, None], positions, slots, table)[:, 0].argmax(-1))
    return torch.stack(made, 1)


@torch.no_grad()
def generate(model, prompts, count):
    """The same by the model itself, each prompt alone."""
    made = (model.generate(prompt[None], max_new_tokens=count, do_sample=False) for prompt in prompts)
    return torch.stack([tokens[0, len(prompt) :] for tokens, prompt in zip(made, prompts)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=24)
    count, model = parser.parse_args().tokens, tiny()
    prompts = [torch.randint(1, model.config.vocab_size, (length,)) for length in PROMPTS]
    paged, expected = decode(model, prompts, count), generate(model, prompts, count)
    print(f"{len(prompts)} prompts, {count} tokens each: {int((paged == expected).sum())} of {expected.numel()} agree")


if __name__ == "__main__":
    main()
