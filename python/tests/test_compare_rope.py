"""The comparison's table `rope`: its rows, results against float64, peers' calls by stand-ins for them, its report."""

import ctypes
import json
import math
import pathlib
import shutil
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch")
for needed in ("matplotlib", "tqdm"):
    pytest.importorskip(needed)
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from comparison import measure, plots, report, results, rope, session
from comparison.providers import flash_attention, flashinfer, liger
from comparison.providers.base import Provider
from comparison.rope import RopeCase
from test_compare import BY_NAME, Impatient, outcome, run

SIZES = {"batch": 3, "q_head": 4, "k_head": 2, "dim": 8}
SMALL = [
    RopeCase(5, part, mode, "f32", positions, in_place, **SIZES)
    for mode in rope.MODES
    for part in rope.PARTS
    for positions in (False, True)
    for in_place in (False, True)
    if not in_place or mode != "backward_theta"
]
SOME = [case for case in SMALL if case.part == "both"]


def name_of(case):
    return case.key


def failed(kept, case, name):
    return outcome(kept, case, name).get("failed")


def error(kept, case, name):
    assert failed(kept, case, name) is None
    return outcome(kept, case, name)["error"]


class Fake(Provider):
    """A rotation that the test writes: of x by the angles (B, N, 1, K)."""

    name = family = "copes"

    def __init__(self, turn):
        self.turn = turn

    def runs(self, case):
        return True

    def rope(self, case, angles, saved):
        where = angles.where.expand(case.batch, case.n)
        return lambda inputs, _: [self.turn(x, where[..., None, None] * angles.theta[0]) for x in inputs]


def rotated(x, phi):
    a, b = x.chunk(2, -1)
    return torch.cat((a * phi.cos() - b * phi.sin(), a * phi.sin() + b * phi.cos()), -1)


def test_rows_are_those_of_models():
    every = rope.make_cases()
    assert len({case.key for case in every}) == len(every) == 3 * 54
    assert {case.dtype for case in every} == {"bf16", "f16", "f32"}
    keys = {case.key for case in every}
    assert {
        "rope-row-fwd-q-batch4-head32-dim128-bf16:8192",
        "rope-row-bwd-k-batch4-head8-dim128-f16-positions-in_place:8192",
        "rope-row-bwd-q-batch1-head64-dim128-f32-positions:65536",
        "rope-row-bwd_theta-k-batch1-head8-dim128-bf16:65536",
        "rope-row-fwd-q-batch256-head32-dim128-bf16-positions:1",
    } <= keys
    quick = rope.make_cases(quick=True, dtypes=("bf16",))
    assert 5 < len(quick) < 10 and {case.key for case in quick} < keys
    assert {case.n for case in rope.make_cases(lengths=(16,), batch=2)} == {16, 1}


