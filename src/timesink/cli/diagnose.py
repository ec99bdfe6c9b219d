"""`timesink diagnose`: the main job. `timesink report`: the diagnosis as a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.cli.options import DiagnosisOutput, LinkedOnly, Paths, Reading, RuleChoice, StepMs
from timesink.cli.output import sink, working
from timesink.cli.reading import unprofiled_step_ms
from timesink.render.formats import Format


def command(
    paths: Paths,
    unprofiled: StepMs = None,
    linked_only: LinkedOnly = False,
    *,
    writing: DiagnosisOutput,
    reading: Reading,
    choice: RuleChoice,
) -> int:
    """Name the bottleneck of a trace and price its fix.

    Several PATHs are the ranks of one job. Exits with 0 whenever it ran, whatever it found; `timesink gate` is for
    pass and fail.
    """
    target = writing.sink(paths)
    overrides, rules = choice.overrides(), choice.rules()
    trace = reading.trace(paths, linked_only=linked_only)
    with working("applying the rules"):
        from timesink.diagnosis.engine import diagnose

        diagnosis = diagnose(trace, rules, overrides, unprofiled_step_ms(unprofiled, paths))
        if target.form is Format.HTML:
            from timesink.render.html import html_report

            target.write(html_report(trace, diagnosis))
            return 0
    target.show(diagnosis)
    return 0


def report(
    paths: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE|-", help="Write to this file, all of it or nothing.")
    ] = Path("report.html"),
    linked_only: LinkedOnly = False,
    *,
    reading: Reading,
    choice: RuleChoice,
) -> int:
    """Write the diagnosis as one HTML file with timelines.

    The file loads nothing: it can be mailed, attached to a ticket and opened without a network. It holds names from the
    trace and the paths given here.
    """
    target = sink(Format.HTML, output, True, paths)
    overrides, rules = choice.overrides(), choice.rules()
    trace = reading.trace(paths, linked_only=linked_only)
    with working("writing the report"):
        from timesink.diagnosis.engine import diagnose
        from timesink.render.html import html_report

        text = html_report(trace, diagnose(trace, rules, overrides))
    target.write(text)
    return 0
