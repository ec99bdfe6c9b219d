"""`timesink loop --plan`, rung by rung: the plan of the newest capture, its first rung opened in a ledger with what is
foretold of it, and with `--made` a capture of the program with that rung made.

    DIR/torch                    the program as it was
    DIR/rung-1/torch, rung-2 …   with one more rung made
    DIR/ledger.jsonl             one entry a rung, opened before it was made
    DIR/plan.md, DIR/plan.json   the plan of the newest capture
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.capture.recorded_run import MANIFEST
from timesink.errors import UsageError
from timesink.model.presentable import Origin
from timesink.model.record import dataclass, replace
from timesink.render import Format, Style
from timesink.untrusted.whole_file import write_whole

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.verify.ledger import Entry
    from timesink.views.page import Page
    from timesink.views.plan import Plan
    from timesink.views.plan.climbed import Climbed

LEDGER = "ledger.jsonl"


@dataclass(frozen=True, slots=True)
class Rungs:
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
            raise UsageError("no rung is open that could be made", remedy="run it without --made: it opens the next")
        return self.folder(self.made + 1)

    def newest(self, first: Diagnosis | None) -> tuple[Trace, Diagnosis]:
        """The newest capture and its diagnosis, which of the program as it was is `first`."""
        from timesink.diagnosis.engine import diagnose

        trace = self.read(self.folder(self.made))
        return trace, first if first is not None and not self.made else diagnose(trace)

    def page(self, trace: Trace, diagnosis: Diagnosis, origin: Origin, again: str) -> Page:
        """The plan of the newest capture, which is kept, beside all rungs so far; its first rung is opened. `again` is
        the command to give once that is made."""
        from timesink.render import written
        from timesink.views.plan import page_of, plan
        from timesink.views.plan.climbed import climbed_sheet

        number, ladder = self.made, plan(trace, diagnosis)
        self._open(ladder, number)
        page, rungs = page_of(ladder, trace.source), self._climbed(ladder, number)
        if rungs:
            page = replace(page, sheets=(climbed_sheet(rungs), *page.sheets))
        page = replace(page, notes=(*page.notes, self._next(ladder, again)))
        for name, form in (("plan.md", Format.MD), ("plan.json", Format.JSON)):
            write_whole(self.out / name, written(page, form, Style(origin=origin)))
        return page

    def _open(self, ladder: Plan, number: int) -> None:
        """Open the first rung, once: from here on what is foretold of it stands."""
        from timesink.verify.ledger import Gain, add

        if not ladder.rungs or len(self.entries) > number:
            return
        rung = ladder.rungs[0]
        gain = Gain(rung.gain.value, rung.gain.low or 0.0, rung.gain.most, rung.before_ms)
        add(self.out / LEDGER, rung.fix.what_to_type, " ".join(rung.findings), gain, rung.id)

    def _climbed(self, ladder: Plan, made: int) -> list[Climbed]:
        """The rungs by the ledger: a step after one is the step before the next, and the last one is the plan's."""
        from timesink.views.plan.climbed import Climbed

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
            return "no rung is left to make"
        rung = ladder.rungs[0]
        place = f" (at {rung.place.where})" if rung.place.where else ""
        return f"next: {rung.fix.what_to_type}{place}; then {again}"
