"""RoPE as models call it, the table `rope`: queries and keys with one theta for all heads, at consecutive positions or
those of a tensor, in place or not, with a gradient of theta or not, and as a decoding step."""

import math
from dataclasses import asdict, dataclass

import torch

OP = "rope"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
MODES = ("forward", "backward", "backward_theta")
PARTS = ("q", "k", "both")
BASE = 10000.0
LONGEST_START = 32768  # of a sequence whose positions a tensor has
REPLAYED_BYTES, MOST_REPLAYS = 512 << 20, 256  # several times what a cache holds


@dataclass(frozen=True)
class RopeCase:
    """One row: queries, keys, or both, one after the other. In place means that the results replace x or, in the
    backward, the gradients that arrive."""

    n: int
    part: str = "q"
    mode: str = "forward"
    dtype: str = "bf16"
    positions: bool = False  # an int64 tensor (B, N) of them; else 0, 1, 2, ...
    in_place: bool = False
    batch: int = 4
    q_head: int = 32
    k_head: int = 8
    dim: int = 128
    op: str = OP

    @property
    def heads(self):
        return {"q": (self.q_head,), "k": (self.k_head,), "both": (self.q_head, self.k_head)}[self.part]

    @property
    def shapes(self):
        return [(self.batch, self.n, heads, self.dim) for heads in self.heads]

    @property
    def type(self):
        return DTYPES[self.dtype]

    @property
    def decodes(self):
        return self.n == 1

    @property
    def rotates(self):
        """Is it RoPE and nothing else?"""
        return True

    def table(self, kind):
        """A title in the manner of the published tables; `kind` is speed or replay."""
        mode = {"forward": "fwd", "backward": "bwd", "backward_theta": "bwd_theta"}[self.mode]
        heads = "+".join(map(str, self.heads))
        flags = "-positions" * self.positions + "-in_place" * self.in_place
        return f"rope-{kind}-{mode}-{self.part}-batch{self.batch}-head{heads}-dim{self.dim}-{self.dtype}{flags}"

    @property
    def key(self):
        return f"{self.table('row')}:{self.n}"

    @property
    def bytes_moved(self):
        """The fewest: each input read once, each output written once."""
        theta_too = self.mode == "backward_theta"
        x = sum(map(math.prod, self.shapes)) * self.type.itemsize
        theta = 4 * self.dim // 2
        return x * (2 + theta_too) + theta * (1 + theta_too) + 8 * self.batch * self.n * self.positions

    @property
    def replays(self):
        """Calls in a graph, each with memory of its own, so that none finds its data in a cache."""
        return min(1 + REPLAYED_BYTES // self.bytes_moved, MOST_REPLAYS)

    def fields(self):
        return asdict(self)

    @property
    def label(self):
        """In the report."""
        heads = "+".join(map(str, self.heads))
        flags = ", positions" * (self.positions and not self.decodes) + ", in place" * self.in_place
        return f"{self.part} ({self.batch}, {self.n}, {heads}, {self.dim}){flags}"

    def group_order(self, modes):
        return list(DTYPES).index(self.dtype), self.decodes, modes.index(self.mode)

    @property
    def order(self):
        """Of rows in the report."""
        part = PARTS.index(self.part)
        return *self.group_order(MODES), self.n, self.batch, part, self.positions, self.in_place


@dataclass(frozen=True)
class Angles:
    """theta (1, K) in float32, and positions (B, N) or, where they are 0, 1, 2, ..., None."""

    theta: torch.Tensor
    positions: torch.Tensor | None
    tokens: int

    @property
    def where(self):
        """Positions as a tensor, (N) or (B, N)."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.tokens, device=self.theta.device)

    def tables(self, dtype, where=None):
        """Cosines and sines at each position, (..., K), made in float64 and rounded."""
        where = self.where if where is None else where
        phi = where.double()[..., None] * self.theta[0].double()
        return phi.cos().to(dtype), phi.sin().to(dtype)


def make_angles(case, device):
    """Each sequence's positions follow on each other, from a start of its own."""
    exponents = torch.arange(0, case.dim, 2, dtype=torch.float64) / case.dim
    theta = (BASE**-exponents).float()[None].to(device)
    if not case.positions:
        return Angles(theta, None, case.n)
    starts = (torch.arange(case.batch) * 7919 + 1009) % LONGEST_START
    return Angles(theta, (starts[:, None] + torch.arange(case.n)).to(device), case.n)


def make_inputs(case, device, seed=2024):
    """x, or in the backward the gradients that arrive: of queries, of keys."""
    generator = torch.Generator(device).manual_seed(seed)
    return [torch.randn(shape, dtype=case.type, device=device, generator=generator) for shape in case.shapes]


def _training(shape, dtype, every):
    """The rows of one shape; without `every` only those in place that rotate both."""
    for mode in MODES[:2]:
        for part in PARTS:
            for positions in (False, True):
                for in_place in (False, True) if every or part == "both" else (False,):
                    yield RopeCase(part=part, mode=mode, dtype=dtype, positions=positions, in_place=in_place, **shape)
    for part in PARTS[:2]:
        for positions in (False, True):
            yield RopeCase(part=part, mode=MODES[2], dtype=dtype, positions=positions, **shape)


def _decoding(batch, dtype):
    for part in PARTS:
        for in_place in (False, True):
            yield RopeCase(1, part, dtype=dtype, positions=True, in_place=in_place, batch=batch)


def _is_quick(case):
    """Of each kind of row a few, with one that every provider has."""
    both = case.part == "both" and case.in_place and case.mode == MODES[0]
    return both or (case.part == "q" and not case.in_place and not (case.positions and case.mode != MODES[0]))


def make_cases(quick=False, lengths=None, batch=None, dtypes=tuple(DTYPES)):
    """The rows, type by type. `lengths` and `batch` replace the sizes."""
    shapes = [{"batch": 4, "n": 8192, "q_head": 32}, {"batch": 1, "n": 65536, "q_head": 64}]
    if lengths or batch:
        shapes = [{"batch": batch or 4, "n": n, "q_head": 32} for n in lengths or (8192,)]
    cases = []
    for dtype in dtypes:
        for shape in shapes[:1] if quick else shapes:
            cases += _training(shape, dtype, every=shape["q_head"] == 32)
        cases += _decoding(batch or 256, dtype)
    return [case for case in cases if not quick or _is_quick(case)]
