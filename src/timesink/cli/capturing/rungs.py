"""The steps of a plan that a loop has made, as its folder and ledger hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.capture.recorded_run import MANIFEST
from timesink.errors import UsageError
from timesink.model.presentable import Origin
from timesink.records import Record, replace
from timesink.render import Format, Style, written
from timesink.untrusted.whole_file import write_whole

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.verify.ledger import Entry
    from timesink.views import Page
    from timesink.views.plan import Climbed, Plan


LEDGER = "ledger.jsonl"


class Rungs(Record):
    """The ladder of one folder. `read` gives the trace of a capture's folder with what is known of the run."""

    out: Path
    read: Callable[[Path], Trace]

    def folder(self, number: int) -> Path:
        """Where the capture with so many rungs made lies."""
        return (self.out / f"rung-{number}" if number else self.out) / "torch"

    @property
    def entries(self) -> list[Entry]:
        """The rungs that were opened."""
        from timesink.verify.ledger import read

        return read(self.out / LEDGER)

    @property
    def made(self) -> int:
        """How many of them were made and captured."""
        count = 0
        while (self.folder(count + 1) / MANIFEST).is_file():
            count += 1
        return count

    def next_folder(self) -> Path:
        """Where the capture with the open rung made belongs. `UsageError` where none is open."""
        if len(self.entries) <= self.made:
            raise UsageError(
                "no step of the plan is open that could be made", remedy="run it without --made: it opens the next"
            )
        return self.folder(self.made + 1)

    def newest(self, first: Diagnosis | None) -> tuple[Trace, Diagnosis]:
        """The newest capture and its diagnosis, which of the program as it was is `first`."""
        from timesink.diagnosis.engine import diagnose

        trace = self.read(self.folder(self.made))
        return trace, first if first is not None and not self.made else diagnose(trace)

    def page(self, trace: Trace, diagnosis: Diagnosis, origin: Origin, again: str) -> Page:
        """The plan of the newest capture, which is kept, beside all rungs so far; its first rung is opened. `again` is
        the command to give once that is made."""
        from timesink.views.plan import climbed_sheet, page_of, plan

        number, ladder = self.made, plan(trace, diagnosis)
        self._open(ladder, number)
        page, rungs = page_of(ladder, trace.source), self._climbed(ladder, number)
        if rungs:
            page = replace(page, sheets=(climbed_sheet(rungs), *page.sheets))
        page = replace(page, notes=(*page.notes, self._next(ladder, again)))
        write_stage(self.out / "plan", page, origin)
        return page

    def _open(self, ladder: Plan, number: int) -> None:
        """Open the first rung, once: from here on what is foretold of it stands."""
        from timesink.verify.ledger import Gain, add

        if not ladder.rungs or len(self.entries) > number:
            return
        rung = ladder.rungs[0]
        gain = Gain(rung.gain.value, rung.gain.low or 0.0, rung.gain.most, rung.before_ms)
        add(self.out / LEDGER, rung.fix.title, " ".join(rung.findings), gain, rung.id)

    def _climbed(self, ladder: Plan, made: int) -> list[Climbed]:
        """The rungs by the ledger: a step after one is the step before the next, and the last one is the plan's."""
        from timesink.views.plan import Climbed

        opened = [(entry, entry.predicted) for entry in self.entries]
        before = [gain.before_ms or 0.0 for _, gain in opened if gain is not None]
        after = [*before[1:], ladder.step_ms][:made] if len(before) == made else before[1 : made + 1]
        found = []
        for at, (entry, gain) in enumerate(opened):
            if gain is not None:
                ends = (before[at] - gain.high_ms, before[at] - gain.value_ms, before[at] - gain.low_ms)
                measured = after[at] if at < len(after) else None
                found.append(Climbed(entry.number, entry.change, before[at], *ends, measured))
        return found

    @staticmethod
    def _next(ladder: Plan, again: str) -> str:
        if not ladder.rungs:
            return "no step of the plan is left to make"
        rung = ladder.rungs[0]
        place = f" (at {rung.place.where})" if rung.place.where else ""
        return f"next: {rung.fix.title}{place}; then {again}"


def write_stage(stem: Path, shown: Diagnosis | Page, origin: Origin) -> None:
    """What is shown, for people and for programs: two files of that name."""

    for form in (Format.MD, Format.JSON):
        write_whole(stem.with_suffix(f".{form.value}"), written(shown, form, Style(origin=origin)))
