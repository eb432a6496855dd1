"""What an installed copes must do: RoPE on NumPy as its formula says, on one thread and more, and the command as a module."""

import subprocess
import sys
import tempfile
from pathlib import Path

import copes
import numpy as np


def check_rope():
    """Of as many numbers as take every thread."""
    tokens, heads, dim, first = 512, 8, 64, 4096
    x = np.random.default_rng(0).standard_normal((1, tokens, heads, dim)).astype(np.float32)
    theta = (10000.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)
    angles = np.arange(first, first + tokens)[:, None, None] * theta.astype(np.float64)
    left, right = x[..., : dim // 2], x[..., dim // 2 :]
    expected = np.concatenate(
        [left * np.cos(angles) - right * np.sin(angles), right * np.cos(angles) + left * np.sin(angles)], axis=-1
    )
    np.testing.assert_allclose(copes.lrpe_rotate(x, theta[None], offset=first), expected, rtol=0, atol=1e-6)


def check_command():
    command = [sys.executable, "-m", "copes"]
    version = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True).stdout
    assert copes.__version__ in version, version
    with tempfile.TemporaryDirectory() as folder:
        x, o = Path(folder, "x.safetensors"), Path(folder, "o.safetensors")
        subprocess.run([*command, "sample", x], check=True)
        subprocess.run([*command, "run", "lrpe_rotate", "--act", "silu", "--in", x, "--out", o], check=True)
        assert o.stat().st_size > 1 << 20


check_rope()
check_command()
print(f"copes {copes.__version__} in {Path(copes.__file__).parent}: {copes.devices()}")
