"""Texts without names of people and machines, folders and secrets: what is not known to be software's is replaced.

A replacement is a stable placeholder: the same text is `name3` wherever it stands in a file. Numbers that measure stay;
those that identify (jobs, serials, phones, commits) go.
"""

from __future__ import annotations

import getpass
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from timesink.knowledge import private_texts as texts

_SHAPES = tuple(re.compile(shape) for shape in texts.PRIVATE_SHAPES)
_PRINTABLE = re.compile(texts.PRINTABLE.encode())
_IDENTIFYING = tuple(re.compile(shape) for shape in texts.IDENTIFYING_NUMBERS)
_SECRETS, _ADDRESSES = "secret", "address"
_KINDS = (_SECRETS, _SECRETS, _SECRETS, *[_ADDRESSES] * 9, _SECRETS, _SECRETS, _ADDRESSES)
_SAID: Final = {
    "name": "names and words that no software is known to write",
    _SECRETS: "secrets and random texts",
    _ADDRESSES: "addresses of machines and people, dates",
    "folder": "folders",
}
_KEPT_ANSWERS = 100_000
_LONG, _LONGEST_SYMBOL = 2_000, 20_000  # characters; kernels of templates have up to some thousand
_WINDOW = 90  # characters before and after a sign in which the name stands
_SHORTEST_NAME = 3
_DIGITS_OF_A_MACHINE = 2  # gpu017 may be one, where a text calls it so
_LONGEST_NUMBER, _LONGEST_NUMBER_OF_A_WORD, _MOST_SINGLE_LETTERS = 8, 5, 2
_RANDOM_CHANGES = 0.25  # of its characters that differ in kind from the one before; names have a tenth
_NOBODY = frozenset({"root", "user", "users", "home", "localhost", "ubuntu", "runner", "none", "null", "unknown"})


