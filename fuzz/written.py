"""The invariants of what a command wrote: a page or picture runs nothing but its own script, brings nothing along, and
shows no text that acts, its entities resolved; a table holds no formula; a document adds up.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fuzz import answers

_BRINGS = frozenset(("iframe", "frame", "object", "embed", "form", "base", "link", "img", "audio", "video", "portal"))
_LEADS = frozenset(("href", "xlink:href", "src", "srcset", "action", "formaction", "data", "poster", "background"))
_FORMULA = re.compile(r'(^|,)"?\s*[=＝|]', re.MULTILINE)
_FETCHES = re.compile(r"@import|url\(")
_WITHIN = re.compile(r"#[^:]*|[\w.%-]+\.html")  # a part of the page, a page beside it


def check_file(path: Path) -> None:
    """By what its name says it is."""
    if path.suffix in (".html", ".svg"):
        check_page(path.read_text("utf-8"), may_style=path.suffix == ".svg")
    if path.suffix == ".csv" and (found := _FORMULA.search(path.read_text("utf-8"))):
        raise AssertionError(f"a cell is a formula: {found.group()!r}")
    if path.suffix == ".json":
        answers.checked_json(path.read_text("utf-8"))
    if path.suffix == ".collapsed":
        answers.check_text(path.read_text("utf-8"))


def check_page(text: str, *, may_style: bool = False) -> None:
    """A page, or a picture, which `may_style` itself as it has no policy."""
    answers.check_text(text)
    page = _Page(may_style)
    page.feed(text)
    page.close()
    if page.inside:
        raise AssertionError(f"a page ends within <{page.inside}>")


class _Page(HTMLParser):
    """Every element, attribute and text as a browser has them."""

    def __init__(self, may_style: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.may_style = may_style
        self.policy, self.inside, self.kind, self.held = "", "", "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BRINGS:
            raise AssertionError(f"a page holds <{tag}>: {self.get_starttag_text()}")
        given = {name: value or "" for name, value in attrs}
        for name, value in given.items():
            _check_visible(value)
            if name.startswith("on") or name == "style" or (name in _LEADS and not _WITHIN.fullmatch(value)):
                raise AssertionError(f"a page acts through {name}={value!r}")
        if tag == "meta" and "http-equiv" in given:
            if self.policy or given["http-equiv"] != "Content-Security-Policy":
                raise AssertionError(f"a page says {given}")
            self.policy = given["content"]
        if tag in self.CDATA_CONTENT_ELEMENTS:
            self.inside, self.kind, self.held = tag, given.get("type", ""), ""

    def handle_endtag(self, tag: str) -> None:
        if tag != self.inside:
            return
        self.inside = ""
        digest = base64.b64encode(hashlib.sha256(self.held.encode("utf-8")).digest()).decode("ascii")
        if self.kind == "application/json":
            check_strings(answers.checked_json(self.held))
        elif tag == "style" and self.may_style and not _FETCHES.search(self.held):
            return
        elif self.held and f"'sha256-{digest}'" not in self.policy:
            raise AssertionError(f"a page holds a {tag} that its policy does not name: {self.held[:200]!r}")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.held += data
        else:
            _check_visible(data)


def _check_visible(text: str) -> None:
    if found := answers.ACTS.search(text):
        raise AssertionError(f"a page shows {found.group()!r} in {text[:120]!r}")


def check_strings(value: Any) -> None:
    """The texts of the data that a page's script draws from."""
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, str):
            _check_visible(here)
        elif isinstance(here, dict):
            left += [*here, *here.values()]
        elif isinstance(here, list):
            left += here
