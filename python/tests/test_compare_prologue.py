"""The comparison's table `prologue`: its rows, results against float64, peers that only turn, its report."""

import dataclasses
import json
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

from comparison import plots, prologue, prologue_reference, report, results, session
from comparison.prologue import PrologueCase
from comparison.providers import flash_attention, liger, vllm
from test_compare import BY_NAME, run
from test_compare_rope import (
    SIZES,
    Fake,
    Replaying,
    apply_rotary,
    array,
    error,
    failed,
    liger_turn,
    name_of,
    rotated,
    turn,
)

SMALL = [
    PrologueCase(5, mode=mode, dtype="f32", positions=positions, norm=norm, cache=cache, in_place=in_place, **SIZES)
    for mode in prologue.MODES
    for positions in (False, True)
    for norm in (False, True)
    for cache in (False, True)
    for in_place in (False, True)
    if (mode == "forward" or not cache and not in_place)
    and (mode != "backward_weights" or norm)
    and (not in_place or not cache)
]


def test_rows_are_those_of_models():
    every = prologue.make_cases()
    keys = {case.key for case in every}
    assert len(keys) == len(every)
    assert {
        "prologue-row-fwd-batch256-head32+8-dim128-bf16-norm-cache-positions:1",
        "prologue-row-fwd-batch16-head32+8-dim128-bf16-positions-in_place:1",
        "prologue-row-fwd-batch8-head32+8-dim128-bf16-norm-positions:256",
        "prologue-row-fwd-batch4-head32+8-dim512-bf16-norm-cache:8192",
        "prologue-row-fwd-batch1-head64+8-dim128-bf16-norm:65536",
        "prologue-row-bwd-batch4-head32+8-dim64-bf16-norm:8192",
        "prologue-row-bwd_weights-batch1-head64+8-dim128-bf16-norm:65536",
        "prologue-row-bwd_weights-batch4-head32+8-dim128-f32-norm:8192",
        "prologue-row-fwd-batch256-head32+8-dim128-f16-norm-cache-positions:1",
    } <= keys
    assert all(case.norm or case.mode != "backward_weights" for case in every)
    assert {case.key for case in prologue.make_cases(quick=True)} < keys
    assert {case.n for case in prologue.make_cases(lengths=(16,), batch=2)} == {16, 1}


def test_bytes():
    """As `copes bench` counts them."""
    q, k, theta = 4 * 8192 * 32 * 128 * 2, 4 * 8192 * 8 * 128 * 2, 64 * 4
    tokens, weights = 4 * 8192 * 8, 2 * 128 * 2
    assert PrologueCase(8192).bytes_moved == 2 * (q + k) + theta
    cached = PrologueCase(8192, norm=True, cache=True, positions=True)
    assert cached.bytes_moved == 2 * (q + 2 * k) + theta + weights + 2 * tokens
    learning = PrologueCase(8192, norm=True, mode="backward_weights")
    assert learning.bytes_moved == 3 * (q + k) + theta + 2 * weights
    assert PrologueCase(8192, mode="backward").bytes_moved == 2 * (q + k) + theta


def test_slots_are_apart():
    slots = prologue.make_setting(PrologueCase(17, batch=3, cache=True), "cpu").slots
    assert slots.shape == (3, 17) and slots.unique().numel() == 51 and int(slots.max()) == 2 * 32 + 16


@pytest.mark.parametrize("case", SMALL, ids=name_of)
def test_copes_and_pytorch_agree_with_float64(tmp_path, case):
    pytest.importorskip("copes")
    columns = [BY_NAME[name] for name in ("copes", "copes-rotate", "torch")]
    kept = run(tmp_path, [case], columns)
    for column in columns:
        if column.runs(case):
            assert error(kept, case, column.name) < 2e-6


@pytest.mark.parametrize("dtype, bound", [("bf16", 8e-3), ("f16", 1e-3)])
def test_16_bit_types(tmp_path, dtype, bound):
    pytest.importorskip("copes")
    cases = [PrologueCase(5, mode=mode, dtype=dtype, norm=True, positions=True, **SIZES) for mode in prologue.MODES]
    cases.append(dataclasses.replace(cases[0], cache=True))
    kept = run(tmp_path, cases, [BY_NAME["copes"]])
    assert all(error(kept, case, "copes") < bound for case in cases)


