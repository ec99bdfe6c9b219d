"""Text, JSON, files and secrets that nobody vouches for.

Text from a trace is untrusted: a kernel may be called `\\x1b]52;...` or `\\n::error::`. Here it becomes harmless.

Every control character becomes its visible escape (`\\x1b`), so that nothing is lost and nothing acts. What only one
output format takes for markup is escaped by that format's reporter. Further below: what a text is made of, such as its
numbers, the version it states, whether it is a plain name. Standard library only.

Rows of CSV of unknown origin are here too.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any
from unicodedata import normalize

from timesink.untrusted.budget import usual_limits, way_out

NAME_CHARACTERS = 200
SENTENCE_CHARACTERS = 2_000
_FORMULA = frozenset("=+-@|%\u2212\u2013\u2014")  # dashes, too: some spreadsheets read them as a minus

# Continuous-integration logs obey `##[error]`, `##vso[...]` and `##teamcity[...]` anywhere in a line.
_LOG_COMMAND = re.compile(r"#(?=#\w*\[)")
# ... and `::error::` where it begins a line, white space and terminal styling apart.
_LINE_COMMAND = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*):(?=:[A-Za-z])", re.MULTILINE)


def scrub(text: str, limit: int = NAME_CHARACTERS) -> str:
    """The text on one line, control characters as visible escapes, its middle left out beyond `limit` characters."""
    short = shortened(text, limit)
    visible = short if short.isprintable() else "".join(map(_visible, short))
    return _LOG_COMMAND.sub(r"\\x23", visible)


def scrub_sentence(text: str) -> str:
    """A sentence of ours that quotes a trace."""
    return scrub(text, SENTENCE_CHARACTERS)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, the middle left out: both ends of a mangled name tell kernels apart."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def starts_formula(text: str) -> bool:
    """Whether a spreadsheet may take a cell for a formula: by its first visible character, in any width it comes in."""
    head = next((letter for letter in text if letter.isprintable() and not letter.isspace()), "")
    return bool(head) and normalize("NFKC", head)[:1] in _FORMULA


def scrub_values(value: Any) -> Any:
    """A tree of JSON values with every text in it scrubbed, keys included; sentences keep their length."""
    if isinstance(value, str):
        return scrub_sentence(value)
    if isinstance(value, Mapping):
        return {scrub(str(key)): scrub_values(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub_values(part) for part in value]
    return value


def defuse_lines(text: str) -> str:
    """A finished text report in which no line is a workflow command, however its names were wrapped."""
    return _LINE_COMMAND.sub(r"\1\\x3a", text)


def _visible(character: str) -> str:
    """The character, or its escape where Unicode calls it no printable one: controls (C0, C1), format characters
    (bidirectional, zero-width, tags), lone surrogates, separators other than the space, unassigned code points."""
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def numbers_in(text: str) -> tuple[int, ...]:
    """The whole numbers of a text, without signs: 2025, 3 and 1 of ``2025.3.1``."""
    return tuple(int("".join(run)) for is_digits, run in groupby(text, lambda mark: "0" <= mark <= "9") if is_digits)


def stated_version(text: str) -> str:
    """The longest word that begins with a digit and has a dot, as a tool states its version; empty without one."""
    words = (word.strip("(),;:") for word in text.split())
    return max((word for word in words if word[:1].isdigit() and "." in word), key=len, default="")


def is_made_of(text: str, marks: str) -> bool:
    """Whether it holds nothing but letters and digits of ASCII, and these marks."""
    return text.isascii() and all(character.isalnum() or character in marks for character in text)


def dashed(text: str, marks: str) -> str:
    """The text as a name: one dash for each run of what `is_made_of` refuses, none at the ends."""
    return "-".join("".join(one if is_made_of(one, marks) else " " for one in text).split())


def decoded(data: bytes) -> str:
    """Text of a file: UTF-8, or UTF-16 where it begins with that mark, as PowerShell writes what is sent to a file."""
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return data.decode(encoding, errors="replace").replace("\r\n", "\n")


def read_rows(text: str) -> Iterator[list[str]]:
    """The rows of a CSV text; what is wrong with it, such as a cell beyond the budget, is a `ValueError`."""
    most = usual_limits().cell_characters
    csv.field_size_limit(most)
    try:
        yield from csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        is_long = "field limit" in str(error)
        why = f"a cell has more than {most:,} characters; {way_out(1, 1)}" if is_long else f"it is no CSV: {error}"
        raise ValueError(why) from None
