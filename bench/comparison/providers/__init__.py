"""Who is compared. A provider says which cases it runs, and gives a function of a case's inputs, differentiable in the
first of them; for the tables `rope` and `prologue` one of buffers. Adding one is a class like these and its name below."""

from .base import Provider
from .copes import Copes, CopesRotate
from .flash_attention import FlashAttention
from .flashinfer import FlashInfer
from .flashtpa import FlashTPA
from .liger import Liger
from .onednn import OneDNN
from .pytorch import CompiledCached, CompiledTorch, NaiveTorch, Torch, TunedTorch
from .quack import QuACK
from .vllm import VLLM
from .xopes import Xopes, XopesCached, XopesDecode

ALL = (
    Copes(),
    CopesRotate(),
    Torch(),
    CompiledTorch(),
    TunedTorch(),
    CompiledCached(),
    NaiveTorch(),
    NaiveTorch(compiled=True),
    OneDNN(),
    Xopes(),
    XopesCached(),
    XopesDecode("b"),
    XopesDecode("bh"),
    XopesDecode("bn"),
    FlashTPA(),
    FlashAttention(),
    QuACK(),
    Liger(),
    FlashInfer(),
    FlashInfer(angles=True),
    VLLM(),
)

__all__ = ["ALL", "Provider"]
