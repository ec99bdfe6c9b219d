"""A Rich console that writes into memory: width and colour are decided by the caller, never guessed here."""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING

from timesink.scrub import defuse_lines

# Stands for a space at which no line may be broken; scrubbed text cannot hold it, being private use.
_TIE = "\ue000"
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[kMGT]?B(?:/s)?)(?![\w]))")

if TYPE_CHECKING:
    from rich.console import Console


def paper(width: int, colour: bool) -> Console:
    """A console of that width. Without colour it writes no escape sequence at all."""
    from rich.console import Console

    return Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def tied(text: str) -> str:
    """The text with every figure tied to its unit, so that wrapping does not part them; `printed` unties."""
    return _FIGURE.sub(_TIE, text)


def printed(console: Console) -> str:
    """What was printed on `paper`, without trailing blanks, and with no line a log would obey."""
    assert isinstance(console.file, StringIO)
    lines = (line.rstrip() for line in console.file.getvalue().replace(_TIE, " ").split("\n"))
    return defuse_lines("\n".join(lines))
