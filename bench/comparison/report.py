"""report.md: a summary, the rows where copes is not the fastest, and every table in the layout of the published."""

import fnmatch
import json

from . import replayed_report
from .cases import MODES, OPERATORS, Case, make_cases
from .providers import ALL

OURS = "copes"
HEADINGS = {
    "act": "Activations",
    "lrpe_rotate": "Rotary encoding",
    "lrpe_cosine": "Cosine encoding",
    "md_lrpe_cosine": "Cosine encoding on grids",
    "tpa_decode": "Decoding with factored keys and values",
}
TIMES = {"speed": "ms", "replay": "replay_ms"}
CAPTIONS = {
    "speed": "Time of a call in ms, as Python makes it.",
    "replay": "Time in ms of the call's kernels alone: a captured CUDA graph, replayed.",
    "memory": "Memory of a call in MiB: what it reads, keeps and writes.",
}


def tables_of(results):
    """Lists of (case, row) by their table's title, in the published order."""
    tables = {}
    for row in results.rows.values():
        if not row["providers"] or row["case"]["op"] not in OPERATORS:
            continue
        case = Case(**row["case"])
        tables.setdefault(case.table("row"), []).append((case, row))
    for rows in tables.values():
        rows.sort(key=lambda pair: pair[0].n)
    return dict(sorted(tables.items(), key=lambda item: _order(item[1][0][0])))


def _order(case):
    kinds = ("none", "relu", "sigmoid", "silu", "softmax")
    return (
        OPERATORS.index(case.op),
        case.batch,
        case.grid_rank,
        case.prefix,
        kinds.index(case.act),
        case.over_tokens,
        MODES.index(case.mode),
    )


def columns_of(rows):
    """The providers that some of these rows know, in their order."""
    return [p.name for p in ALL if any(p.name in row["providers"] for _, row in rows)]


def best_peer(row, time):
    """The name and the time of the fastest that is not copes; None where there is none."""
    times = {
        name: outcome[time]
        for name, outcome in row["providers"].items()
        if name != OURS and outcome.get(time) is not None
    }
    return min(times.items(), key=lambda item: item[1]) if times else None


def ours(row, time):
    return row["providers"].get(OURS, {}).get(time)


def _code(lines):
    return "```\n" + "\n".join(lines) + "\n```\n"


def aligned(header, rows):
    """Columns set flush right but the first, as pandas prints them."""
    texts = [header, *rows]
    widths = [max(len(line[i]) for line in texts) for i in range(len(header))]
    return [
        "  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths)))
        for line in texts
    ]


def _cell(outcome, figure):
    """A figure; -1 where it failed, nothing where it was not measured."""
    if outcome is None:
        return ""
    value = outcome.get(figure)
    return "-1" if value is None else f"{value:.6f}"


def block(kind, rows):
    """One table as the published ones are printed; with times come the copy's, and copes' rate and share of it."""
    figure = TIMES.get(kind, "mib")
    names = columns_of(rows)
    header = ["", "m" if rows[0][0].op == "tpa_decode" else "n", *names]
    if kind in TIMES:
        header += ["copy", "GB/s", "share"]
    lines = []
    for index, (case, row) in enumerate(rows):
        line = [str(index), f"{case.n:.1f}", *(_cell(row["providers"].get(name), figure) for name in names)]
        if kind in TIMES:
            line += [_cell(row, "copy_ms"), *_rates(row, figure)]
        lines.append(line)
    return _code([rows[0][0].table(kind) + ":", *aligned(header, lines)]) + _failures(rows, figure)


def _rates(row, time):
    ms = ours(row, time)
    return ("", "") if ms is None else (f"{row['bytes'] / ms * 1e-6:.1f}", f"{row['copy_ms'] / ms:.3f}")


def _failures(rows, figure):
    """The reason of each -1."""
    reasons = {}
    for case, row in rows:
        for name, outcome in row["providers"].items():
            if outcome.get(figure) is None:
                why = outcome.get("failed") or outcome.get("replay_failed", "not measured")
                reasons.setdefault((name, why), []).append(str(case.n))
    return "".join(f"- -1: {name} at {', '.join(sizes)}: {why}\n" for (name, why), sizes in reasons.items())


def typical(rows):
    """The row that stands for a table: 8192 tokens, 4096 of a grid, the longest cache; else the largest measured."""
    wanted = {"tpa_decode": 32768}.get(rows[0][0].op, {1: 8192, 2: 64, 3: 16}[rows[0][0].grid_rank])
    return next((pair for pair in rows if pair[0].n == wanted), rows[-1])


