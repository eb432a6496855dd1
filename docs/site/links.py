"""Links from the pages to what lies outside docs/: they work on a code host, and here where a page stands for it."""

import pathlib

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {"CONTRIBUTING": "site/contributing", "CHANGELOG": "site/changelog", "README": "index"}


class Outside(SphinxPostTransform):
    """Before MyST looks for the targets. A folder of the repository has no page: its name stays, without a link."""

    default_priority = 5

    def run(self, **keywords):
        for link in list(self.document.findall(pending_xref)):
            path = (pathlib.Path(self.env.doc2path(self.env.docname)).parent / link["reftarget"]).resolve()
            if link["reftype"] != "myst":
                continue
            if link["refdomain"] == "doc" and path.parent == ROOT:
                link["reftarget"] = PAGES[path.name]
            elif path.is_dir():
                link.replace_self(nodes.inline("", "", *link[0].children))


def setup(app):
    app.add_post_transform(Outside)
