"""`timesink try`: switch changes on and off in a running program, and say what each wins there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from timesink.cli.capture import translated
from timesink.cli.options import PageOutput
from timesink.errors import UsageError

NOTHING_WINS = 1


def try_changes(
    program: list[str] | None = None,
    only: list[str] | None = None,
    budget: float = 180.0,
    quiet: bool = False,
    *,
    writing: PageOutput,
) -> int:
    """Measure what changes win in a running program, and which to keep.

    The program is an unmodified one that uses PyTorch. Each change is switched on and off while it runs and timed in
    turns with the program as it is. What wins is put together and run again in fresh processes, where losses are held
    against those of the program as it is. Exit code 0: something wins; 1: nothing does.
    """
    from timesink.trials.run import try_changes as run_trial
    from timesink.trials.switches import SWITCHES
    from timesink.untrusted.masking import stored_command
    from timesink.views.trial import trial_page

    if not program:
        raise UsageError("no program to try changes on", remedy="write it after --, such as: -- python train.py")
    names = [name.strip() for part in only or () for name in part.split(",") if name.strip()]
    if absent := [name for name in names if name not in SWITCHES]:
        raise UsageError(f"{absent[0]!r} is no change that can be tried", remedy=f"choose from {', '.join(SWITCHES)}")
    with translated(), TemporaryDirectory(prefix="timesink-try-") as folder:
        answer = run_trial(program, Path(folder), names=names, budget_s=budget, quiet=quiet)
    writing.sink([]).show(trial_page(answer, stored_command(program)))
    return 0 if answer.kept else NOTHING_WINS
