"""`timesink verify`: did one change help? `timesink gate calibrate`: how much do runs of an unchanged program differ?

`timesink verify --ledger`: what was expected of changes, and what they brought.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from timesink.cli import asked, completion
from timesink.cli.options import OPEN_METRICS, PROGRAM, ROOT, PageOutput
from timesink.cli.output import sink
from timesink.cli.parameters import Argument, Commands, Option
from timesink.cli.verify import GateOutput, Looks, RunSession, Sides, StepTimeOptions, WorkFacts, one_command
from timesink.errors import UsageError
from timesink.records import Record, replace
from timesink.verify.outcomes import Outcome

if TYPE_CHECKING:
    from timesink.verify.experiment import Verification


class LedgerEntry(Record, kw_only=True):
    """The entry of the ledger that a verification closes."""

    ledger: Annotated[int | None, Option("--ledger", "N", "Close this entry of the ledger with the outcome.")] = None
    root: Annotated[Path, ROOT] = Path(".timesink")

    def check(self) -> None:
        """`UsageError` where it cannot be closed."""
        from timesink.verify.ledger import check_open

        if self.ledger is not None:
            check_open(self.root / "ledger.jsonl", self.ledger)

    def close(self, verification: Verification) -> None:
        """Close it with the outcome and the gain, where one is named."""
        if self.ledger is None:
            return
        from timesink.verify.experiment import gain_ms
        from timesink.verify.ledger import Gain, close

        gain = gain_ms(verification)
        close(self.root / "ledger.jsonl", self.ledger, verification.verdict.outcome, Gain(*gain) if gain else None)


def verify(
    warm_up_pairs: Annotated[
        int,
        Option(
            "--warm-up-pairs",
            "N",
            "Pairs run first and not counted; 0 where caches are already warm.",
            least=0,
            rare=True,
        ),
    ] = 1,
    openmetrics: Annotated[Path | None, OPEN_METRICS] = None,
    *,
    entry: LedgerEntry,
    sides: Sides,
    times: StepTimeOptions,
    looks: Looks,
    session: RunSession,
    writing: GateOutput,
) -> int:
    """Tell whether a change made the steps faster or slower.

    Runs both sides in fresh processes, taking turns, and looks after 6, 12, 18 and 30 pairs. The programs need no
    edits: steps are found as `timesink capture` finds them and timed without a profiler; --whole compares programs
    without steps. Exits with 1 where the change is slower, or the speed-up of --at-least not proven; 4 where the two
    sides do different work; 3 (with --strict) if inconclusive; else 0.
    """
    target = writing.sink()
    entry.check()
    commands, source = sides.commands(), times.source()
    plan = replace(looks.plan(), warm_up_pairs=warm_up_pairs)
    from timesink.verify.experiment import verify
    from timesink.verify.gate import result_of

    with session.launcher(commands, source) as launcher:
        verification = verify(plan, launcher.launch, session.tell)
        result = result_of(verification, "", launcher)
    entry.close(verification)
    return writing.write(result, target, open_metrics=openmetrics)


def calibrate(
    program: Annotated[list[str] | None, PROGRAM] = None,
    runs: Annotated[int, Option("--runs", "N", "Runs that count; one more is made first and discarded.")] = 10,
    root: Annotated[Path, ROOT] = Path(".timesink"),
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
    from timesink.verify.limits import CALIBRATION_RUNS

    target = writing.sink()
    if runs < CALIBRATION_RUNS:
        raise UsageError(f"{runs} runs are too few", remedy=f"make at least {CALIBRATION_RUNS}")
    command = one_command(program)
    source = times.source()
    from timesink.verify import calibration
    from timesink.verify.environment import environment
    from timesink.verify.experiment import ExperimentPlan
    from timesink.views.verify import calibration_page

    here = environment(command)
    path = calibration.location(root, here, work.workload(command, times.facts))
    with session.launcher({"before": command, "after": command}, source) as launcher:
        begun_s = time.monotonic()
        rows = calibration.calibrate(lambda number: launcher.launch("before", number), runs, session.tell)
        run_s = (time.monotonic() - begun_s) / (runs + 1)
        notes = [launcher.watch.remark] if launcher.watch.remark else []
    if unsettled := sum(not row.settled for row in rows):
        notes.append(f"{unsettled} of {len(rows)} runs never settle; their second half was used")
    stored = calibration.store(path, here, command.text, rows)
    limit = ExperimentPlan().limit_here(stored.run_sd_ratio, stored.df)
    target.show(calibration_page(path, stored, limit, rows, notes, run_s))
    return 0


def list_entries(
    context: click.Context, root: Annotated[Path, ROOT] = Path(".timesink"), *, writing: PageOutput
) -> int | None:
    """Keep predictions and what became of them; without a command, list them."""
    if context.invoked_subcommand is not None:
        context.obj = root
        return None
    return _list(root, None, writing)


def show(
    context: click.Context,
    number: Annotated[int | None, Argument("N", "This entry alone.")] = None,
    *,
    writing: PageOutput,
) -> int:
    """List every hypothesis with its predicted and measured gain, and how good predictions are here."""
    return _list(context.obj, number, writing)


def _list(root: Path, number: int | None, writing: PageOutput) -> int:
    from timesink.verify import ledger

    entries = ledger.read(root / "ledger.jsonl")
    if number is not None:
        known = ", ".join(str(entry.number) for entry in entries) or "none yet: timesink verify --ledger add opens one"
        entries = [entry for entry in entries if entry.number == number]
        if not entries:
            raise UsageError(f"the ledger has no entry {number}", remedy=f"its entries: {known}")
    from timesink.views.verify import ledger_page

    writing.sink().show(ledger_page(entries))
    return 0


def add(
    context: click.Context,
    hypothesis: Annotated[str, Argument("HYPOTHESIS", "What should get faster, and why.")],
    finding: Annotated[
        str, Option("--finding", "CODE", "The finding it rests on.", complete=completion.rules, must=asked.rule)
    ] = "",
    predicted: Annotated[
        str | None, Option("--predicted", "LOW,VALUE,HIGH", "Milliseconds per step it should win.", must=asked.gain)
    ] = None,
    change: Annotated[str, Option("--change", "TEXT", "The commit, or what is changed.")] = "",
) -> int:
    """Open an entry, before the change is verified."""
    from timesink.diagnosis.rule_names import rule_called
    from timesink.verify import ledger

    code = rule_called(finding).code if finding else ""
    path = context.obj / "ledger.jsonl"
    entry = ledger.add(path, hypothesis, code, asked.gain(predicted) if predicted else None, change)
    sink(None, None, True).write(
        f"Entry {entry.number} is open in {path}. `timesink verify --ledger {entry.number}` closes it with what it "
        "measures.\n"
    )
    return 0


def close(
    context: click.Context,
    number: Annotated[int, Argument("N", "The entry.")],
    outcome: Annotated[
        Outcome, Option("--outcome", "OUTCOME", "slower, faster, 'no difference', inconclusive or invalid.")
    ],
    measured: Annotated[
        str | None,
        Option(
            "--measured",
            "BEFORE,AFTER",
            "Milliseconds of a step before and after it, or LOW,VALUE,HIGH that it won.",
            must=asked.gain,
        ),
    ] = None,
    change: Annotated[str, Option("--change", "TEXT", "The commit, or what is changed.")] = "",
) -> int:
    """Close an entry by hand; `timesink verify --ledger N` closes it with what it measured."""
    from timesink.verify import ledger

    path = context.obj / "ledger.jsonl"
    entry = ledger.close(path, number, outcome, asked.gain(measured) if measured else None, change=change)
    from timesink.views.verify import ledger_page

    sink(None, None, True).show(ledger_page([entry]))
    return 0


app = Commands("Keep predictions and what became of them.", {"show": show, "add": add, "close": close}, list_entries)
