"""The comparison benchmark: its sizes and titles, a small run on the CPU, resuming, failing providers, the report."""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
for needed in ("matplotlib", "tqdm"):
    pytest.importorskip(needed)
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from comparison import cases, compiling, measure, plots, providers, report, results, session
from comparison.cases import Case
from comparison.providers.base import Provider

BY_NAME = {provider.name: provider for provider in providers.ALL}
TORCH = BY_NAME["torch"]


class Impatient(measure.CpuMeter):
    """A clock that does not wait for good figures."""

    least, most, budget_ms = 1, 2, 0.0

    def __init__(self):
        self.flush = torch.ones(1)


class Fake(Provider):
    """A provider of act whose function the test writes."""

    def __init__(self, name, function):
        self.name = self.family = name
        self.called = function
        self.built = 0

    def runs(self, case):
        return case.op == "act"

    def function(self, case, inputs):
        self.built += 1
        return self.called


def small(op, mode="forward", **fields):
    return Case(op, 8, mode, batch=1, **fields)


SMALL = [
    *(small("act", mode, act=act) for mode in cases.MODES for act in ("none", "relu", "sigmoid", "silu", "softmax")),
    *(small("act", mode, act="softmax", over_tokens=True) for mode in cases.MODES),
    *(
        small(op, mode, act=act)
        for op in ("lrpe_rotate", "lrpe_cosine")
        for mode in cases.MODES
        for act in ("none", "silu")
    ),
    *(small("lrpe_rotate", mode, act="softmax", over_tokens=over) for mode in cases.MODES for over in (False, True)),
    *(Case("md_lrpe_cosine", 3, mode, grid_rank=3, prefix=10, batch=2) for mode in cases.MODES),
    Case("tpa_decode", 16, batch=2, head=32),
]


def run(folder, rows, columns, about=None):
    kept = results.Results(
        folder, about or {"device": "here", "torch": "this", "date": "today", "commands": ["compare"]}
    )
    session.run(rows, columns, Impatient(), kept, quiet=True)
    return kept


def outcome(kept, case, name):
    return kept.rows[case.key]["providers"][name]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.key)
def test_pytorch_agrees_with_float64(tmp_path, case):
    kept = run(tmp_path, [case], [TORCH])
    assert "failed" not in outcome(kept, case, "torch")
    assert outcome(kept, case, "torch")["error"] < 0.02


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.key)
def test_copes_agrees_with_float64(tmp_path, case):
    pytest.importorskip("copes")
    kept = run(tmp_path, [case], [BY_NAME["copes"]])
    assert outcome(kept, case, "copes").get("failed") is None
    assert outcome(kept, case, "copes")["error"] < 0.004


@pytest.mark.parametrize("case", [case for case in SMALL if BY_NAME["oneDNN"].runs(case)], ids=lambda case: case.key)
def test_onednn_agrees_with_float64(tmp_path, case):
    if reason := BY_NAME["oneDNN"].missing("cpu"):
        pytest.skip(reason)
    kept = run(tmp_path, [case], [BY_NAME["oneDNN"]])
    assert outcome(kept, case, "oneDNN").get("failed") is None
    assert outcome(kept, case, "oneDNN")["error"] < 0.004


def test_keys_and_values_made_first_agree(tmp_path):
    kept = run(tmp_path, SMALL[-1:], [TORCH, BY_NAME["torch-naive"]])
    assert "failed" not in outcome(kept, SMALL[-1], "torch-naive")


def test_titles_are_the_published_ones():
    titles = {case.table("speed") for case in cases.make_cases()}
    assert len(titles) == 42
    assert {
        "act-speed-fwd-batch12-head12-dim128-act_softmax-dim_-2-bf16",
        "lrpe_rotate-speed-bwd-batch12-head12-dim128-act_softmax-dim_1-bf16",
        "lrpe_cosine-speed-fwd-batch12-head12-dim128-act_softmax-dim_-2-bf16",
        "md_lrpe_cosine-speed-bwd-batch12-head12-dim128-bf16-3d-l10",
        "tpa_decode-speed-fwd-batch32-head32-dim128-rank16-bf16",
    } <= titles
    assert len(cases.make_cases()) == len({case.key for case in cases.make_cases()}) == 304


def test_bytes_are_those_of_the_published_tables():
    """Where the tables' memory is inputs and outputs alone, in MiB."""
    mib = {
        Case("lrpe_rotate", 1024): 72.001465,
        Case("lrpe_cosine", 256): 27.00293,
        Case("md_lrpe_cosine", 1024): 108.00293,
        Case("lrpe_rotate", 8192, "backward", "silu"): 864.001465,
        Case("act", 8192, "backward"): 576.0,
        Case("tpa_decode", 32768, batch=8, head=32): 160.101562,
    }
    for case, expected in mib.items():
        assert case.bytes_moved / 2**20 == pytest.approx(expected, abs=1e-5), case