def test_bytes():
    x, positions, theta = 4 * 8192 * 32 * 128, 4 * 8192 * 8, 64 * 4
    assert RopeCase(8192).bytes_moved == 2 * 2 * x + theta
    assert RopeCase(8192, "both", positions=True).bytes_moved == 2 * 2 * (x + x // 4) + theta + positions
    assert RopeCase(8192, mode="backward_theta", dtype="f32").bytes_moved == 3 * 4 * x + 2 * theta
    assert RopeCase(8192).replays == 1 and 100 < RopeCase(1, batch=256).replays < 200


def test_every_sequence_has_positions_of_its_own():
    step = rope.make_angles(RopeCase(1, positions=True, batch=256), "cpu").positions
    assert step.shape == (256, 1) and step.unique().numel() == 256 and step.dtype == torch.int64
    assert rope.make_angles(RopeCase(7), "cpu").where.tolist() == list(range(7))


@pytest.mark.parametrize("case", SMALL, ids=name_of)
def test_copes_and_pytorch_agree_with_float64(tmp_path, case):
    pytest.importorskip("copes")
    columns = [BY_NAME["copes"], BY_NAME["torch"]]
    kept = run(tmp_path, [case], columns)
    assert error(kept, case, "copes") < 1e-6
    if columns[1].runs(case):
        assert error(kept, case, "torch") < 2e-4  # its angles are of float32 where theta has a gradient


@pytest.mark.parametrize("dtype, bound", [("bf16", 4e-3), ("f16", 5e-4)])
def test_16_bit_types(tmp_path, dtype, bound):
    pytest.importorskip("copes")
    cases = [RopeCase(5, "both", mode, dtype, True, **SIZES) for mode in rope.MODES]
    kept = run(tmp_path, cases, [BY_NAME["copes"]])
    assert all(error(kept, case, "copes") < bound for case in cases)


def test_a_wrong_rotation_is_refused(tmp_path):
    case = RopeCase(40, positions=True, dtype="f32", **SIZES)
    assert error(run(tmp_path / "right", [case], [Fake(rotated)]), case, "copes") < 1e-3
    elsewhere = Fake(lambda x, phi: rotated(x, phi + 1))
    assert failed(run(tmp_path / "far", [case], [elsewhere]), case, "copes").startswith("wrong: ")
    opposite = Fake(lambda x, phi: rotated(x, -phi))
    assert failed(run(tmp_path / "opposite", [case], [opposite]), case, "copes").startswith("wrong: ")


class Replaying(Impatient):
    """As a GPU's, of which a graph is a call."""

    def replay_ms(self, call):
        return self.median_ms(call)[0]

    copy_replay_ms = measure.CudaMeter.copy_replay_ms


def test_calls_of_a_graph_have_memory_of_their_own(tmp_path, monkeypatch):
    case = RopeCase(5, "both", dtype="f32", positions=True, in_place=True, **SIZES)
    monkeypatch.setattr(rope, "REPLAYED_BYTES", 2 * case.bytes_moved)
    seen = []

    def watched(x, phi):
        seen.append(x.data_ptr())
        return rotated(x, phi)

    kept = results.Results(tmp_path, {})
    session.run([case], [Fake(watched)], Replaying(), kept, quiet=True)
    assert case.replays == 3 and len(set(seen[-6:])) == 6
    assert kept.rows[case.key]["copy_replay_ms"] > 0 and outcome(kept, case, "copes")["replay_ms"] > 0


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def apply_rotary(x, cos, sin, inplace=False, conjugate=False):
    """As flash-attn's: x (B, N, H, D), tables (N, K)."""
    assert x.dim() == 4 and cos.shape == sin.shape == (x.shape[1], x.shape[3] // 2) and cos.dtype == x.dtype
    result = turn(x, cos[:, None], -sin[:, None] if conjugate else sin[:, None])
    return x.copy_(result) if inplace else result


def liger_turn(sign):
    def rope_of(q, k, cos, sin):
        """As Liger's: (B, H, N, D), tables (1 or B, N, D), in place where tokens lie before heads."""
        half = q.shape[3] // 2
        for x in (q, k):
            assert x.transpose(1, 2).is_contiguous() and cos.shape[1:] == (x.shape[2], x.shape[3]) and cos.dim() == 3
            x.copy_(turn(x, cos[:, None, :, :half], sign * sin[:, None, :, :half]))

    return rope_of


def array(pointer, dtype, *shape):
    """A tensor on the memory behind a pointer."""
    memory = (ctypes.c_byte * (math.prod(shape) * dtype.itemsize)).from_address(pointer)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)


class FakeFlashInfer:
    """Its kernels' definition, on the CPU and in float16."""

    @staticmethod
    def flashinfer_rope(kind, q, k, q_out, k_out, cache, positions, tokens, q_heads, k_heads, dim, base, stream):
        assert kind == 0 and base == 10000.0 and stream == 7
        where = array(positions, torch.int64, tokens)
        phi = where[:, None].double() * base ** (-torch.arange(0, dim, 2) / dim).double()
        cos, sin = phi.cos(), phi.sin()
        if cache:
            cos, sin = array(cache, torch.float32, int(where.max()) + 1, dim)[where].double().chunk(2, -1)
        for source, target, heads in (q, q_out, q_heads), (k, k_out, k_heads):
            if heads:
                x = array(source, torch.float16, tokens, heads, dim).double()
                array(target, torch.float16, tokens, heads, dim).copy_(turn(x, cos[:, None], sin[:, None]))
        return 0


@pytest.mark.parametrize("case", [case for case in SMALL if case.mode != "backward_theta"], ids=name_of)
def test_calls_of_flash_attention_quack_and_liger(tmp_path, case, monkeypatch):
    """By stand-ins of their signatures; on a GPU the providers call the kernels themselves."""
    monkeypatch.setattr(flash_attention.FlashAttention, "kernels", types.SimpleNamespace(apply_rotary=apply_rotary))
    fake = types.SimpleNamespace(rope_forward=liger_turn(1), rope_backward=liger_turn(-1))
    monkeypatch.setattr(liger, "_module", lambda: fake)
    kept = run(tmp_path, [case], [BY_NAME["flash-attn"], BY_NAME["QuACK"], BY_NAME["Liger"]])
    assert error(kept, case, "flash-attn") < 1e-6
    assert error(kept, case, "QuACK") < 1e-6
    assert ("Liger" in kept.rows[case.key]["providers"]) == (case.part == "both" and case.in_place)
    if "Liger" in kept.rows[case.key]["providers"]:
        assert error(kept, case, "Liger") < 1e-6


@pytest.mark.parametrize("part", rope.PARTS)
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_calls_of_flashinfer(tmp_path, part, positions, in_place, monkeypatch):
    case = RopeCase(5, part, "forward", "f16", positions, in_place, **SIZES)
    monkeypatch.setattr(flashinfer, "_library", lambda: FakeFlashInfer)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=7))
    kept = run(tmp_path, [case], [BY_NAME["FlashInfer"], BY_NAME["FlashInfer-angles"]])
    assert error(kept, case, "FlashInfer") < 1e-3
    assert error(kept, case, "FlashInfer-angles") < 1e-3


