"""A judge of changes that somebody else makes, and the next edit to make: for agents that edit by themselves.

The judge believes nothing that the change can reach. The program as it was is a commit that was judged before, never
what the one who is judged has committed since. Runs of it, and of the program as it lies, are made in a copy, in turns;
losses must agree and every weight must move as far, so that work that is left out is no gain.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from timesink.capture.errors import CaptureError
from timesink.recipes import Drift
from timesink.recipes.table import EDITS
from timesink.trials.apart import boxes_for_edits
from timesink.trials.records import Repair
from timesink.trials.repair import Repairs, runs_in
from timesink.trials.run import unheard
from timesink.trials.workplace import changed_since, open_workplace
from timesink.verify.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class JudgedChange:
    """What the judge says: "faster" alone is a gain, and `wins` is its share of the step, the least, and the most.

    `base` is the commit to judge the next change against: of a faster program its own, on a branch of the judge.
    Milliseconds are of a step.
    """

    outcome: str
    why: str
    base: str
    before_ms: float | None = None
    after_ms: float | None = None
    wins: tuple[float, float, float] | None = None


def judge_change(program: Sequence[str], base: str, drift: Drift, budget_s: float, scratch: Path) -> JudgedChange:
    """Whether the files of the current folder make a program faster than those of the commit `base`, where results may
    move by `drift`. `CaptureError` where the program as it was fails by itself."""
    until_s, names = time.monotonic() + budget_s, changed_since(base)
    if not names:
        return JudgedChange("unchanged", f"no file is otherwise than in {base}", base)
    with (
        boxes_for_edits(False) as box,
        closing(open_workplace("timesink-judge", None, scratch / "tree", base, box)) as workplace,
        closing(runs_in(workplace, program, scratch, [workplace.folder / name for name in names])) as runs,
    ):
        changes = {workplace.folder / name: _sides(workplace.folder / name, Path.cwd() / name) for name in names}
        if any(map(_speaks_of_judge, (line for texts in changes.values() for line in _added(*texts)))):
            return JudgedChange("refused", "the change speaks of the judge, or sets a clock", base)
        state = Repairs(runs, workplace, (), unheard, [runs.fixed(), runs.fixed()])
        shown = state.shown(changes, until_s)
        repair = Repair("change", ", ".join(map(str, names)), "taken back", "", "")
        try:
            repair, verdict = state.prove(repair, shown, drift)
        except CaptureError as error:
            return JudgedChange("refused", f"the program with the change fails: {error}"[:300], base)
        outcome = "refused" if verdict is None else verdict.outcome.value
        judged = JudgedChange(outcome, repair.why, base, repair.before_ms, repair.after_ms)
        if outcome != Outcome.FASTER or repair.effect is None:
            return judged
        shown.write("after")
        effect = repair.effect
        wins = 1 - effect.ratio, 1 - effect.high, 1 - effect.low
        why = f"{repair.pairs} pairs of fresh processes in turns; losses and weights agree"
        return replace(judged, why=why, wins=wins, base=workplace.keep(f"Judged faster: {repair.where}\n", changes))


def _sides(was: Path, now: Path) -> tuple[bytes | None, bytes | None]:
    """A file's bytes before and after; None where it was not, or is not."""
    before = was.read_bytes() if was.is_file() and not was.is_symlink() else None
    return before, now.read_bytes() if now.is_file() else None


def _added(before: bytes | None, after: bytes | None) -> set[bytes]:
    return {*(after or b"").splitlines()} - {*(before or b"").splitlines()}


def _speaks_of_judge(line: bytes) -> bool:
    """Whether a line names timesink, or sets a function of `time`."""
    text = line.replace(b" ", b"").lower()
    sets_clock = text.startswith((b"time.", b"setattr(time,")) and (b"=" in text or b"setattr" in text)
    return b"timesink" in text or sets_clock


def next_edit(program: Sequence[str], names: Sequence[str], scratch: Path) -> Repair | None:
    """The dearest edit of these fixes that the program's source has a place for; nothing is edited."""
    with (
        boxes_for_edits(False) as box,
        closing(open_workplace("timesink-next", None, scratch / "tree", box=box)) as workplace,
        closing(runs_in(workplace, program, scratch)) as runs,
    ):
        return Repairs(runs, workplace, names, unheard).next_edit()


def main() -> None:
    """`judged.py FILE next SKIPPED -- PROGRAM` or `judged.py FILE judge BASE DRIFT SECONDS -- PROGRAM`: writes JSON."""
    at = sys.argv.index("--")
    (file, what, *given), program = sys.argv[1:at], sys.argv[at + 1 :]
    answer: Any
    with TemporaryDirectory(prefix="timesink-judge-") as folder:
        scratch = Path(folder).resolve()
        if what == "next":
            skipped = given[0].split(",")
            answer = next_edit(program, [name for name in EDITS if name not in skipped], scratch)
        else:
            base, drift, seconds = given
            answer = judge_change(program, base, drift, float(seconds), scratch)  # type: ignore[arg-type]
    Path(file).write_text(json.dumps(answer and asdict(answer)), encoding="utf-8")


if __name__ == "__main__":
    main()