def summary(tables, time):
    """A line for each table: copes, the best peer, and how they compare."""
    lines = [
        "| table | n | copes ms | share of copy | best peer | its ms | copes is faster by |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for title, rows in tables.items():
        case, row = typical(rows)
        mine, peer = ours(row, time), best_peer(row, time)
        if mine is None or peer is None:
            continue
        share = f"{row['copy_ms'] / mine:.2f}" if case.act != "none" or case.op != "act" else ""
        lines.append(
            f"| {title.replace('-row-', ' ')} | {case.n} | {mine:.4f} | {share} | {peer[0]} | {peer[1]:.4f} |"
            f" {peer[1] / mine:.2f}x |"
        )
    return "\n".join(lines) + "\n"


def slower_rows(tables):
    """(title, n, kind of time, how many times as long as the best peer, text) of each time that a peer beats."""
    for title, rows in tables.items():
        for case, row in rows:
            for kind, time in TIMES.items():
                mine, peer = ours(row, time), best_peer(row, time)
                if mine is not None and peer is not None and peer[1] < mine:
                    ratio = mine / peer[1]
                    text = f"`{title.replace('-row-', f'-{kind}-')}` at {case.n}: {mine:.4f} ms"
                    yield title, case.n, kind, ratio, f"{text}, {peer[0]} {peer[1]:.4f} ms ({ratio:.2f}x)"


def _reason_for(title, n, kind, ratio, reasons):
    """The first that covers the table, the length, the kind of time and how much slower copes is; each may be left out."""
    for reason in reasons:
        if (
            fnmatch.fnmatchcase(title, reason.get("table", "*"))
            and n in reason.get("n", [n])
            and kind == reason.get("kind", kind)
            and ratio <= reason.get("within", ratio)
        ):
            return reason["reason"]
    return "Not explained yet."


def not_fastest(tables, reasons):
    """The times that a peer beats, under the reason for it."""
    groups = {}
    for title, n, kind, ratio, text in slower_rows(tables):
        groups.setdefault(_reason_for(title, n, kind, ratio, reasons), []).append(f"- {text}")
    if not groups:
        return "Nowhere.\n"
    return "\n".join(f"{reason}\n\n" + "\n".join(lines) + "\n" for reason, lines in groups.items())


def coverage(results):
    """How much of the published tables the results have; empty where that is all or nothing of them."""
    published, counts = make_cases(), []
    have = {key for key, row in results.rows.items() if OURS in row["providers"]}
    for op in OPERATORS:
        keys = [case.key for case in published if case.op == op]
        counts.append((op, sum(key in have for key in keys), len(keys)))
    measured, total = sum(count[1] for count in counts), len(published)
    if measured in (0, total):
        return ""
    parts = ", ".join(f"{op} {some or 'none'} of {every}" for op, some, every in counts)
    return (
        f"copes was measured in {measured} of the {total} published rows: {parts}. The command goes on with the rest "
        "where `results.json` stands beside it.\n"
    )


def accuracy(tables):
    """The largest relative error of each provider, against float64 of the same inputs, on the slice that is checked."""
    worst = {}
    for rows in tables.values():
        for case, row in rows:
            for name, outcome in row["providers"].items():
                if outcome.get("error") is not None:
                    key = case.op, name
                    worst[key] = max(worst.get(key, 0.0), outcome["error"])
    operators = [op for op in OPERATORS if any(key[0] == op for key in worst)]
    lines = ["| provider | " + " | ".join(operators) + " |", "| --- |" + " ---: |" * len(operators)]
    for name in [p.name for p in ALL if any(key[1] == p.name for key in worst)]:
        cells = [f"{worst[op, name]:.4f}" if (op, name) in worst else "" for op in operators]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def header(results):
    about = results.data["about"]
    measured = {name for row in results.rows.values() for name in row["providers"]}
    lines = [f"- device: {about['device']}", f"- PyTorch {about['torch']}"]
    if about.get("cuda"):
        lines[-1] += f", CUDA {about['cuda']}"
    lines += [f"- {name} {version}" for name, version in about.get("versions", {}).items()]
    absent = about.get("missing", {}).items()
    lines += [f"- without {name}: {why}" for name, why in absent if name not in measured]
    lines += [f"- {note}" for note in about.get("notes", [])]
    commands = "\n".join(about["commands"])
    return "\n".join([*lines, f"- {about['date']}, by"]) + f"\n\n```\n{commands}\n```\n"


def write(results, folder, reasons_path, figures):
    """Writes report.md into the folder. `figures` are the plots' files by operator."""
    tables = tables_of(results)
    reasons = json.loads(reasons_path.read_text(encoding="utf-8")) if reasons_path.exists() else []
    replayed = any(best_peer(row, "replay_ms") for rows in tables.values() for _, row in rows)
    replayed_tables = [(kind, replayed_report.tables_of(results, kind)) for kind in replayed_report.KINDS]
    every = {title: rows for each in (tables, *(mine for _, mine in replayed_tables)) for title, rows in each.items()}
    parts = ["# copes and its peers\n", header(results), coverage(results)]
    if tables:
        glance = CAPTIONS["replay" if replayed else "speed"]
        glance += " The plots show the same, each family of providers by its best.\n"
        parts += ["## At a glance\n", glance, summary(tables, "replay_ms" if replayed else "ms")]
    parts += ["## Where copes is not the fastest\n", not_fastest(every, reasons)]
    if tables:
        parts += ["## Accuracy\n", accuracy.__doc__ + "\n", accuracy(tables)]
    for kind, mine in replayed_tables:
        parts += replayed_report.section(kind, mine)
    for op in OPERATORS:
        mine = [rows for rows in tables.values() if rows[0][0].op == op]
        if not mine:
            continue
        parts.append(f"## {HEADINGS[op]}: {op}\n")
        parts += [f"![{op}]({figure})\n" for figure in figures.get(op, [])]
        for kind, caption in CAPTIONS.items():
            if kind != "replay" or replayed:
                parts += [f"### {kind.capitalize()}\n", caption + "\n", *(block(kind, rows) for rows in mine)]
    (folder / "report.md").write_text("\n".join(filter(None, parts)), encoding="utf-8")
