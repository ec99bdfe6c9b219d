"""`timesink what-if` and `timesink plan`: price changes before they are made, one and several after another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from timesink.cli.options import TRACES, PageOutput, PricedReading, Stepping, argument, flag, option
from timesink.cli.output import working
from timesink.errors import UsageError

Traces = Annotated[list[Path] | None, argument("PATH", TRACES)]


def command(
    paths: Traces = None,
    changes: Annotated[
        list[str] | None,
        option(
            "--change",
            "CHANGE",
            "What to change, such as 'scale kernel:.*gemm.* 0.5'; may be repeated. --changes lists them.",
        ),
    ] = None,
    list_changes: Annotated[bool, flag("--changes", "List what can be changed, and stop.")] = False,
    explain_cost: Annotated[
        bool, flag("--explain-cost", "Show the path that bounds the step, before and after.")
    ] = False,
    *,
    writing: PageOutput,
    reading: PricedReading,
    stepping: Stepping,
) -> int:
    """Price changes to a program before they are made.

    The trace's dependency graph is replayed with each change and with all of them: old step, new step, what limits it
    next. A gain is a range: p10 and p90 over steps and over what is not known of the change.
    """
    target = writing.sink(paths or ())
    if list_changes:
        from timesink.views.what_if import grammar_page

        target.show(grammar_page())
        return 0
    if not paths:
        raise UsageError(
            "there is no trace to replay", remedy="give its path, or list the changes with --changes alone"
        )
    if not changes:
        raise UsageError(
            "there is no change to price", remedy="add --change 'remove-sync', or list them with --changes"
        )
    from timesink.fixes.words import parse_change

    parsed = tuple(parse_change(text) for text in changes)
    trace = stepping.applied(reading.trace(paths))
    with working("replaying"):
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.what_if import what_if_page

        check_device_work(trace, "step to replay")
        page = what_if_page(trace, parsed, None, explain_cost)
    target.show(page)
    return 0


def plan(
    paths: Annotated[list[Path], argument("PATH...", TRACES)],
    *,
    writing: PageOutput,
    reading: PricedReading,
    stepping: Stepping,
) -> int:
    """Say what to change, in which order, and where it ends.

    Changes that people make, one after another, each replayed in the program that those before it leave: the step
    before and after, low and high, and what the step is bound by then.
    """
    target = writing.sink(paths)
    trace = stepping.applied(reading.trace(paths))
    with working("planning"):
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.plan import plan_page

        check_device_work(trace, "step to plan for")
        page = plan_page(trace)
    target.show(page)
    return 0
