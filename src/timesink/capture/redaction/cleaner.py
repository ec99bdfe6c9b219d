"""Texts with what their place lets stay, words of closed lists and few digits; all else is a placeholder.

The place is the format's word for what a text is: the name of a kernel, an instruction, a shape, or anything else.
A placeholder is the same for the same text, and stands in marks that no text keeps: a source's own are renumbered.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, Final

from timesink.capture.redaction import lists
from timesink.knowledge import kept_texts
from timesink.knowledge import private_texts as texts
from timesink.untrusted.masking import is_secret_key
from timesink.untrusted.plain_json import parsed

_KEPT_ANSWERS = 100_000
_LONG, _LONGEST_SYMBOL = 2_000, 20_000  # characters; kernels of templates have up to some thousand
# digits: of what somebody owns a count, and under a key that names no amount the longest that is nobody's
_DIGITS_OF_A_COUNT, _LONG_NUMBER = 3, 5
# by place: digits that may stand alone in a row, and within a word
_ALONE, _WITHIN = {"words": 4, "symbol": 6}, {"words": 3, "symbol": 6}
_DIGITS_BESIDE_GONE = 1  # of the name of a kernel, such as (instance 2)
_LONGEST_UNIT = 24  # characters
# letters of a word that says something, letters that stand alone beside it, and codes of one letter in a name
_LONG_WORD, _MOST_SINGLE, _MOST_OF_ONE_LETTER = 3, 2, 2


class Cleaner:
    """Cleans texts and counts what it took out of them. `names`: hosts and users that go though software says them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.removed: Counter[str] = Counter()
        self.names = frozenset(name.strip().lower() for name in names if name.strip())
        # the longest first; where there is none, what is never found
        longest_first = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True))) or "(?!)"
        # names of words of software, as of a host
        self._named = re.compile(rf"(?<![A-Za-z0-9])(?:{longest_first})(?![A-Za-z0-9])", re.IGNORECASE)
        self._kept = lru_cache(maxsize=_KEPT_ANSWERS)(self._made)  # texts come back often
        self._placeholders: dict[str, str] = {}
        self._gone: list[str] = []  # out of the text that is being cleaned

    def at(self, place: str, text: str) -> str:
        """A text by its place: one of the place's form as it is, another by the method of that name, or any text."""
        form = texts.FORMS.get(place)
        return text if form and form.match(text) else str(getattr(self, place, self.words)(text))

    def words(self, text: str) -> str:
        """Any text: words of the lists and few digits stay, of a path its file or its library."""
        return self._kept(text, "words")

    def symbol(self, text: str) -> str:
        """The name of a kernel: codes of compilers stay in it too, and the numbers of templates."""
        return self._kept(text, "symbol")

    def opcode(self, text: str) -> str:
        """An instruction of a GPU where it is one, else any text."""
        return text if kept_texts.INSTRUCTIONS.issuperset(text.split(".")) else self.words(text)

    def payload(self, text: str) -> str:
        """A text that may be JSON: as JSON, or line by line."""
        value = json_in(text)
        return write_json(self.value(value)) if value is not None else "\n".join(map(self.words, text.split("\n")))

    def value(self, value: Any, key: str = "", place: str | dict[str, Any] = "words", once: Any = None) -> Any:
        """A value of JSON or of a pickle, members left out whose keys are no software's, or not those of a place. What
        occurs in it more than once is made `once`."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (Number, int, float)):
            digits = str(value).lstrip(NUMBER_MARK + "-")
            return value if place == "figures" or not key or is_figure_at(key, digits) else self.private(digits)
        if isinstance(value, str):
            return self.private(value) if is_private(key, value) else self.at(str(place), value)
        if not isinstance(value, (dict, list, tuple)):
            self.removed["values of unknown types"] += 1
            return None
        once, is_kept_apart = {} if once is None else once, bool(key) and is_private(key)
        at = (id(value), is_kept_apart)
        if at in once:
            return once[at][1]
        made: Any = {} if isinstance(value, dict) else []
        once[at] = (value, made)
        if isinstance(value, dict):
            places = place if isinstance(place, dict) else {}
            for name, inner in value.items():
                if name in places:
                    made[name] = self.value(inner, place=places[name], once=once)
                elif self.keeps(name, is_open=place is not places):
                    within = "figures" if place == "figures" else "words"
                    made[name] = self.value(inner, key if is_kept_apart else str(name), within, once)
        else:
            made.extend(self.value(inner, key, place, once) for inner in value)
        if isinstance(value, tuple):
            once[at] = (value, tuple(made))
        return once[at][1]

    def keeps(self, key: Any, *, is_open: bool = True) -> bool:
        """Whether a member stays: of an open object where software writes such keys, of another counters alone."""
        is_open = is_open or "__" in str(key).strip("_")
        if is_open and (not isinstance(key, str) or (_stays(key) and not self._named.search(key))):
            return True
        self.removed["members of unknown names"] += 1
        return False

    def summary(self) -> list[str]:
        """One phrase per kind of thing taken out."""
        return [f"{kind}: {count}" for kind, count in sorted(self.removed.items())]

    def _made(self, text: str, place: str) -> str:
        text = _STRAY.sub(r"\1", texts.TERMINAL_STYLE.sub("", text).replace(NUMBER_MARK, ""))
        text = self._named.sub(lambda found: self._out(found[0]), text)
        is_sentence = " " in text and not {"(", "<", ":"} & set(text)
        if len(text) > _LONGEST_SYMBOL or is_sentence or not texts.SYMBOL.match(text):
            place = "words"
        pattern, clean = (texts.WORD, self._word) if place == "symbol" else (texts.CHUNK, self._chunk)
        text = texts.NUMBERS.sub(partial(self._numbers, place), pattern.sub(partial(clean, place), text))
        text = texts.LIST_OF_WORDS.sub(lambda found: self._out(found[0]), text)
        # numbered as they stand; equal texts are one, as in what is read from a copy
        text = sys.intern(_GONE.sub(lambda found: self.private(self._gone[int(found[1])]), text))
        self._gone.clear()
        return text

    def _chunk(self, place: str, found: re.Match[str]) -> str:
        """What stands between spaces, brackets and quotes: a path, a placeholder of the source, or some words. Where a
        word goes, digits beside it and the rest of an address would tell of it: all goes."""
        chunk = found.group()
        if _GONE.match(chunk):
            return chunk
        if chunk[0] in MARKS or len(chunk) > _LONG or not chunk.isascii() or "\\" in chunk:
            return self._out(chunk)
        if texts.ABSOLUTE_PATH.match(chunk) and found.string[found.start() - 1 : found.start()] != MARKS[1]:
            library = texts.LIBRARY_PATH.match(chunk)
            self.removed["folders"] += 1
            file = chunk.rstrip("/").rpartition("/")[2] if chunk.count("/") > 1 else ""
            chunk = library["kept"] if library else file
        is_known = all(is_listed(word) for word in texts.WORD.findall(chunk))
        if is_known or not ("@" in chunk or any(map(str.isdecimal, chunk))):
            return texts.WORD.sub(partial(self._word, place), chunk)
        file, dot, suffix = chunk.rpartition(".")
        return f"{self._out(file)}.{suffix}" if dot and suffix in texts.SUFFIXES else self._out(chunk)

    def _word(self, place: str, found: re.Match[str]) -> str:
        word = found.group()
        return word if _GONE.match(word) or is_listed(word, place) else self._out(word)

    def _numbers(self, place: str, found: re.Match[str]) -> str:
        """Numbers in a row, where they have few digits together, are an amount of something or of a template. Beside a
        word of a kernel that goes digits would tell of it."""
        text, whole, most = found.group(), found.string, _ALONE[place]
        if place == "symbol":
            before, after = whole[: found.start()].rstrip()[-1:], whole[found.end() :].lstrip()[:1]
            is_of_template = before in ("<", ",", ")") and after in (">", ",")
            stays = is_of_template and texts.LIST_OF_NUMBERS.match(text) is not None
            most = _DIGITS_BESIDE_GONE if self._gone else most
        else:
            amount = texts.AMOUNT.match(whole[found.start() : found.end() + _LONGEST_UNIT])
            stays = text[0] == "P" or (amount is not None and amount.end() >= len(text))
        return text if text[0] in MARKS or stays or sum(map(str.isdecimal, text)) <= most else self._out(text)

    def _out(self, text: str) -> str:
        """A mark where a text is taken out, until all of them are."""
        self._gone.append(text)
        return f"{MARKS[0]}-{len(self._gone) - 1}{MARKS[1]}"

    def private(self, text: str) -> str:
        """What stands for a text that goes whole."""
        if text and text not in self._placeholders:
            self._placeholders[text] = sys.intern(f"{MARKS[0]}{len(self._placeholders) + 1}{MARKS[1]}")
            if not PLACEHOLDER.fullmatch(text):
                self.removed["names and words that no software is known to write"] += 1
        return self._placeholders.get(text, "")


MARKS: Final = "\u27e6\u27e7"
"""Around each placeholder; in a source they are taken out."""
# As the cleaner numbers them.
PLACEHOLDER: Final = re.compile(rf"{MARKS[0]}\d{{1,9}}{MARKS[1]}")
# What stands for a text that was taken out before it has its number, and marks around none, which go from a source.
_GONE, _STRAY = re.compile(rf"{MARKS[0]}-(\d+){MARKS[1]}"), re.compile(rf"({MARKS[0]}\d{{1,9}}{MARKS[1]})|[{MARKS}]")
_DIGITS, _JOINED = re.compile("[0-9]+"), re.compile("(?<=#)x(?=[a-z])")  # of codes, and between them
NUMBER_MARK: Final = "\0"
_WRITTEN = re.compile(r'"\\u0000([^"]*)"')  # a number behind its mark, as JSON


class Number(str):
    """A number of JSON in the digits it was written with, behind a mark that no cleaned text holds."""

    __slots__ = ()


DECODER: Final = json.JSONDecoder(strict=False, parse_float=lambda digits: Number(NUMBER_MARK + digits))
"""Numbers with a point keep their digits: a time in microseconds has more than a double holds."""


def json_in(text: str) -> Any:
    """What a text says that is JSON; nothing where it is none."""
    try:
        return parsed(text, strict=False) if text[:1] in ("{", "[") else None
    except ValueError:
        return None


def write_json(value: Any) -> str:
    """The value as JSON, numbers in the digits they were written with."""
    return _WRITTEN.sub(r"\1", json.dumps(value))


@lru_cache(maxsize=_KEPT_ANSWERS)
def _stays(key: str) -> bool:
    """Whether a key would stay as it is. One that goes takes no number: a copy of the copy has the same numbers."""
    return (key.isdecimal() and len(key) <= _LONG_NUMBER) or Cleaner().words(key) == key


@lru_cache(maxsize=_KEPT_ANSWERS)
def _meant(key: str) -> tuple[int, bool]:
    """How many digits of a count may stand at a key, of a person or a secret none, and whether it is an amount."""
    parts = [part.lower() for part in texts.PIECE.findall(key)]
    last = {*parts[-1:], *(part.removesuffix("s") for part in parts[-1:])}
    is_amount = "__" in key.strip("_") or not kept_texts.QUANTITIES.isdisjoint(last)
    if is_secret_key(key) or not kept_texts.PERSONAL.isdisjoint(parts):
        return 0, is_amount
    while len(parts) > 1 and parts[-1].removesuffix("s") in kept_texts.NUMBERING:
        parts.pop()
    is_owned = any(part in kept_texts.OWNED or part.removesuffix("s") in kept_texts.OWNED for part in parts[-1:])
    return _DIGITS_OF_A_COUNT if is_owned else _LONG_NUMBER, is_amount


def is_private(key: str, text: str = "x") -> bool:
    """Whether what stands at this key goes whole: of what somebody owns, counts stay."""
    most, _ = _meant(key)
    return most < _LONG_NUMBER and not (text.isdecimal() and len(text) <= most)


def is_figure_at(key: str, digits: str) -> bool:
    """Whether a number under this key measures something, and is nobody's."""
    most, is_amount = _meant(key)
    return most > 0 and (is_amount or len(digits) <= most)


