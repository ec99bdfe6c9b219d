"""Rows of CSV of unknown origin. Standard library only."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator


def read_rows(text: str) -> Iterator[list[str]]:
    """The rows of a CSV text; what is wrong with it, such as a cell of more than 131,072 characters, is a
    `ValueError`."""
    try:
        yield from csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        raise ValueError(f"it is no CSV: {error}") from None
