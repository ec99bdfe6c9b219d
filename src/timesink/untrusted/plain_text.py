"""What a text is made of: its numbers, the version it states, whether it is a plain name. Standard library only."""

from __future__ import annotations

from itertools import groupby


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
