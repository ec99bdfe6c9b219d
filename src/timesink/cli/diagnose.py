"""`timesink diagnose`: the main job. `timesink report`: the diagnosis as a page for a browser.

`timesink explain`: one rule in full; without its name, what is looked for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli import asked, completion
from timesink.cli.options import OUTPUT, PATHS, DescribedReading, DiagnosisOutput, PageOutput, Reading, RuleChoice
from timesink.cli.output import sink, working
from timesink.cli.parameters import Argument, Option
from timesink.errors import UsageError
from timesink.render import Format
from timesink.untrusted import scrub_sentence


def diagnose(
    paths: Annotated[list[Path], PATHS], *, writing: DiagnosisOutput, reading: DescribedReading, choice: RuleChoice
) -> int:
    """Name the bottleneck of a trace and price its fix.

    Several PATHs are the ranks of one job. Exits with 0 whenever it ran, whatever it found; `timesink gate` is for
    pass and fail.
    """
    target = writing.sink(paths)
    trace = reading.trace(paths)
    with working("applying the rules"):
        diagnosis = choice.diagnosis(trace)
        if target.form is Format.HTML:
            from timesink.render.html import html_report

            target.write(html_report(trace, diagnosis))
            return 0
    target.show(diagnosis)
    return 0


def start_up(paths: Annotated[list[Path], PATHS], *, writing: PageOutput, reading: Reading) -> int:
    """Say where the time before the first steady step went."""
    from timesink.cli.show import start_up as shown

    return shown(paths, writing=writing, reading=reading)


def report(
    paths: Annotated[list[Path], PATHS],
    output: Annotated[Path, OUTPUT] = Path("report.html"),
    full: Annotated[
        bool, Option("--full", "", "Keep every event of a long capture in the timeline, however large the file gets.")
    ] = False,
    *,
    reading: DescribedReading,
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
            remedy="give -o FILE.html; `timesink diagnose TRACE -o FILE.md` writes Markdown, `-o FILE.json` JSON",
        )
    trace = reading.trace(paths)
    with working("writing the report"):
        from timesink.render.html import html_report

        text = html_report(trace, choice.diagnosis(trace), full=full)
    target.write(text)
    if path is not None:
        sys.stdout.write(f"wrote {scrub_sentence(str(path))}\n")
    return 0


_HTML = (".html", ".htm")

if TYPE_CHECKING:
    from timesink.views import Page


class RuleOutput(PageOutput, kw_only=True):
    """Where a rule's page goes and what it is written as."""

    form: Annotated[Format | None, Option("--format -f", "FORMAT", writes=("Rule", "Page"))] = None


def explain(
    code: Annotated[str, Argument("CODE", "A rule's code or name.", complete=completion.rules, must=asked.rule)] = "",
    *,
    assumptions: Annotated[
        bool, Option("--assumptions", "", "The figures that are assumed: by this rule, without a CODE by any.")
    ] = False,
    writing: RuleOutput,
) -> int:
    """Explain one rule: what it finds, how, what to do; or list them.

    Without a CODE the rules and their limits are listed.
    """
    from timesink.diagnosis.registry import find

    if assumptions:
        from timesink.render.rule_page import assumptions as assumed

        writing.sink().show(assumed(find(code).code if code else ""))
    elif code:
        writing.sink().show(find(code))
    else:
        writing.sink().show(_rules())
    return 0


def _rules() -> Page:
    """The rules and their limits."""
    from timesink.diagnosis.registry import all_rules
    from timesink.views import Page, sheet_of

    rules = all_rules()
    cards = (rule.card for rule in rules)
    columns, note = "code [name], name [name], summary: finds [text]", "timesink explain CODE tells the rest"
    listed = sheet_of("rules", f"{len(rules)} rules", cards, columns, note)
    limits = (
        (f"{rule.card.code}.{name}", limit.default, limit.unit, limit.why)
        for rule in rules
        for name, limit in sorted(rule.limits.items())
    )
    columns = "limit [name], default, unit [text], why [text]"
    return Page("Rules of timesink", (listed, sheet_of("limits", "Limits (--limit CODE.name=value)", limits, columns)))
