"""A diagnosis or a page for a terminal, drawn with Rich into memory: the caller decides width and colour."""

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.console import Group as Together
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Diagnosis
from timesink.render import Style
from timesink.render.parts import (
    Group,
    clear_text,
    device_sheet,
    evidence_text,
    grouped,
    not_applicable_parts,
    place_text,
    sources_text,
    steps_text,
    undecided_parts,
    verdict_colour,
)
from timesink.render.tables import of_one, printed, table_lines, tied
from timesink.untrusted import scrub_sentence
from timesink.views import Page, Sheet

INDENT = 4
_NAMED_RULES = 2
_SKIPPED = "skipped"
LABEL_WIDTH = 9


def render_whole(diagnosis: Diagnosis, style: Style) -> str:
    """All there is to say of a diagnosis; `brief.py` says it in one screen."""
    console = text_console(style.width, style.colour)
    _figures(console, diagnosis, style)
    for group in grouped(diagnosis):
        console.print()
        console.print(_finding(group))
    _rest(console, diagnosis)
    return console_text(console)


def render_page(page: Page, style: Style) -> str:
    """The title, every sheet as a table, then the notes."""
    console = text_console(style.width, style.colour)
    title = _sentence(page.title, "bold")
    console.print(title, soft_wrap=page.is_command)
    if page.lede:
        console.print(_sentence(page.lede))
    for sheet in page.sheets:
        console.print()
        console.print(Text(scrub_sentence(sheet.title), style="bold cyan"))
        _table(console, sheet, of_one(page.sheets), style.verbose)
    for note in page.notes:
        _note(console, note)
    return console_text(console)


def _note(console: Console, note: str) -> None:
    """A note; a command that it ends in is a line of its own, which is copied whole however wide the terminal is."""
    said, start, words = note.rpartition(": timesink ")
    is_command = bool(start) and not any(mark in words for mark in (", ", "; "))
    console.print(_sentence(f"note: {said}:" if is_command else f"note: {note}", "yellow"))
    if is_command:
        console.print(_sentence(f"  timesink {words}", "yellow"), soft_wrap=True)


def text_console(width: int, colour: bool) -> Console:
    """A console of that width. Without colour it writes no escape sequence at all."""
    return Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        force_jupyter=False,  # else Rich shows the text in the notebook, and returns none
        color_system="standard" if colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def console_text(console: Console) -> str:
    """What was printed on a `text_console`."""
    assert isinstance(console.file, StringIO)
    return printed(console.file.getvalue())


def _figures(console: Console, diagnosis: Diagnosis, style: Style) -> None:
    """The verdict, what was recorded, and where the time of each device goes."""
    verdict, profiled = diagnosis.bottleneck, diagnosis.profiled_kernels
    head = Text.assemble(("bottleneck ", "bold"), (verdict.value, f"bold {verdict_colour(verdict)}"))
    console.print(Together(head, _sentence(diagnosis.statement, "bold")))
    console.print()
    facts = [("trace", sources_text(diagnosis))]
    run = ", ".join(f"{name}={value}" for name, value in diagnosis.facts.items())
    facts += [("run", scrub_sentence(run))] if run else []
    facts += [("steps", steps_text(diagnosis.steps))] if diagnosis.devices or not profiled else []
    facts += [("kernels", f"{profiled} profiled")] if profiled else []
    facts += [] if diagnosis.devices or profiled else [("GPUs", "no GPU work in the trace")]
    console.print(_labelled(facts))
    if diagnosis.devices:
        console.print()
        _table(console, (sheet := device_sheet(diagnosis.devices)), of_one([sheet]), style.verbose)


def _finding(group: Group) -> RenderableType:
    finding = group.first
    head = Text.assemble(
        (f"{group.number}. ".ljust(INDENT), "bold"),
        (f"{group.card.code} {group.first.name}", "bold cyan"),
        "  ",
        (tied(scrub_sentence(saving_text(finding))), "bold green"),
    )
    lines = [("because", evidence_text(fact)) for fact in finding.evidence]
    lines += [("at", place_text(finding.where)), ("do", finding.advice), ("check", finding.verify)]
    lines += [("also", other) for other in group.others]
    body = Together(_sentence(finding.message), _labelled([(label, text) for label, text in lines if text]))
    return Together(head, Padding(body, (0, 0, 0, INDENT)))


def _rest(console: Console, diagnosis: Diagnosis) -> None:
    clear = clear_text(diagnosis)
    parts = [
        *(("in short", statement) for statement in diagnosis.statements),
        *([("clear", ", ".join(clear))] if clear else []),
        *(("n/a", f"{_codes(rules)} ({why})") for why, rules in not_applicable_parts(diagnosis)),
        *(
            ("undecided", f"{_codes(rules.split(', '))}: {why}. To decide: {how}")
            for rules, why, how in undecided_parts(diagnosis)
        ),
        *(("note", str(note)) for note in diagnosis.notes if note.kind != _SKIPPED),
    ]
    if parts:
        console.print()
        console.print(_labelled(parts))


def _codes(rules: Sequence[str]) -> str:
    """A rule or two by code and name; more of them by their codes."""
    return ", ".join(rules if len(rules) <= _NAMED_RULES else [rule.split()[0] for rule in rules])


def _labelled(parts: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=LABEL_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    previous = ""
    for label, text in parts:
        table.add_row(Text("" if label == previous else label), _sentence(text))
        previous = label
    return table


def _table(console: Console, sheet: Sheet, left_out: set[str], full_names: bool) -> None:
    """The sheet's table and note; "nothing" without rows."""
    if not sheet.rows:
        console.print(Text("nothing"))
    lines = table_lines(sheet, console.width, left_out=left_out, full_names=full_names) if sheet.rows else []
    for kind, line in lines:
        console.print(Text(line, style="bold" if kind == "head" else ""), soft_wrap=kind == "command")
    if sheet.note:
        console.print(_sentence(sheet.note, "dim"))


def _sentence(text: str, style: str = "") -> Text:
    return Text(tied(scrub_sentence(text)), style=style, overflow="fold")
