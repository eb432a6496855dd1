#!/usr/bin/env python3
"""`copes bench`: its tables and its JSON, its list of cases, and what it refuses. Times are not judged."""
import json
import os
import pty
import re
import subprocess
import unittest

from command_case import COPES, CommandTest

TINY = ("--n", "4", "--batch", "1", "--head", "2", "--dim", "4")
TITLE = re.compile(r"([a-z_]+)-speed-(fwd|bwd)-batch(\d+)-head(\d+)-dim(\d+)(-[^:]*):")


def moved_mib(case):
    """Inputs and output of a case without grid, in MiB; theta, which is small, left out."""
    if case["op"] == "qk_norm_rope":
        return (moved_by_qk(case) + cache_room(case)) / 2**20
    elements = case["batch"] * case["head"] * case["n"] * case["dim"]
    if case["op"] == "attention_merge":  # once and twice o_shares, with an lse of 4 bytes for dim features of 2
        return elements * (2 + 4 / case["dim"]) * (1 + case["shares"] * (2 if case["mode"] == "backward" else 1)) / 2**20
    saved = case["mode"] == "backward" and case["act"] != "none"
    written = 0 if case.get("pass") == "first" else 1 + ("cosine" in case["op"] and case["mode"] == "forward")
    read = 1 + saved + ("cosine" in case["op"] and case["mode"] == "backward")
    passes = 2 if case.get("pass") == "each" else 1  # that read
    return elements * (passes * read + written) * 2 / 2**20


def moved_by_qk(case, size=2):
    """Bytes; of a cache what is written, where values are read in place of keys that go to no other place."""
    tokens = case["batch"] * case["n"]
    q, k = (tokens * case[heads] * case["dim"] for heads in ("head", "kv_head"))
    saved = case["mode"] == "backward" and case["norm"] != "none"
    written = {"none": 0, "f8": 1}.get(case["cache"], size) * k
    rows = {"none": 0, "head": 2, "all_heads": case["head"] + case["kv_head"]}[case["norm"]]
    weights = rows * case["dim"] * (size + 4 * case["grad_weights"])
    integers = 8 * tokens * (case["positions"] + (case["cache"] != "none"))
    return size * (q + k) * (2 + saved) + 2 * written + weights + integers + 4 * case["dim"] // 2


def cache_room(case):
    """Bytes of caches that are not written: each sequence has whole pages."""
    if case["cache"] == "none":
        return 0
    empty = case["batch"] * (-case["n"] % 16)
    return 2 * empty * case["kv_head"] * case["dim"] * (1 if case["cache"] == "f8" else 2)


