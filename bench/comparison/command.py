"""The command: its arguments, what is told of the machine, and the steps in their order."""

import argparse
import datetime
import pathlib
import platform
import shlex
import sys
import time

import torch

from . import cases, compiling, measure, prologue, providers, results, rope, session

WITH_TYPES = {rope.OP: rope.make_cases, prologue.OP: prologue.make_cases}
TABLES = (*cases.OPERATORS, *WITH_TYPES)

# Rows that move more are left out on the CPU.
CPU_BYTES = 192 << 20


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    add(
        "--tables",
        type=words,
        default=cases.OPERATORS,
        help=f"of {','.join(TABLES)}; default all but {' and '.join(WITH_TYPES)}",
    )
    add("--providers", type=words, help="columns to measure, comma-separated; default all but compile-tuned")
    add("--quick", action="store_true", help="two lengths of each table, and one of each grid")
    add("--n", type=numbers, help="these lengths instead")
    add("--batch", type=int, help="this batch instead")
    add("--warm", action="store_true", help="on the CPU: leave the caches as the call before left them")
    add(
        "--dtypes",
        type=words,
        default=tuple(rope.DTYPES),
        help=f"of {' and '.join(WITH_TYPES)}; default {','.join(rope.DTYPES)}",
    )
    add("--again", type=words, default=(), help="providers to measure again, whatever results.json has")
    add(
        "--jobs",
        type=int,
        help="processes that compile ahead of the measurements; default on a GPU one a core, but for two",
    )
    add("--render", action="store_true", help="measure nothing; write the report and the plots of what is there")
    add("--no-render", action="store_true", help="only measure")
    add(
        "--reasons",
        type=pathlib.Path,
        help="JSON: why copes is not the fastest in which rows; default OUT/reasons.json",
    )
    add("--out", type=pathlib.Path, required=True, metavar="DIR")
    return parser.parse_args()


def words(text):
    return tuple(word.strip() for word in text.split(","))


def numbers(text):
    return tuple(map(int, text.split(",")))


def processor():
    """The CPU's name, where the system tells it."""
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {torch.get_num_threads()} threads"


def about(options, columns, absent):
    """What the report's header says."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else processor()
    versions = {provider.name: provider.version() for provider in columns if provider.version()}
    return {
        "device": device,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if options.device == "cuda" else None,
        "python": platform.python_version(),
        "versions": versions,
        "missing": absent,
        "date": datetime.date.today().isoformat(),
        "commands": [shlex.join(["python", "bench/compare.py", *sys.argv[1:]])],
    }


def find_rows(options):
    published = [table for table in options.tables if table not in WITH_TYPES]
    rows = cases.make_cases(published, options.quick, options.n, options.batch)
    for table, make_cases in WITH_TYPES.items():
        if table in options.tables:
            rows += make_cases(options.quick, options.n, options.batch, options.dtypes)
    return [case for case in rows if options.device != "cpu" or case.bytes_moved <= CPU_BYTES]


def find_providers(options, rows):
    """Those to measure, and why others that know some of the rows are not there."""
    names = [provider.name for provider in providers.ALL]
    unknown = set(options.providers or ()) | set(options.again)
    unknown -= set(names)
    if unknown:
        raise SystemExit(f"no such provider: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    wanted = [p for p in providers.ALL if (p.name in options.providers if options.providers else not p.slow)]
    wanted = [provider for provider in wanted if any(map(provider.runs, rows))]
    absent = {provider.name: provider.missing(options.device) for provider in wanted}
    return [p for p in wanted if absent[p.name] is None], {name: why for name, why in absent.items() if why}


def measure_all(options):
    rows = find_rows(options)
    columns, absent = find_providers(options, rows)
    kept = results.Results(options.out, about(options, columns, absent))
    kept.forget(options.again)
    jobs = compiling.default_processes(options.device) if options.jobs is None else options.jobs
    for name, why in absent.items():
        print(f"without {name}: {why}", file=sys.stderr)
    start = time.monotonic()
    compiling.compile_ahead(session.missing_cells(rows, columns, kept), options.device, jobs)
    compiled = time.monotonic()
    try:
        session.run(rows, columns, measure.meter_of(options.device, options.warm), kept)
    except session.Broken as error:
        raise SystemExit(f"compare: {error}") from error
    print(f"compiled in {compiled - start:.0f} s, measured in {time.monotonic() - compiled:.0f} s", file=sys.stderr)


def main(description):
    options = arguments(description)
    for what, given, known in ("table", options.tables, TABLES), ("type", options.dtypes, rope.DTYPES):
        unknown = set(given) - set(known)
        if unknown:
            raise SystemExit(f"no such {what}: {', '.join(sorted(unknown))}")
    if not options.render:
        measure_all(options)
    if not options.no_render:
        from . import plots, report

        kept = results.Results(options.out)
        figures = plots.draw(kept, options.out)
        report.write(kept, options.out, options.reasons or options.out / "reasons.json", figures)
