#!/usr/bin/env python3
"""The `copes` command: every flag of every operator against the definitions, and what it says when it refuses."""
import math
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import unittest

import command_reference as reference
from command_reference import Tensor, read, write

COPES = sys.argv.pop(1) if len(sys.argv) > 1 else "copes"


def copes(*arguments, **options):
    return subprocess.run([COPES, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60, **options)


def flags_of(attributes):
    """{"rotary_dim": 2, "causal": True} as a command line has it."""
    line = []
    for name, value in attributes.items():
        line.append("--" + name.replace("_", "-"))
        if value is not True:
            line.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return line


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.input, self.output = self.folder / "in.safetensors", self.folder / "out.safetensors"
        self.random = random.Random(7)

    def tensor(self, *shape, dtype="F64"):
        values = [self.random.uniform(-2, 2) for _ in range(math.prod(shape))]
        return reference.stored(Tensor(shape, values, dtype))

    def run_ok(self, op, *flags):
        done = copes("run", op, "--in", self.input, "--out", self.output, *flags)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return read(self.output)

    def expect(self, got, wanted, bound=1e-7):
        self.assertEqual(got.shape, wanted.shape)
        for g, w in zip(got.values, wanted.values, strict=True):
            self.assertTrue(g == w or abs(g - w) <= bound * (1 + abs(w)), f"{g}, not {w}")

    def refuse(self, status, message, *arguments, **options):
        """The command leaves this status and, as its one line, this message (a pattern)."""
        done = copes(*arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertRegex(done.stderr, r"\Acopes: (?:" + message + r")\n\Z")


class Act(CommandTest):
    def test_every_activation(self):
        x, grad_o = self.tensor(2, 3, 5), self.tensor(2, 3, 5)
        for name in ("none", "relu", "sigmoid", "silu"):
            write(self.input, x=x, grad_o=grad_o)
            self.expect(self.run_ok("act", "--act", name)["o"], reference.act(x, name))
            wanted = reference.gradient(lambda t, name=name: reference.act(t, name), x, grad_o)
            self.expect(self.run_ok("act", "--act", name, "--backward")["grad_x"], wanted)

    def test_softmax_along_every_axis(self):
        x, grad_o = self.tensor(2, 3, 5), self.tensor(2, 3, 5)
        for dim in (-3, -2, -1, 0, 1, 2):
            o = reference.act(x, "softmax", dim)
            write(self.input, x=x, grad_o=grad_o, o=o)
            self.expect(self.run_ok("act", "--act", "softmax", "--dim", dim)["o"], o)
            wanted = reference.gradient(lambda t, dim=dim: reference.act(t, "softmax", dim), x, grad_o)
            self.expect(self.run_ok("act", "--backward", "--act=softmax", f"--dim={dim}")["grad_x"], wanted)
        write(self.input, x=x)
        self.expect(self.run_ok("act", "--act", "softmax")["o"], reference.act(x, "softmax", -1))

    def test_types(self):
        for dtype, bound in (("F32", 3e-7), ("F16", 1e-3), ("BF16", 8e-3)):
            x = self.tensor(3, 7, dtype=dtype)
            write(self.input, x=x)
            got = self.run_ok("act", "--act", "silu")
            self.assertEqual(list(got), ["o"])
            self.assertEqual(got["o"].dtype, dtype)
            self.expect(got["o"], reference.act(x, "silu"), bound)

    def test_layout_makes_dim_one_the_sequence(self):
        x = self.tensor(2, 5, 3, 4)
        write(self.input, x=x.transposed((0, 2, 1, 3)))
        got = self.run_ok("act", "--act", "softmax", "--dim", 1, "--layout", "bhnd")["o"]
        self.expect(got, reference.act(x, "softmax", 1).transposed((0, 2, 1, 3)))

    def test_empty_tensor(self):
        write(self.input, x=Tensor((2, 0, 3), [], "F32"))
        self.assertEqual(self.run_ok("act")["o"].shape, (2, 0, 3))

    def test_output_over_input(self):
        x = self.tensor(3, 4)
        write(self.input, x=x)
        self.output = self.input
        self.expect(self.run_ok("act", "--act", "relu")["o"], reference.act(x, "relu"))


LRPE_CASES = [
    {},
    {"act": "relu"},
    {"act": "sigmoid", "offset": [7]},
    {"act": "silu", "offset": [-3]},
    {"act": "softmax", "dim": -1},
    {"act": "softmax", "dim": 3},
    {"act": "softmax", "dim": 1},
    {"prefix": 2, "suffix": 1},
    {"grid": [3, 2], "offset": [4, 9]},
    {"grid": [3, 1, 2]},
    {"grid": [2, 2], "prefix": 1, "suffix": 1, "act": "silu"},
]
ROTATE_CASES = [
    {"pairing": "interleaved"},
    {"rotary_dim": 4},
    {"rotary_dim": 4, "pairing": "interleaved", "act": "silu"},
    {"grid": [2, 3], "sections": [3, 1]},
]
COSINE_CASES = [{"grid": [2, 3], "sections": [6, 2]}]


class Lrpe(CommandTest):
    SHAPE = (2, 6, 2, 8)

    CASES = [("rotate", case) for case in LRPE_CASES + ROTATE_CASES] + [("cosine", case) for case in LRPE_CASES + COSINE_CASES]

    def theta(self, variant, case, rows=2):
        angles = 8 if variant == "cosine" else case.get("rotary_dim", 8) // 2
        return self.tensor(rows, angles, dtype="F32")

    def check_forward(self, variant, case):
        x, theta = self.tensor(*self.SHAPE), self.theta(variant, case)
        write(self.input, x=x, theta=theta)
        got = self.run_ok("lrpe_" + variant, *flags_of(case))
        self.assertEqual(list(got), ["o"])
        self.expect(got["o"], reference.lrpe(x, theta, variant, **case))

    def check_backward(self, variant, case):
        x, theta = self.tensor(1, 6, 2, 8), self.theta(variant, case, 1)
        grad_o = self.tensor(1, 6, 2, 16 if variant == "cosine" else 8)
        write(self.input, theta=theta, grad_o=grad_o, **({"x": x} if "act" in case else {}))
        got = self.run_ok("lrpe_" + variant, "--backward", *flags_of(case))
        self.assertEqual(list(got), ["grad_x"])
        wanted = reference.gradient(lambda t: reference.lrpe(t, theta, variant, **case), x, grad_o)
        self.expect(got["grad_x"], wanted)

    def test_every_case(self):
        for variant, case in self.CASES:
            with self.subTest(variant=variant, case=case):
                self.check_forward(variant, case)
                self.check_backward(variant, case)

    def test_layout(self):
        swap = (0, 2, 1, 3)
        for variant, width in (("rotate", 8), ("cosine", 16)):
            x, theta, grad_o = self.tensor(2, 6, 3, 8), self.theta(variant, {}, 3), self.tensor(2, 6, 3, width)
            write(self.input, x=x.transposed(swap), theta=theta, grad_o=grad_o.transposed(swap))
            stored = self.run_ok("lrpe_" + variant, "--act", "silu", "--layout", "bhnd")["o"]
            self.expect(stored, reference.lrpe(x, theta, variant, act="silu").transposed(swap))
            stored = self.run_ok("lrpe_" + variant, "--act", "silu", "--layout", "bhnd", "--backward")["grad_x"]
            write(self.input, x=x, theta=theta, grad_o=grad_o)
            self.expect(self.run_ok("lrpe_" + variant, "--act", "silu", "--backward", "--layout", "bnhd")["grad_x"],
                        stored.transposed(swap))

    def test_lse_is_written_and_read(self):
        x, theta, grad_o = self.tensor(*self.SHAPE), self.theta("rotate", {}), self.tensor(*self.SHAPE)
        flags = ("--act", "softmax", "--dim", 1)
        write(self.input, x=x, theta=theta)
        got = self.run_ok("lrpe_rotate", *flags, "--lse", "--layout", "bnhd")
        self.assertEqual(sorted(got), ["lse", "o"])
        self.expect(got["lse"], reference.lse_of_sequence(x))
        write(self.input, x=x, theta=theta, grad_o=grad_o)
        without = self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"]
        write(self.input, x=x, theta=theta, grad_o=grad_o, lse=got["lse"])
        self.expect(self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"], without)
        shifted = got["lse"].like([v + math.log(2) for v in got["lse"].values])  # so that it is seen to be read
        write(self.input, x=x, theta=theta, grad_o=grad_o, lse=shifted)
        self.assertNotEqual(self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"].values, without.values)

    def test_theta_base(self):
        cases = [("rotate", {}, 4), ("rotate", {"rotary_dim": 4}, 2), ("cosine", {}, 8), ("rotate", {"grid": [3, 2]}, 2),
                 ("rotate", {"grid": [3, 1, 2]}, 2), ("cosine", {"grid": [3, 2]}, 4),
                 ("rotate", {"grid": [2, 3], "sections": [1, 3]}, 4)]
        for variant, case, count in cases:
            x = self.tensor(*self.SHAPE)
            made = reference.stored(Tensor((1, count), [100.0 ** (-i / count) for i in range(count)], "F32"))
            write(self.input, x=x)
            self.expect(self.run_ok("lrpe_" + variant, "--theta-base", 100, *flags_of(case))["o"],
                        reference.lrpe(x, made, variant, **case))
            grad_o = self.tensor(2, 6, 2, 16 if variant == "cosine" else 8)
            write(self.input, grad_o=grad_o)
            got = self.run_ok("lrpe_" + variant, "--backward", "--theta-base", 100, *flags_of(case))["grad_x"]
            write(self.input, grad_o=grad_o, theta=made)
            self.expect(got, self.run_ok("lrpe_" + variant, "--backward", *flags_of(case))["grad_x"])

    def test_theta_of_the_file_comes_first(self):
        x, theta = self.tensor(*self.SHAPE), self.theta("rotate", {})
        write(self.input, x=x, theta=theta)
        self.expect(self.run_ok("lrpe_rotate", "--theta-base", 100)["o"], reference.lrpe(x, theta, "rotate"))


class TpaDecode(CommandTest):
    def factors(self, rank=3, n=2, m=5):
        lead = () if rank is None else (rank,)
        return {"aq": self.tensor(2, n, 3, 2), "bq": self.tensor(2, n, 2, 4), "ak": self.tensor(2, m, 3, *lead),
                "bk": self.tensor(2, m, *lead, 4), "av": self.tensor(2, m, 3, *lead), "bv": self.tensor(2, m, *lead, 6)}

    def compare(self, factors, case):
        write(self.input, **factors)
        o, lse = reference.tpa(**factors, **case)
        got = self.run_ok("tpa_decode", "--lse", *flags_of(case))
        self.assertEqual(sorted(got), ["lse", "o"])
        self.expect(got["o"], o)
        self.expect(got["lse"], lse)
        self.assertEqual(list(self.run_ok("tpa_decode", *flags_of(case))), ["o"])

    def test_every_flag(self):
        for case in ({}, {"scale": 0.3}, {"scale_q": 0.7}, {"scale_k": 1.5}, {"scale_v": -2}, {"causal": True},
                     {"scale": 0.2, "scale_q": 2, "scale_k": 3, "scale_v": 4, "causal": True}):
            for rank in (None, 1, 3):
                with self.subTest(case=case, rank=rank):
                    self.compare(self.factors(rank), case)

    def test_kv_len_of_both_integer_types(self):
        for dtype in ("I32", "I64"):
            for lengths in ((5, 2), (0, 9), (-4, 1)):
                kv_len = Tensor((2,), lengths, dtype)
                self.compare({**self.factors(), "kv_len": kv_len}, {})
                self.compare({**self.factors(), "kv_len": kv_len}, {"causal": True})

    def test_kv_len_past_32_bits(self):
        write(self.input, **self.factors(), kv_len=Tensor((2,), [1, 2**31], "I64"))
        self.refuse(1, f"{self.input}: kv_len has 2147483648 at index 1; it must fit 32 bits", "run", "tpa_decode", "--in",
                    self.input, "--out", self.output)
        self.assertFalse(self.output.exists())


class Refusals(CommandTest):
    def setUp(self):
        super().setUp()
        write(self.input, x=self.tensor(1, 4, 2, 6, dtype="F32"))

    def refuse_run(self, status, message, op, *flags, **options):
        self.refuse(status, message, "run", op, "--in", self.input, "--out", self.output, *flags, **options)
        self.assertEqual([p.name for p in self.folder.iterdir() if p != self.input], [])

    def test_usage(self):
        self.refuse(2, "no command given; .*")
        self.refuse(2, '"walk" is not a command; .*', "walk")
        self.refuse(2, "run needs an operator first: one of act, lrpe_rotate, lrpe_cosine, tpa_decode", "run")
        self.refuse(2, "run needs an operator first: .*", "run", "--in", "x")
        self.refuse(2, '"lrpe" is not an operator; it must be one of act, lrpe_rotate, .*', "run", "lrpe")
        self.refuse(2, "run needs --in FILE.safetensors", "run", "act", "--out", "y")
        self.refuse(2, "run needs --out FILE.safetensors", "run", "act", "--in", "x")
        self.refuse(2, "--out needs a value", "run", "act", "--in", "x", "--out")
        self.refuse(2, "--in needs a value", "run", "act", "--in", "--out", "y")
        self.refuse(2, '"here" is neither a flag nor a flag\'s value', "run", "act", "here")
        self.refuse(2, '"x": `copes ops` takes no arguments', "ops", "x")
        self.refuse(2, '"--all": `copes devices` takes no arguments', "devices", "--all")

    def test_flags(self):
        usage = lambda message, op, *flags: self.refuse_run(2, message, op, *flags)
        usage("act has no flag --grid; `copes run act --help` lists those it has", "act", "--grid", "2")
        usage("act has no flag --lse; .*", "act", "--lse")
        usage("act has no flag --theta-base; .*", "act", "--theta-base", "2")
        usage("tpa_decode has no flag --layout; .*", "tpa_decode", "--layout", "bnhd")
        usage("lrpe_rotate has no flag --variant; .*", "lrpe_rotate", "--variant", "cosine")
        usage("lrpe_rotate has no flag --lse with --backward; .*", "lrpe_rotate", "--backward", "--lse")
        usage("tpa_decode has no backward", "tpa_decode", "--backward")
        usage(r'--act is "tanh"; it must be one of none\|relu\|sigmoid\|silu\|softmax', "act", "--act", "tanh")
        usage('--act is "sil"; .*', "act", "--act", "sil")
        usage('--act is ""; .*', "act", "--act=")
        usage(r'--pairing is "third"; it must be one of half\|interleaved', "lrpe_rotate", "--pairing", "third")
        usage(r'--layout is "nbhd"; it must be one of bnhd\|bhnd', "lrpe_rotate", "--layout", "nbhd")
        for text in ("", "x", "1.5", "1e3", " 1", "1 ", "0x1", "--", "2147483648", "99999999999999999999", "1,2"):
            usage(f'--dim is "{text}"; it must be an integer from -2147483648 to 2147483647', "act", f"--dim={text}")
        for text in ("", ",", "1,", ",1", "1,,2", "1,2,3,4,5", "1;2", "9223372036854775808"):
            usage(f'--grid is "{text}"; it must be 1 to 4 integers from .* to 9223372036854775807, with commas between',
                  "lrpe_rotate", f"--grid={text}")
        for text in ("", "x", "1x", " 1"):
            usage(f'--scale is "{text}"; it must be a number', "tpa_decode", f"--scale={text}")
        usage('--causal takes no value, but was given "1"', "tpa_decode", "--causal=1")
        usage('--backward takes no value, but was given "yes"', "act", "--backward", "--backward=yes")
        for text in ("0", "-1", "nan", "inf", "1e999"):
            usage("--theta-base is .*; it must be finite and more than 0", "lrpe_rotate", "--theta-base", text)
        for text in ("gpu", "cpu:", "cpu:x", "cpu1", "cpu:-1", "CPU"):
            usage(f'--device is "{text}"; this build has cpu.*', "act", "--device", text)

    def test_line_stays_one_line(self):
        self.refuse_run(2, r'--act is "a\?b\?"; .*', "act", "--act", "a\nb\x1b")

    def test_device_that_does_not_exist(self):
        self.refuse_run(1, ".*device.*", "act", "--device", "cpu:1")

    def test_what_the_library_refuses(self):
        at = re.escape(str(self.input))
        self.refuse_run(1, at + ": act_forward: dim is 4; with tensors of rank 4 it must be -4 to 3", "act", "--act",
                        "softmax", "--dim", 4)
        self.refuse_run(1, at + r": lrpe_forward: grid is \(3, 2\); .* = 4", "lrpe_rotate", "--theta-base", 2, "--grid", "3,2")
        self.refuse_run(1, at + ": lrpe_forward: sections is .*", "lrpe_rotate", "--theta-base", 2, "--sections", "2")
        self.refuse_run(1, at + ": lrpe_forward: rotary_dim is 8; .*", "lrpe_rotate", "--theta-base", 2, "--rotary-dim", 8)
        self.refuse_run(1, at + ": lrpe_forward: lse is given; .*", "lrpe_rotate", "--theta-base", 2, "--lse")
        write(self.input, x=Tensor((3,), [1, 2, 3], "I64"))
        self.refuse_run(1, at + ": act_forward: x has type int32; .*", "act")

    def test_tensors_that_lack(self):
        at = re.escape(str(self.input))
        self.refuse_run(1, at + ': there is no tensor "theta", which lrpe_cosine needs; --theta-base makes one', "lrpe_cosine")
        self.refuse_run(1, at + ': there is no tensor "grad_o", which act --backward needs', "act", "--backward")
        self.refuse_run(1, at + ': there is no tensor "aq", which tpa_decode needs', "tpa_decode")
        write(self.input, grad_o=self.tensor(3))
        self.refuse_run(1, at + ": act_backward: x is NULL; .*", "act", "--backward", "--act", "silu")
        write(self.input, x=self.tensor(1, 4, 6))
        self.refuse_run(1, at + r": x has rank 3; with --layout bhnd it must be \(B, H, N, D\)", "lrpe_rotate",
                        "--theta-base", 2, "--layout", "bhnd")

    def test_input_files(self):
        at = re.escape(str(self.input))
        content = self.input.read_bytes()
        for size, message in ((0, "the file has 0 bytes, .*"), (7, "the file has 7 bytes, .*"),
                              (40, "the header would have .* the file is cut off"),
                              (len(content) - 1, 'tensor "x" has data_offsets .*, past the end of the 191 bytes of data')):
            self.input.write_bytes(content[:size])
            self.refuse_run(1, at + ": " + message, "act")
        self.input.unlink()
        self.refuse_run(1, at + ": No such file or directory", "act")
        self.input = self.folder
        self.refuse(1, at.rsplit("/", 1)[0] + ": not a regular file", "run", "act", "--in", self.folder, "--out", self.output)

    def test_output_files(self):
        self.output = self.folder / "none" / "out"
        self.refuse_run(1, re.escape(str(self.output)) + ": No such file or directory", "act")
        self.output = pathlib.Path("/dev/null")
        self.refuse_run(1, "/dev/null: what is there is not a regular file", "act")
        self.output = self.folder / "out"
        small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        self.refuse_run(1, re.escape(str(self.output)) + ": File too large", "act", preexec_fn=small)
        if os.geteuid() != 0:  # root may write anywhere
            self.folder.chmod(0o555)
            self.refuse_run(1, re.escape(str(self.output)) + ": Permission denied", "act")
            self.folder.chmod(0o755)

    def test_failed_run_leaves_the_old_output(self):
        self.output.write_bytes(b"old")
        done = copes("run", "act", "--in", self.input, "--out", self.output, "--act", "softmax", "--dim", 9)
        self.assertEqual((done.returncode, self.output.read_bytes()), (1, b"old"))


class Lists(CommandTest):
    def test_help_has_exactly_the_flags(self):
        common = {"in", "out", "act", "dim", "layout", "backward", "device"}
        lrpe = common | {"pairing", "grid", "offset", "prefix", "suffix", "sections", "rotary-dim", "lse", "theta-base"}
        tpa = {"in", "out", "scale", "scale-q", "scale-k", "scale-v", "causal", "lse", "device"}
        for op, flags in (("act", common), ("lrpe_rotate", lrpe), ("lrpe_cosine", lrpe), ("tpa_decode", tpa)):
            done = copes("run", op, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(set(re.findall(r"--([a-z-]+)", done.stdout)), flags)

    def test_help_and_version(self):
        for arguments in (("--help",), ("run", "--help"), ("ops", "--help"), ("devices", "--help"), ("sample", "--help")):
            done = copes(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"\Ausage: copes ")
        self.assertRegex(copes("--version").stdout, r"\Acopes \d+\.\d+\.\d+\n\Z")

    def test_ops(self):
        done = copes("ops")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        blocks = {block.split(":")[0]: block for block in done.stdout.split("\n\n")}
        self.assertEqual(list(blocks), ["act_forward", "act_backward", "lrpe_forward", "lrpe_backward", "tpa_decode"])
        self.assertRegex(blocks["act_forward"], r"(?m)^  attribute act +none\|relu\|sigmoid\|silu\|softmax .*; default none$")
        self.assertRegex(blocks["act_backward"], r"(?m)^  command +copes run act --backward$")
        self.assertRegex(blocks["lrpe_forward"], r"(?m)^  command +copes run lrpe_rotate$\n +copes run lrpe_cosine$")
        self.assertRegex(blocks["lrpe_forward"], r"(?m)^  input +x +\(B, N, H, D\) or \(B, N, D\) ")
        self.assertRegex(blocks["tpa_decode"], r"(?m)^ +lse +\(B, N, H\) .* \(optional\)$")
        self.assertRegex(blocks["tpa_decode"], r"(?m)^ +scale_q +number .*; default 1/Rq$")

    def test_devices(self):
        done = copes("devices")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^cpu +\S.*$")

    def test_closed_output(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([COPES, "ops"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "copes: cannot write to standard output: No space left on device\n")


class Sample(CommandTest):
    def test_sample(self):
        for dtype in ("f64", "f32", "f16", "bf16"):
            done = copes("sample", self.input, "--batch", 2, "--n", 50, "--head", 3, "--dim", 8, "--dtype", dtype)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            got = read(self.input)
            x, theta = got["x"], got["theta"]
            self.assertEqual((x.shape, x.dtype, theta.shape, theta.dtype), ((2, 50, 3, 8), dtype.upper(), (1, 4), "F32"))
            wanted = reference.stored(Tensor((1, 4), [10000.0 ** (-i / 4) for i in range(4)], "F32"))
            self.expect(theta, wanted)
            self.assertLess(abs(sum(x.values) / 2400), 0.1)
            self.assertLess(abs(sum(v * v for v in x.values) / 2400 - 1), 0.15)

    def test_types_are_roundings_of_one_sample(self):
        copes("sample", self.input, "--n", 64, "--dtype", "f64")
        exact = read(self.input)["x"]
        for dtype in ("f32", "f16", "bf16"):
            copes("sample", self.input, "--n", 64, "--dtype", dtype)
            got = read(self.input)["x"]
            self.assertEqual(got.values, reference.stored(Tensor(exact.shape, exact.values, dtype.upper())).values)

    def test_seed(self):
        contents = []
        for seed in (0, 0, 1, -1):
            copes("sample", self.input, "--n", 4, "--seed", seed)
            contents.append(self.input.read_bytes())
        self.assertEqual(contents[0], contents[1])
        self.assertEqual(len(set(contents)), 3)

    def test_refusals(self):
        self.refuse(2, "sample needs the file to write", "sample")
        self.refuse(2, '"b": sample takes one file', "sample", "a", "b")
        self.refuse(2, "--dim is 7; it must be even", "sample", self.input, "--dim", 7)
        self.refuse(2, '--n is "0"; it must be an integer from 1 to 2147483647', "sample", self.input, "--n", 0)
        self.refuse(2, '--dtype is "i32"; it must be one of .*', "sample", self.input, "--dtype", "i32")
        self.refuse(2, "sample has no flag --act; .*", "sample", self.input, "--act", "silu")
        self.refuse(2, "the size of x in bytes does not fit 63 bits", "sample", self.input, "--n", 2147483647, "--batch",
                    2147483647, "--head", 2147483647)


if __name__ == "__main__":
    unittest.main()
