"""`timesink calibrate`: how much runs of one unchanged program differ here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import experiment_options as given
from timesink.cli import options
from timesink.cli.experiment_setup import facts, one_command, session, step_source, tell
from timesink.cli.output import sink
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.experiments.calibrate import Calibration
    from timesink.outcomes import RunRow
    from timesink.reporters.sheets import Page

Runs = Annotated[
    int, typer.Option("--runs", metavar="N", help="Runs that count; one more is made first and discarded.")
]


def command(
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
    form: options.Form = None,
    output: options.Output = None,
    no_color: options.NoColor = False,
) -> int:
    """Measure how much runs of one unchanged program differ here.

    Two captures can be compared only where this is known: `timesink compare --calibration FILE`. Another session adds
    to the record.
    """
    from timesink.experiments import calibrate
    from timesink.experiments.environment import environment, workload
    from timesink.experiments.limits import CALIBRATION_RUNS

    target = sink(form, output, no_color)
    if runs < CALIBRATION_RUNS.default:
        raise UsageError(f"{runs} runs are too few", remedy=f"make at least {CALIBRATION_RUNS.default:.0f}")
    made = one_command(program or ())
    source = step_source(step_pattern, receipt_pattern, steps_json)
    here = environment(made)
    path = calibrate.location(root, here, workload(made, config_file or (), facts(fact or ())))
    with session({"before": made, "after": made}, source, timeout, keep) as sitting:
        rows = calibrate.calibrate(lambda number: sitting.launch("before", number), runs, tell)
        notes = [sitting.watch.remark] if sitting.watch.remark else []
    if unsettled := sum(not row.settled for row in rows):
        notes.append(f"{unsettled} of {len(rows)} runs never settle; their second half was used")
    found = calibrate.store(path, here, made.text, rows)
    target.page(_page(path, found, rows, notes))
    return 0


def _page(path: Path, found: Calibration, rows: Sequence[RunRow], notes: Sequence[str]) -> Page:
    from timesink.reporters.sheets import Column, Page, Sheet

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
