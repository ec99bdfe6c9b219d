"""The proof of a redacted copy: each text in it with the list that lets it stay, read by walks of their own.

It shares with the cleaner the closed lists and nothing that judges: it takes out placeholders by their mark, and of
what is left every letter must be of a listed word, every digit of a short number. What no list lets stay is a leak.
"""

from __future__ import annotations

import html
import json
import pickletools
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

from timesink.capture.redaction import lists
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import kept_texts, nsys_tables
from timesink.untrusted import masking, read_rows

Texts = Iterator[str]
Stayed = Counter[tuple[str, str]]
"""How often each text stands in a copy, by the class that lets it stay and the text."""
_MARKED = re.compile("\u27e6[0-9]{1,9}\u27e7")  # placeholders
_STRETCH = re.compile(r"[0-9](?:[ .:/()+-]{0,3}[0-9])*")  # of digits, with what people write between them
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)  # of JSON
_JSON = re.compile(r'[{\[]"')  # how an object or a list of texts begins
_DIGEST = re.compile('"has_payload": "[0-9a-f]{1,32}"')  # of an entry of PyTorch's compiler log
_BETWEEN = re.compile("[^A-Za-z]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[A-Z][a-z])")  # parts of words
_ALNUM = re.compile("[0-9A-Za-z]+")  # words and numbers, glued or not
_CODES = frozenset("vbcahstijlmxynofdegzwk")  # of types in a mangled name
_LOGGED = re.compile(r"^(?:\[[a-z]*[0-9]*\]:)*[VIWEC][0-9]{4} [0-9:.]{15} [0-9]+ ")  # how a line of glog begins
_NUMBER = re.compile(r"(?<=[:,\[])\s*-?[0-9][0-9.eE+-]*")  # of JSON
_CARRIED = re.compile(r"<(script|style|template)\b.*?</\1>", re.DOTALL)  # of a page, for its script
_TAG = re.compile(r"(<[^>]*>)|([^<]+)")  # a tag of a page, or a text between two
_QUOTED = re.compile(r'([\w-]+)="([^"]*)"')  # an attribute
_OF_DRAWINGS = frozenset(("content", "d", "style", "points", "transform", "viewBox"))
# A cell that is one number, or a line that is one behind a key.
_FIGURE = re.compile(
    r"-?[0-9,]{1,17}(?:\.[0-9]{1,17})?(?:e[+-]?[0-9]{1,3})?%?|[\w. -]*[A-Za-z_][\"']? ?[:=] ?-?[0-9]{1,13}"
)
# What ncu's sentences count.
_COUNTED = re.compile(
    r"[0-9]{1,13}(?:\.[0-9])? (?=(?:excessive )?(?:sectors|wavefronts)|(?:non-)?fused|instructions|bytes)"
)
_SIZES = re.compile(r"\[?-?[0-9]{1,10}(?:, -?[0-9]{1,10}){0,7}\]?")  # of a tensor or a launch
_MOST_DIGITS, _LETTERS_OF_A_CODE, _LONGEST_CODE = 10, 3, 12
_OF_FORMATS = frozenset(name for table in nsys_tables.DECLARED for name in (table.name, *table.columns)).union(
    kept_texts.TRACE_KEYS, kept_texts.EVENT, kept_texts.ARGUMENTS, kept_texts.PAGE_COLUMNS
)


def stays_as(text: str) -> str:
    """The list that lets a text stay; "" where none does."""
    rest = _MARKED.sub(" ", text)
    is_figure = _FIGURE.fullmatch(text) or _SIZES.fullmatch(text)
    stretches = [] if is_figure else _STRETCH.findall(_COUNTED.sub("", rest))
    if text in _OF_FORMATS:
        return "key or column that a reader takes"
    if not rest.isascii() or "\\" in rest or any(sum(map(str.isdecimal, one)) > _MOST_DIGITS for one in stretches):
        return ""
    if not any(map(str.isalpha, rest)):
        return "number" if rest == text else "placeholder"
    parts = _BETWEEN.split(rest)
    if rest.startswith("_Z"):
        known = all(_is_listed(part) or _CODES.issuperset(one for one in part if one.islower()) for part in parts)
        return "mangled name of known words" if known else ""
    if all(map(_is_listed, parts)) and not any(map(_is_key, _ALNUM.findall(rest))):
        return "words of software" if rest == text else "words of software, placeholders"
    return "instruction" if kept_texts.INSTRUCTIONS.issuperset(text.split(".")) else ""


