"""`timesink try`: switch changes on and off in a running program, and say what each wins there. `plan machine`: what
this host and its GPU take, whatever program runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from timesink.cli import asked, completion
from timesink.cli.capturing.captured import translated
from timesink.cli.options import ALLOW_WRITES, PROGRAM, QUIET, PageOutput
from timesink.cli.output import tell
from timesink.cli.parameters import Option

if TYPE_CHECKING:
    from timesink.trials.records import TrialAnswer

NOTHING_WINS = 1
SIGNALLED = 128  # and the signal's number, as shells say it


def try_changes(
    program: Annotated[list[str] | None, PROGRAM] = None,
    only: Annotated[
        list[str] | None,
        Option(
            "--only",
            "NAMES",
            "Try these changes only, with commas between; may be repeated.",
            complete=completion.switches,
            must=asked.switches,
        ),
    ] = None,
    budget: Annotated[
        str, Option("--budget", "TIME", "Time for everything: seconds, or minutes as 3m.", must=asked.budget)
    ] = "3m",
    check: Annotated[
        str,
        Option(
            "--check", "MODULE:FUNCTION", "Makes a number of what the model returns, where the program has no loss."
        ),
    ] = "",
    ledger: Annotated[
        Path | None,
        Option("--enter", "FILE", "Enter what is kept into this ledger, with what it won."),
    ] = None,
    allow_writes: Annotated[bool, ALLOW_WRITES] = False,
    quiet: Annotated[bool, QUIET] = False,
    *,
    writing: PageOutput,
) -> int:
    """Measure what changes win in a running program, and which to keep.

    The program is an unmodified one that uses PyTorch. Each change is switched on and off while it runs and timed in
    turns with the program as it is. What wins is put together and run again in fresh processes, where losses are held
    against those of the program as it is. When the budget is over, or at an interrupt, what was measured is shown. Exit
    code 0: something wins; 1: nothing does; 128 and the signal's number: it was ended.
    """
    words = asked.program(program, "try changes on")
    began_s = time.monotonic()
    from timesink.trials.apart import KEPT_APART
    from timesink.trials.course import try_changes as run_trial
    from timesink.untrusted.masking import stored_command
    from timesink.verify.environment import boxes
    from timesink.views.trial import trial_page

    with translated(), boxes(allow_writes) as box:
        if box is not None:
            tell(KEPT_APART, quiet)
        names, budget_s = chosen_names(only), asked.budget(budget)
        left_s, told = _left(budget_s, began_s), _told_by("try", quiet)
        answer = run_trial(words, names=names, budget_s=left_s, check=check, tell=told, box=box)
    notes = []
    if ledger is not None and answer.kept:
        notes.append(f"entered in {ledger}: {_enter(ledger, answer)}")
    writing.sink(notes).show(trial_page(answer, stored_command(words)))
    return SIGNALLED + answer.signal if answer.signal else 0 if answer.kept else NOTHING_WINS


def machine(*, writing: PageOutput) -> int:
    """Measure this host and its GPU, for the prices of every plan.

    What operators, casts, hooks, CUDA graphs and compiled regions cost the CPU, bandwidths, and products of matrices by
    size and type: about a minute, on the first GPU. It is kept in the user's cache folder for this GPU, driver, version
    of PyTorch and CPU; `timesink plan TRACE` then uses it for traces of such a GPU.
    """
    from timesink.trials.prices import calibrate_machine
    from timesink.views.trial import machine_page

    target = writing.sink()
    with translated():
        file, found = calibrate_machine()
    target.show(machine_page(file, found))
    return 0


def chosen_names(only: list[str] | None) -> list[str]:
    """The names of `--only`, with commas between them or one by one."""
    return [name for part in only or () for name in asked.names_of(part)]


def _left(budget_s: float, began_s: float) -> float:
    """What is left of a budget that began then: on a busy machine libraries take seconds to be loaded."""
    return max(budget_s - (time.monotonic() - began_s), 0.0)


def _told_by(verb: str, quiet: bool) -> Callable[[str], None]:
    """Tells what a command is at, under its name."""
    return lambda line: tell(f"{verb}: {line}", quiet)


def _enter(path: Path, answer: TrialAnswer) -> int:
    """The number of a ledger entry for what is kept, with what it won in processes of its own; nothing was foretold of
    it together."""
    from timesink.verify.ledger import Gain, add, close
    from timesink.verify.outcomes import Outcome

    proof = answer.confirmed[answer.kept]
    pairs = [before - after for before, after in zip(proof.base_ms, proof.with_ms, strict=False)]
    gain = Gain(sum(pairs) / len(pairs), min(pairs), max(pairs), proof.mean_base_ms)
    entry = add(path, " + ".join(answer.kept), "timesink try", change=" ".join(answer.kept))
    return close(path, entry.number, Outcome.FASTER, gain, "measured by timesink try").number


def fix(
    program: Annotated[list[str] | None, PROGRAM] = None,
    only: Annotated[
        list[str] | None,
        Option(
            "--only",
            "NAMES",
            "Make these edits only, with commas between; may be repeated.",
            complete=completion.edits,
            must=asked.edits,
        ),
    ] = None,
    budget: Annotated[
        str, Option("--budget", "TIME", "Time for everything: seconds, or minutes as 10m.", must=asked.budget)
    ] = "10m",
    copy: Annotated[
        Path | None,
        Option("--copy", "DIR", "Work in a copy of this folder there [default: a work tree, where git has one]."),
    ] = None,
    apply: Annotated[bool, Option("--apply", "", "Write what is kept into the program's own files too.")] = False,
    quiet: Annotated[bool, QUIET] = False,
    *,
    writing: PageOutput,
) -> int:
    """Edit a program where it loses time, in a copy, and prove each edit.

    For PyTorch. The copy is a work tree on a branch of its own in a git repository, else a folder with one. An edit is
    run, its losses are held against those before it, and runs of both in turns decide. What is kept is a commit. What
    cannot be proven safe is offered, not made. Exit code 0: an edit is kept; 1: none is.
    """
    words = asked.program(program, "fix")
    began_s = time.monotonic()
    from timesink.sandbox.runs import hold
    from timesink.trials.apart import KEPT_APART, boxes_for_edits
    from timesink.trials.repair import RepairOrder, fix_program
    from timesink.trials.workplace import head, open_workplace
    from timesink.untrusted.masking import stored_command
    from timesink.views.trial import repair_page

    names, budget_s = chosen_names(only), asked.budget(budget)
    with (
        translated(),
        TemporaryDirectory(prefix=f"timesink-fix-{os.getpid()}-") as scratch,
        boxes_for_edits(copy is not None) as box,
    ):
        hold(Path(scratch))
        tell(KEPT_APART, quiet)
        tree = Path(scratch).resolve() / "tree"
        workplace = open_workplace("timesink-fix", copy, tree if copy is None and head() else None, box=box)
        try:
            order = RepairOrder(names, _left(budget_s, began_s), _told_by("fix", quiet))
            answer = fix_program(words, workplace, Path(scratch).resolve(), order)
            applied = workplace.apply() if apply else []
        finally:
            workplace.close()
    where = "" if workplace.is_work_tree else f" in {workplace.folder}"
    place = f"The edits are on the branch {workplace.branch}{where}" if answer.kept else "Nothing is edited"
    notes = [f"written into {file}" for file in applied]
    writing.sink(notes).show(repair_page(answer, stored_command(words), place))
    return 0 if answer.kept else NOTHING_WINS
