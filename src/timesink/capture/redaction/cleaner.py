"""Texts with what their place lets stay, words of closed lists and small numbers; all else is a placeholder.

The place is the format's word for what a text is: the name of a kernel, of a metric, an instruction, or anything else.
A placeholder is the same for the same text, and stands in marks that no text keeps: a source's own are renumbered.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from timesink.knowledge import kept_texts
from timesink.knowledge import private_texts as texts
from timesink.untrusted.masking import is_secret_key

_SAID: Final = {"name": "names and words that no software is known to write", "folder": "folders"}
_KEPT_ANSWERS = 100_000
_LONG, _LONGEST_SYMBOL = 2_000, 20_000  # characters; kernels of templates have up to some thousand
_MOST_DIGITS, _DIGITS_OF_A_WORD, _MOST_SINGLE_LETTERS, _DIGITS_ALONE = 6, 5, 2, 3
_LONGEST_LIST_OF_WORDS = 7  # no sentence has as many words without one that binds them; a wallet has twelve


class Cleaner:
    """Cleans texts and counts what it took out of them. `names`: hosts and users that go though software says them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.removed: Counter[str] = Counter()
        self.has_known_numbers = False  # of a format whose numbers are all figures
        self.names = frozenset(name.strip().lower() for name in names if name.strip())
        self._named = re.compile(texts.whole_words(self.names), re.IGNORECASE) if self.names else None
        self._known: dict[tuple[Callable[[str], str], str], str] = {}
        self._placeholders: dict[str, str] = {}

    def words(self, text: str) -> str:
        """Any text: words that software is known to write and small numbers stay, of a path its file or its library."""
        return self._kept(self._words, text)

    def symbol(self, text: str) -> str:
        """The name of a kernel: the words of compilers and libraries stay in it, and the numbers of templates."""
        return self._kept(self._symbol, text)

    def opcode(self, text: str) -> str:
        """An instruction of a GPU where it is one, else any text."""
        name, *modifiers = text.split(".")
        is_one = name in kept_texts.OPCODES and all(one in kept_texts.MODIFIERS for one in modifiers)
        return text if is_one else self.words(text)

    def metric(self, text: str) -> str:
        """The name of a counter where it is one, else any text."""
        return text if self.is_metric(text) else self.words(text)

    def is_metric(self, text: str) -> bool:
        """Whether it is the name of a counter of Nsight Compute, or a list of them."""
        return (
            "__" in text
            and texts.METRIC.match(text) is not None
            and all(piece in _metric_words() for piece in _pieces(text.lower()) if len(piece) > 1)
        )

    def value(self, value: Any, key: str = "") -> Any:
        """A value of JSON or of a pickle, members whose keys are no software's left out."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (Number, int, float)):
            digits = str(value).lstrip(NUMBER_MARK + "-")
            return value if self._is_figure(digits, key) else self.private(digits)
        if isinstance(value, str):
            return self.private(value) if is_private(key, value) else self.metric(value)
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
        is_short = sum(map(str.isdecimal, digits)) <= _DIGITS_OF_A_WORD
        return not is_personal(key) and (is_short or texts.QUANTITY_KEY.search(key) is not None)

    def keeps(self, key: Any) -> bool:
        """Whether a key is one that software writes."""
        is_named = self._named is not None and self._named.search(str(key)) is not None
        if not isinstance(key, str) or (NUMBER_MARK not in key and _stays(key) and not is_named):
            return True
        self.removed["members of unknown names"] += 1
        return False

    def private(self, text: str) -> str:
        """What stands for a text that goes whole."""
        return self._placeholder(text) if text else text

    def summary(self) -> list[str]:
        """One phrase per kind of thing taken out."""
        return [f"{_SAID.get(kind, kind)}: {count}" for kind, count in sorted(self.removed.items())]

    def _kept(self, clean: Callable[[str], str], text: str) -> str:
        """Texts come back often, so answers are kept."""
        known = self._known.get((clean, text))
        if known is None:
            known = texts.TERMINAL_STYLE.sub("", text).replace(NUMBER_MARK, "")
            if self._named is not None:
                known = self._named.sub(lambda found: self._placeholder(found.group()), known)
            known = sys.intern(clean(known))  # so that equal texts are one, as in what is read from a copy
            if len(self._known) < _KEPT_ANSWERS:
                self._known[clean, text] = known
        return known

    def _words(self, text: str) -> str:
        if text.isascii() and "\\" not in text and not any(map(str.isalnum, text)):
            return text
        kept, at = "", 0
        for found in texts.BYTES.finditer(text):
            if not any(letter in "abcdef" for letter in found.group().lower()):
                continue  # numbers, judged as such
            kept += texts.CHUNK.sub(self._chunk, text[at : found.start()]) + self._placeholder(found.group())
            at = found.end()
        return self._judged_together(kept + texts.CHUNK.sub(self._chunk, text[at:]), self._numbers)

    def _judged_together(self, text: str, numbers: Callable[[re.Match[str]], str]) -> str:
        """Numbers and words that stand in a row."""
        kept = texts.NUMBERS.sub(numbers, text)
        return texts.LIST_OF_WORDS.sub(self._list, kept) if kept.count(" ") >= _LONGEST_LIST_OF_WORDS else kept

    def _symbol(self, text: str) -> str:
        is_sentence = " " in text and not {"(", "<", ":"} & set(text)
        is_name = texts.SYMBOL.match(text) and any(map(str.isalpha, text)) and not texts.ADDRESS.search(text)
        if len(text) > _LONGEST_SYMBOL or not is_name or "&#" in text or is_sentence:
            return self._words(text)
        parts = texts.WORD.sub(lambda found: found.group() if is_symbol(found.group()) else self._word(found), text)
        return self._judged_together(parts, self._numbers_of_symbol)

    def _chunk(self, found: re.Match[str]) -> str:
        """What stands between spaces, brackets and quotes: a path, a placeholder of the source, or some words."""
        chunk = found.group()
        if len(chunk) == 1 and chunk in MARKS:
            return ""
        if PLACEHOLDER.fullmatch(chunk) or len(chunk) > _LONG or texts.SPELLED.search(chunk):
            return self._placeholder(chunk)
        if texts.ABSOLUTE_PATH.match(chunk):
            library = texts.LIBRARY_PATH.match(chunk)
            self.removed["folder"] += 1
            rest = library["kept"] if library else chunk.rstrip("/").rpartition("/")[2]
            chunk = rest if library or chunk.count("/") > 1 else ""
        unknown = [word for word in texts.WORD.findall(chunk) if not is_known(word)]
        if not unknown and _is_serial(chunk):
            return self._placeholder(chunk)
        if not any(any(map(str.isdecimal, word)) for word in unknown):
            return texts.WORD.sub(self._word, chunk)
        file, dot, suffix = chunk.rpartition(".")  # of a key or an address, a part that is left tells of the rest
        return f"{self._placeholder(file)}.{suffix}" if dot and suffix in texts.SUFFIXES else self._placeholder(chunk)

    def _word(self, found: re.Match[str]) -> str:
        word = found.group()
        if word.isdecimal():
            return word  # judged with the numbers beside it
        return word if PLACEHOLDER.fullmatch(word) or is_known(word) else self._placeholder(word)

    def _numbers(self, found: re.Match[str]) -> str:
        """Numbers in a row, where they are small together or a list in brackets."""
        text = found.group()
        few = texts.SMALL.match(text)
        before = found.string[found.start() - 1] if found.start() else ""
        is_list = texts.LIST_OF_SMALL.match(text) or (before in ("[", "(", "<") and texts.LIST_OF_NUMBERS.match(text))
        return text if text[0] == MARKS[0] or few or is_list else self._placeholder(text)

    def _numbers_of_symbol(self, found: re.Match[str]) -> str:
        few = sum(map(str.isdecimal, found.group())) <= _MOST_DIGITS
        return found.group() if few else self._numbers(found)

    def _list(self, found: re.Match[str]) -> str:
        """Words in a row: as many as a sentence has without one that binds them."""
        text = found.group()
        is_bound = [word in texts.BINDING_WORDS for word in text.split()]
        free = max(sum(1 for _ in row) for bound, row in groupby(is_bound) if not bound) if not all(is_bound) else 0
        return text if free <= _LONGEST_LIST_OF_WORDS else self._placeholder(text)

    def _placeholder(self, text: str) -> str:
        if text not in self._placeholders:
            self._placeholders[text] = sys.intern(f"{MARKS[0]}{len(self._placeholders) + 1}{MARKS[1]}")
            if not PLACEHOLDER.fullmatch(text):
                self.removed["name"] += 1
        return self._placeholders[text]


MARKS: Final = "\u27e6\u27e7"
"""Around each placeholder; in a source they are taken out."""
# As the cleaner numbers them.
PLACEHOLDER: Final = re.compile(rf"{MARKS[0]}\d{{1,9}}{MARKS[1]}")
NUMBER_MARK: Final = "\0"


class Number(str):
    """A number of JSON in the digits it was written with, behind a mark that no cleaned text holds."""

    __slots__ = ()

    def __new__(cls, digits: str) -> Number:
        """Of the digits."""
        return super().__new__(cls, NUMBER_MARK + digits)


DECODER: Final = json.JSONDecoder(strict=False, parse_float=Number)
"""Numbers with a point keep their digits: a time in microseconds has more than a double holds."""


def write_json(value: Any) -> str:
    """The value as JSON, numbers in the digits they were written with."""
    return texts.MARKED_NUMBER.sub(r"\1", json.dumps(value))


@lru_cache(maxsize=_KEPT_ANSWERS)
def _stays(key: str) -> bool:
    """Whether a key would stay as it is. One that goes takes no number: a copy of the copy has the same numbers."""
    return Cleaner().metric(key) == key


@lru_cache(maxsize=_KEPT_ANSWERS)
def is_private(key: str, text: str = "x") -> bool:
    """Whether a text that stands at this key goes whole."""
    if is_personal(key):
        return True
    return texts.OWNERS_KEY.search(key) is not None and not texts.SHORT_NUMBER.match(text)


@lru_cache(maxsize=_KEPT_ANSWERS)
def is_personal(key: str) -> bool:
    """Whether a key is that of a secret, or of what names a person, a machine or a command."""
    return is_secret_key(key) or texts.PRIVATE_KEY.search(key) is not None


@cache
def software() -> frozenset[str]:
    """Words that software is known to write; tools/known_words.py makes the list."""
    return frozenset(Path(__file__).with_name("words.txt").read_text("utf-8").split())


@cache
def _metric_words() -> frozenset[str]:
    """Words of the names of Nsight Compute's counters."""
    names = Path(kept_texts.__file__).with_name("metric_names") / "names.txt"
    listed = (line.split()[0] for line in names.read_text("utf-8").splitlines() if line.strip())
    return software() | {piece for name in listed for piece in _pieces(name) if len(piece) > 1}


