"""`timesink diagnose`: the main job. `timesink report`: the diagnosis as a page for a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from timesink.cli.options import (
    DescribedReading,
    DiagnosisOutput,
    LinkedOnly,
    Paths,
    RuleChoice,
    Stepping,
    flag,
    option,
)
from timesink.cli.output import sink, working
from timesink.errors import UsageError
from timesink.render import Format
from timesink.untrusted.scrub import scrub_sentence


def command(
    paths: Paths,
    linked_only: LinkedOnly = False,
    *,
    writing: DiagnosisOutput,
    reading: DescribedReading,
    stepping: Stepping,
    choice: RuleChoice,
) -> int:
    """Name the bottleneck of a trace and price its fix.

    Several PATHs are the ranks of one job. Exits with 0 whenever it ran, whatever it found; `timesink gate` is for
    pass and fail.
    """
    target = writing.sink(paths)
    choice.check()
    trace = stepping.applied(reading.trace(paths, linked_only=linked_only))
    with working("applying the rules"):
        diagnosis = choice.diagnosis(trace)
        if target.form is Format.HTML:
            from timesink.render.html import html_report

            target.write(html_report(trace, diagnosis))
            return 0
    target.show(diagnosis)
    return 0


def report(
    paths: Paths,
    output: Annotated[Path, option("--output -o", "FILE|-", "Write to this file, all of it or nothing.")] = Path(
        "report.html"
    ),
    linked_only: LinkedOnly = False,
    full: Annotated[
        bool, flag("--full", "Keep every event of a long capture in the timeline, however large the file gets.")
    ] = False,
    *,
    reading: DescribedReading,
    stepping: Stepping,
    choice: RuleChoice,
) -> int:
    """Write the diagnosis as one HTML file with timelines.

    The file loads nothing: it can be mailed, attached to a ticket and opened without a network. It holds names from the
    trace and the paths given here.
    """
    target = sink(Format.HTML, output, True, paths)
    path = target.path
    is_device = path is not None and path.exists() and not path.is_file()
    if path is not None and path.suffix.lower() not in _HTML and not is_device:
        raise UsageError(
            f"a report is HTML, and {output} is not named so",
            remedy="give -o FILE.html; `timesink diagnose -o FILE.md` writes Markdown, `-o FILE.json` JSON",
        )
    choice.check()
    trace = stepping.applied(reading.trace(paths, linked_only=linked_only))
    with working("writing the report"):
        from timesink.render.html import html_report

        text = html_report(trace, choice.diagnosis(trace), full=full)
    target.write(text)
    if path is not None:
        sys.stdout.write(f"wrote {scrub_sentence(str(path))}\n")
    return 0


_HTML = (".html", ".htm")
