"""check_links.py FOLDER: every local link, image, style and script of the pages leads to a file, and to an element of it."""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """What a page links to, and the names that it can be linked by."""

    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append((tag, value))
            elif name == "id" or (name, tag) == ("name", "a"):
                self.names.add(value)


def broken(path, page, pages):
    """The links of a page that lead nowhere, and what it would fetch from the network."""
    for tag, link in page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            if tag != "a" and url.scheme != "data":
                yield f"{link} is fetched from the network"
            continue
        target = path.parent.joinpath(urllib.parse.unquote(url.path)).resolve() if url.path else path
        if not target.is_file():
            yield f"{link} leads to no file"
        elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].names:
            yield f"{link} leads to no element"


def main(folder):
    pages = {path: Page(path) for path in sorted(folder.resolve().rglob("*.html"))}
    if not pages:
        sys.exit(f"{folder} has no pages")
    errors = [f"{path}: {error}" for path, page in pages.items() for error in broken(path, page, pages)]
    if errors:
        sys.exit("\n".join(errors))
    print(f"{sum(len(page.links) for page in pages.values())} links of {len(pages)} pages lead somewhere")


main(pathlib.Path(sys.argv[1]))
