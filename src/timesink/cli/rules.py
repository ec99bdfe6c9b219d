"""`timesink rules`: what timesink looks for.

`timesink explain`: one rule, in full.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timesink.cli import options
from timesink.cli.output import Sink, sink
from timesink.render.formats import Format

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule


def command(form: options.Form = None, output: options.Output = None, no_color: options.NoColor = False) -> int:
    """List the rules and their limits."""
    from timesink.diagnosis.registry import all_rules
    from timesink.views.page import Column, Page, Sheet

    rules = all_rules()
    listed = Sheet(
        "rules",
        f"{len(rules)} rules",
        (Column("code", "code", is_name=True), Column("name", "name", is_name=True), Column("summary", "finds")),
        tuple((rule.card.code, rule.card.name, rule.card.summary) for rule in rules),
        "timesink explain CODE tells the rest",
    )
    limits = Sheet(
        "limits",
        "Limits (--limit CODE.name=value)",
        (
            Column("limit", "limit", is_name=True),
            Column("default", "default", unit="1"),
            Column("unit", "unit"),
            Column("why", "why"),
        ),
        tuple(
            (f"{rule.card.code}.{name}", limit.default, limit.unit, limit.why)
            for rule in rules
            for name, limit in sorted(rule.limits.items())
        ),
    )
    sink(form, output, no_color).page(Page("Rules of timesink", (listed, limits)))
    return 0


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A rule's code or name.", show_default=False)],
    form: options.Form = None,
    output: options.Output = None,
    no_color: options.NoColor = False,
) -> int:
    """Explain one rule: what it finds, how, what to do."""
    from timesink.diagnosis.registry import find

    target, rule = sink(form, output, no_color), find(code)
    match target.form:
        case Format.JSON:
            from timesink.render.json import json_text

            target.write(json_text(_document(rule)))
        case Format.MD:
            from timesink.render.rule_page import rule_markdown

            target.write(rule_markdown(rule) + "\n")
        case Format.HTML:
            from timesink.render.html import render_prose
            from timesink.render.rule_page import rule_markdown

            target.write(render_prose(f"{rule.card.code} {rule.card.name}", rule_markdown(rule)))
        case Format.TEXT:
            target.write(_text(rule, target))
    return 0


def _text(rule: Rule, target: Sink) -> str:
    """The page as a terminal shows it; its words are ours, so Markdown may act here."""
    from rich.markdown import Markdown

    from timesink.render.rule_page import rule_markdown
    from timesink.render.text import console_text, text_console

    console = text_console(min(target.width, 100), target.colour)
    console.print(Markdown(rule_markdown(rule), hyperlinks=False))
    return console_text(console)


def _document(rule: Rule) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "card": asdict(rule.card),
        "limits": {name: asdict(limit) for name, limit in rule.limits.items()},
        "needs": [table.name for table in rule.needs],
        "reads": [table.name for table in rule.reads],
        "capture": rule.capture,
    }
