"""`timesink diagnose`: the main job.

`timesink report`: the diagnosis as a page for a browser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink, working
from timesink.cli.reading import StepMs, read_traces, unprofiled_step_ms
from timesink.errors import UsageError
from timesink.render.formats import Format

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace


def command(
    paths: options.Paths,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    only: options.Only = None,
    skip: options.Skip = None,
    limits: options.LimitValues = None,
    window: options.Window = None,
    linked_only: options.LinkedOnly = False,
    unprofiled: StepMs = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Name the bottleneck of a trace and price its fix.

    Several PATHs are the ranks of one job. Exits with 0 whenever it ran, whatever it found; `timesink gate` is for
    pass and fail.
    """
    target = sink(form, output, no_color, paths)
    overrides = parsed_limits(limits or ())
    rules = chosen_rules(only or (), skip or ())
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window, linked_only=linked_only)
    with working("applying the rules"):
        from timesink.diagnosis.engine import diagnose

        diagnosis = diagnose(trace, rules, overrides, unprofiled_step_ms(unprofiled, paths))
        if target.form is Format.HTML:
            target.write(_html(trace, diagnosis))
            return 0
    target.diagnosis(diagnosis)
    return 0


def _html(trace: Trace, diagnosis: Diagnosis) -> str:
    from timesink.render.html import render
    from timesink.views.report import report_of

    return render(report_of(trace, diagnosis))


def chosen_rules(only: Sequence[str], skip: Sequence[str]) -> tuple[Rule, ...]:
    """Every rule, or those named, without those left out. `UsageError` for a code no rule has."""
    from timesink.diagnosis.registry import all_rules, find

    wanted = {find(code).card.code for code in only} or {rule.card.code for rule in all_rules()}
    unwanted = {find(code).card.code for code in skip}
    return tuple(rule for rule in all_rules() if rule.card.code in wanted - unwanted)


def parsed_limits(texts: Sequence[str]) -> dict[str, float]:
    """`CODE.name=value` texts as overrides; the engine refuses names that no rule has."""
    overrides: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        code, dot, limit = name.strip().partition(".")
        try:
            number = float(value)
        except ValueError:
            equals, number = "", 0.0
        if not (equals and dot and limit) or not math.isfinite(number):
            raise UsageError(
                f"{text!r} is not a limit", remedy="write it as CODE.name=value, such as IDL101.idle_ratio=0.2"
            )
        overrides[f"{code.upper()}.{limit}"] = number
    return overrides


def report(
    paths: options.Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE|-", help="Write to this file, all of it or nothing.")
    ] = Path("report.html"),
    ranks: options.Ranks = None,
    only: options.Only = None,
    skip: options.Skip = None,
    limits: options.LimitValues = None,
    window: options.Window = None,
    linked_only: options.LinkedOnly = False,
    no_cache: options.NoCache = False,
) -> int:
    """Write the diagnosis as one HTML file with timelines.

    The file loads nothing: it can be mailed, attached to a ticket and opened without a network. It holds names from the
    trace and the paths given here.
    """
    target = sink(Format.HTML, output, True, paths)
    overrides = parsed_limits(limits or ())
    rules = chosen_rules(only or (), skip or ())
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window, linked_only=linked_only)
    with working("writing the report"):
        from timesink.diagnosis.engine import diagnose

        text = _html(trace, diagnose(trace, rules, overrides))
    target.write(text)
    return 0
