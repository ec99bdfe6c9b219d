"""`timesink verify`: did one change help? `timesink calibrate`: how much runs of one unchanged program differ here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli.options import PageOutput, option
from timesink.cli.verify.runs import (
    GateOutput,
    Looks,
    OpenMetrics,
    Program,
    Root,
    RunSession,
    Sides,
    StepTimeOptions,
    Suite,
    WorkFacts,
    one_command,
)
from timesink.errors import UsageError
from timesink.model.record import dataclass, replace

if TYPE_CHECKING:
    from timesink.verify.experiment import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The entry of the ledger that a verification closes."""

    ledger: Annotated[int | None, option("--ledger", "N", "Close this entry of the ledger with the outcome.")] = None
    root: Root = Path(".timesink")

    def close(self, verification: Verification) -> None:
        """Close it with the outcome and the gain, where one is named."""
        if self.ledger is None:
            return
        from timesink.verify.experiment import gain_ms
        from timesink.verify.ledger import Gain, close

        gain = gain_ms(verification)
        close(self.root / "ledger.jsonl", self.ledger, verification.verdict.outcome, Gain(*gain) if gain else None)


def command(
    warm_up_pairs: Annotated[
        int, option("--warm-up-pairs", "N", "Pairs run first and not counted; 0 where caches are already warm.", min=0)
    ] = 1,
    suite: Suite = "",
    openmetrics: OpenMetrics = None,
    *,
    entry: LedgerEntry,
    sides: Sides,
    times: StepTimeOptions,
    looks: Looks,
    session: RunSession,
    writing: GateOutput,
) -> int:
    """Say whether one change made the steps slower or faster.

    Runs both sides in fresh processes, taking turns, and looks after 6, 12 and 18 pairs. The programs need no edits:
    steps are found as `timesink capture` finds them and timed without a profiler; --whole compares programs without
    steps. Exits with 1 where the change is slower, or the speed-up of --at-least not proven; 4 where the two sides do
    different work; 3 (with --strict) where nothing can be said; else 0.
    """
    target = writing.sink()
    plan = replace(looks.plan(), warm_up_pairs=warm_up_pairs)
    commands = sides.commands()
    source = times.source()
    from timesink.verify.experiment import to_result, verify

    with session.launcher(commands, source) as launcher:
        verification = verify(plan, launcher.launch, session.tell)
        remark = launcher.watch.remark
    entry.close(verification)
    result = to_result(verification, suite)
    if remark:
        result = replace(result, notes=(*result.notes, remark))
    return writing.write(result, target, open_metrics=openmetrics)


def calibrate(
    program: Program = None,
    runs: Annotated[int, option("--runs", "N", "Runs that count; one more is made first and discarded.")] = 10,
    root: Root = Path(".timesink"),
    *,
    times: StepTimeOptions,
    work: WorkFacts,
    session: RunSession,
    writing: PageOutput,
) -> int:
    """Measure how much runs of one unchanged program differ here.

    Two captures can be compared only where this is known: `timesink compare --calibration FILE`. Another session adds
    to the record.
    """
    from timesink.verify import calibration
    from timesink.verify.environment import environment
    from timesink.verify.limits import CALIBRATION_RUNS
    from timesink.views.verify import calibration_page

    target = writing.sink()
    if runs < CALIBRATION_RUNS:
        raise UsageError(f"{runs} runs are too few", remedy=f"make at least {CALIBRATION_RUNS}")
    command = one_command(program)
    source = times.source()
    here = environment(command)
    path = calibration.location(root, here, work.workload(command, times.facts))
    with session.launcher({"before": command, "after": command}, source) as launcher:
        rows = calibration.calibrate(lambda number: launcher.launch("before", number), runs, session.tell)
        notes = [launcher.watch.remark] if launcher.watch.remark else []
    if unsettled := sum(not row.settled for row in rows):
        notes.append(f"{unsettled} of {len(rows)} runs never settle; their second half was used")
    target.show(calibration_page(path, calibration.store(path, here, command.text, rows), rows, notes))
    return 0
