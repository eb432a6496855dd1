"""The section of report.md for the table `rope`: a table for each type and pass, its rows grouped by shape."""

from .providers import ALL
from .rope import DTYPES, MODES, OP, PARTS, RopeCase

PASSES = {"forward": "Forward", "backward": "Backward", "backward_theta": "Backward with theta's gradient"}
CAPTION = """Queries and keys with one theta for all heads; `both` is one after the other. Positions are 0, 1, 2, ...
or, where the row says so, an int64 tensor (B, N). Each cell is the time of a call in ms and, in brackets, the share:
the time of a copy of the same bytes over it. copes and FlashInfer-angles make their angles in every call, torch and
torch.compile for theta's gradient, too; else there are tables of cosines and sines, made beforehand. Bytes are those
of inputs and outputs, tables not counted. The fastest is bold."""
REPLAYED = """Times are of calls in a replayed CUDA graph, each on memory of its own. A copy is replayed likewise, and called
as well, and the faster counts, as a large one may take longer in a graph."""
EAGER = "Times are of calls as Python makes them."
DECODING = """Each row is a decoding step: as many sequences as the shape says, one token each at a position of its own.
Times are in us, in brackets as multiples of the copy's."""


def tables_of(results):
    """Lists of (case, row) by their title, in the order they are shown."""
    pairs = [
        (RopeCase(**row["case"]), row) for row in results.rows.values() if row["case"]["op"] == OP and row["providers"]
    ]
    pairs.sort(key=lambda pair: _order(pair[0]))
    tables = {}
    for case, row in pairs:
        tables.setdefault(case.table("row"), []).append((case, row))
    return tables


def _order(case):
    place = list(DTYPES).index(case.dtype), case.decodes, MODES.index(case.mode), case.n, case.batch
    return *place, PARTS.index(case.part), case.positions, case.in_place


def _names(pairs):
    return [p.name for p in ALL if any(p.name in row["providers"] for _, row in pairs)]


def _label(case):
    heads = "+".join(map(str, case.heads))
    flags = ", positions" * (case.positions and not case.decodes) + ", in place" * case.in_place
    return f"{case.part} ({case.batch}, {case.n}, {heads}, {case.dim}){flags}"


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
    copied = f"{copy_ms * 1e3:.2f}" if case.decodes else f"{copy_ms:.4f}"
    return "| " + " | ".join([_label(case), *cells, copied]) + " |"


def _failures(pairs, time):
    """The reason of each -1."""
    reasons = {}
    for case, row in pairs:
        for name, outcome in row["providers"].items():
            if outcome.get(time) is None:
                why = outcome.get("failed") or outcome.get("replay_failed", "not measured")
                reasons.setdefault((name, why), []).append(_label(case))
    return [f"- -1: {name} in {'; '.join(labels)}: {why}" for (name, why), labels in reasons.items()]


def _table(pairs, time):
    pairs = [(case, row) for case, row in pairs if _copy_ms(row)]
    if not pairs:
        return ""
    names = _names(pairs)
    lines = ["| row | " + " | ".join([*names, "copy"]) + " |", "| --- |" + " ---: |" * (len(names) + 1)]
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


def section(tables):
    """The text; nothing where there are no rows."""
    pairs = [pair for rows in tables.values() for pair in rows]
    if not pairs:
        return []
    replayed = any(row.get("copy_replay_ms") for _, row in pairs)
    time = "replay_ms" if replayed else "ms"
    parts = ["## RoPE over any positions: rope\n", CAPTION, (REPLAYED if replayed else EAGER) + "\n"]
    for dtype in DTYPES:
        mine = [(case, row) for case, row in pairs if case.dtype == dtype]
        for mode, heading in PASSES.items():
            table = _table([(c, row) for c, row in mine if c.mode == mode and not c.decodes], time)
            parts += [f"### {heading}, {dtype}\n", table] if table else []
        table = _table([(c, row) for c, row in mine if c.decodes], time)
        parts += [f"### Decoding, {dtype}\n", DECODING + "\n", table] if table else []
    return [*parts, "### Accuracy of rope\n", _accuracy.__doc__.replace("\n    ", "\n") + "\n", _accuracy(pairs)]
