#!/usr/bin/env python3
"""What the `copes` command says: its refusals, with their exit statuses, and its lists and help."""
import os
import re
import resource
import subprocess
import unittest

from command_case import COPES, CommandTest, copes
from command_reference import Tensor, write


class Refusals(CommandTest):
    def setUp(self):
        super().setUp()
        write(self.input, x=self.tensor(1, 4, 2, 6, dtype="F32"))

    def refuse_run(self, status, message, op, *flags, **options):
        self.refuse(status, message, "run", op, "--in", self.input, "--out", self.output, *flags, **options)
        self.assertEqual([p.name for p in self.folder.iterdir() if p not in (self.input, self.output)], [])
        self.assertFalse(self.output.is_file())

    def test_usage(self):
        self.refuse(2, "no command given; .*")
        self.refuse(2, '"walk" is not a command; .*', "walk")
        self.refuse(2, "run needs an operator first: one of act, lrpe_rotate, lrpe_cosine, tpa_decode, qk_norm_rope, "
                    "attention_merge", "run")
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
        usage("act has no flag --k-out; .*", "act", "--k-out")
        usage("act has no flag --theta-base; .*", "act", "--theta-base", "2")
        usage("tpa_decode has no flag --layout; .*", "tpa_decode", "--layout", "bnhd")
        usage("lrpe_rotate has no flag --variant; .*", "lrpe_rotate", "--variant", "cosine")
        usage("lrpe_rotate has no flag --lse with --backward; .*", "lrpe_rotate", "--backward", "--lse")
        usage("tpa_decode has no backward", "tpa_decode", "--backward")
        usage(r'--act is "tanh"; it must be one of none\|relu\|sigmoid\|silu\|softmax', "act", "--act", "tanh")
        usage('--act is "sil"; .*', "act", "--act", "sil")
        usage('--act is ""; .*', "act", "--act=")
        usage(r'--pairing is "third"; it must be one of half\|interleaved', "lrpe_rotate", "--pairing", "third")
        usage(r'--layout is "nbhd"; it must be one of bnhd\|bhnd; did you mean bnhd\?', "lrpe_rotate", "--layout", "nbhd")
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

    def test_did_you_mean(self):
        for line, meant in (("bnech", "bench"), ("RUN", "run"), ("explian act", "explain"), ("run lrpe", "lrpe_rotate"),
                            ("run tpa-decode", "tpa_decode"), ("run lrpe_rotate --rotary_dim 2", "--rotary-dim"),
                            ("run lrpe_rotate --backward --gard-theta", "--grad-theta"), ("run act --ni x", "--in"), ("sample --hlep", "--help"),
                            ("run act --act sliu", "silu"), ("run act --device cpuu", "cpu"), ("sample x --sede 2", "--seed")):
            self.refuse(2, ".*; did you mean " + re.escape(meant) + r"\?", *line.split())
        for line in ("walk", "x", "run convolution", "run act --seed 1", "run act --act tanh", "run act --n 2", "run act --i x", "sample x --y",
                     "run tpa_decode --" + 70 * "l", "run lrpe_rotate --backward --lse"):
            self.assertNotIn("did you mean", copes(*line.split()).stderr)
        for line, meant in (("check --varaints", "--variants"), ("check lrpe_cosin", "lrpe_cosine"), ("bench md_lrpe", "md_lrpe_cosine"),
                            ("bench --quik", "--quick"), ("explain --one_theta=", "--one-theta")):
            done = copes(*line.split())
            if "this build has no" not in done.stderr:
                self.assertEqual((done.returncode, done.stderr.split("; did you mean ")[-1]), (2, meant + "?\n"))

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
        self.refuse_run(1, at + ": lrpe_forward: pairing is 1; .*", "lrpe_cosine", "--theta-base", 2, "--pairing", "interleaved")
        self.refuse_run(1, at + ": lrpe_forward: pad_theta is 1; .*", "lrpe_rotate", "--theta-base", 2, "--pad-theta", "--grid",
                        "2,2")
        self.refuse_run(1, at + ": act_forward: dim is 4; .*", "act", "--act", "silu", "--dim", 4)
        write(self.input, x=Tensor((3,), [1, 2, 3], "I64"))
        self.refuse_run(1, at + ": act_forward: x has type int64; .*", "act")

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
        self.output = self.folder / "pipe"
        os.mkfifo(self.output)
        self.refuse_run(1, re.escape(str(self.output)) + ": what is there is not a regular file", "act")
        self.output.unlink()
        self.output = self.folder / "out"
        write(self.input, x=self.tensor(1, 4, 64, 64, dtype="F32"))
        small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))  # enough for a file of LLVM's OpenMP
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
        files = {"in", "out", "layout", "in-place", "backward", "device"}
        common = files | {"act", "dim"}
        rotation = {"pairing", "grid", "offset", "prefix", "suffix", "sections", "rotary-dim", "rotary-begin", "amplitude",
                    "inverse", "pad-theta", "theta-base"}
        shares = {"lse", "delta", "no-o", "no-grad-x"}
        lrpe = common | rotation | shares | {"grad-theta"}
        qk = files | rotation | {"eps", "weight-offset", "norm-over", "round-between", "k-out", "grad-k", "grad-wq", "grad-wk"}
        tpa = {"in", "out", "scale", "scale-q", "scale-k", "scale-v", "causal", "kv-first", "kv-stride", "kv-total", "lse",
               "device"}
        merge = {"in", "out", "base", "lse", "grad-lse-shares", "backward", "device"}
        for op, flags in (("act", common | shares | {"mask"}), ("lrpe_rotate", lrpe), ("lrpe_cosine", lrpe), ("tpa_decode", tpa),
                          ("qk_norm_rope", qk), ("attention_merge", merge)):
            done = copes("run", op, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(set(re.findall(r"--([a-z-]+)", done.stdout)), flags)

    def test_examples_run(self):
        names = re.findall(r"copes run (\w+)$", copes("ops").stdout, re.MULTILINE)
        self.assertGreaterEqual(len(set(names)), 5)
        for op in dict.fromkeys(names):
            example = copes("run", op, "--help").stdout.split("Example:\n")[1].splitlines()
            self.assertGreaterEqual(len(example), 2)
            for line in example:
                program, *words = line.split()
                done = copes(*words, cwd=self.folder)
                self.assertEqual((program, done.returncode, done.stdout, done.stderr), ("copes", 0, "", ""), line)
            self.assertTrue(any((self.folder / "out.safetensors").read_bytes()[-1000:]), op)

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
        self.assertEqual(list(blocks), ["act_forward", "act_backward", "lrpe_forward", "lrpe_backward", "tpa_decode",
                                        "qk_norm_rope_forward", "qk_norm_rope_backward", "attention_merge_forward",
                                        "attention_merge_backward"])
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
            done = subprocess.run([*COPES, "ops"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "copes: cannot write to standard output: No space left on device\n")


if __name__ == "__main__":
    unittest.main()
