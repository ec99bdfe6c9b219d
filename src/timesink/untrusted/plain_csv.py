"""Rows of CSV of unknown origin. Standard library only."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from timesink.untrusted.budget import usual_limits, way_out


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