@lru_cache(maxsize=_KEPT_ANSWERS)
def is_listed(word: str, place: str = "words") -> bool:
    """Whether the lists know every part of a word, and one part at least says something. A number is judged with those
    beside it."""
    if (word.isascii() and word.isdecimal()) or {word, word.lower()} & lists.standing_alone():
        return True
    if place == "symbol" and (texts.OF_COMPILERS.match(word) or (word.startswith("_Z") and _is_mangled(word))):
        return True
    parts = [part for part in texts.SIZES.sub("_", word).split("_") if part]
    alone = sum(len(part) for part in parts if part.isdecimal())
    named = [part for part in parts if not part.isdecimal()]
    said = [_says(part, place) for part in named]
    is_known = all(is_said or _is_code(part) for part, is_said in zip(named, said, strict=True))
    has_word = any(said) or (place == "symbol" and bool(named))
    is_spelled = sum(len(part) == 1 for part in named if part not in kept_texts.SHORT_WORDS) > _MOST_OF_ONE_LETTER
    return word.isascii() and has_word and is_known and not is_spelled and alone <= _ALONE[place]


def _is_code(part: str) -> bool:
    """Whether it is a code of the list, or several with an x between, as of types that are multiplied."""
    codes, word = _JOINED.split(_DIGITS.sub("#", part)), part.lower()
    is_short = word in kept_texts.SHORT_WORDS or (len(word) < _LONG_WORD and word in lists.words())
    return is_short or kept_texts.CODES.issuperset(codes)


