#!/usr/bin/env python3
"""`copes doctor`: what it says of the build, the devices and the CPU's level."""
import os
import re
import unittest

from command_case import CommandTest, copes


def doctor(**variables):
    return copes("doctor", env={**os.environ, **variables})


class Doctor(CommandTest):
    def test_build_and_devices(self):
        done = doctor()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        version = copes("--version").stdout.strip()
        self.assertRegex(done.stdout, r"(?m)\Acopes +" + re.escape(version.split()[1]) + "$")
        self.assertRegex(done.stdout, r"(?m)^built +by (gcc|clang) [\d.]+ for \w+ \w+, \w+$")
        for line in copes("devices").stdout.splitlines():  # each device with its summary, or the reason why there is none
            name, summary = line.split(None, 1)
            self.assertIn(summary, done.stdout)
            self.assertIn(f"; {name.split(':')[0]}: ", done.stdout.splitlines()[-1])
        for backend in ("cuda", "hip"):
            self.assertRegex(done.stdout, rf"(?m)^{backend} +\S")
        self.assertRegex(done.stdout, r"(?m)^cpu .*\n(?: .*\n)* +computes$")
        self.assertEqual(done.stdout.splitlines()[-1].split(",")[0], version)

    def test_level(self):
        done = doctor(COPES_CPU_ISA="")
        self.assertRegex(done.stdout, r"(?m)^ +levels in the build: baseline")
        self.assertRegex(done.stdout, r"(?m)^ +\w+ runs, the highest (in the build|that the processor has of them)$")
        done = doctor(COPES_CPU_ISA="baseline")
        self.assertRegex(done.stdout, r"(?m)^ +baseline runs, as COPES_CPU_ISA says$")
        self.assertRegex(done.stdout.splitlines()[-1], "; COPES_CPU_ISA=baseline")

    def test_level_that_is_none(self):
        done = doctor(COPES_CPU_ISA="avx3")
        self.assertEqual((done.returncode, done.stderr), (1, "copes: a device does not compute\n"))
        self.assertRegex(done.stdout, r"(?m)^ +FAILS: COPES_CPU_ISA is avx3; it must be baseline, ")

    def test_threads(self):
        self.assertRegex(doctor(OMP_NUM_THREADS="3").stdout, r"(?m)^variables.* OMP_NUM_THREADS=3")

    def test_no_arguments(self):
        self.refuse(2, '"x": `copes doctor` takes no arguments', "doctor", "x")
        self.assertRegex(copes("doctor", "--help").stdout, r"\Ausage: copes doctor\n")


if __name__ == "__main__":
    unittest.main()
