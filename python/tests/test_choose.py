"""The code of docs/choose.md: its Python runs, an entry's forms agree, and its C compiles."""

import pathlib
import re
import shutil
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
BEFORE, *ENTRIES = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8").split("\n## ")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def parts(o):
    return o if isinstance(o, tuple) else (o,)


def test_python():
    torch.manual_seed(0)
    names = {}
    (shared,) = blocks(BEFORE, "python")
    exec(shared, names)
    for entry in ENTRIES:
        title, made = entry.splitlines()[0], []
        for code in blocks(entry, "python"):
            names.pop("o", None)
            exec(code, names)
            made.append(parts(names["o"]))
        assert made, title
        for other in made[1:]:
            for mine, its in zip(made[0], other, strict=True):
                torch.testing.assert_close(mine, its, msg=lambda said, title=title: f"{title}: {said}")


def has_dlpack(compiler):
    command = [compiler, "-E", "-"]
    return (
        subprocess.run(command, input=b"#include <dlpack/dlpack.h>", capture_output=True, check=False).returncode == 0
    )


def test_c(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None or not has_dlpack(compiler):
        pytest.skip("no C compiler, or no dlpack.h in its path")
    functions = []
    for number, entry in enumerate(ENTRIES):
        (code,) = blocks(entry, "c")
        tensors = ", ".join(sorted(set(re.findall(r"&(\w+)", code))))
        run = "return copes_run(context, &op, &args, NULL, 0);"
        functions.append(f"int call_{number}(copes_context *context) {{ DLTensor {tensors}; {code} {run} }}")
    source = tmp_path / "choose.c"
    source.write_text("\n".join(["#include <copes/copes.h>", *functions]), encoding="utf-8")
    command = [compiler, "-std=c11", "-fsyntax-only", "-Werror", f"-I{ROOT / 'include'}", str(source)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
