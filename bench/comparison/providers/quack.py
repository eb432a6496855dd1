"""The rotary kernel in CuTe of QuACK (github.com/Dao-AILab/quack), where importable. It is called as flash-attn's is."""

from .flash_attention import FlashAttention


class QuACK(FlashAttention):
    name = family = "QuACK"
    module, package, distribution = "quack.rotary", "quack", "quack-kernels"
    language = "CuTe"
