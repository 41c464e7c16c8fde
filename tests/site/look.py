# SPDX-License-Identifier: BSD-3-Clause
"""look.py SRCDIR SITE - print what is wrong with a site; 1 if anything is.

Every document has a page with a title and one first heading; every link to the site leads to a page
and to a heading of it; a page loads only what lies in the site; a path of a document is a link.
"""
import glob
import os
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"),
          ("object", "data"), ("video", "src"), ("audio", "src"), ("img", "srcset")}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.bare, self.open = set(), [], [], [], []
        self.title, self.firsts = "", 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.update(v for k, v in attrs.items() if k == "id")
        for name, value in attrs.items():
            if (tag, name) in LOADED:
                self.loads.append(value)
            if name == "style" and "url(" in value:
                self.loads.append(value)
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        self.firsts += tag == "h1" and attrs.get("class") != "Sh"
        if tag in ("a", "pre", "title"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            self.open.remove(tag)

    def handle_data(self, data):
        if "title" in self.open:
            self.title += data
        elif "pre" not in self.open and "a" not in self.open:
            self.bare += re.findall(r"\bdocs/user/[a-z-]+\.md", data)


def complaints(src, site):
    files = [os.path.relpath(os.path.join(top, name), site)
             for top, _, names in os.walk(site) for name in names]
    pages = {}
    for name in files:
        with open(os.path.join(site, name), encoding="utf-8") as f:
            text = f.read()
        if name.endswith(".html"):
            pages[name] = Page(text)
        elif name.endswith(".css") and re.search(r"@import|url\(", text):
            yield f"{name}: loads something"
    documents = [d for kind in ("user", "dev", "decisions", "results")
                 for d in glob.glob(f"{src}/docs/{kind}/*.md")]
    if len(documents) < 60:
        yield f"only {len(documents)} documents in {src}"
    for document in documents:
        page = os.path.relpath(document, f"{src}/docs")[:-3] + ".html"
        if page not in pages and os.path.basename(page) not in pages:
            yield f"{document} has no page"
    for page in ("index.html", "man/braid.1.html", "man/braid-params.7.html", "dev/contributing.html"):
        if page not in pages:
            yield f"there is no {page}"
    for name, page in sorted(pages.items()):
        if not re.fullmatch(r"\S.* - Braid", page.title.strip()):
            yield f"{name}: the title is '{page.title}'"
        if page.firsts != 1:
            yield f"{name}: {page.firsts} first headings"
        for path in page.bare:
            yield f"{name}: {path} is no link"
        for target in page.loads:
            if urlsplit(target).scheme or target.startswith("//") or "url(" in target:
                yield f"{name}: loads {target}"
        for target in page.loads + page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            to = os.path.normpath(os.path.join(os.path.dirname(name), unquote(parts.path))) \
                if parts.path else name
            if to not in files:
                yield f"{name}: there is no {target}"
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].ids:
                yield f"{name}: {to} has no {parts.fragment}"


def main():
    found = list(complaints(sys.argv[1], sys.argv[2]))
    for complaint in found:
        print(complaint)
    return bool(found)


sys.exit(main())
