"""What stands between a projection and attention, the table `prologue`: queries and keys normalized, turned, and keys and
values written to a paged cache, in decoding, in chunks of prompts, in long prompts, and backward."""

import math
from dataclasses import dataclass

import torch

from .rope import Angles, RopeCase, make_angles, make_inputs

OP = "prologue"
MODES = ("forward", "backward", "backward_weights")
EPS = 1e-6
PAGE = 16  # tokens in a block of the cache
CHUNK = 256
DIMS = (64, 256, 512)  # beside 128


@dataclass(frozen=True)
class PrologueCase(RopeCase):
    """One row, of queries and keys at once. With a cache the keys go there alone, and so do values of their shape."""

    part: str = "both"
    norm: bool = False
    cache: bool = False
    op: str = OP

    @property
    def rotates(self):
        return not self.norm and not self.cache

    @property
    def packed(self):
        """Do they lie in one tensor, as a projection gives them? Peers that norm ask for it, those that only turn cannot."""
        return self.norm and self.mode == "forward"

    @property
    def kind(self):
        return "norm + cache" if self.cache else "norm" if self.norm else "plain"

    def table(self, kind):
        mode = {"forward": "fwd", "backward": "bwd", "backward_weights": "bwd_weights"}[self.mode]
        heads = "+".join(map(str, self.heads))
        flags = (
            "-norm" * self.norm + "-cache" * self.cache + "-positions" * self.positions + "-in_place" * self.in_place
        )
        return f"prologue-{kind}-{mode}-batch{self.batch}-head{heads}-dim{self.dim}-{self.dtype}{flags}"

    @property
    def label(self):
        heads = "+".join(map(str, self.heads))
        return f"{self.kind} ({self.batch}, {self.n}, {heads}, {self.dim}){', in place' * self.in_place}"

    @property
    def order(self):
        kind = self.norm, self.cache
        return (
            *self.group_order(MODES),
            self.dim != 128,
            self.dim,
            -self.batch * self.decodes,
            self.n,
            *kind,
            self.in_place,
        )

    @property
    def cache_shape(self):
        return (self.batch * math.ceil(self.n / PAGE), PAGE, self.k_head, self.dim)

    @property
    def bytes_moved(self):
        """The fewest, as of a rotation: of the cache what is written."""
        q, k = (math.prod(shape) * self.type.itemsize for shape in self.shapes)
        tokens = 8 * self.batch * self.n
        angles = 4 * self.dim // 2 + tokens * self.positions
        saved = (q + k) * (self.norm and self.mode != "forward")
        gradients = 2 * self.dim * self.type.itemsize * (self.mode == "backward_weights")
        weights = 2 * self.dim * self.type.itemsize * self.norm
        return 2 * (q + k) + (2 * k + tokens) * self.cache + angles + saved + weights + gradients


@dataclass(frozen=True)
class Setting:
    """What a row's calls share: angles, the norm's weights of queries and keys or nothing, each token's slot or None, and in
    the backward the forward's inputs."""

    angles: Angles
    weights: tuple
    slots: torch.Tensor | None
    saved: tuple


def make_setting(case, device):
    generator = torch.Generator(device).manual_seed(2026)
    weights = [1 + torch.randn(case.dim, device=device, generator=generator) / 8 for _ in range(2 * case.norm)]
    places = torch.arange(case.batch)[:, None] * (math.ceil(case.n / PAGE) * PAGE) + torch.arange(case.n)
    saved = make_inputs(case, device, seed=2025) if case.mode != "forward" else ()
    return Setting(
        make_angles(case, device),
        tuple(weight.to(case.type) for weight in weights),
        places.to(device) if case.cache else None,
        tuple(saved),
    )


def make_tensors(case, device):
    """Queries and keys or, in the backward, the gradients that arrive; with a cache then values."""
    inputs = make_inputs(case, device)
    tensors = [*inputs, *(make_inputs(case, device, seed=2027)[1:] if case.cache else ())]
    return pack(tensors) if case.packed else tensors


def pack(tensors):
    """Their copies, side by side in one tensor."""
    return torch.cat(tensors, 2).split([x.shape[2] for x in tensors], 2)


def _kinds(shape, kinds, dtype="bf16", **others):
    """Rows of one size, of each of these kinds."""
    for kind in kinds:
        yield PrologueCase(dtype=dtype, norm="norm" in kind, cache="cache" in kind, **shape, **others)


def _forward(shape):
    """The last rows are what some peers have alone: they work in place."""
    yield from _kinds(shape, ("plain", "norm", "norm + cache"))
    yield from _kinds(shape, ("plain", "norm"), in_place=True)


def _backward(shape, dtype="bf16"):
    yield from _kinds(shape, ("plain", "norm"), dtype, mode="backward")
    yield from _kinds(shape, ("norm",), dtype, mode="backward_weights")


def _sizes(lengths, batch):
    """Of decoding and chunks, whose tokens are at positions of their own, and of whole prompts."""
    if lengths or batch:
        few = [{"n": 1, "batch": batch or 256, "positions": True}]
        return few, [{"n": n, "batch": batch or 4} for n in lengths or (8192,)]
    few = [{"n": n, "batch": size, "positions": True} for n, size in ((1, 256), (1, 16), (CHUNK, 8))]
    return few, [{"n": 8192, "batch": 4}, {"n": 65536, "batch": 1, "q_head": 64}]


def make_cases(quick=False, lengths=None, batch=None, dtypes=("bf16", "f16", "f32")):
    """bfloat16 has every row, the other types one of decoding, of a prompt and of its backward. `lengths` and `batch` replace
    the sizes."""
    few, prompts = _sizes(lengths, batch)
    cases = []
    for dtype in dtypes if not quick else dtypes[:1]:
        if dtype != "bf16":
            cases += _kinds(few[0], ("norm + cache",), dtype)
            cases += _kinds(prompts[0], ("norm",), dtype)
            cases += _kinds(prompts[0], ("norm",), dtype, mode=MODES[2])
            continue
        for shape in few[:1] + prompts[:1] if quick else few + prompts:
            cases += _forward(shape)
        for shape in prompts[:1] if quick else prompts:
            cases += _backward(shape)
        for dim in () if quick else DIMS:
            cases += _kinds(few[0], ("plain", "norm + cache"), dim=dim)
            cases += _kinds(prompts[0], ("plain", "norm + cache"), dim=dim)
            cases += _kinds(prompts[0], ("norm",), mode=MODES[1], dim=dim)
    return cases