def _says(part: str, place: str) -> bool:
    """Whether letters and digits in a row are words of the list, a long one for each number between them, with few
    digits."""
    pieces = texts.PIECE.findall(part)
    letters = [piece.lower() for piece in pieces if not piece.isdecimal()]
    listed = [piece for piece in letters if len(piece) > 1 and piece in lists.words()]
    single = sum(len(piece) == 1 for piece in letters)
    long = sum(len(piece) >= _LONG_WORD for piece in listed)
    is_listed = len(listed) + single == len(letters) and single <= _MOST_SINGLE
    digits = sum(map(str.isdecimal, part))
    if pieces[-1].isdecimal() and len(pieces[-1]) > _WITHIN["words"] and len(pieces[-2]) > _LONG_WORD:
        return False  # a word and a long number, as of a placeholder
    return is_listed and 0 < long >= len(pieces) - len(letters) and digits <= _WITHIN[place]


def _is_mangled(word: str) -> bool:
    """Whether a name is mangled as compilers do: identifiers of the lengths before them, each of a library; between
    them codes of types, and the numbers of literals and substitutions."""
    rest, codes = word[2:], ""
    while found := texts.LENGTH.search(rest):
        codes, size, rest = f"{codes}{rest[: found.start()]} ", int(found.group()), rest[found.end() :]
        name = texts.UNNAMED.sub(r"\g<file>", rest[:size])
        if size > len(rest) or not (len(name) <= _LONG_WORD or is_listed(name, "symbol")):
            return False
        rest = rest[size:]
    return all(map(texts.MANGLED_CODES.fullmatch, (codes + rest).split()))
