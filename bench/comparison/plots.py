"""The plots of each operator: time over length with the copy as the floor, and shares of its rate as bars. A family
of providers is drawn as the best of its variants; SVG for documents, PNG for a look."""

import itertools
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

from .cases import OPERATORS
from .providers import ALL
from .report import tables_of, typical

# Okabe and Ito's palette, told apart by the colour-blind; copes stands out by weight as well.
COLOURS = {
    "copes": "#0072B2",
    "torch": "#999999",
    "torch.compile": "#E69F00",
    "compile-cached": "#56B4E9",
    "xopes": "#009E73",
    "FlashTPA": "#CC79A7",
    "oneDNN": "#D55E00",
}
FLOOR = "#000000"
MOST_SHARE = 1.2  # a longer bar is cut, for its end would say nothing
FAMILY = {provider.name: provider.family for provider in ALL}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "svg.fonttype": "none",
    "svg.hashsalt": "copes",
}


def best_of_families(row, time):
    """The best time of each family that has one, in the order of the palette."""
    best = {}
    for name, outcome in row["providers"].items():
        if outcome.get(time) is not None:
            family = FAMILY.get(name, name)
            best[family] = min(best.get(family, float("inf")), outcome[time])
    return {family: best[family] for family in COLOURS if family in best}


def panel_title(case):
    mode = case.mode
    if case.op == "tpa_decode":
        return f"batch {case.batch}"
    if case.op == "md_lrpe_cosine":
        return f"{case.grid_rank}-d grid{', 10 tokens before' if case.prefix else ''}, {mode}"
    act = case.act if case.act != "softmax" else f"softmax over {'tokens' if case.over_tokens else 'features'}"
    return f"{act if case.act != 'none' or case.op == 'act' else 'no activation'}, {mode}"


def length(case):
    """Tokens, those before a grid included, or the length of the cache."""
    return case.tokens if case.op == "md_lrpe_cosine" else case.n


def moves_data(case):
    """The activation none does nothing but return."""
    return case.op != "act" or case.act != "none"


def shown(op, tables):
    """The tables of an operator that are drawn: 10 tokens before a grid change nothing that a plot would show."""
    mine = [rows for rows in tables.values() if rows[0][0].op == op and moves_data(rows[0][0])]
    return [rows for rows in mine if rows[0][0].prefix == 0] or mine


def spread(positions, gap):
    """Moves labels apart, in their order, so that neighbours are `gap` or more from each other."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    placed = list(positions)
    for _ in range(200):
        for low, high in itertools.pairwise(order):
            overlap = gap - (placed[high] - placed[low])
            if overlap > 0:
                placed[low] -= overlap / 2
                placed[high] += overlap / 2
    return placed


def plain(value, _=None):
    return f"{value:g}" if value < 1024 or value % 1024 else f"{value / 1024:g}k"


def draw_lines(axes, rows, time):
    """One panel: a line for each family, labelled at its end, and the copy's."""
    lengths = [length(case) for case, _ in rows]
    alone = "_" if len(lengths) == 1 else None
    copies = [row["copy_ms"] for _, row in rows]
    axes.plot(lengths, copies, color=FLOOR, linewidth=1, linestyle=(0, (4, 2)), marker=alone, zorder=6)
    ends = [("copy", FLOOR, lengths[-1], rows[-1][1]["copy_ms"])]
    families = [family for family in COLOURS if any(family in best_of_families(row, time) for _, row in rows)]
    for family in families:
        points = [(x, best_of_families(row, time).get(family)) for x, (_, row) in zip(lengths, rows)]
        points = [point for point in points if point[1] is not None]
        ours = family == "copes"
        axes.plot(
            *zip(*points),
            color=COLOURS[family],
            linewidth=2.4 if ours else 1.4,
            marker="o",
            markersize=4 if ours else 2.5,
            zorder=5 if ours else 3,
            solid_capstyle="round",
        )
        ends.append((family, COLOURS[family], *points[-1]))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    return ends


def label_ends(axes, at, ends):
    """Names beside the ends of the lines that end here, moved apart where they would touch, on axes laid out."""
    low, high = axes.get_ylim()
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    to_points = axes.transAxes.inverted().transform
    points = [to_points(axes.transData.transform((at, value)))[1] * height for *_, value in ends]
    for (name, colour, value), y, target in zip(ends, points, spread(points, 9.5)):
        axes.annotate(
            name,
            (at, value),
            xytext=(7, target - y),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            va="center",
            fontweight="bold" if name == "copes" else "normal",
            annotation_clip=False,
        )
    axes.set_ylim(low, high)


