"""`timesink rules`: what timesink looks for."""

from __future__ import annotations

from timesink.cli import options
from timesink.cli.output import sink


def command(form: options.Form = None, output: options.Output = None, no_color: options.NoColor = False) -> int:
    """List the rules and their limits."""
    from timesink.registry import all_rules
    from timesink.reporters.sheets import Column, Page, Sheet

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
