"""`timesink verify`: did one change help?

`timesink calibrate`: how much runs of one unchanged program differ here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink, tell
from timesink.cli.verify import setup as given
from timesink.cli.verify.gate import Files, write
from timesink.cli.verify.setup import facts, one_command, plan, session, step_source, two_commands
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.verify.calibration import Calibration
    from timesink.verify.experiment import Verification
    from timesink.verify.outcomes import RunRow
    from timesink.views.page import Page


def command(
    program: given.Program = None,
    before: given.Before = None,
    after: given.After = None,
    toggle: given.Toggle = None,
    step_pattern: given.StepPattern = None,
    receipt_pattern: given.ReceiptPattern = None,
    steps_json: given.StepsJson = None,
    threshold: given.Threshold = "2%",
    pairs: given.Looks = "6,12,18",
    warm_up_pairs: given.WarmUpPairs = 1,
    receipt_tolerance: given.Tolerance = "0",
    timeout: given.Timeout = 1800,
    keep: given.Keep = None,
    suite: given.Suite = "",
    ledger: given.LedgerEntry = None,
    root: given.Root = Path(".timesink"),
    form: given.Form = None,
    output: options.OutputFile = None,
    junit_xml: given.Junit = None,
    openmetrics: given.OpenMetrics = None,
    comment: given.Comment = None,
    strict: given.Strict = False,
    exit_zero: options.ExitZero = False,
    no_color: options.NoColor = False,
) -> int:
    """Say whether one change made the steps slower or faster.

    Runs both sides in fresh processes, taking turns, and looks after 6, 12 and 18 pairs. Exits with 1 where the change
    is slower, 4 where the two sides compute different results, 3 (with --strict) where nothing can be said, else 0.
    """
    target = sink(form, output, no_color)
    fixed = replace(plan(threshold, pairs, receipt_tolerance), warm_up_pairs=warm_up_pairs)
    commands = two_commands(before, after, toggle, program or ())
    source = step_source(step_pattern, receipt_pattern, steps_json)
    from timesink.verify.experiment import to_result, verify

    with session(commands, source, timeout, keep) as made:
        done = verify(fixed, made.launch, tell)
        absent = made.watch.remark
    if ledger is not None:
        close_entry(root, ledger, done)
    result = to_result(done, suite)
    if absent:
        result = replace(result, notes=(*result.notes, absent))
    files = Files(junit_xml, openmetrics, None, comment)
    return write(result, target, files, strict=strict, exit_zero=exit_zero)


def close_entry(root: Path, number: int, done: Verification) -> None:
    """Write the outcome into the ledger."""
    from timesink.verify import ledger
    from timesink.verify.experiment import gain_ms

    measured = gain_ms(done)
    gain = ledger.Gain(*measured) if measured else None
    ledger.close(root / "ledger.jsonl", number, done.verdict.outcome, gain)


Runs = Annotated[
    int, typer.Option("--runs", metavar="N", help="Runs that count; one more is made first and discarded.")
]


def calibrate(
    program: given.Program = None,
    runs: Runs = 10,
    step_pattern: given.StepPattern = None,
    receipt_pattern: given.ReceiptPattern = None,
    steps_json: given.StepsJson = None,
    config_file: given.ConfigFiles = None,
    fact: given.Facts = None,
    timeout: given.Timeout = 1800,
    keep: given.Keep = None,
    root: given.Root = Path(".timesink"),
    form: given.Form = None,
    output: options.OutputFile = None,
    no_color: options.NoColor = False,
) -> int:
    """Measure how much runs of one unchanged program differ here.

    Two captures can be compared only where this is known: `timesink compare --calibration FILE`. Another session adds
    to the record.
    """
    from timesink.verify import calibration
    from timesink.verify.environment import environment, workload
    from timesink.verify.limits import CALIBRATION_RUNS

    target = sink(form, output, no_color)
    if runs < CALIBRATION_RUNS.default:
        raise UsageError(f"{runs} runs are too few", remedy=f"make at least {CALIBRATION_RUNS.default:.0f}")
    made = one_command(program or ())
    source = step_source(step_pattern, receipt_pattern, steps_json)
    here = environment(made)
    path = calibration.location(root, here, workload(made, config_file or (), facts(fact or ())))
    with session({"before": made, "after": made}, source, timeout, keep) as sitting:
        rows = calibration.calibrate(lambda number: sitting.launch("before", number), runs, tell)
        notes = [sitting.watch.remark] if sitting.watch.remark else []
    if unsettled := sum(not row.settled for row in rows):
        notes.append(f"{unsettled} of {len(rows)} runs never settle; their second half was used")
    found = calibration.store(path, here, made.text, rows)
    target.show(_page(path, found, rows, notes))
    return 0


def _page(path: Path, found: Calibration, rows: Sequence[RunRow], notes: Sequence[str]) -> Page:
    from timesink.views.page import Column, Page, Sheet

    title = f"Runs here differ by {100 * found.run_sd_ratio:.2g} % (standard deviation)"
    result = Sheet(
        "calibration",
        "Calibration",
        (Column("run_sd_ratio", "run sd", "ratio"), Column("runs", "runs", "1"), Column("sessions", "sessions", "1")),
        ((found.run_sd_ratio, found.df + 1, found.sessions),),
        f"kept in {path}",
    )
    runs = Sheet(
        "runs",
        "Runs of this session",
        (Column("number", "run", "1"), Column("mean_s", "mean step", "s"), Column("steps", "steps", "1")),
        tuple((row.number, row.mean_s, row.steps) for row in rows),
    )
    return Page(title, (result, runs), tuple(notes))