class Bench(CommandTest):
    def bench(self, *flags, timeout=300):
        """The lines on stdout and the cases in the JSON file."""
        path = self.folder / "bench.json"
        done = subprocess.run([*COPES, "bench", *flags, "--json", path], capture_output=True, text=True, check=False,
                              timeout=timeout)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([p.name for p in self.folder.iterdir()], ["bench.json"])
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(done.stdout.split("\n")[0], report["device"])
        return done.stdout, report["cases"]

    def test_quick(self):
        text, cases = self.bench("--quick", "--batch", "1", "--head", "2")
        self.assertEqual({case["op"] for case in cases},
                         {"act", "lrpe_rotate", "lrpe_cosine", "md_lrpe_cosine", "tpa_decode", "qk_norm_rope",
                          "attention_merge"})
        self.assertEqual({case["mode"] for case in cases}, {"forward", "backward"})
        rows = re.findall(r"(?m)^\d+ +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+ +)?([\d.]+)$", text)
        self.assertEqual(len(rows), len(cases))
        for case, row in zip(cases, rows):
            self.assertIn(case["name"] + ":\n", text)
            for figure in ("ms", "copy_ms", "gb_per_s", "share", "mib"):
                self.assertGreater(case[figure], 0, case["name"])
            self.assertGreaterEqual(case["repeats"], 5)
            self.assertAlmostEqual(case["share"], case["copy_ms"] / case["ms"], places=6)
            self.assertAlmostEqual(float(row[1]), case["ms"], places=5)
            self.assertAlmostEqual(float(row[5]), case["mib"], places=5)
            if case["op"] == "tpa_decode":
                self.assertGreater(case["fma_share"], 0)
                self.assertLess(case["fma_share"], 10)  # a wrong unit; a busy machine may well disturb the probe alone
            elif "grid_rank" not in case:
                self.assertLess(abs(case["mib"] - moved_mib(case)), 0.01 * case["mib"], case["name"])

    def test_every_table(self):
        """The published tables, by their titles; a length that is asked for leaves grids at one dimension."""
        _, cases = self.bench(*TINY)
        tables = {case["name"].replace("-batch1-head2-dim4", "") for case in cases}
        softmax = "act_softmax-dim_"
        wanted = {f"act-speed-{mode}-{act}-bf16" for mode in ("fwd", "bwd") for act in
                  ("act_none", "act_relu", "act_sigmoid", "act_silu", softmax + "-1", softmax + "-2")}
        for op, tokens in (("lrpe_rotate", "1"), ("lrpe_cosine", "-2")):
            wanted |= {f"{op}-speed-{mode}-{act}-bf16" for mode in ("fwd", "bwd") for act in
                       ("act_none", "act_silu", softmax + "-1", softmax + tokens)}
        wanted |= {f"md_lrpe_cosine-speed-{mode}-bf16-1d-l{prefix}" for mode in ("fwd", "bwd") for prefix in (0, 10)}
        wanted |= {"tpa_decode-speed-fwd-rank16-bf16"}
        wanted |= {f"attention_merge-speed-{mode}-shares{s}-bf16" for mode in ("fwd", "bwd") for s in (2, 4, 8)}
        keys = "qk_norm_rope-speed-{}-batch1-head2+8-dim4-norm_{}-bf16{}".format
        wanted |= {keys("fwd", "none", ""), keys("fwd", "head", ""), keys("fwd", "head", "-cache_bf16"),
                   keys("fwd", "head", "-cache_f8"), keys("bwd", "none", ""), keys("bwd", "head", ""),
                   keys("bwd", "head", "-grad_weights")}
        self.assertEqual(tables, wanted)

    def test_softmax_in_shares(self):
        """Each pass, and the bytes that go with it: one number a column is little."""
        shape = ("act", "lrpe_rotate", "lrpe_cosine", "--n", "512", "--batch", "1", "--head", "2", "--dim", "256")
        for flag in ("first", "second", "each"):
            _, cases = self.bench(*shape, "--pass", flag)
            self.assertEqual([(c["op"], c["axis"], c["mode"]) for c in cases],
                             [(op, axis, mode)
                              for op, axis in (("act", "features"), ("act", "sequence"), ("lrpe_rotate", "sequence"),
                                               ("lrpe_cosine", "sequence"))
                              for mode in ("forward", "backward")])
            for c in cases:
                self.assertEqual(c["pass"], flag)
                self.assertIn(f"-pass_{flag}-", c["name"])
                moved = c["gb_per_s"] * c["ms"] * 1e6 / 2**20  # mib has the workspace, too
                self.assertLess(abs(moved - moved_mib(c)), 0.02 * moved, c["name"])

    def test_what_the_backward_of_act_has(self):
        """A mask of a bit an element in both directions, or the output, in place of the input."""
        elements = 2 * 64 * 64
        for flag, kept, wanted, saved in (
            ("--mask", "mask", [("relu", "forward"), ("relu", "backward")], elements / 8),
            ("--from-output", "output", [("relu", "backward"), ("sigmoid", "backward")], 2 * elements),
        ):
            _, cases = self.bench("act", flag, "--n", "64", "--batch", "1", "--head", "2", "--dim", "64")
            self.assertEqual([(c["act"], c["mode"]) for c in cases], wanted)
            for c in cases:
                self.assertEqual((c["kept"], c["mib"]), (kept, (4 * elements + saved) / 2**20))
                self.assertIn(f"-act_{c['act']}{flag[1:].replace('from-output', 'from_output')}-bf16", c["name"])

    def test_qk_norm_rope(self):
        """Each flag, and the bytes that go with it."""
        shape = ("qk_norm_rope", "--n", "5", "--batch", "3", "--head", "4", "--kv-head", "2", "--dim", "8")
        plain = {"norm": "head", "cache": "none", "positions": False, "in_place": False, "grad_weights": False}
        both = ["forward", "backward"]
        for flags, changed, modes in [(("--norm", "none"), {"norm": "none"}, both),
                                      (("--norm", "all_heads"), {"norm": "all_heads"}, both),
                                      (("--cache", "same"), {"cache": "bf16"}, both[:1]),
                                      (("--cache", "float8"), {"cache": "f8"}, both[:1]),
                                      (("--grad-weights",), {"grad_weights": True}, both[1:]),
                                      (("--norm", "head", "--positions"), {"positions": True}, both),
                                      (("--norm", "head", "--in-place"), {"in_place": True}, both)]:
            _, cases = self.bench(*shape, *flags)
            self.assertEqual([c["mode"] for c in cases], modes)
            for c in cases:
                self.assertEqual({name: c[name] for name in plain}, {**plain, **changed})
                self.assertAlmostEqual(c["gb_per_s"] * c["ms"] * 1e6, moved_by_qk(c), delta=1)
                replaced = 2 * 3 * 5 * 6 * 8 * c["in_place"]
                self.assertGreaterEqual(c["mib"] + 1e-9, (moved_by_qk(c) + cache_room(c) - replaced) / 2**20)

    def test_rows_of_qk_norm_rope(self):
        """What is explained is what would be timed: decoding, a chunk, prompts; heads of other widths."""
        done = subprocess.run([*COPES, "explain", "qk_norm_rope"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = re.findall(r"(?m)^(qk_norm_rope-.*), n (\d+)$", done.stdout)
        self.assertEqual(len(rows), len(set(rows)))
        sizes = {re.sub(".*-(batch.*)-dim.*", r"\1", title) + ":" + n for title, n in rows}
        self.assertEqual(sizes, {"batch256-head32+8:1", "batch16-head32+8:1", "batch8-head32+8:256", "batch4-head32+8:8192",
                                 "batch1-head64+8:65536"})
        self.assertEqual({re.sub(".*-(dim\\d+)-.*", r"\1", title) for title, _ in rows}, {"dim64", "dim128", "dim256", "dim512"})
        self.assertEqual({n for title, n in rows if "-bwd-" in title}, {"8192", "65536"})

    def test_flags(self):
        _, cases = self.bench("lrpe_rotate", "act", "--n", "3,5", "--mode", "backward", "--act", "relu", "--dtype", "f32",
                              "--batch", "2", "--head", "3", "--dim", "6")
        self.assertEqual([(c["op"], c["n"], c["mode"], c["act"], c["dtype"]) for c in cases],
                         [(op, n, "backward", "relu", "f32") for op in ("act", "lrpe_rotate") for n in (3, 5)])
        self.assertEqual({(c["batch"], c["head"], c["dim"]) for c in cases}, {(2, 3, 6)})
        text, cases = self.bench("--grid", "3,5", "--prefix", "2", "--mode", "forward", "--act", "none")
        self.assertEqual([c["op"] for c in cases], ["lrpe_rotate", "lrpe_cosine", "md_lrpe_cosine"])
        for title in TITLE.findall(text):
            self.assertRegex(title[5], r"-bf16-grid3x5-l2\Z")
        for c in cases:
            self.assertAlmostEqual(c["mib"], moved_mib(dict(c, n=17)), delta=0.02)
        text, cases = self.bench("--one-theta", "--n", "7", "--prefix", "0", "--mode", "forward", "--act", "none")
        self.assertEqual({c["op"] for c in cases}, {"lrpe_rotate", "lrpe_cosine", "md_lrpe_cosine"})
        for title in TITLE.findall(text):
            self.assertRegex(title[5], r"-one_theta\Z")

    def test_flags_of_the_encodings(self):
        """Positions, in place and theta's gradient: which operators and modes are left, the titles, and the memory."""
        shape = ("--n", "64", "--batch", "2", "--head", "3", "--dim", "8", "--one-theta", "--dtype", "f32")
        x, positions, theta = 2 * 64 * 3 * 8 * 4, 2 * 64 * 8, 4 * 4
        text, cases = self.bench("--positions", "--act", "none", *shape)
        self.assertEqual([(c["op"], c["mode"]) for c in cases],
                         [(op, mode) for op in ("lrpe_rotate", "lrpe_cosine") for mode in ("forward", "backward")])
        self.assertTrue(all(c["positions"] and c["one_theta"] and not c["in_place"] and not c["grad_theta"] for c in cases))
        self.assertTrue(all(title[5].endswith("-one_theta-positions") for title in TITLE.findall(text)))
        self.assertAlmostEqual(cases[0]["mib"], (2 * x + positions + theta) / 2**20)
        _, cases = self.bench("--in-place", *shape)
        self.assertEqual([(c["op"], c["mode"], c["act"], c["in_place"]) for c in cases],
                         [("lrpe_rotate", mode, "none", True) for mode in ("forward", "backward")])
        for c in cases:
            self.assertAlmostEqual(c["mib"], (x + theta) / 2**20)
            self.assertAlmostEqual(c["gb_per_s"] * c["ms"] * 1e6, 2 * x + theta, delta=1)
        text, cases = self.bench("lrpe_rotate", "--interleaved", "--rotary-dim", "4", "--act", "none", *shape)
        self.assertEqual([(c["mode"], c["interleaved"], c["rotary_dim"]) for c in cases],
                         [(mode, True, 4) for mode in ("forward", "backward")])
        self.assertIn("-f32-rotary4-interleaved-one_theta:\n", text)
        self.assertAlmostEqual(cases[0]["mib"], (2 * x + theta / 2) / 2**20)
        _, cases = self.bench("qk_norm_rope", "--interleaved", "--norm", "none", "--n", "64", "--batch", "2", "--dim", "8")
        self.assertEqual([(c["interleaved"], c["rotary_dim"]) for c in cases], [(True, 8)] * 2)
        text, cases = self.bench("lrpe_rotate", "--grad-theta", "--in-place", "--positions", *shape)
        self.assertEqual([(c["mode"], c["grad_theta"]) for c in cases], [("backward", True)])
        self.assertIn("-f32-one_theta-positions-in_place-grad_theta:\n", text)
        self.assertAlmostEqual(cases[0]["gb_per_s"] * cases[0]["ms"] * 1e6, 3 * x + positions + 2 * theta, delta=1)
        self.assertGreaterEqual(cases[0]["mib"] + 1e-9, (2 * x + positions + 2 * theta) / 2**20)
        _, cases = self.bench("--grad-theta", "--act", "none", *shape)
        self.assertEqual({(c["op"], c["mode"]) for c in cases},
                         {(op, "backward") for op in ("lrpe_rotate", "lrpe_cosine", "md_lrpe_cosine")})

    def test_too_large_is_skipped(self):
        text, cases = self.bench("act", "--act", "relu", "--mode", "forward", "--n", "4,2147483647", "--head", "9999")
        self.assertNotIn("skipped", cases[0])
        self.assertRegex(cases[1]["skipped"], "with the copy it takes .* GiB; 60 % of the free memory are .* GiB")
        self.assertIn("skipped: " + cases[1]["skipped"] + "\n", text)
        self.assertNotIn("ms", cases[1])
        _, cases = self.bench("act", "--act=relu", "--n=2147483647", "--batch=2147483647", "--head=2147483647")
        self.assertEqual({c["skipped"] for c in cases}, {"it has too many bytes to count"})

    def test_refusals(self):
        usage = lambda message, *flags: self.refuse(2, message, "bench", *flags)
        usage('"lrpe" is not an operator; it must be act, lrpe_rotate, .*', "lrpe")
        usage(r'--mode is "all"; it must be one of forward\|backward\|both', "--mode", "all")
        for text in ("", "0", "-1", "1,", "x", "2147483648"):
            usage('--n is ".*"; it must be 1 to 32 integers from 1 to 2147483647, .*', f"--n={text}")
        for flag in ("batch", "head", "dim"):
            usage(f'--{flag} is "0"; it must be an integer from 1 to 2147483647', f"--{flag}", "0")
        usage('--prefix is "-1"; .*', "--prefix=-1")
        usage(r'--dtype is "i32"; it must be one of f64\|f32\|f16\|bf16; did you mean f32\?', "--dtype", "i32")
        usage(r'--act is "gelu"; .*', "--act", "gelu")
        usage("--grid multiplies to more than 2147483647 positions", "--grid", "65536,32768")
        usage("--grid and --n exclude each other", "--grid", "4", "--n", "4")
        usage("act takes no --grid", "act", "--grid", "4")
        usage("act takes no --prefix", "act", "--prefix", "4")
        usage("act takes no --interleaved", "act", "--interleaved")
        usage("lrpe_cosine takes no --rotary-dim", "lrpe_cosine", "--rotary-dim", "8")
        usage("tpa_decode takes no --one-theta", "tpa_decode", "--one-theta")
        usage("act takes no --positions", "act", "--positions")
        usage("md_lrpe_cosine takes no --positions", "md_lrpe_cosine", "--positions")
        usage("lrpe_cosine takes no --in-place", "lrpe_rotate", "lrpe_cosine", "--in-place")
        usage("tpa_decode takes no --grad-theta", "tpa_decode", "--grad-theta")
        usage("--positions and --grid exclude each other", "--positions", "--grid", "4")
        usage("--positions and --prefix exclude each other", "--positions", "--prefix", "0")
        usage("--in-place takes no activation, .*", "--in-place", "--act", "silu")
        usage("--grad-theta is of the backward, and --mode is forward", "--grad-theta", "--mode", "forward")
        usage("tpa_decode takes no --act", "tpa_decode", "--act", "relu")
        usage("tpa_decode has no backward", "tpa_decode", "--mode", "backward")
        usage("md_lrpe_cosine takes no --pass", "md_lrpe_cosine", "--pass", "first")
        usage(r'--pass is "both"; it must be one of first\|second\|each', "act", "--pass", "both")
        usage("--pass is of softmax, and --act is another", "act", "--pass", "first", "--act", "silu")
        usage("lrpe_rotate takes no --mask", "lrpe_rotate", "--mask")
        usage("--mask is of relu, and --act is another", "act", "--mask", "--act", "sigmoid")
        usage("--from-output is of relu and sigmoid, and --act is another", "act", "--from-output", "--act", "silu")
        usage("--from-output is of the backward, and --mode is forward", "act", "--from-output", "--mode", "forward")
        usage("--mask and --from-output exclude each other", "act", "--mask", "--from-output")
        usage("--pass is of softmax, and --mask and --from-output are of others", "act", "--mask", "--pass", "first")
        usage("--pass and --in-place exclude each other", "lrpe_rotate", "--pass", "first", "--in-place")
        usage("--pass first and --grad-theta exclude each other", "lrpe_rotate", "--pass", "first", "--grad-theta")
        usage("--pass each and --grad-theta exclude each other", "lrpe_rotate", "--pass", "each", "--grad-theta")
        usage("tpa_decode takes no --shares", "tpa_decode", "--shares", "4")
        usage('--shares is "0"; .*', "attention_merge", "--shares", "0")
        usage("lrpe_rotate takes no --kv-head", "lrpe_rotate", "--kv-head", "4")
        usage("act takes no --norm", "act", "--norm", "head")
        usage("qk_norm_rope takes no --act", "qk_norm_rope", "--act", "silu")
        usage(r'--cache is "int8"; it must be one of none\|same\|float8', "--cache", "int8")
        usage("--grad-weights is of the backward, and --mode is forward", "--grad-weights", "--mode", "forward")
        usage("--grad-weights and --norm none exclude each other", "--grad-weights", "--norm", "none")
        usage("--grad-weights is of the backward, and --cache of the forward", "--grad-weights", "--cache", "same")
        usage("--cache is of the forward, and --mode is backward", "--cache", "same", "--mode", "backward")
        usage("act takes no --ranks", "act", "--ranks", "6,2,2")
        usage("--ranks has 2 integers; it must have 3, .*", "tpa_decode", "--ranks", "6,2")
        usage('--ranks is "6,2,2,2"; .*', "tpa_decode", "--ranks", "6,2,2,2")
        usage("--replay is for GPUs; .*", "--replay")
        usage('--quick takes no value, but was given "yes"', "--quick=yes")
        usage("--json needs a value", "--json")
        usage("--speed is not a flag of `copes bench`; .*", "--speed")
        usage('--device is "gpu"; .*', "--device", "gpu")

    def test_failures(self):
        fails = lambda message, *flags: self.refuse(1, message, "bench", *flags)
        fails("device: id is 7; .*", "--device", "cpu:7")
        fails(".*/none/x: No such file or directory", "--json", self.folder / "none" / "x")
        fails(".*: a folder is there", "--json", self.folder)
        old = self.folder / "old"
        old.write_bytes(b"old")
        done = subprocess.run([*COPES, "bench", "lrpe_rotate", "--n", "4", "--dim", "3", "--json", old], capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, old.read_bytes()), (1, b"old"))
        self.assertRegex(done.stderr, r"\Acopes: lrpe_forward: rotary_dim is 3; .*\n\Z")

    def test_progress_on_a_terminal(self):
        leader, follower = pty.openpty()
        done = subprocess.run([*COPES, "bench", "act", "--act", "relu", *TINY], stdout=subprocess.PIPE, stderr=follower,
                              check=False, env={**os.environ, "TERM": "xterm"})
        os.close(follower)
        shown = os.read(leader, 4096).decode()
        os.close(leader)
        self.assertEqual(done.returncode, 0)
        self.assertIn("2 of 2: act-speed-bwd-batch1-head2-dim4-act_relu-bf16 4", shown)
        self.assertTrue(shown.endswith("\r\033[K"))


if __name__ == "__main__":
    unittest.main()
