"""`timesink gate`: is this change allowed in?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import experiment_options as given
from timesink.cli import options
from timesink.cli.experiment_setup import plan, session, share, step_source, tell, two_commands
from timesink.cli.gate_output import Files, write
from timesink.cli.output import sink
from timesink.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timesink.outcomes import GateResult, GateRow

Metrics = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="Counters to gate, as JSON: {name: {value, unit, how, better}}.",
        show_default=False,
    ),
]
MetricsBefore = Annotated[
    Path | None,
    typer.Option(
        "--metrics-before", metavar="FILE", help="The same file from the unchanged program.", show_default=False
    ),
]
Captured = Annotated[
    list[Path] | None,
    typer.Option(
        "--capture",
        metavar="TRACE",
        help="A profile of the changed program, or a log of its compiler (repeatable): shares and counts are gated.",
        show_default=False,
    ),
]
CapturedBefore = Annotated[
    list[Path] | None,
    typer.Option("--capture-before", metavar="TRACE", help="The same of the unchanged program.", show_default=False),
]
History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help='Look for a lasting change in these run means (JSON lines with "mean").',
        show_default=False,
    ),
]
AllowDifference = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-env-diff", metavar="KEY", help="This hard fact may differ from the baseline's.", show_default=False
    ),
]
Canary = Annotated[
    float | None,
    typer.Option(
        "--canary", metavar="RATIO", help="Time of a frozen reference program today over then.", show_default=False
    ),
]
ShareTolerance = Annotated[
    str, typer.Option("--share-tolerance", metavar="SHARE", help="Shares may differ by this, in points.")
]
Artefact = Annotated[
    str, typer.Option("--artefact", metavar="URL", help="Link to the full report, shown in every format.")
]


def command(
    program: given.Program = None,
    before: given.Before = None,
    after: given.After = None,
    toggle: given.Toggle = None,
    history: History = None,
    metrics: Metrics = None,
    metrics_before: MetricsBefore = None,
    capture: Captured = None,
    capture_before: CapturedBefore = None,
    step_pattern: given.StepPattern = None,
    receipt_pattern: given.ReceiptPattern = None,
    steps_json: given.StepsJson = None,
    threshold: given.Threshold = "2%",
    pairs: given.Looks = "6,12,18",
    receipt_tolerance: given.Tolerance = "0",
    share_tolerance: ShareTolerance = "2%",
    config_file: given.ConfigFiles = None,
    fact: given.Facts = None,
    allow_env_diff: AllowDifference = None,
    canary: Canary = None,
    timeout: given.Timeout = 1800,
    keep: given.Keep = None,
    suite: given.Suite = "default",
    root: given.Root = Path(".timesink"),
    artefact: Artefact = "",
    form: options.Form = None,
    output: options.Output = None,
    junit_xml: given.Junit = None,
    openmetrics: given.OpenMetrics = None,
    gitlab_codequality: given.CodeQuality = None,
    comment: given.Comment = None,
    strict: given.Strict = False,
    exit_zero: options.ExitZero = False,
    no_color: options.NoColor = False,
) -> int:
    """Fail where a change makes the program slower, and only then.

    With --before and --after (or --toggle) both builds run here, in turns: the best gate. With a program after -- it is
    held against the stored baseline of its suite. With --history a lasting change in the trunk is looked for.

    Exits with 0: nothing over the gate; 1: slower; 2: wrong request; 3: nothing can be said (with --strict); 4: the
    comparison is invalid (no baseline, another machine, other work, another result); 5: a program failed.
    """
    from timesink.cli.stored_gate import StoredGate, counters, from_history

    target = sink(form, output, no_color)
    files = Files(junit_xml, openmetrics, gitlab_codequality, comment)
    source = step_source(step_pattern, receipt_pattern, steps_json)
    measured = counters(metrics, capture)
    if history is not None:
        if before or after or toggle or program:
            raise UsageError("--history runs nothing", remedy="leave the commands out, or leave --history out")
        result = from_history(history, suite, share(threshold))
    elif before or after or toggle:
        from timesink.experiments.gate import gate_counters
        from timesink.experiments.verify import to_result, verify

        with session(two_commands(before, after, toggle, program or ()), source, timeout, keep) as made:
            done = verify(plan(threshold, pairs, receipt_tolerance), made.launch, tell)
            absent = made.watch.remark
        stored = counters(metrics_before, capture_before)
        rows = gate_counters(stored, measured, share_tolerance=share(share_tolerance))
        result = _with(to_result(done, suite), rows, absent)
    else:
        gate = StoredGate(root, suite, tuple(program or ()), source, share(threshold), share(share_tolerance), canary)
        result = gate.run(measured, config_file or (), fact or (), allow_env_diff or (), timeout, keep)
    return write(replace(result, artefact=artefact), target, files, strict=strict, exit_zero=exit_zero)


def _with(result: GateResult, rows: Sequence[GateRow], absent: str) -> GateResult:
    return replace(result, rows=(*result.rows, *rows), notes=(*result.notes, *((absent,) if absent else ())))
