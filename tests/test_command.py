#!/usr/bin/env python3
"""The `copes` command's results: act, what is written over an input, and the commands explain and sample."""
import unittest

import command_reference as reference
from command_case import CommandTest, copes
from command_reference import Tensor, read, write


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

    def test_act_in_shares(self):
        x, grad_o = self.tensor(2, 5, 3), self.tensor(2, 5, 3)
        flags = ("--act", "softmax", "--dim", 1)
        write(self.input, x=x)
        lse = self.run_ok("act", *flags, "--no-o", "--lse")["lse"]
        self.assertEqual(lse.shape, (2, 1, 3))
        write(self.input, x=x, lse_all=lse)
        o = self.run_ok("act", *flags)["o"]
        self.expect(o, reference.act(x, "softmax", 1))
        write(self.input, o=o, grad_o=grad_o)
        whole = self.run_ok("act", "--backward", *flags)["grad_x"]
        delta = self.run_ok("act", "--backward", *flags, "--no-grad-x", "--delta")["delta"]
        write(self.input, o=o, grad_o=grad_o, delta_all=delta)
        self.expect(self.run_ok("act", "--backward", *flags)["grad_x"], whole)

    def test_mask_is_written_and_read(self):
        x, grad_o = self.tensor(2, 3, 9), self.tensor(2, 3, 9)
        write(self.input, x=x)
        got = self.run_ok("act", "--act", "relu", "--mask")
        self.expect(got["o"], reference.act(x, "relu"))
        mask = got["mask"]
        self.assertEqual((mask.shape, mask.dtype), ((2, 3, 2), "U8"))
        bits = [mask.at(i, j, k // 8) >> k % 8 & 1 for i, j, k in x.indices()]
        self.assertEqual(bits, [int(v > 0) for v in x.values])
        wanted = x.like([g * b for g, b in zip(grad_o.values, bits)])
        for kept in ({"mask": mask}, {"o": got["o"]}, {"x": x}):
            write(self.input, grad_o=grad_o, **kept)
            self.expect(self.run_ok("act", "--backward", "--act", "relu")["grad_x"], wanted)


class InPlace(CommandTest):
    def test_act_and_lrpe(self):
        x, theta = self.tensor(2, 3, 2, 4), self.tensor(1, 2, dtype="F32")
        write(self.input, x=x, theta=theta)
        self.expect(self.run_ok("act", "--act", "silu", "--in-place")["o"], reference.act(x, "silu"))
        self.expect(self.run_ok("lrpe_rotate", "--in-place")["o"], reference.lrpe(x, theta, "rotate"))
        write(self.input, x=x, theta=self.tensor(1, 4, dtype="F32"))
        self.refuse(1, f"{self.input}: --in-place: o has another shape than x", "run", "lrpe_cosine", "--in", self.input, "--out",
                    self.output, "--in-place")


class Explain(CommandTest):
    def test_each_call_names_its_variant(self):
        done = copes("explain", "act", "lrpe_rotate", "--n", 64, "--act", "softmax")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        calls = done.stdout.split("\n\n")
        self.assertEqual(len(calls), 8)
        for call in calls:
            self.assertRegex(call, r"^[\w-]+, n 64\nvariant: \w+<bf16, \w+>\nthreads: \d+\nworkspace: \d+ bytes\n?$")
        self.assertEqual(copes("bench", "--explain", "act", "lrpe_rotate", "--n", 64, "--act", "softmax").stdout, done.stdout)

    def test_help_and_refusals(self):
        self.assertIn("usage: copes explain", copes("explain", "--help").stdout)
        self.refuse(2, '"rope" is not an operator; .*', "explain", "rope")


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
        self.refuse(2, '"b" is not an operator; it must be one of act, .*', "sample", "a", "b")
        self.refuse(2, '"c": sample takes one file and one operator', "sample", "a", "act", "c")
        self.refuse(2, "--dim is 7; it must be even", "sample", self.input, "--dim", 7)
        self.refuse(2, '--n is "0"; it must be an integer from 1 to 2147483647', "sample", self.input, "--n", 0)
        self.refuse(2, '--dtype is "i32"; it must be one of .*', "sample", self.input, "--dtype", "i32")
        self.refuse(2, "sample has no flag --act; .*", "sample", self.input, "--act", "silu")
        self.refuse(2, "the size of x in bytes does not fit 63 bits", "sample", self.input, "--n", 2147483647, "--batch",
                    2147483647, "--head", 2147483647)


if __name__ == "__main__":
    unittest.main()