def time_figure(op, tables, time):
    """All panels of an operator, forward above backward, on common scales."""
    panels = shown(op, tables)
    modes = sorted({rows[0][0].mode for rows in panels}, reverse=True)
    across = max(sum(rows[0][0].mode == mode for rows in panels) for mode in modes)
    figure, grid = plt.subplots(
        len(modes),
        across,
        figsize=(0.6 + 3.1 * across, 0.7 + 2.6 * len(modes)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    ends = []
    for line, mode in zip(grid, modes):
        mine = [rows for rows in panels if rows[0][0].mode == mode]
        for axes, rows in zip(line, mine):
            axes.set_title(panel_title(rows[0][0]))
            ends.append((axes, draw_lines(axes, rows, time)))
        for axes in line[len(mine) :]:
            axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel("ms")
    figure.supxlabel("length of the cache" if op == "tpa_decode" else "tokens", fontsize=9)
    figure.draw_without_rendering()
    for axes, names in ends:
        for at in {x for *_, x, _ in names}:
            label_ends(axes, at, [(name, colour, value) for name, colour, x, value in names if x == at])
    return figure


def draw_bars(axes, rows, usual, time):
    """Shares of the copy's rate of a few tables, a group of bars each; a length other than the usual is told."""
    y, ticks = 0.0, []
    for case, row in rows:
        start = y
        for family, ms in best_of_families(row, time).items():
            share = row["copy_ms"] / ms
            axes.barh(y, min(share, MOST_SHARE), 0.84, color=COLOURS[family], zorder=3)
            axes.text(
                min(share, MOST_SHARE) + 0.012,
                y,
                f"{share:.2f}",
                va="center",
                fontsize=7,
                color="#222222",
                fontweight="bold" if family == "copes" else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
                zorder=5,
            )
            y += 1
        ticks.append(((start + y - 1) / 2, panel_title(case) + f"\nat {length(case)}" * (length(case) != usual)))
        y += 0.9
    axes.set_yticks(*zip(*ticks))
    axes.set_ylim(y - 1.2, -0.8)
    axes.set_xlim(0, MOST_SHARE + 0.15)
    axes.axvline(1, color=FLOOR, linewidth=1, linestyle=(0, (4, 2)), zorder=4)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def share_figure(op, tables, time):
    """An operator's typical rows as bars, the copy at 1."""
    rows = [typical(rows) for rows in shown(op, tables)]
    rows = [(case, row) for case, row in rows if best_of_families(row, time)]
    count = sum(len(best_of_families(row, time)) + 0.9 for _, row in rows)
    figure, axes = plt.subplots(figsize=(6.4, 1.1 + 0.155 * count), layout="constrained")
    usual = statistics.mode(length(case) for case, _ in rows)
    draw_bars(axes, rows, usual, time)
    axes.set_xlabel(f"share of a copy's rate, {'a cache of' if op == 'tpa_decode' else 'at'} {usual} tokens")
    names = [family for family in COLOURS if any(family in best_of_families(row, time) for _, row in rows)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[family]) for family in names]
    figure.legend(
        handles, names, loc="outside upper left", ncols=len(names), frameon=False, columnspacing=1.2, handlelength=1
    )
    return figure


def save(figure, folder, name):
    """Both formats, the same bytes for the same figures."""
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=110)
    plt.close(figure)
    return f"{name}.svg"


def draw(results, folder):
    """Writes every plot that there are figures for, and returns their files by operator."""
    tables = tables_of(results)
    replayed = any(best_of_families(row, "replay_ms") for rows in tables.values() for _, row in rows)
    time = "replay_ms" if replayed else "ms"
    files = {}
    with plt.rc_context(STYLE):
        for op in OPERATORS:
            drawn = {
                title: [(case, row) for case, row in rows if best_of_families(row, time)]
                for title, rows in tables.items()
                if rows[0][0].op == op
            }
            drawn = {title: rows for title, rows in drawn.items() if rows}
            if shown(op, drawn):
                files[op] = [
                    save(time_figure(op, drawn, time), folder, f"time-{op}"),
                    save(share_figure(op, drawn, time), folder, f"share-{op}"),
                ]
    return files
