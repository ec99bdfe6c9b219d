"""Runs of one program apart from the user's files: each in a box of its own, forked where that can be."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

from timesink.capture.errors import failure
from timesink.capture.processes import end_group
from timesink.errors import UsageError
from timesink.sandbox.runs import BoxedRun, Grants, NoSandbox, Sandbox, Shown
from timesink.trials.ahead import ReadyProgram, can_stand_ready
from timesink.trials.records import TrialResult

KEPT_APART: Final = (
    "Files are kept apart: whatever the program writes is thrown away. Uploads are not: trackers are set to offline, "
    "and what the program sends by itself is sent once in each run."
)
"""What is said before the first run."""


@contextmanager
def boxes_for_edits(has_copy: bool) -> Iterator[Sandbox | None]:
    """A sandbox for runs in the current folder; None where there is none and runs are made in a copy. `UsageError`
    where there is neither."""
    try:
        box = Sandbox.open(Path.cwd())
    except NoSandbox as why:
        if not has_copy:
            raise UsageError(
                f"this machine lets no program be run apart from your files ({why})",
                remedy="work in a copy with --copy DIR: what the program names by full paths outside of it is written",
            ) from why
        yield None
        return
    try:
        yield box
    finally:
        box.close()


class ProgramApart:
    """Starts runs of a program in a box, one at a time; `shown` says which files each finds otherwise, and `own` which
    path of ours a path of a run means. What it records for us goes to the folder `records`. `begun` is set by each run
    that has begun: what is shown to it is settled then."""

    def __init__(
        self, program: Sequence[str], box: Sandbox, records: Path, shown: Callable[[], Shown] = dict,
        own: Callable[[Path], Path] = lambda path: path,
    ) -> None:  # fmt: skip
        self._program, self._box, self._records, self._shown, self._own = program, box, records, shown, own
        self._ready: ReadyProgram | None = None
        self.last: BoxedRun | None = None
        self.begun = Event()

    def start(self, variables: Mapping[str, str], output: int, *, afresh: bool = False) -> BoxedRun:
        """Begin a run with these variables beside ours, in an interpreter of its own if `afresh`; what the last one
        wrote goes. `CaptureError` if it cannot."""
        self._forget()
        given, asked = {**os.environ, **variables}, Grants(self._shown(), [self._records])
        try:
            if self._ready is not None and not afresh and self._ready.is_ready():
                self.last = self._ready.start_boxed(given, output, asked)
            else:
                self.last = self._box.start(self._program, given, output=output, asked=asked)
        except NoSandbox as why:
            raise failure(f"the program cannot be run apart from your files: {why}", "run it alone") from why
        self.begun.set()
        return self.last

    def end(self) -> None:
        """End the run that goes on, if one does."""
        if self.last is not None:
            end_group(self.last, 0.0)

    def hold_to(self, log: Path) -> None:
        """`CaptureError` where the last run, which said what is in the log, was refused a write: it proves nothing."""
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        if refused := self.last is not None and next(iter(self.last.denied(said)), ""):
            raise failure(f"the program was refused a write: {refused}"[:400], "let it write below its folder")

    def name_as_ours(self, result: TrialResult) -> None:
        """Name files as they are named outside of the run."""
        result.files = [str(self._ours(name)) for name in result.files]
        places = {name: place.rpartition(":") for name, place in result.places.items() if place}
        result.places = {name: f"{self._ours(file)}:{line}" for name, (file, _, line) in places.items()}

    def _ours(self, name: str) -> Path:
        return self._own(self._box.own(Path(name)))

    def stand_ready(self, changed: Sequence[str]) -> None:
        """Fork from now on, where namespaces allow it and no variable was changed before PyTorch was imported."""
        if self._ready is None and self._box.way != "landlock" and can_stand_ready(self._program, changed):
            self._ready = ReadyProgram(self._program, None, self._records, self._box)

    def close(self) -> None:
        """End what stands ready, and forget what was written."""
        self._forget()
        if self._ready is not None:
            self._ready.close()

    def _forget(self) -> None:
        if self.last is not None:
            self.last.close()
            self.last = None