def test_memory_counts_what_is_read_kept_and_written(tmp_path):
    """sigmoid saves its output for the backward, and nothing saves x where there is no need of it."""
    forward, backward = small("act", act="sigmoid"), small("act", "backward", act="sigmoid")
    kept = run(tmp_path, [forward, backward], [TORCH])
    x = 2 * 8 * 12 * 128 / 2**20
    assert outcome(kept, forward, "torch")["mib"] == pytest.approx(2 * x, rel=0.01)
    assert outcome(kept, backward, "torch")["mib"] == pytest.approx(3 * x, rel=0.01)


def no_memory(*_):
    raise MemoryError


def broken(x):
    raise ValueError("no such thing\nsecond line")


def test_a_provider_that_fails_costs_its_own_cell(tmp_path):
    case = small("act", act="relu")
    wrong = Fake("torch.compile", lambda x: torch.relu(x) * 1.5)
    columns = [Fake("copes", broken), Fake("xopes", no_memory), wrong, TORCH]
    kept = run(tmp_path, [case], columns)
    assert outcome(kept, case, "copes")["failed"] == "ValueError: no such thing"
    assert outcome(kept, case, "xopes")["failed"] == "out of memory"
    assert outcome(kept, case, "torch.compile")["failed"].startswith("wrong: relative error 0.5 against float64")
    assert outcome(kept, case, "torch")["ms"] > 0


def test_a_row_without_room_fails_as_a_whole(tmp_path, monkeypatch):
    case = small("act", act="relu")
    monkeypatch.setattr(session, "make_inputs", no_memory)
    kept = run(tmp_path, [case], [TORCH, Fake("copes", torch.relu)])
    assert {name: result["failed"] for name, result in kept.rows[case.key]["providers"].items()} == {
        "torch": "out of memory",
        "copes": "out of memory",
    }
    report.write(kept, tmp_path, tmp_path / "reasons.json", plots.draw(kept, tmp_path))
    assert "- -1: copes at 8: out of memory" in (tmp_path / "report.md").read_text()


def test_providers_are_held_against_each_other_beyond_the_slice(tmp_path):
    """float64 looks at the first head; the second head's error shows beside another provider."""
    case = small("act", act="relu")

    def second_head_wrong(x):
        out = torch.relu(x)
        out[:, 1] += 5
        return out

    kept = run(tmp_path, [case], [TORCH, Fake("xopes", second_head_wrong)])
    assert outcome(kept, case, "xopes")["failed"].endswith("against torch")


def test_a_stopped_run_goes_on(tmp_path):
    first, second = small("act", act="relu"), small("act", act="silu")

    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, [first, second], [TORCH, Fake("xopes", interrupted)])
    relu = Fake("xopes", torch.relu)
    kept = run(tmp_path, [first], [TORCH, relu])
    assert relu.built == 1 and "ms" in outcome(kept, first, "xopes")
    assert run(tmp_path, [first], [TORCH, relu]).rows == kept.rows and relu.built == 1
    run(tmp_path, [second, first], [TORCH])
    assert list(results.Results(tmp_path).rows) == [first.key, second.key]
    kept.forget(["xopes"])
    kept.save()
    run(tmp_path, [first], [TORCH, relu])
    assert relu.built == 2


def test_a_process_that_died_is_passed_by(tmp_path):
    case = small("act", act="relu")
    kept = results.Results(tmp_path, {})
    row = kept.row(case.key, case={}, bytes=0, copy_ms=1.0)

    class Dies(session.Row):
        def outcome(self, provider):
            raise SystemExit(json.loads(kept.path.read_text())["rows"][case.key]["providers"][provider.name]["failed"])

    with pytest.raises(SystemExit, match="the process ended"):
        session.measure_cell(Dies(case, Impatient()), TORCH, row["providers"], kept)


def test_another_machine_is_refused(tmp_path):
    run(tmp_path, [small("act", act="relu")], [TORCH]).save()
    with pytest.raises(SystemExit, match="measured with device here, and this is there"):
        results.Results(tmp_path, {"device": "there", "torch": "this"})


