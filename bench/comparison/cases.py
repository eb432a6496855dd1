"""The rows of the tables: an operator, a direction and a size; the inputs of each and the bytes that it must move."""

import math
from dataclasses import asdict, dataclass, replace

import torch

OPERATORS = ("act", "lrpe_rotate", "lrpe_cosine", "md_lrpe_cosine", "tpa_decode")
MODES = ("forward", "backward")
LENGTHS = tuple(2**i for i in range(8, 16))
SIDES = {1: LENGTHS, 2: (16, 32, 64, 128), 3: (4, 8, 16, 32)}
QUICK_LENGTHS = (1024, 8192)
QUICK_SIDES = {1: QUICK_LENGTHS, 2: (64,), 3: (16,)}
QUICK_CACHES = (4096, 32768)
TPA_RANK = 16
BYTES = 2  # of a bfloat16


@dataclass(frozen=True)
class Case:
    """One row. `n` is what the row shows: tokens, a side of the grid, or the length of tpa_decode's cache."""

    op: str
    n: int
    mode: str = "forward"
    act: str = "none"
    over_tokens: bool = False  # softmax's axis: the sequence; else the features
    grid_rank: int = 1
    prefix: int = 0
    batch: int = 12
    head: int = 12
    dim: int = 128

    def table(self, kind):
        """The title of the table that the row is in, as xopes prints it; `kind` is speed, memory, ..."""
        mode = "fwd" if self.mode == "forward" else "bwd"
        title = f"{self.op}-{kind}-{mode}-batch{self.batch}-head{self.head}-dim{self.dim}"
        if self.op == "md_lrpe_cosine":
            return f"{title}-bf16-{self.grid_rank}d-l{self.prefix}"
        if self.op == "tpa_decode":
            return f"{title}-rank{TPA_RANK}-bf16"
        return f"{title}-act_{self.activation}-bf16"

    @property
    def activation(self):
        """The activation, and softmax's axis as xopes numbers it for each operator."""
        if self.act != "softmax":
            return self.act
        return f"softmax-dim_{-1 if not self.over_tokens else 1 if self.op == 'lrpe_rotate' else -2}"

    @property
    def key(self):
        return f"{self.table('row')}:{self.n}"

    def fields(self):
        return asdict(self)

    @property
    def grid(self):
        return (self.n,) * self.grid_rank

    @property
    def tokens(self):
        return self.prefix + self.n**self.grid_rank

    @property
    def heads_first(self):
        """Stored (B, H, N, D), as xopes runs these operators; the others are (B, N, H, D)."""
        return self.op in ("act", "md_lrpe_cosine")

    @property
    def softmax_axis(self):
        """Of x as it is stored: the sequence or the features."""
        return (2 if self.heads_first else 1) if self.over_tokens else 3

    @property
    def angles(self):
        """Angles a head has."""
        return self.dim // 2 if self.op == "lrpe_rotate" else self.dim

    @property
    def x_shape(self):
        if self.heads_first:
            return (self.batch, self.head, self.tokens, self.dim)
        return (self.batch, self.tokens, self.head, self.dim)

    @property
    def output_shape(self):
        if self.op == "tpa_decode":
            return (self.batch, 1, self.head, self.dim)
        return (*self.x_shape[:3], self.dim * (2 if "cosine" in self.op else 1))

    @property
    def input_shapes(self):
        """In the order of the functions' arguments."""
        if self.op == "act":
            return (self.x_shape,)
        if self.op != "tpa_decode":
            return self.x_shape, (self.head, math.ceil(self.angles / self.grid_rank))
        a, b = (self.batch, self.n, self.head), (self.batch, self.n, self.dim)
        return (self.batch, 1, self.head, TPA_RANK), a, a, (self.batch, 1, TPA_RANK, self.dim), b, b

    @property
    def bytes_moved(self):
        """The fewest that the operator can move: each input read once, each output written once."""
        first, *others = (BYTES * math.prod(shape) for shape in self.input_shapes)
        output = BYTES * math.prod(self.output_shape)
        if self.mode == "forward":
            return first + sum(others) + output
        saved = first if self.act != "none" else 0
        if self.op != "act" and self.over_tokens:
            saved += 4 * self.batch * self.head * self.dim  # the forward's log-sum-exp
        return output + sum(others) + saved + first


def theta_of(shape, device):
    """RoPE's angles per token, the same for every head, in the type of x."""
    exponents = torch.arange(shape[1], dtype=torch.float64) / shape[1]
    return (10000.0**-exponents).expand(shape).to(torch.bfloat16).contiguous().to(device)


def make_inputs(case, device, seed=2024):
    """The inputs in the order of the functions' arguments: the same numbers for every provider."""
    generator = torch.Generator(device).manual_seed(seed)
    shapes = case.input_shapes
    if case.op in ("act", "tpa_decode"):
        return tuple(random(shape, device, generator) for shape in shapes)
    return random(shapes[0], device, generator), theta_of(shapes[1], device)


def random(shape, device, generator):
    return torch.randn(shape, dtype=torch.bfloat16, device=device, generator=generator)


def make_gradient(case, device, seed=2025):
    """What arrives at the output in the backward."""
    return random(case.output_shape, device, torch.Generator(device).manual_seed(seed))


def _tables(op, batch):
    """A case of each table of an operator; its length is still to be set."""
    sizes = {"batch": batch} if batch else {}
    if op == "tpa_decode":
        for size in (batch,) if batch else (8, 32):
            yield Case(op, 0, batch=size, head=32)
    elif op == "md_lrpe_cosine":
        for rank in SIDES:
            for prefix in (0, 10):
                for mode in MODES:
                    yield Case(op, 0, mode, grid_rank=rank, prefix=prefix, **sizes)
    else:
        kinds = [("none", False), ("silu", False), ("softmax", False), ("softmax", True)]
        if op == "act":
            kinds[1:1] = [("relu", False), ("sigmoid", False)]
        for act, over_tokens in kinds:
            for mode in MODES:
                yield Case(op, 0, mode, act, over_tokens, **sizes)


def make_cases(tables=OPERATORS, quick=False, lengths=None, batch=None):
    """The rows of the tables asked for, table by table. `lengths` and `batch` replace the published sizes; grids are
    then of one dimension."""
    cases = []
    for op in tables:
        for case in _tables(op, batch):
            if lengths and case.grid_rank > 1:
                continue
            sides = (QUICK_SIDES if quick else SIDES)[case.grid_rank]
            if quick and op == "tpa_decode":
                sides = QUICK_CACHES
            cases += [replace(case, n=n) for n in lengths or sides]
    return cases
