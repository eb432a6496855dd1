"""A small transformer that learns to continue text, trained twice from the same seed: with RoPE written in plain
PyTorch, and with copes in its place. The losses agree.

    python examples/rope_transformer.py [--steps 100]
"""

import argparse

import copes.nn
import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the quick brown fox jumps over the lazy dog; the five boxing wizards jump quickly. " * 40
WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 8


class PlainRope(nn.Module):
    """RoPE as models usually write it, on (batch, heads, tokens, dim)."""

    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("theta", base ** (-torch.arange(0, dim, 2) / dim), persistent=False)

    def forward(self, x):
        angles = torch.arange(x.shape[-2])[:, None] * self.theta
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    def __init__(self, rope):
        super().__init__()
        self.rope = rope
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self, symbols, make_rope):
        super().__init__()
        self.embed = nn.Embedding(symbols, WIDTH)
        self.blocks = nn.Sequential(*(Block(make_rope()) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, symbols)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def train(make_rope, steps):
    """The loss of every step."""
    torch.manual_seed(0)
    symbols = sorted(set(TEXT))
    data = torch.tensor([symbols.index(c) for c in TEXT])
    model = Transformer(len(symbols), make_rope)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        begin = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
        window = torch.stack([data[i : i + CONTEXT + 1] for i in begin])
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(steps):
    """The losses with plain RoPE and with copes."""
    dim = WIDTH // HEADS
    plain = train(lambda: PlainRope(dim), steps)
    fused = train(lambda: copes.nn.RotaryEmbedding(dim, heads_first=True), steps)
    return plain, fused


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    plain, fused = compare(parser.parse_args().steps)
    print("step  plain RoPE  copes")
    for step in range(0, len(plain), max(1, len(plain) // 10)):
        print(f"{step:4d}  {plain[step]:10.6f}  {fused[step]:.6f}")
    print(f"largest difference: {max(abs(a - b) for a, b in zip(plain, fused)):.1e}")


if __name__ == "__main__":
    main()
