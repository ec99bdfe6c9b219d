"""Pages for a browser, such as timesink's own reports: what they show and what they carry for their script.

Texts and attributes are cleaned as any text, JSON and packed pictures as values. A script or a style that is not this
version's own is left out: nobody has read it.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from functools import cache
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import Cleaner, write_json
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.knowledge import kept_texts, private_texts
from timesink.untrusted.plain_json import parsed

_MOST_PACKED_BYTES = 256 << 20  # of the pictures of a page, unpacked; a page has two megabytes
_SPELLED = {name.lower(): name for name in ("viewBox", "preserveAspectRatio")}


def redact_page(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """What the page shows as text, what it carries as values."""
    text = unpacked.whole().decode("utf-8", "replace")
    with writing(target) as file:
        try:
            _Page(file, cleaner).write(text)
        except (ValueError, zlib.error, binascii.Error, AssertionError) as error:
            what = f"{unpacked.path.name} is no page that can be read: {error}"
            raise refused(what, "make the report again") from error


class _Page(HTMLParser):
    def __init__(self, file: IO[bytes], cleaner: Cleaner) -> None:
        super().__init__()
        self._file, self._cleaner, self._inside = file, cleaner, ""
        self._whole: list[str] = []  # of an element that is taken whole

    def write(self, text: str) -> None:
        self.feed(text)
        self.close()

    def _put(self, text: str) -> None:
        self._file.write(text.encode("utf-8", "replace"))

    def handle_decl(self, decl: str) -> None:
        self._put("<!doctype html>")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in kept_texts.PAGE_TAGS:
            self._cleaner.removed["elements of unknown names"] += 1
            self._put(" ")
            return
        kept = "".join(
            f" {name}" if value is None else f' {_SPELLED.get(name, name)}="{escape(self._attribute(name, value))}"'
            for name, value in attrs
            if name in kept_texts.PAGE_ATTRIBUTES
        )
        self._put(f"<{tag}{kept}>")
        if tag in ("script", "style", "template"):
            is_data = dict(attrs).get("type") == "application/json"
            self._inside, self._whole = "data" if is_data else tag, []

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag in ("script", "style", "template"):
            self._put(self._carried(self._inside, "".join(self._whole)))
            self._inside = ""
        if tag in kept_texts.PAGE_TAGS:
            self._put(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._whole.append(data)
        else:
            self._put(escape(self._cleaner.metric(data), quote=False))

    def _attribute(self, name: str, value: str) -> str:
        if (name in ("d", "points", "transform", "viewbox") and private_texts.DRAWING.fullmatch(value)) or (
            name == "content" and private_texts.PAGE_POLICY.fullmatch(value)
        ):
            return value
        return str(self._cleaner.value(value, name))

    def _carried(self, kind: str, text: str) -> str:
        """What a script, a style, JSON or a packed picture is in the copy."""
        if kind == "data":
            return _escaped(self._figures(parsed(text)))
        if kind == "template" and text.strip():
            unpacking = zlib.decompressobj()
            plain = unpacking.decompress(base64.b64decode(text.strip(), validate=True), _MOST_PACKED_BYTES)
            if not unpacking.eof:
                raise ValueError("a packed picture has no end")
            packed = zlib.compress(_escaped(self._figures(parsed(plain.decode("ascii")))).encode("ascii"), 9)
            return base64.b64encode(packed).decode("ascii")
        rest = private_texts.COLOUR.sub("", text)
        for ours in _assets():
            rest = rest.replace(private_texts.COLOUR.sub("", ours), "")
        if kind == "template" or self._cleaner.words(rest) == rest or rest.startswith("/*! uPlot"):
            return text
        self._cleaner.removed["scripts and styles that are not this version's"] += 1
        return ""

    def _figures(self, value: Any) -> Any:
        """A page's figures: its numbers are all known."""
        before, self._cleaner.has_known_numbers = self._cleaner.has_known_numbers, True
        try:
            return self._cleaner.value(value)
        finally:
            self._cleaner.has_known_numbers = before


def _escaped(value: Any) -> str:
    text = write_json(value) if not isinstance(value, (dict, list)) else json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _assets() -> tuple[str, ...]:
    """The scripts and styles of this version's pages, the longest first."""
    folder = files("timesink").joinpath("render", "html", "assets")
    texts = [part.read_text("utf-8").strip() for part in folder.iterdir() if part.name.endswith((".js", ".css"))]
    return tuple(sorted(texts, key=len, reverse=True))