class Cleaner:
    """Cleans texts and counts what it took out of them. `names` are hosts and users to look for besides this machine's;
    those that a text tells of (`learn_from`) are looked for from then on.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.removed: Counter[str] = Counter()
        self.symbols: set[str] = set()  # what stays as the name of a kernel or function
        self.has_known_numbers = False  # of a format whose numbers are all figures
        self.names: set[str] = set()
        self._known: dict[tuple[Callable[[str], str], str], str] = {}
        self._placeholders: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._is_learning = False
        self.learn([*names, os.uname().nodename, _user()])

    def learn(self, names: Iterable[str]) -> None:
        """More hosts and users. Short ones, and words that everybody uses, are left alone."""
        wanted = (name.strip(" \t\r\n./\\-") for name in names)
        fresh = {name.lower() for name in wanted if not _is_nobody(name)} - self.names
        if fresh:
            self._known.clear()
            self.names |= fresh
            self._is_learning = True

    def learn_from(self, text: str) -> None:
        """The users whose homes the text names, and the machines and users that its variables name."""
        windows = {window for sign in texts.NAMING_SIGNS for window in _around(text, sign)}
        found = (one for window in windows for one in texts.NAMING.finditer(window))
        self.learn(name for one in found for name in one.groups() if name)

    def learn_from_bytes(self, data: bytes) -> None:
        """The same of the texts among other bytes."""
        self.learn_from(b" \n ".join(_PRINTABLE.findall(data)).decode("ascii"))

    def words(self, text: str) -> str:
        """Free text: each word that no software is known to write is replaced, and each folder."""
        return self._kept(self._words, text)

    def symbol(self, text: str) -> str:
        """The name of a kernel or function: kept as it is, but for names learnt, addresses, folders and secrets."""
        kept = self._kept(self._symbol, text)
        self.symbols.add(kept)
        return kept

    def label(self, text: str) -> str:
        """The name of an operator, a call, a metric or an instruction where it is one; else free text."""
        known = is_library_symbol(text) or any(one.match(text) for one in (texts.CALL, texts.METRIC, texts.OPCODE))
        return self.symbol(text) if known else self.words(text)

    def value(self, value: Any, key: str = "") -> Any:
        """A value of JSON or of a pickle: texts as labels, members whose keys are no software's left out."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (Number, int, float)):
            digits = str(value).lstrip(NUMBER_MARK + "-")
            return value if self._is_figure(digits, key) else self.private(digits)
        if isinstance(value, str):
            return self.private(value) if is_private(key, value) else self.label(value)
        if isinstance(value, dict):
            kept = {name: inner for name, inner in value.items() if self.keeps(name)}
            return {name: self.value(inner, key if is_private(key) else name) for name, inner in kept.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(inner, key) for inner in value)
        self.removed["values of unknown types"] += 1
        return None

    def _is_figure(self, digits: str, key: str) -> bool:
        """Whether a number under this key measures something, and is nobody's."""
        if self.has_known_numbers or not key:
            return True
        is_short = not digits.isdecimal() or len(digits) <= _LONGEST_NUMBER_OF_A_WORD
        return not texts.PRIVATE_KEY.search(key) and (is_short or texts.QUANTITY_KEY.search(key) is not None)

    def keeps(self, key: Any) -> bool:
        """Whether a key is one that software writes."""
        if not isinstance(key, str) or (NUMBER_MARK not in key and self.label(key) == key):
            return True
        self.removed["members of unknown names"] += 1
        return False

    def is_metric(self, key: str) -> bool:
        """Whether a key is the name of a counter."""
        return texts.METRIC.match(key) is not None and self.symbol(key) == key

    def private(self, text: str) -> str:
        """What stands for a text that is private as a whole."""
        return self._placeholder("name", text) if text else text

    def summary(self) -> list[str]:
        """One phrase per kind of thing taken out."""
        return [f"{_SAID.get(kind, kind)}: {count}" for kind, count in sorted(self.removed.items())]

    def _kept(self, clean: Callable[[str], str], text: str) -> str:
        """Texts come back often, so answers are kept."""
        known = self._known.get((clean, text))
        if known is None:
            known = clean(texts.TERMINAL_STYLE.sub("", text).replace(NUMBER_MARK, ""))
            if len(self._known) < _KEPT_ANSWERS:
                self._known[clean, text] = known
        return known

    def _words(self, text: str) -> str:
        """Its words; JSON in it by members, as a string of it spells other words than its letters."""
        kept, done = [], 0
        while (at := text.find(JSON_BEGINS, done)) >= 0:
            try:
                value, end = DECODER.raw_decode(text, at)
                document = write_json(self.value(value))
            except (ValueError, RecursionError):  # damaged or too deep, so nothing in it is to be spelled
                document, end = self._plain_words(text[at:].replace("\\", " ")), len(text)
            kept += [self._plain_words(text[done:at]), document]
            done = end
        return "".join([*kept, self._plain_words(text[done:])])

    def _plain_words(self, text: str) -> str:
        if not texts.PIECE.search(text):
            return text
        if len(text) > _LONG:
            text = texts.LONG_WORD.sub(lambda found: self._placeholder("name", found.group()), text)
        text = self._shapes(texts.ABSOLUTE_PATH.sub(self._path, self._named(text)))
        for shape in _IDENTIFYING:
            text = shape.sub(lambda found: self._shape(found, _SECRETS), text)
        return texts.WORD.sub(self._word, text)

    def _symbol(self, text: str) -> str:
        is_sentence = " " in text and not {"(", "<", ":"} & set(text)
        if len(text) > _LONGEST_SYMBOL or not texts.SYMBOL.match(text) or is_sentence:
            return self._words(text)
        text = self._shapes(texts.ABSOLUTE_PATH.sub(self._path, self._named(text)))
        return texts.RANDOM_TEXT.sub(self._random, text) if not text.startswith("_Z") else text

    def _named(self, text: str) -> str:
        if self._is_learning:  # the names of each file decide; made once, after many were learnt
            self._pattern = re.compile(texts.whole_words(self.names), re.IGNORECASE)
            self._is_learning = False
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: self._placeholder("name", found.group()), text)
        return text

    def _shapes(self, text: str) -> str:
        for shape, kind in zip(_SHAPES, _KINDS, strict=True):
            text = shape.sub(lambda found, kind=kind: self._shape(found, kind), text)  # type: ignore[misc]
        return text

    def _shape(self, found: re.Match[str], kind: str) -> str:
        value = found.groupdict().get("value")
        if value is None:
            return self._placeholder(kind, found.group())
        if is_placeholder(value):
            return found.group()
        return found.group().removesuffix(value) + self._placeholder(kind, value)

    def _path(self, found: re.Match[str]) -> str:
        path = found.group()
        library = texts.LIBRARY_PATH.match(path)
        self.removed["folder"] += 1
        parts = path.count("/") + path.count("\\")
        return texts.WORD.sub(self._word, library["kept"] if library else last_part(path) if parts > 1 else "folder1")

    def _word(self, found: re.Match[str]) -> str:
        word = found.group()
        return word if is_common(word) else self._placeholder("name", word)

    def _random(self, found: re.Match[str]) -> str:
        text = found.group()
        return self._placeholder(_SECRETS, text) if is_random(text) and not is_common(text) else text

    def _placeholder(self, kind: str, text: str) -> str:
        if is_placeholder(text):
            return text
        key = text.lower()
        if key not in self._placeholders:
            self._placeholders[key] = f"{kind}{len(self._placeholders) + 1}"
            self.removed[kind] += 1
        return self._placeholders[key]


