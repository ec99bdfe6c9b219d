"""`timesink explain`: one rule, in full; without its name, what timesink looks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timesink.cli.options import PageOutput, note_former_name

if TYPE_CHECKING:
    from timesink.views.page import Page


def explain(
    code: str = "",
    *,
    assumptions: bool = False,
    writing: PageOutput,
) -> int:
    """Explain one rule: what it finds, how, what to do; or list them.

    Without a CODE the rules and their limits are listed.
    """
    from timesink.diagnosis.registry import find

    note_former_name(code)
    if assumptions:
        from timesink.views.assumptions import assumptions as assumed

        writing.sink().show(assumed(find(code).code if code else ""))
    elif code:
        writing.sink().show(find(code))
    else:
        writing.sink().show(_rules())
    return 0


def _rules() -> Page:
    """The rules and their limits."""
    from timesink.diagnosis.registry import all_rules
    from timesink.views.page import Field, Page, Sheet, names, texts

    rules = all_rules()
    listed = Sheet(
        "rules",
        f"{len(rules)} rules",
        (*names(code="code", name="name"), Field("summary", "finds")),
        tuple((rule.card.code, rule.card.name, rule.card.summary) for rule in rules),
        "timesink explain CODE tells the rest",
    )
    limits = Sheet(
        "limits",
        "Limits (--limit CODE.name=value)",
        (Field("limit", "limit", is_name=True), Field("default", "default", unit="1"), *texts(unit="unit", why="why")),
        tuple(
            (f"{rule.card.code}.{name}", limit.default, limit.unit, limit.why)
            for rule in rules
            for name, limit in sorted(rule.limits.items())
        ),
    )
    return Page("Rules of timesink", (listed, limits))
