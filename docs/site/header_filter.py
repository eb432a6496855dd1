"""Doxygen's filter for the C header: its comments as reStructuredText, in the form that Doxygen and Breathe know."""

import pathlib
import re
import sys

from plain import convert


def mark(match):
    """A comment on lines of its own describes what follows, one after code what it stands beside."""
    before, text = match["before"], match["text"]
    if text.startswith(" ----") or before.endswith("{ "):
        return match[0]
    if before.strip():
        return f"{before}/**<{text}*/"
    about = "\\file\n" if match.start() == 0 else ""
    text = "\n".join(re.sub(r"^\s*\* ?", "", line) for line in text.strip().splitlines())
    return f"{before}/** {about}\\verbatim embed:rst\n" + "\n".join(convert(text)) + "\n\\endverbatim */"


header = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
sys.stdout.write(re.sub(r"^(?P<before>[^\n]*?)/\*(?P<text>.*?)\*/", mark, header, flags=re.MULTILINE | re.DOTALL))
