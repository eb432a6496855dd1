"""The README's Python code runs as it stands."""

import pathlib
import re

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_readme():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    assert names["q"].grad.shape == names["q"].shape == names["q_rotated"].shape
    assert abs(names["x"].sum() - 1) < 1e-6
