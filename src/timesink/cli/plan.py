"""`timesink plan`: what to change in which order, and what a change of yours would win, before it is made."""

from __future__ import annotations

from pathlib import Path

from timesink.cli.options import PageOutput, PricedReading
from timesink.cli.output import working
from timesink.errors import UsageError


def plan(
    paths: list[Path] | None = None,
    changes: list[str] | None = None,
    list_changes: bool = False,
    explain_cost: bool = False,
    *,
    writing: PageOutput,
    reading: PricedReading,
) -> int:
    """Say what to change, in which order, and where it ends; price a change.

    Changes that people make, one after another, each replayed in the program that those before it leave: the step
    before and after, low and high, and what the step is bound by then.

    With --change the trace's dependency graph is replayed with each change and with all of them: old step, new step,
    what limits it next. A gain is a range: p10 and p90 over steps and over what is not known of the change.
    """
    target = writing.sink(paths or ())
    if list_changes:
        from timesink.views.plan import grammar_page

        target.show(grammar_page())
        return 0
    if not paths:
        raise UsageError("there is no trace to plan for", remedy="give its path, or list the changes with --changes")
    from timesink.diagnosis.undiagnosable import check_device_work
    from timesink.fixes.words import parse_change

    priced = tuple(parse_change(text) for text in changes or ())
    trace = reading.trace(paths)
    with working("replaying" if priced else "planning"):
        if priced:
            from timesink.views.plan import what_if_page

            check_device_work(trace, "step to replay")
            page = what_if_page(trace, priced, None, explain_cost)
        else:
            from timesink.views.plan import plan_page

            check_device_work(trace, "step to plan for")
            page = plan_page(trace)
    target.show(page)
    return 0
