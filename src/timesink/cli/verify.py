"""`timesink verify`: did one change help?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.cli import experiment_options as given
from timesink.cli import options
from timesink.cli.experiment_setup import plan, session, step_source, tell, two_commands
from timesink.cli.gate_output import Files, write
from timesink.cli.output import sink

if TYPE_CHECKING:
    from timesink.experiments.verify import Verification


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
    form: options.Form = None,
    output: options.Output = None,
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
    from timesink.experiments.verify import to_result, verify

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
    from timesink.experiments import ledger
    from timesink.experiments.verify import gain_ms

    measured = gain_ms(done)
    gain = ledger.Gain(*measured) if measured else None
    ledger.close(root / "ledger.jsonl", number, done.verdict.outcome, gain)
