"""The report for a terminal: the verdict, the figures, the findings, then what was clear and what could not be told."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.console import Group as Together
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from timesink.diagnosis.verdicts import Bottleneck, Diagnosis
from timesink.render import DEFAULT_WIDTH
from timesink.render.cells import paper, printed, recoverable_text, tied
from timesink.render.pages import rich_table
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
from timesink.untrusted.scrub import scrub_sentence

INDENT = 4
LABEL_WIDTH = 9


def render(diagnosis: Diagnosis, *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """The whole report; without colour it holds no escape sequence."""
    console = paper(width, colour)
    _verdict(console, diagnosis)
    _figures(console, diagnosis)
    for group in grouped(diagnosis):
        console.print()
        console.print(_finding(group))
    _rest(console, diagnosis)
    return printed(console)


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
    console.print(rich_table(sheet, console.width))
    if sheet.note:
        console.print(_sentence(sheet.note, "dim"))


def _finding(group: Group) -> RenderableType:
    finding = group.first
    head = Text.assemble(
        (f"{group.number}. ".ljust(INDENT), "bold"),
        (f"{group.card.code} {group.card.name}", "bold cyan"),
        "  ",
        (scrub_sentence(recoverable_text(finding.recoverable, finding.period)), "bold green"),
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
    parts += [("note", note) for note in diagnosis.notes]
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


def _sentence(text: str, style: str = "") -> Text:
    return Text(tied(scrub_sentence(text)), style=style, overflow="fold")