NUMBER_MARK: Final = "\0"


class Number(str):
    """A number of JSON in the digits it was written with, behind a mark that no cleaned text holds."""

    __slots__ = ()

    def __new__(cls, digits: str) -> Number:
        """Of the digits."""
        return super().__new__(cls, NUMBER_MARK + digits)


JSON_BEGINS: Final = '{"'
"""How an object of JSON begins that stands in a text."""
DECODER: Final = json.JSONDecoder(strict=False, parse_float=Number)
"""Numbers with a point keep their digits: a time in microseconds has more than a double holds."""


def write_json(value: Any) -> str:
    """The value as JSON, numbers in the digits they were written with."""
    return texts.MARKED_NUMBER.sub(r"\1", json.dumps(value))


def _around(text: str, sign: str) -> Iterator[str]:
    """The places of a long text at which the sign stands. Looking for a sign is quick, looking for a pattern is not."""
    at = text.find(sign)
    while at >= 0:
        if not (sign[0] == "/" and at and text[at - 1].isalnum()):
            yield text[max(at - _WINDOW, 0) : at + _WINDOW]
        at = text.find(sign, at + 1)


@lru_cache(maxsize=_KEPT_ANSWERS)
def is_private(key: str, text: str = "x") -> bool:
    """Whether a text that stands at this key goes whole."""
    if texts.PRIVATE_KEY.search(key):
        return True
    return texts.OWNERS_KEY.search(key) is not None and not texts.SHORT_NUMBER.match(text)


def is_placeholder(text: str) -> bool:
    """Whether it stands for something that was taken out."""
    return texts.PLACEHOLDER.match(text) is not None


@cache
def _software() -> frozenset[str]:
    """Words that software is known to write; tools/known_words.py makes the list."""
    return frozenset(Path(__file__).with_name("words.txt").read_text("utf-8").split())


def is_common(word: str) -> bool:
    """Whether every part of it is a word that software says, or a short number."""
    if word.isdecimal():
        return len(word) <= _LONGEST_NUMBER
    if word[:1].isdecimal() and ("." in word or word[:2] == "0x"):
        return True
    single = 0
    for piece in texts.PIECE.findall(word):
        if piece.isdecimal():
            if len(piece) > _LONGEST_NUMBER_OF_A_WORD and not is_placeholder(word):
                return False
        elif len(piece) == 1:
            single += 1
        elif piece.lower() not in _software():
            return False
    return single <= _MOST_SINGLE_LETTERS


def is_library_symbol(text: str) -> bool:
    """Whether it is a function of a library and nothing besides: outside of brackets stands one name."""
    if not texts.LIBRARY_SYMBOL.match(text):
        return False
    inside = 1
    while inside:
        text, inside = texts.IN_BRACKETS.subn("", text)
    return sum(word not in texts.BESIDE_A_SYMBOL for word in text.split()) <= 1


def _is_nobody(name: str) -> bool:
    """Whether it is too short to be looked for, or a plain word of software."""
    if len(name) < _SHORTEST_NAME or name.lower() in _NOBODY or name.isdecimal() or is_placeholder(name):
        return True
    digits = sum(map(str.isdecimal, name))
    return name.startswith("python") or (digits < _DIGITS_OF_A_MACHINE and name.isidentifier() and is_common(name))


def is_random(text: str) -> bool:
    """Whether letters and digits follow each other as in a key: with many changes from one kind to another, besides
    those of sizes, as of a kernel's tile."""
    text = texts.SIZES.sub("", text)
    return len(texts.CHANGES_OF_KIND.findall(text)) > _RANDOM_CHANGES * len(text)


def last_part(path: str) -> str:
    """The file's own name: `train.py` of `/home/ann/x/train.py`."""
    return path.rstrip("/\\").replace("\\", "/").rpartition("/")[2]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return ""
