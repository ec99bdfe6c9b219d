"""Hand-written traces from text: what a test's input is, one can see."""

import re

from tests.rules.case_tables import Repeat, frames, parse_table

from timesink.model.trace import ImportNote, Trace

_DASHES = re.compile(r"[|:\- ]+")


def trace_of(text: str, notes: tuple[ImportNote, ...] = ()) -> Trace:
    """A trace of the tables in `text`, which blank lines separate.

    Each is written as in a rule's case file, except that the row of dashes may be left out: the first head names the
    table, the first cell of a row is a free label, other heads are columns (`start_us` for `start_ns`). Only the
    tables that are written were recorded; one with a head and no rows recorded that nothing happened.
    """
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in block.splitlines()]
        if len(lines) < 2 or not _DASHES.fullmatch(lines[1]):
            lines.insert(1, "|--|")
        parts.append(parse_table(lines, 1, Repeat()))
    return Trace("test", frames(parts), notes)
