"""A diagnosis or a page for a terminal, drawn with Rich into memory: the caller decides width and colour."""

from __future__ import annotations

import re
from io import StringIO
from textwrap import fill

from rich import box
from rich.console import Console, RenderableType
from rich.console import Group as Together
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis
from timesink.render.formats import Style
from timesink.render.parts import (
    Group,
    clear_text,
    device_sheet,
    evidence_text,
    grouped,
    not_applicable_text,
    place_text,
    sources_text,
    steps_text,
    undecided_parts,
)
from timesink.render.values import cell_text
from timesink.untrusted.scrub import defuse_lines, scrub, scrub_sentence, shortened
from timesink.views.page import Field, Page, Sheet

INDENT = 4
LABEL_WIDTH = 9
_SENTENCE_WIDTH, _SHORTEST_NAME, _BETWEEN = 40, 12, 3
# Stands for a space at which no line may be broken; scrubbed text cannot hold it, being private use.
_TIE = "\ue000"
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[kMGT]?B(?:/s)?)(?![\w]))")


def render_diagnosis(diagnosis: Diagnosis, style: Style) -> str:
    """The whole report; without colour it holds no escape sequence."""
    console = text_console(style.width, style.colour)
    _verdict(console, diagnosis)
    _figures(console, diagnosis)
    for group in grouped(diagnosis):
        console.print()
        console.print(_finding(group))
    _rest(console, diagnosis)
    return console_text(console)


def render_page(page: Page, style: Style) -> str:
    """The title, every sheet as a table, then the notes."""
    console = text_console(style.width, style.colour)
    console.print(Text(scrub_sentence(page.title), style="bold"))
    for sheet in page.sheets:
        console.print()
        console.print(Text(scrub_sentence(sheet.title), style="bold cyan"))
        console.print(_table(sheet, style.width) if sheet.rows else Text("nothing"))
        if sheet.note:
            console.print(Text(scrub_sentence(sheet.note), style="dim"))
    for note in page.notes:
        console.print(Text(f"note: {scrub_sentence(note)}", style="yellow"))
    return console_text(console)


def text_console(width: int, colour: bool) -> Console:
    """A console of that width. Without colour it writes no escape sequence at all."""
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


def console_text(console: Console) -> str:
    """What was printed on a `text_console`, without trailing blanks, and with no line a log would obey."""
    assert isinstance(console.file, StringIO)
    lines = (line.rstrip() for line in console.file.getvalue().replace(_TIE, " ").split("\n"))
    return defuse_lines("\n".join(lines))


def _verdict(console: Console, diagnosis: Diagnosis) -> None:
    colour = "green" if diagnosis.bottleneck is Bottleneck.NONE else "red"
    head = Text.assemble(("bottleneck ", "bold"), (diagnosis.bottleneck.value, f"bold {colour}"))
    console.print(Together(head, _sentence(diagnosis.statement, "bold")))
    console.print()


def _figures(console: Console, diagnosis: Diagnosis) -> None:
    console.print(_labelled([("trace", sources_text(diagnosis)), ("steps", steps_text(diagnosis.steps))]))
    if not diagnosis.devices:
        console.print(_labelled([("GPUs", "no GPU work in the trace")]))
        return
    sheet = device_sheet(diagnosis.devices)
    console.print()
    console.print(_table(sheet, console.width))
    if sheet.note:
        console.print(_sentence(sheet.note, "dim"))


def _finding(group: Group) -> RenderableType:
    finding = group.first
    head = Text.assemble(
        (f"{group.number}. ".ljust(INDENT), "bold"),
        (f"{group.card.code} {group.card.name}", "bold cyan"),
        "  ",
        (scrub_sentence(saving_text(finding)), "bold green"),
    )
    lines = [("because", evidence_text(fact)) for fact in finding.evidence]
    lines += [("at", place_text(finding.where)), ("do", finding.advice), ("check", finding.verify)]
    lines += [("also", other) for other in group.others]
    body = Together(_sentence(finding.message), _labelled([(label, text) for label, text in lines if text]))
    return Together(head, Padding(body, (0, 0, 0, INDENT)))


def _rest(console: Console, diagnosis: Diagnosis) -> None:
    parts = [("in short", statement) for statement in diagnosis.statements]
    if clear := clear_text(diagnosis):
        parts.append(("clear", ", ".join(clear)))
    if other := not_applicable_text(diagnosis):
        parts.append(("n/a", ", ".join(other)))
    parts += [("undecided", f"{rule}: {why}. To decide: {how}") for rule, why, how in undecided_parts(diagnosis)]
    parts += [("note", str(note)) for note in diagnosis.notes]
    if parts:
        console.print()
        console.print(_labelled(parts))


def _labelled(parts: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=LABEL_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    previous = ""
    for label, text in parts:
        table.add_row(Text("" if label == previous else label), _sentence(text))
        previous = label
    return table


def _table(sheet: Sheet, width: int) -> Table:
    """The sheet as a Rich table of that width: figures are whole, sentences wrap, names lose their middle."""
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
            shortened(text, name_width) if c.is_name else _tied(text)
            for text, c in zip(row, sheet.columns, strict=True)
        )
        table.add_row(*map(Text, cells))
    return table


def _name_width(columns: tuple[Field, ...], widths: list[int], width: int) -> int:
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


def _sentence(text: str, style: str = "") -> Text:
    return Text(_tied(scrub_sentence(text)), style=style, overflow="fold")


def _tied(text: str) -> str:
    """The text with every figure tied to its unit, so that wrapping does not part them; `console_text` unties."""
    return _FIGURE.sub(_TIE, text)