def kept_rows(folder):
    """Results of two lengths: copes is slower than torch in one, and xopes failed in the other."""
    kept = results.Results(folder, {"device": "a GPU", "torch": "2", "date": "today", "commands": ["compare --quick"]})
    for n, ours in ((256, 0.5), (512, 2.0)):
        case = Case("lrpe_rotate", n)
        good = {"repeats": 9, "mib": 3.25, "error": 0.002}
        row = kept.row(case.key, case=vars(case), bytes=8 * 10**8, copy_ms=0.4)
        row["providers"]["copes"] = {"ms": ours, "replay_ms": ours, **good}
        row["providers"]["torch"] = {"ms": 1.0, "replay_ms": 0.9, **good}
        row["providers"]["xopes"] = {"failed": "out of memory"} if n == 512 else {"ms": 0.7, "replay_ms": 0.7, **good}
    kept.save()
    return kept


def test_report_and_plots(tmp_path):
    kept = kept_rows(tmp_path)
    reasons = [{"table": "lrpe_rotate-row-fwd-*", "n": [512], "reason": "It is a test."}]
    (tmp_path / "reasons.json").write_text(json.dumps(reasons))
    figures = plots.draw(kept, tmp_path)
    report.write(kept, tmp_path, tmp_path / "reasons.json", figures)
    text = (tmp_path / "report.md").read_text()
    assert "lrpe_rotate-speed-fwd-batch12-head12-dim128-act_none-bf16:\n" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["n", "copes", "torch", "xopes", "copy", "GB/s", "share"] in lines
    assert ["0", "256.0", "0.500000", "1.000000", "0.700000", "0.400000", "1600.0", "0.800"] in lines
    assert ["1", "512.0", "2.000000", "1.000000", "-1", "0.400000", "400.0", "0.200"] in lines
    assert "- -1: xopes at 512: out of memory" in text
    title = "lrpe_rotate-speed-fwd-batch12-head12-dim128-act_none-bf16"
    assert f"It is a test.\n\n- `{title}` at 512: 2.0000 ms, torch 1.0000 ms (2.00x)\n" in text
    assert "copes was measured in 2 of the 304 published rows: act none of 96, lrpe_rotate 2 of 64" in text
    assert "Not explained yet" not in text
    for name in ("time-lrpe_rotate", "share-lrpe_rotate"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
        assert f"({name}.svg)" in text


def test_labels_keep_apart():
    placed = plots.spread([10.0, 10.5, 30.0, 11.0], 9.0)
    ordered = sorted(placed)
    assert all(high - low > 8.9 for low, high in itertools.pairwise(ordered))
    assert placed[0] < placed[1] < placed[3] < placed[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_what_is_compiled_ahead_is_found(tmp_path):
    """The process that measures finds in PyTorch's caches what another one compiled."""
    logs = "+torch._functorch._aot_autograd.autograd_cache,+torch._inductor.codecache"
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCH_LOGS": logs}
    command = [sys.executable, str(BENCH / "compare.py"), "--device", "cpu", "--out", str(tmp_path), "--no-render"]
    small_run = ["--jobs", "1", "--tables", "tpa_decode", "--n", "8", "--batch", "1", "--providers", "torch.compile"]
    done = subprocess.run([*command, *small_run], check=True, capture_output=True, env=environment)
    assert done.stderr.lower().count(b"cache miss for key") == 2, "AOTAutograd's and Inductor's, where it is compiled"
    assert done.stderr.lower().count(b"cache hit for key") == 2, "and where it is measured"


def test_what_cannot_be_compiled_ahead_is_told(monkeypatch):
    monkeypatch.setattr(providers, "ALL", (Fake("xopes", broken), TORCH))
    case = small("act", act="relu")
    assert compiling._compile(case, 0, "cpu") == "ValueError: no such thing"
    assert compiling._compile(case, 1, "cpu") is None


def test_command(tmp_path):
    """A small table, measured, and rendered again from what was kept."""
    command = [sys.executable, str(BENCH / "compare.py"), "--device", "cpu", "--out", str(tmp_path)]
    small_run = ["--tables", "tpa_decode", "--n", "8", "--batch", "1", "--providers", "torch"]
    subprocess.run([*command, *small_run], check=True, capture_output=True)
    text = (tmp_path / "report.md").read_text()
    assert "tpa_decode-speed-fwd-batch1-head32-dim128-rank16-bf16" in text
    (tmp_path / "report.md").unlink()
    subprocess.run([*command, "--render"], check=True, capture_output=True)
    assert (tmp_path / "report.md").read_text() == text
    refused = subprocess.run([*command, "--tables", "none"], check=False, capture_output=True, text=True)
    assert refused.returncode != 0 and "no such table: none" in refused.stderr
