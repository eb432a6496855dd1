"""Plain text as reStructuredText: the docstrings and the header's comments, which are laid out to be read where they stand."""

import re


def escape(text):
    """Names in backticks are code in both."""
    return re.sub(r"`(\w+)`|([*`|\\]|_\b)", lambda found: f"``{found[1]}``" if found[1] else f"\\{found[2]}", text)


def listed(lines):
    """Lines whose items begin with a dash."""
    made = []
    for line in lines:
        if line.lstrip().startswith("- "):
            made += ["", f"- {escape(line.lstrip()[2:])}"]
        elif made and made[-1].startswith(("- ", "  ")):
            made.append(f"  {escape(line.strip())}")
        else:
            made.append(escape(line.strip()))
    return made


def table(lines):
    """A list of names, each with the text in the column beside it; None for what is laid out in another way."""
    first = re.match(r"(\S+(?: \S+)*?) {2,}(?=\S)", lines[0])
    if first is None:
        return None
    column, made = first.end(), []
    for line in lines:
        name, text = line[:column].strip(), line[column:]
        if len(line) <= column or line[column - 1] != " " or "  " in text.strip():
            return None
        if name:
            made.append(escape(name))
        made.append(f"    {escape(text.strip())}")
    return made


def convert(text):
    """reStructuredText of paragraphs; indented lines and columns of another kind stay as they are laid out."""
    made = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        rows = table([line[indent:] for line in lines])
        if rows:
            made += rows
        elif any(line.lstrip().startswith("- ") for line in lines):
            made += listed(lines)
        elif indent or any("  " in line for line in lines):
            made += ["::", "", *(f"    {line[indent:]}" for line in lines)]
        else:
            made += [escape(line) for line in lines]
        made.append("")
    return made


def process(app, what, name, obj, options, lines):
    lines[:] = convert("\n".join(lines))


def setup(app):
    app.connect("autodoc-process-docstring", process)
