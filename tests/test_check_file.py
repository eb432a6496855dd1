#!/usr/bin/env python3
"""check_file must pass what the command writes, and must not pass it with one bit of one element changed."""
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

copes, check_file = sys.argv[1:]
wrapper = shlex.split(os.environ.get('MESON_EXE_WRAPPER', ''))


def run(*words):
    return subprocess.run([*wrapper, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


with tempfile.TemporaryDirectory() as folder:
    x, o = pathlib.Path(folder, 'x.safetensors'), pathlib.Path(folder, 'o.safetensors')
    run(copes, 'sample', x, '--n', '16', '--head', '2').check_returncode()
    run(copes, 'run', 'lrpe_rotate', '--in', x, '--out', o, '--act', 'silu').check_returncode()
    run(check_file, x, o).check_returncode()
    data = bytearray(o.read_bytes())
    data[-1] ^= 0x80
    o.write_bytes(data)
    wrong = run(check_file, x, o)
    assert wrong.returncode == 1 and ' 1 past the bounds' in wrong.stdout, wrong
    assert run(check_file, x, x).returncode == 1
    assert run(check_file, x).returncode == 2
