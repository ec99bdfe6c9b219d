"""Tables of a page as comma-separated values, raw and in the unit that ends each head: for spreadsheets and scripts.

A cell that a spreadsheet would run as a formula begins with an apostrophe.
"""

from __future__ import annotations

import csv
from io import StringIO

from timesink.render.formats import Style
from timesink.untrusted.scrub import defuse_lines, scrub, starts_formula
from timesink.views.page import Cell, Page

NAME_CHARACTERS = 4_000  # names stay whole, but for what no compiler writes


def render_page(page: Page, _style: Style) -> str:
    """Every table with its heads; where there are several, each after a line with its key and parted by a blank one."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, sheet in enumerate(page.sheets):
        if len(page.sheets) > 1:
            text.write(f"{'' if not number else chr(10)}# {sheet.key}\n")
        writer.writerow(column.key for column in sheet.columns)
        writer.writerows([_plain(cell) for cell in row] for row in sheet.rows)
    return defuse_lines(text.getvalue())


def _plain(cell: Cell) -> Cell:
    if not isinstance(cell, str):
        return cell
    shown = scrub(cell, NAME_CHARACTERS)
    return f"'{shown}" if starts_formula(shown) else shown