def _is_listed(part: str) -> bool:
    return len(part) <= _LETTERS_OF_A_CODE or part.lower() in lists.words() or part in kept_texts.SHORT_WORDS


def _is_key(run: str) -> bool:
    """Whether letters and digits in a row say no word: as a digest or a key does, and no size such as 64x64x8."""
    spelled = [part for part in _BETWEEN.split(run) if len(part) >= _LETTERS_OF_A_CODE]
    return len(run) > _LONGEST_CODE and not run.isalpha() and not spelled and not set(run) <= set("0123456789x")


def prove(copy: Unpacked, walk: Callable[[Unpacked], Texts], names: frozenset[str]) -> tuple[Stayed, list[str]]:
    """How often each text that a walk finds stands in the copy, by its list and itself; and what may not be in it, one
    phrase a kind."""
    found = Counter(inner for text in walk(copy) for inner in _inside(text))
    classes = {text: stays_as(text) for text in found}
    left = ["a secret" for piece in copy.overlapping() if masking.find_token(piece.decode("latin-1"))][:1]
    left += ["a name that was to go" for text in found if any(name in text.lower().split() for name in names)][:1]
    if unknown := sum(not means for means in classes.values()):
        left.append(f"{unknown} texts that no list lets stay")
    return Counter({(classes[text], text): count for text, count in found.items()}), left


def of_lines(unpacked: Unpacked) -> Texts:
    """Cells of a page; lines of any other text, without what logs begin them with and without digests."""
    for line in (_LOGGED.sub("", _DIGEST.sub("", line)) for line in unpacked.lines()):
        try:
            yield from next(read_rows(line)) if line.startswith('"') and line.endswith('"') else [line]
        except ValueError:  # it is no line of a page
            yield line


def _inside(text: str) -> Texts:
    """The text; where JSON is in it, what each of its strings spells, and what is no string and no number."""
    begins = _JSON.search(text)
    at = begins.start() if begins else len(text)
    yield text[:at]
    if begins:
        yield _NUMBER.sub(" ", _STRING.sub(" ", text[at:]))
    for literal in _STRING.findall(text, at):
        yield from _inside(_spelled(literal))


def of_tables(unpacked: Unpacked) -> Texts:
    """Names of an export's tables and columns, and cells that are texts."""
    with closing(sqlite3.connect(f"{unpacked.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master").fetchall():
            yield table
            rows = db.execute('SELECT * FROM "{}"'.format(table.replace('"', '""')))
            yield from (name for name, *_ in rows.description)
            for row in rows:
                yield from (cell for cell in row if isinstance(cell, str))


def of_pickle(unpacked: Unpacked) -> Texts:
    """Every text that a pickle holds."""
    return (value for _, value, _ in pickletools.genops(unpacked.whole()) if isinstance(value, str))


def of_json(unpacked: Unpacked) -> Texts:
    """Every text that JSON holds, keys too, of a damaged document as well; as it is written, none passes a line."""
    return (_spelled(literal) for line in unpacked.lines() for literal in _STRING.findall(line))


def _spelled(literal: str) -> str:
    """The text that a string of JSON spells; the string as it stands where it is damaged."""
    with suppress(ValueError):
        return str(json.loads(literal, strict=False)) if "\\" in literal else literal[1:-1]
    return literal[1:-1]


def of_page(unpacked: Unpacked) -> Texts:
    """What a page shows: what stands between its tags, and in quotes within them."""
    shown = _CARRIED.sub(" ", "".join(unpacked.pieces()))
    for tag, text in _TAG.findall(shown):
        values = [value for name, value in _QUOTED.findall(tag) if name not in _OF_DRAWINGS]
        yield from map(html.unescape, [*values, *([text] if text else [])])