def _pieces(name: str) -> list[str]:
    return re.split(r"[^a-z]+", name)  # words of a counter stand between underscores, digits and dots


@lru_cache(maxsize=_KEPT_ANSWERS)
def is_known(word: str) -> bool:
    """Whether every part of a word is one that software says, a size, or a few digits."""
    pieces = texts.PIECE.findall(texts.SIZES.sub("", word))
    digits = [len(piece) for piece in pieces if piece.isdecimal()]
    single = sum(len(piece) == 1 and not piece.isdecimal() for piece in pieces)
    said = [piece for piece in pieces if len(piece) > 1 and not piece.isdecimal()]
    is_said = any(len(piece) >= _LONGEST_CODE for piece in said)
    most = _DIGITS_OF_A_WORD if is_said or word.isdecimal() else _DIGITS_ALONE
    return (
        word.isascii()
        and single <= _MOST_SINGLE_LETTERS
        and sum(digits) <= (_MOST_DIGITS if is_said else most)
        and max(digits, default=0) <= most
        and not texts.GLUED.search(word)
        and not texts.HEXADECIMAL.search(word)
        and all(piece.lower() in software() for piece in said)
    )


@lru_cache(maxsize=_KEPT_ANSWERS)
def is_symbol(word: str) -> bool:
    """Whether a word of a kernel's name is of a compiler or a library: its long parts are listed, one at least; what
    stands between underscores without one is a short code, as of a tile or a layout."""
    if texts.OF_COMPILERS.match(word):
        return True
    if word.startswith("_Z"):
        return _is_mangled(word)
    if (
        texts.GLUED.search(word)
        or texts.HEXADECIMAL.search(word)
        or not word.isascii()
        or any(len(digits) > _MOST_DIGITS for digits in texts.DIGITS.findall(word))
    ):
        return False
    said = 0
    for part in texts.SIZES.sub("", word).split("_"):
        pieces = [piece for piece in texts.PIECE.findall(part) if not piece.isdecimal()]
        here = sum(len(piece) >= _LONGEST_CODE and piece.lower() in software() for piece in pieces)
        if any(len(piece) > _LONGEST_CODE and piece.lower() not in software() for piece in pieces):
            return False
        if not here and len(part) > _LONGEST_PART:
            return False
        said += here
    return bool(said)