class FakePrologue(Fake):
    """A prologue whose norm and rotation the test writes: `turn` of x and the angles (B, N, 1, K)."""

    def __init__(self, norm, place=lambda slots: slots):
        super().__init__(rotated)
        self.norm, self.place = norm, place

    def prologue(self, case, setting):
        where = setting.angles.where.expand(case.batch, case.n)[..., None, None]

        def call(inputs, outputs):
            pairs = zip(inputs, setting.weights)
            q, k = (self.turn(self.norm(x, w), where * setting.angles.theta[0]) for x, w in pairs)
            for cache, x in zip(outputs[1:], (k, inputs[2])):
                cache.flatten(0, 1)[self.place(setting.slots)] = x
            return [q, *outputs[1:]]

        return call


def test_a_wrong_prologue_is_refused(tmp_path):
    case = PrologueCase(40, positions=True, norm=True, cache=True, dtype="f32", **SIZES)
    right, norm = FakePrologue(prologue_reference.norm), prologue_reference.norm
    assert error(run(tmp_path / "right", [case], [right]), case, "copes") < 1e-3
    wrong = {
        "norm": FakePrologue(lambda x, w: norm(x, w) * 1.2),
        "weight": FakePrologue(lambda x, w: norm(x, w.flip(0))),
        "place": FakePrologue(norm, lambda slots: slots.flip(1)),
    }
    for name, provider in wrong.items():
        assert failed(run(tmp_path / name, [case], [provider]), case, "copes").startswith("wrong: ")


class ReplayingEmpty(Replaying):
    def empty_replay_ms(self, count):
        return 0.001 * count


def test_a_decoding_step_has_a_floor(tmp_path):
    step, prompt = (PrologueCase(n, dtype="f32", norm=True, cache=True, **SIZES) for n in (1, 5))
    kept = results.Results(tmp_path, {})
    session.run([step, prompt], [FakePrologue(prologue_reference.norm)], ReplayingEmpty(), kept, quiet=True)
    assert kept.rows[step.key]["empty_replay_ms"] == 0.001 * step.replays
    assert "empty_replay_ms" not in kept.rows[prompt.key]
    assert kept.rows[step.key]["providers"]["copes"]["replay_ms"] > 0


@pytest.mark.parametrize("case", [case for case in SMALL if case.rotates], ids=name_of)
def test_peers_that_turn_have_the_plain_rows(tmp_path, case, monkeypatch):
    monkeypatch.setattr(flash_attention.FlashAttention, "kernels", types.SimpleNamespace(apply_rotary=apply_rotary))
    fake = types.SimpleNamespace(rope_forward=liger_turn(1), rope_backward=liger_turn(-1))
    monkeypatch.setattr(liger, "_module", lambda: fake)
    kept = run(tmp_path, [case], [BY_NAME["flash-attn"], BY_NAME["Liger"]])
    assert error(kept, case, "flash-attn") < 1e-6
    assert not case.in_place or error(kept, case, "Liger") < 1e-6


def test_peers_that_turn_have_no_other_rows():
    peers = [BY_NAME[name] for name in ("flash-attn", "Liger", "FlashInfer", "FlashInfer-angles")]
    assert not any(peer.runs(case) for peer in peers for case in SMALL if not case.rotates)


