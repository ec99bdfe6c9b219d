"""`timesink fix`: edit a program where it loses time, in a copy, prove each edit, and keep those that win."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from timesink.cli.capture import translated
from timesink.cli.options import PageOutput
from timesink.cli.output import tell
from timesink.cli.trial import NOTHING_WINS, chosen_names, seconds
from timesink.errors import UsageError


def fix(
    program: list[str] | None = None,
    only: list[str] | None = None,
    budget: str = "10m",
    copy: Path | None = None,
    apply: bool = False,
    quiet: bool = False,
    *,
    writing: PageOutput,
) -> int:
    """Edit a program where it loses time, in a copy, and prove each edit.

    For PyTorch. The copy is a work tree on a branch of its own in a git repository, else a folder with one. An edit is
    run, its losses are held against those before it, and runs of both in turns decide. What is kept is a commit. What
    cannot be proven safe is offered, not made. Exit code 0: an edit is kept; 1: none is.
    """
    from timesink.trials.repair import RepairOrder, fix_program
    from timesink.trials.workplace import is_repository, open_workplace
    from timesink.untrusted.masking import stored_command
    from timesink.views.repair import repair_page

    if not program:
        raise UsageError("no program to fix", remedy="write it after --, such as: -- python train.py")
    asked = RepairOrder(chosen_names(only), seconds(budget), quiet, partial(tell, quiet=quiet))
    with translated(), TemporaryDirectory(prefix="timesink-fix-") as scratch:
        tree = Path(scratch).resolve() / "tree"
        workplace = open_workplace("timesink-fix", copy, tree if copy is None and is_repository() else None)
        try:
            answer = fix_program(program, workplace, Path(scratch), asked)
            applied = workplace.apply() if apply else []
        finally:
            workplace.close()
    place = f"The edits are on the branch {workplace.branch}" + (
        "" if workplace.is_work_tree else f" in {workplace.folder}"
    )
    notes = [f"written into {file}" for file in applied]
    writing.sink(notes).show(
        repair_page(answer, stored_command(program), place if answer.kept else "Nothing is edited")
    )
    return 0 if answer.kept else NOTHING_WINS
