"""Pages for a browser, such as timesink's own reports: what they show and what they carry for their script.

Texts and attributes are cleaned as any text, JSON and packed pictures as values. A script or a style that is not this
version's own is left out: nobody has read it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from functools import cache
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import IO

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import Cleaner, json_in
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.knowledge import kept_texts, private_texts

_MOST_PACKED_BYTES = 256 << 20  # of the pictures of a page, unpacked; a page has two megabytes
# Names of colours, and the licence before the one script of others.
_OF_OURS = re.compile(
    r"--s-\d{1,2}:;|--k-|--(?:bg|ink|box-ink|accent|card)|prefers-color-scheme|/\*! uPlot 1\.6\.32, Copyright \(c\) "
    r"2022 Leon Sorokin, MIT licence: https://github\.com/leeoniya/uPlot \*/"
)
_SPELLED = {name.lower(): name for name in ("viewBox", "preserveAspectRatio")}
_CARRYING = ("script", "style", "template")


def redact_page(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """What the page shows as text, what it carries as values, whose numbers are all known."""
    cleaner.has_known_numbers = True
    with writing(target) as file:
        try:
            page = _Page(file, cleaner)
            page.feed(unpacked.whole().decode("utf-8", "replace"))
            page.close()
        except (ValueError, AssertionError) as error:
            what = f"{unpacked.path.name} is no page that can be read: {error}"
            raise refused(what, "make the report again") from error
    cleaner.has_known_numbers = False


class _Page(HTMLParser):
    def __init__(self, file: IO[bytes], cleaner: Cleaner) -> None:
        super().__init__()
        self._file, self._cleaner, self._inside = file, cleaner, ""
        self._whole: list[str] = []  # of an element that is taken whole

    def _put(self, text: str) -> None:
        self._file.write(text.encode("utf-8", "replace"))

    def handle_decl(self, decl: str) -> None:
        self._put("<!doctype html>")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in kept_texts.PAGE_NAMES:
            self._cleaner.removed["elements of unknown names"] += 1
            self._put(" ")
            return
        kept = [(name, value) for name, value in attrs if name in kept_texts.PAGE_NAMES]
        self._put(f"<{tag}{''.join(self._attribute(name, value) for name, value in kept)}>")
        if tag in _CARRYING:
            self._inside = "data" if ("type", "application/json") in attrs else tag
            self._whole.clear()

    def _attribute(self, name: str, value: str | None) -> str:
        place = kept_texts.PAGE_ATTRIBUTES.get(name, "words")
        spelled = "" if value is None else f'="{escape(self._cleaner.at(place, value))}"'
        return f" {_SPELLED.get(name, name)}{spelled}"

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag in _CARRYING:
            self._put(self._carried(self._inside, "".join(self._whole)))
            self._inside = ""
        if tag in kept_texts.PAGE_NAMES:
            self._put(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._whole.append(data)
        else:
            self._put(escape(self._cleaner.words(data), quote=False))

    def _carried(self, kind: str, text: str) -> str:
        """What a script, a style, JSON or a packed picture is in the copy: nothing, where nobody has read it."""
        held = text if kind == "data" else _unpacked(text.strip()) if kind == "template" else ""
        if (data := json_in(held)) is not None:
            plain = json.dumps(self._cleaner.value(data), separators=(",", ":"))
            plain = plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
            return plain if kind == "data" else base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
        rest = _without_ours(text)
        for ours in _assets():
            rest = rest.replace(ours, "")
        if self._cleaner.words(rest) == rest and (kind == "style" or not rest.strip()):
            return text
        self._cleaner.removed["scripts, styles and pictures that are not this version's"] += 1
        return ""


def _unpacked(text: str) -> str:
    """A packed picture of ours; nothing where it is none."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_PACKED_BYTES)
    except (ValueError, zlib.error):
        return ""
    return plain.decode("ascii", "replace") if unpacking.eof else ""


def _without_ours(text: str) -> str:
    return _OF_OURS.sub("", private_texts.COLOUR.sub("", text))


@cache
def _assets() -> tuple[str, ...]:
    """The scripts and styles of this version's pages, the longest first."""
    folder = files("timesink").joinpath("render", "html", "assets")
    texts = [part.read_text("utf-8").strip() for part in folder.iterdir() if part.name.endswith((".js", ".css"))]
    return tuple(map(_without_ours, sorted(texts, key=len, reverse=True)))
