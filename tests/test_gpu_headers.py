#!/usr/bin/env python3
"""Do the headers of a GPU backend go together?

test_gpu_headers.py ROOT FOLDER... -- COMPILER ARGUMENT...

Compiles a file that includes all headers of the folders, and one that includes them in the opposite order. It fails where two
rooms have one name without a namespace of their own, and where a header needs another to come first.
"""
import pathlib
import subprocess
import sys
import tempfile

separator = sys.argv.index("--")
root, folders, command = pathlib.Path(sys.argv[1]), sys.argv[2:separator], sys.argv[separator + 1 :]
headers = sorted(str(path.relative_to(root)) for folder in folders for path in (root / folder).rglob("*.h"))
if len(headers) < 20:
    sys.exit(f"{len(headers)} headers in {folders}; there are more")
with tempfile.TemporaryDirectory() as folder:
    for name, order in (("sorted", headers), ("reversed", headers[::-1])):
        source = pathlib.Path(folder) / f"{name}.cu"
        source.write_text("".join(f'#include "{header}"\n' for header in order))
        done = subprocess.run([*command, "-c", source, "-o", pathlib.Path(folder) / "object"], capture_output=True, text=True)
        print(f"{len(headers)} headers, {name}: exit status {done.returncode}\n{done.stderr}")
        if done.returncode != 0:
            sys.exit(1)
