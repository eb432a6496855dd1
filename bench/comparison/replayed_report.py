"""The sections of report.md for the tables whose calls follow each other in a graph, `rope` and `prologue`: a table for each
type and pass, its rows grouped by shape."""

from dataclasses import dataclass

from . import prologue, rope
from .providers import ALL
from .rope import DTYPES


@dataclass(frozen=True)
class Kind:
    """What is of one of them. `passes`: a heading for each mode."""

    op: str
    case: type
    heading: str
    passes: dict
    caption: str


ROPE = Kind(
    rope.OP,
    rope.RopeCase,
    "RoPE over any positions",
    {"forward": "Forward", "backward": "Backward", "backward_theta": "Backward with theta's gradient"},
    """Queries and keys with one theta for all heads; `both` is one after the other. Positions are 0, 1, 2, ...
or, where the row says so, an int64 tensor (B, N). Each cell is the time of a call in ms and, in brackets, the share:
the time of a copy of the same bytes over it. copes and FlashInfer-angles make their angles in every call, torch and
torch.compile for theta's gradient, too; else there are tables of cosines and sines, made beforehand. Bytes are those
of inputs and outputs, tables not counted. The fastest is bold.""",
)
PROLOGUE = Kind(
    prologue.OP,
    prologue.PrologueCase,
    "Between a projection and attention",
    {"forward": "Forward", "backward": "Backward", "backward_weights": "Backward with weights' gradients"},
    """Queries and keys, of as many heads as the shape says: plain, turned alone; norm, after RMSNorm of every head; cache, with
keys and values written to a paged cache, of which the bytes written count. copes is one call of qk_norm_rope; copes-rotate two
of lrpe_rotate, with PyTorch's norm and assignment by index around them; torch.compile is given all of a row at once, with
tables of cosines and sines made beforehand. Peers that only turn have the plain rows, some of them in place alone. Each cell is
the time of a call in ms and, in brackets, the share: the time of a copy of the same bytes over it. The fastest is bold.""",
)
KINDS = (ROPE, PROLOGUE)

REPLAYED = """Times are of calls in a replayed CUDA graph, each on memory of its own. A copy is replayed likewise, and called
as well, and the faster counts, as a large one may take longer in a graph."""
EAGER = "Times are of calls as Python makes them."
DECODING = """Each row is a decoding step: as many sequences as the shape says, one token each at a position of its own.
Times are in us, in brackets as multiples of the copy's; where there is a column `empty`, it is a kernel that does nothing."""


def tables_of(results, kind):
    """Lists of (case, row) by their title, in the order they are shown."""
    rows = [row for row in results.rows.values() if row["case"]["op"] == kind.op and row["providers"]]
    tables = {}
    for case, row in sorted(((kind.case(**row["case"]), row) for row in rows), key=lambda pair: pair[0].order):
        tables.setdefault(case.table("row"), []).append((case, row))
    return tables


def _names(pairs):
    return [p.name for p in ALL if any(p.name in row["providers"] for _, row in pairs)]


def _cell(case, ms, copy_ms, fastest):
    if ms is None:
        return "-1"
    text = f"{ms * 1e3:.2f} ({ms / copy_ms:.2f})" if case.decodes else f"{ms:.4f} ({copy_ms / ms:.2f})"
    return f"**{text}**" if ms == fastest else text


def _copy_ms(row):
    return min(filter(None, (row.get("copy_ms"), row.get("copy_replay_ms"))), default=None)


def _line(case, row, names, time):
    copy_ms = _copy_ms(row)
    times = {name: outcome.get(time) for name, outcome in row["providers"].items()}
    fastest = min((ms for ms in times.values() if ms is not None), default=None)
    cells = [_cell(case, times[name], copy_ms, fastest) if name in times else "" for name in names]
    floors = [copy_ms, row["empty_replay_ms"]] if row.get("empty_replay_ms") else [copy_ms]
    cells += [f"{ms * 1e3:.2f}" if case.decodes else f"{ms:.4f}" for ms in floors]
    return "| " + " | ".join([case.label, *cells]) + " |"


def _failures(pairs, time):
    """The reason of each -1."""
    reasons = {}
    for case, row in pairs:
        for name, outcome in row["providers"].items():
            if outcome.get(time) is None:
                why = outcome.get("failed") or outcome.get("replay_failed", "not measured")
                reasons.setdefault((name, why), []).append(case.label)
    return [f"- -1: {name} in {'; '.join(labels)}: {why}" for (name, why), labels in reasons.items()]


def _table(pairs, time):
    pairs = [(case, row) for case, row in pairs if _copy_ms(row)]
    if not pairs:
        return ""
    names = _names(pairs)
    heads = [*names, "copy", *["empty"] * any(row.get("empty_replay_ms") for _, row in pairs)]
    lines = ["| row | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    lines += [_line(case, row, names, time) for case, row in pairs]
    failures = _failures(pairs, time)
    return "\n".join(lines + [""] * bool(failures) + failures) + "\n"


def _accuracy(pairs):
    """The largest relative error of each provider, against float64 of the same inputs. That of theta's gradient is
    whole, else it is the last sequence's first head."""
    worst = {}
    for case, row in pairs:
        for name, outcome in row["providers"].items():
            if outcome.get("error") is not None:
                key = name, case.dtype
                worst[key] = max(worst.get(key, 0.0), outcome["error"])
    types = [dtype for dtype in DTYPES if any(key[1] == dtype for key in worst)]
    lines = ["| provider | " + " | ".join(types) + " |", "| --- |" + " ---: |" * len(types)]
    for name in _names(pairs):
        cells = [f"{worst[name, dtype]:.1e}" if (name, dtype) in worst else "" for dtype in types]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def section(kind, tables):
    """The text; nothing where there are no rows."""
    pairs = [pair for rows in tables.values() for pair in rows]
    if not pairs:
        return []
    replayed = any(row.get("copy_replay_ms") for _, row in pairs)
    time = "replay_ms" if replayed else "ms"
    parts = [f"## {kind.heading}: {kind.op}\n", kind.caption, (REPLAYED if replayed else EAGER) + "\n"]
    for dtype in DTYPES:
        mine = [(case, row) for case, row in pairs if case.dtype == dtype]
        for mode, heading in kind.passes.items():
            table = _table([(c, row) for c, row in mine if c.mode == mode and not c.decodes], time)
            parts += [f"### {heading}, {dtype}\n", table] if table else []
        table = _table([(c, row) for c, row in mine if c.decodes], time)
        parts += [f"### Decoding, {dtype}\n", DECODING + "\n", table] if table else []
    return [*parts, f"### Accuracy of {kind.op}\n", _accuracy.__doc__.replace("\n    ", "\n") + "\n", _accuracy(pairs)]