_LONGEST_CODE, _LONGEST_PART = 3, 8  # letters in a row, and characters between underscores
_CODES_OF_A_SERIAL = 3  # the name of a GPU's board has two


def _is_serial(chunk: str) -> bool:
    """Whether codes of letters and digits stand in a row and none has a word, as in a serial number."""
    has_word = any(len(piece) >= _LONGEST_CODE and piece.isalpha() for piece in texts.PIECE.findall(chunk))
    codes = sum(texts.CODED.match(one) is not None for one in texts.GROUP.findall(chunk))
    return codes >= _CODES_OF_A_SERIAL and not has_word


def _is_mangled(word: str) -> bool:
    """Whether a name is mangled as compilers do: identifiers of the lengths before them, each of a library; between
    them codes of types, and the numbers of literals and substitutions."""
    rest, codes = word[2:], ""
    while found := texts.LENGTH.search(rest):
        codes, size, rest = f"{codes}{rest[: found.start()]} ", int(found.group()), rest[found.end() :]
        name = texts.UNNAMED.sub(r"\g<file>", rest[:size])
        if size > len(rest) or not (len(name) <= _LONGEST_CODE or is_symbol(name)):
            return False
        rest = rest[size:]
    return all(map(texts.MANGLED_CODES.fullmatch, (codes + rest).split()))
