"""The package's types, as a type checker sees them."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy")
TESTS = pathlib.Path(__file__).parent


def test_types(tmp_path):
    """Of calls, as strictly as a user may ask for, and of the package itself."""
    for arguments in (["--strict", TESTS / "typed_usage.py"], [TESTS.parent / "copes"]):
        command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.startswith("Success"), done.stdout + done.stderr
