"""The command `copes`, as pip installs it and as `python -m copes`."""

import pathlib
import platform
import subprocess
import sys
import sysconfig

import copes
import pytest

pytestmark = pytest.mark.skipif(not hasattr(copes._copes, "command"), reason="built without the command")
PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
COMMANDS = [[sys.executable, "-m", "copes"], [str(pathlib.Path(sysconfig.get_path("scripts")) / "copes")]]


def run(command, *arguments):
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_version_and_refusal(command):
    done = run(command, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"copes {copes.__version__}\n", "")
    wrong = run(command, "frobnicate")
    assert wrong.returncode == 2 and "frobnicate" in wrong.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_doctor_names_python(command):
    done = run(command, "doctor")
    assert done.returncode == 0 and f"\nin        {PYTHON}" in done.stdout
    assert f", {PYTHON}" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_check_is_in_it(command):
    done = run(command, "check", "act", "--cases", "1", "--every", "40")
    assert done.returncode == 0 and done.stdout.startswith("operator ") and done.stderr == ""