def test_what_is_not_there_is_told(monkeypatch):
    monkeypatch.delenv("FLASHINFER_ROPE", raising=False)
    assert BY_NAME["FlashInfer"].missing("cuda") == "FLASHINFER_ROPE does not name a library of its kernels"
    assert BY_NAME["FlashInfer"].missing("cpu") == "its kernels need a GPU"
    monkeypatch.setattr(flashinfer, "_library", flashinfer._library.__wrapped__)
    monkeypatch.setenv("FLASHINFER_ROPE", "/none/such.so")
    assert BY_NAME["FlashInfer"].missing("cuda").startswith("OSError: ")
    for name in ("flash-attn", "Liger"):
        assert BY_NAME[name].missing("cpu") == "its kernels are Triton's and need a GPU"
    assert BY_NAME["QuACK"].missing("cpu") == "its kernels are CuTe's and need a GPU"


def test_report(tmp_path):
    kept = results.Results(tmp_path, {"device": "a GPU", "torch": "2", "date": "today", "commands": ["compare"]})
    for case, ours, peer in (RopeCase(8192), 0.16, 0.2), (RopeCase(1, batch=256, positions=True), 0.004, 0.003):
        row = kept.row(case.key, case=case.fields(), bytes=case.bytes_moved, copy_ms=0.3)
        row["copy_replay_ms"] = ours / 2
        row["providers"]["copes"] = {"ms": 1.0, "replay_ms": ours, "repeats": 9, "error": 0.002}
        row["providers"]["flash-attn"] = {"ms": 2.0, "replay_ms": peer, "repeats": 9, "error": 0.003}
        row["providers"]["torch"] = {"failed": "out of memory"}
    kept.save()
    kept = results.Results(tmp_path)
    assert plots.draw(kept, tmp_path) == {}
    report.write(kept, tmp_path, tmp_path / "reasons.json", {})
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "| q (4, 8192, 32, 128) | **0.1600 (0.50)** | -1 | 0.2000 (0.40) | 0.0800 |" in lines
    assert "| q (256, 1, 32, 128) | 4.00 (2.00) | -1 | **3.00 (1.50)** | 2.00 |" in lines
    assert "- -1: torch in q (4, 8192, 32, 128): out of memory" in lines
    slower = "- `rope-replay-fwd-q-batch256-head32-dim128-bf16-positions` at 1: 0.0040 ms, flash-attn 0.0030 ms (1.33x)"
    assert slower in lines
    assert "| flash-attn | 3.0e-03 |" in lines


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_command(tmp_path):
    """Compiled ahead, measured, and rendered again from what was kept."""
    command = [sys.executable, str(BENCH / "compare.py"), "--device", "cpu", "--out", str(tmp_path)]
    small = ["--tables", "rope", "--n", "8", "--batch", "1", "--dtypes", "bf16", "--quick"]
    done = subprocess.run(
        [*command, *small, "--providers", "torch,torch.compile,flash-attn", "--jobs", "1", "--no-render"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "without flash-attn: its kernels are Triton's and need a GPU" in done.stderr
    assert "not compiled ahead" not in done.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert all("ms" in row["providers"]["torch.compile"] for row in rows.values())
    assert not (tmp_path / "report.md").exists()
    subprocess.run([*command, "--render"], check=True, capture_output=True)
    assert "### Decoding, bf16" in (tmp_path / "report.md").read_text()
    refused = subprocess.run([*command, *small, "--dtypes", "f64"], check=False, capture_output=True, text=True)
    assert refused.returncode != 0 and "no such type: f64" in refused.stderr
