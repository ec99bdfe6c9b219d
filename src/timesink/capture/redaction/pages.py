"""Pages for a browser, such as timesink's own reports: what they show and what they carry for their script.

Texts and attributes are cleaned as any text, JSON and packed pictures as values. A script or a style that is not this
version's own is left out: nobody has read it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, reduce
from html import escape
from html.parser import HTMLParser
from importlib.resources import files

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import Cleaner, json_in
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import kept_texts

_MOST_PACKED_BYTES = 256 << 20  # of the pictures of a page, unpacked; a page has two megabytes
_SPELLED = {name.lower(): name for name in ("viewBox", "preserveAspectRatio")}
_CARRYING = ("script", "style", "template")


def cleaned_page(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[str]:
    """What the page shows as text, what it carries as values, whose numbers are all known."""
    try:
        page = _Page(cleaner)
        page.feed(unpacked.whole().decode("utf-8", "replace"))
        page.close()
    except (ValueError, AssertionError) as error:
        raise refused(f"{unpacked.path.name} is no page that can be read: {error}", "make the report again") from error
    yield from page.copy


class _Page(HTMLParser):
    def __init__(self, cleaner: Cleaner) -> None:
        super().__init__()
        self._cleaner, self._inside = cleaner, ""
        self._whole: list[str] = []  # of an element that is taken whole
        self.copy: list[str] = []

    def handle_decl(self, decl: str) -> None:
        self.copy.append("<!doctype html>")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in kept_texts.PAGE_NAMES:
            self._cleaner.removed["elements of unknown names"] += 1
            self.copy.append(" ")
            return
        self.copy.append(
            f"<{tag}{''.join(self._attribute(*pair) for pair in attrs if pair[0] in kept_texts.PAGE_NAMES)}>"
        )
        if tag in _CARRYING:
            self._inside = "data" if ("type", "application/json") in attrs else tag
            self._whole.clear()

    def _attribute(self, name: str, value: str | None) -> str:
        spelled = "" if value is None else f'="{escape(self._cleaner.at(kept_texts.PAGE_NAMES[name], value))}"'
        return f" {_SPELLED.get(name, name)}{spelled}"

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag in _CARRYING:
            self.copy.append(self._carried(self._inside, "".join(self._whole)))
            self._inside = ""
        if tag in kept_texts.PAGE_NAMES:
            self.copy.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._whole.append(data)
        else:
            self.copy.append(escape(self._cleaner.words(data), quote=False))

    def _carried(self, kind: str, text: str) -> str:
        """What a script, a style, JSON or a packed picture is in the copy: nothing, where nobody has read it."""
        held = text if kind == "data" else _unpacked(text.strip()) if kind == "template" else ""
        if (data := json_in(held)) is not None:
            plain = json.dumps(self._cleaner.value(data, place="figures"), separators=(",", ":"))
            plain = plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
            return plain if kind == "data" else base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
        if not reduce(lambda rest, ours: rest.replace(ours, ""), _ours(), text).strip():
            return text
        self._cleaner.removed["scripts, styles and pictures that are not this version's"] += 1
        return ""


def _unpacked(text: str) -> str:
    """A packed picture of ours; nothing where it is none."""
    unpacking = zlib.decompressobj()
    with suppress(ValueError, zlib.error):
        plain = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_PACKED_BYTES)
        return plain.decode("ascii", "replace") if unpacking.eof else ""
    return ""


@cache
def _ours() -> list[str]:
    """The scripts and styles of this version's pages, the longest first."""
    folder = files("timesink").joinpath("render")
    assets = [part for part in folder.joinpath("html", "assets").iterdir() if part.name.endswith((".js", ".css"))]
    texts = [part.read_text("utf-8").strip() for part in assets]
    for name, colours in json.loads(folder.joinpath("svg", "colours.json").read_text("utf-8")).items():
        spelled = ";".join(f"--{each}:{colour}" for each, colour in colours.items())
        texts = [text.replace(f"--{name}", spelled) for text in texts]
    return sorted(texts, key=len, reverse=True)
