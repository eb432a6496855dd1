"""How Sphinx builds the web page from the files of this folder; tools/site.sh runs it."""

import os
import pathlib
import re
import subprocess
import sys

docs = pathlib.Path(__file__).parent
root = docs.parent
sys.path.insert(0, str(docs / "site"))

import exactness
import formulas
import links
import plain

project = "copes"
version = release = re.search(r"^  version: '([^']*)'", (root / "meson.build").read_text(), re.MULTILINE)[1]
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"copes {version}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_math_renderer = "mathml"
highlight_language = "none"

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4

# Docstrings of copes.nn are read without PyTorch.
autodoc_mock_imports = ["torch", "copes._torch", "copes._torch_library", "copes._torch_lrpe", "copes._torch_shares"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"

breathe_default_project = "copes"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
# Types of the C library and of DLPack, which have no page here.
nitpick_ignore_regex = [("c:identifier", r"u?int\d+_t|size_t|ptrdiff_t|DL\w+|\w+\.@\d+"), ("py:.*", r".*")]


def setup(app):
    breathe = pathlib.Path(app.outdir).parent / "doxygen"
    breathe.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["doxygen", docs / "site" / "Doxyfile"], cwd=breathe, check=True, env={**os.environ, "ROOT": str(root)}
    )
    app.config.breathe_projects = {"copes": str(breathe / "xml")}
    for part in (exactness, formulas, links, plain):
        part.setup(app)
