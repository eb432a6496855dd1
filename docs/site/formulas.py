"""Formulas as MathML, which browsers draw by themselves: the pages need no script and no network for them."""

import os
import re

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def mathml(node, display):
    """The names of functions are operators, which have space around them."""
    return re.sub(
        r"<mi>(cos|sin|log|ln)</mi>",
        r'<mo lspace="0.17em" rspace="0.17em">\1</mo>',
        convert(node.astext(), display=display),
    )


def inline(self, node):
    self.body.append(mathml(node, "inline"))
    raise SkipNode


def block(self, node):
    self.body.append(f'<div class="math">{mathml(node, "block")}</div>')
    raise SkipNode


def setup(app):
    """The font, from tools/site.sh, goes beside site.css, which names it."""
    if "COPES_MATH_FONT" in os.environ:
        app.config.html_static_path.append(os.environ["COPES_MATH_FONT"])
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
