"""Texts that name parts of a program: regular expressions, and KIND:REGEX. Reads no file, and imports what does only
where nothing else can tell."""

import re
import warnings
from typing import Final

from timesink.errors import UsageError

PARTS: Final = ("kernel", "collective", "op", "range", "frame", "call")
"""Kinds of parts of a program that a text can name."""
# What Python says of a text that Rust's expressions, by which names are found, refuse as well.
_FAULTS_OF_ALL: Final = ("missing )", "unbalanced parenthesis", "unterminated character set", "nothing to repeat")


def plain_fault(pattern: str) -> str | None:
    """Why a text is an expression in no language, in one line; None where it may be one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Python may mean otherwise one day
            re.compile(pattern)
    except re.error as error:
        return str(error) if error.msg.startswith(_FAULTS_OF_ALL) else None
    except (OverflowError, RecursionError):
        pass
    return None


def pattern_fault(pattern: str) -> str | None:
    """Why a text is no regular expression, in one line; None where it is one."""
    if fault := plain_fault(pattern):
        return fault
    import polars as pl
    from polars.exceptions import ComputeError

    try:
        pl.Series([""]).str.contains(pattern)
    except ComputeError as error:
        return str(error).partition("\n\n")[0].strip().splitlines()[-1]
    return None


def part_named(text: str) -> tuple[str, str]:
    """The kind and the pattern of KIND:REGEX. `UsageError` for an unknown kind, or what is no regular expression."""
    kind, colon, pattern = text.partition(":")
    if not colon or kind not in PARTS:
        raise UsageError(
            f"{text!r} names no part of a program", remedy=f"write KIND:REGEX, KIND one of {', '.join(PARTS)}"
        )
    if reason := plain_fault(pattern):
        raise UsageError(f"{pattern!r} is not a regular expression: {reason}")
    return kind, pattern
