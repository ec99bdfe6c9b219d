"""`timesink rules`: what timesink looks for. `timesink explain`: one rule, in full."""

from __future__ import annotations

from typing import Annotated

from timesink.cli import completion
from timesink.cli.options import PageOutput, argument, flag, format_option, note_former_name
from timesink.errors import UsageError
from timesink.model.record import dataclass
from timesink.render import Format


def command(*, writing: PageOutput) -> int:
    """List the rules and their limits."""
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
    writing.sink().show(Page("Rules of timesink", (listed, limits)))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutput(PageOutput):
    """Where the page of a rule goes and what it is written as."""

    form: Annotated[Format | None, format_option("Rule")] = None


def explain(
    code: Annotated[str, argument("CODE", "A rule's code or name.", autocompletion=completion.rules)] = "",
    *,
    assumptions: Annotated[
        bool, flag("--assumptions", "The figures that are assumed: by this rule, without a CODE by any.")
    ] = False,
    writing: RuleOutput,
) -> int:
    """Explain one rule: what it finds, how, what to do."""
    from timesink.diagnosis.registry import find

    note_former_name(code)
    if assumptions:
        from timesink.views.assumptions import assumptions as assumed

        writing.sink().show(assumed(find(code).code if code else ""))
    elif code:
        writing.sink().show(find(code))
    else:
        raise UsageError("no rule is named", remedy="timesink explain CODE; timesink rules lists them")
    return 0
