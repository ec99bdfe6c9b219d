"""Pages as text, JSON, Markdown or HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from timesink.render import DEFAULT_WIDTH, Format
from timesink.render.cells import code, escaped, number_text, value_text
from timesink.render.json import SCHEMA_VERSION, dumped
from timesink.untrusted.scrub import defuse_lines, scrub, scrub_sentence, shortened
from timesink.views.page import Cell, Column, Page, Sheet

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_SENTENCE_WIDTH, _SHORTEST_NAME, _BETWEEN = 40, 12, 3


def render(page: Page, form: Format, *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """The page as one string that ends in a newline."""
    match form:
        case Format.TEXT:
            return _text(page, width, colour)
        case Format.JSON:
            return dumped(_document(page))
        case Format.MD:
            return defuse_lines(_markdown(page))
        case Format.HTML:
            from timesink.render.html import render_page

            return render_page(page)
        case _:
            assert_never(form)


def cell_text(cell: Cell, column: Column) -> str:
    """A value scaled for people; `–` where it is not known."""
    match cell:
        case None:
            return "–"
        case bool():
            return "yes" if cell else "no"
        case int() | float():
            text = value_text(cell, column.unit) if column.unit not in ("", "1") else number_text(cell)
            return f"+{text}" if column.is_change and cell > 0 else text
        case str():
            return scrub(cell) if column.is_name else scrub_sentence(cell)
        case _:
            assert_never(cell)


def rich_table(sheet: Sheet, width: int) -> RichTable:
    """The sheet as a Rich table of that width: figures are whole, sentences wrap, names lose their middle."""
    from textwrap import fill

    from rich import box
    from rich.table import Table
    from rich.text import Text

    from timesink.render.cells import tied

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    texts = [[cell_text(cell, column) for cell, column in zip(row, sheet.columns, strict=True)] for row in sheet.rows]
    widths = [
        max([len(row[at]) for row in texts] + [_longest_word(column.head)]) for at, column in enumerate(sheet.columns)
    ]
    name_width = _name_width(sheet.columns, widths, width)
    for column, widest in zip(sheet.columns, widths, strict=True):
        is_figure = bool(column.unit)
        table.add_column(
            Text(fill(scrub(column.head), widest) if is_figure else scrub(column.head)),
            justify="right" if is_figure else "left",
            no_wrap=is_figure or column.is_name,
            overflow="fold",
            min_width=widest if is_figure else None,
        )
    for row in texts:
        cells = (
            shortened(text, name_width) if c.is_name else tied(text) for text, c in zip(row, sheet.columns, strict=True)
        )
        table.add_row(*map(Text, cells))
    return table


def _name_width(columns: tuple[Column, ...], widths: list[int], width: int) -> int:
    """What figures, sentences and the space between columns leave to each name."""
    names = sum(column.is_name for column in columns)
    others = [
        widest if column.unit else min(widest, _SENTENCE_WIDTH)
        for column, widest in zip(columns, widths, strict=True)
        if not column.is_name
    ]
    left = width - sum(others) - _BETWEEN * (len(columns) - 1)
    return max(left // names, _SHORTEST_NAME) if names else width


def _longest_word(text: str) -> int:
    return max((len(word) for word in text.split()), default=0)


def markdown_table(sheet: Sheet) -> list[str]:
    """The lines of a GitHub table, every cell escaped."""
    heads = " | ".join(escaped(column.head) for column in sheet.columns)
    rule = "|".join("---:" if column.unit else "---" for column in sheet.columns)
    return [f"| {heads} |", f"|{rule}|", *(f"| {_cells(row, sheet.columns)} |" for row in sheet.rows)]


def _cells(row: tuple[Cell, ...], columns: tuple[Column, ...]) -> str:
    pairs = zip(row, columns, strict=True)
    return " | ".join(
        code(cell, in_table=True) if column.is_name and isinstance(cell, str) else escaped(cell_text(cell, column))
        for cell, column in pairs
    )


def _text(page: Page, width: int, colour: bool) -> str:
    from rich.text import Text

    from timesink.render.cells import paper, printed

    console = paper(width, colour)
    console.print(Text(scrub_sentence(page.title), style="bold"))
    for sheet in page.sheets:
        console.print()
        console.print(Text(scrub_sentence(sheet.title), style="bold cyan"))
        console.print(rich_table(sheet, width) if sheet.rows else Text("nothing"))
        if sheet.note:
            console.print(Text(scrub_sentence(sheet.note), style="dim"))
    for note in page.notes:
        console.print(Text(f"note: {scrub_sentence(note)}", style="yellow"))
    return printed(console)


def _document(page: Page) -> dict[str, Any]:
    sheets = {
        sheet.key: [dict(zip((column.key for column in sheet.columns), row, strict=True)) for row in sheet.rows]
        for sheet in page.sheets
    }
    return {"schema_version": SCHEMA_VERSION, "title": page.title, **sheets, "notes": list(page.notes)}


def _markdown(page: Page) -> str:
    lines = [f"## {escaped(page.title)}"]
    for sheet in page.sheets:
        lines += ["", f"### {escaped(sheet.title)}", ""]
        lines += markdown_table(sheet) if sheet.rows else ["nothing"]
        lines += ["", escaped(sheet.note)] if sheet.note else []
    lines += ["", *(f"- {escaped(note)}" for note in page.notes)] if page.notes else []
    return "\n".join(lines) + "\n"
