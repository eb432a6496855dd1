"""Decoding with tensor product attention: the cache in factors, against plain attention over the keys and values that
they stand for.

    python examples/tpa_decode.py [--tokens 64]
"""

import argparse

import copes.nn
import torch
from torch.nn import functional as F

BATCH, HEADS, DIM, RANK_Q, RANK = 2, 8, 64, 6, 2


def factors(tokens, rank):
    """Random head and feature factors of some tokens."""
    return torch.randn(BATCH, tokens, HEADS, rank), torch.randn(BATCH, tokens, rank, DIM)


def expand(a, b):
    """What the factors stand for: (batch, heads, tokens, dim)."""
    return torch.einsum("bnhr,bnrd->bhnd", a, b) / a.shape[-1]


def decode(tokens):
    """The outputs of every step by the factored cache and by plain attention."""
    torch.manual_seed(0)
    cache = copes.nn.TPADecodeCache(BATCH, tokens, HEADS, DIM, rank_k=RANK, rank_v=RANK)
    keys, values, outputs, expected = [], [], [], []
    for _ in range(tokens):
        (aq, bq), (ak, bk), (av, bv) = factors(1, RANK_Q), factors(1, RANK), factors(1, RANK)
        cache.append(ak, bk, av, bv)
        outputs.append(cache.decode(aq, bq))

        keys.append(expand(ak, bk))
        values.append(expand(av, bv))
        o = F.scaled_dot_product_attention(expand(aq, bq), torch.cat(keys, 2), torch.cat(values, 2))
        expected.append(o.transpose(1, 2))
    return torch.cat(outputs, 1), torch.cat(expected, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    tokens = parser.parse_args().tokens
    outputs, expected = decode(tokens)
    plain, factored = 2 * HEADS * DIM, 2 * RANK * (HEADS + DIM)
    print(f"{tokens} tokens decoded; largest difference {(outputs - expected).abs().max().item():.1e}")
    print(f"the cache holds {factored} numbers a token where keys and values are {plain}")


if __name__ == "__main__":
    main()