class FakeVLLM:
    """Its kernels' definition, on the CPU and in float16."""

    @staticmethod
    def _rows(qkv, weights, tokens, heads, dim, eps, cos, sin):
        x = array(qkv, torch.float16, tokens, sum(heads), dim)
        pairs = zip(x.double().split(heads, 1), [array(w, torch.float16, dim).double() for w in weights])
        return x, [turn(prologue_reference.norm(part, w), cos[:, None], sin[:, None]) for part, w in pairs]

    @classmethod
    def vllm_qk_norm_rope(cls, kind, qk, wq, wk, table, positions, tokens, q_heads, k_heads, dim, eps, stream):
        assert kind == 0 and eps == prologue.EPS and stream == 7
        where = array(positions, torch.int64, tokens)
        cos, sin = array(table, torch.float16, int(where.max()) + 1, dim)[where].double().chunk(2, -1)
        x, turned = cls._rows(qk, (wq, wk), tokens, (q_heads, k_heads), dim, eps, cos, sin)
        x.copy_(torch.cat(turned, 1))
        return 0

    @classmethod
    def vllm_qk_norm_rope_cache(cls, kind, qkv, q_out, k_out, v_out, wq, wk, cos, sin, positions, slots, *rest):
        k_cache, v_cache, tokens, q_heads, k_heads, dim, page, eps, _ = rest
        where, places = (array(pointer, torch.int64, tokens) for pointer in (positions, slots))
        tables = [array(table, torch.float16, int(where.max()) + 1, dim // 2)[where].double() for table in (cos, sin)]
        heads = q_heads, k_heads, k_heads
        x, (q, k) = cls._rows(qkv, (wq, wk), tokens, heads, dim, eps, *tables)
        array(q_out, torch.float16, tokens, q_heads, dim).copy_(q)
        room = (int(places.max()) // page + 1) * page
        for cache, out, values in (k_cache, k_out, k), (v_cache, v_out, x.split(heads, 1)[2]):
            array(out, torch.float16, tokens, k_heads, dim).copy_(values)
            array(cache, torch.float16, room, k_heads, dim)[places] = values.half()
        return 0


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("cache", [False, True])
def test_calls_of_vllm(tmp_path, positions, cache, monkeypatch):
    """By stand-ins of their signatures, in the rows that it has."""
    case = PrologueCase(
        5, dtype="f16", batch=2, q_head=4, k_head=2, dim=64, positions=positions, norm=True, cache=cache
    )
    case = dataclasses.replace(case, in_place=not cache)
    monkeypatch.setattr(vllm, "_library", lambda: FakeVLLM)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=7))
    peer = BY_NAME["vLLM"]
    assert peer.runs(case) and not peer.runs(dataclasses.replace(case, in_place=cache))
    assert error(run(tmp_path, [case], [peer]), case, "vLLM") < 1e-3


def test_report(tmp_path):
    kept = results.Results(tmp_path, {"device": "a GPU", "torch": "2", "date": "today", "commands": ["compare"]})
    prompt, step = PrologueCase(8192, norm=True), PrologueCase(1, batch=256, positions=True, norm=True, cache=True)
    for case, ours, peer in (prompt, 0.16, 0.2), (step, 0.004, 0.003):
        row = kept.row(case.key, case=case.fields(), bytes=case.bytes_moved, copy_ms=0.3)
        row["copy_replay_ms"] = ours / 2
        row["providers"]["copes"] = {"ms": 1.0, "replay_ms": ours, "repeats": 9, "error": 0.002}
        row["providers"]["torch.compile"] = {"ms": 2.0, "replay_ms": peer, "repeats": 9, "error": 0.003}
    row["empty_replay_ms"] = 0.001
    kept.save()
    assert plots.draw(results.Results(tmp_path), tmp_path) == {}
    report.write(results.Results(tmp_path), tmp_path, tmp_path / "reasons.json", {})
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "| norm (4, 8192, 32+8, 128) | **0.1600 (0.50)** | 0.2000 (0.40) | 0.0800 |" in lines
    assert "| norm + cache (256, 1, 32+8, 128) | 4.00 (2.00) | **3.00 (1.50)** | 2.00 | 1.00 |" in lines
    assert "| row | copes | torch.compile | copy | empty |" in lines
    assert "## Between a projection and attention: prologue" in lines
    slower = "- `prologue-replay-fwd-batch256-head32+8-dim128-bf16-norm-cache-positions` at 1: 0.0040 ms"
    assert f"{slower}, torch.compile 0.0030 ms (1.33x)" in lines


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_command(tmp_path):
    """Compiled ahead, measured, and rendered."""
    command = [sys.executable, str(BENCH / "compare.py"), "--device", "cpu", "--out", str(tmp_path)]
    small = ["--tables", "prologue", "--n", "8", "--batch", "1", "--dtypes", "bf16", "--quick", "--jobs", "1"]
    columns = ["--providers", "torch,torch.compile,Liger"]
    done = subprocess.run([*command, *small, *columns], check=True, capture_output=True, text=True)
    assert "without Liger: its kernels are Triton's and need a GPU" in done.stderr
    assert "not compiled ahead" not in done.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    measured = [row for row in rows.values() if not row["case"]["in_place"] or row["case"]["mode"] == "forward"]
    assert measured and all("ms" in row["providers"]["torch.compile"] for row in measured)
    assert "### Backward with weights' gradients, bf16" in (tmp_path / "report.md").read_text()
