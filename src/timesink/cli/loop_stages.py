"""The stages of `timesink loop`: each is made once, and taken from its folder when the loop runs again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.capture.captured import MANIFEST, Capture
from timesink.cli.experiment_setup import tell
from timesink.findings import Limit

if TYPE_CHECKING:
    from timesink.findings import Diagnosis
    from timesink.model.trace import Trace

UNEXPLAINED = Limit(
    default=0.05,
    unit="ratio",
    why="idle time that torch.profiler sees no cause for is worth another run from a twentieth of the step on",
    source="below it, all of it recovered would be hard to tell from run-to-run noise with a handful of runs",
)
KERNEL_SHARE = Limit(
    default=0.05,
    unit="ratio",
    why="a kernel below a twentieth of the step cannot repay a replay of forty passes, however slow it is",
    source="Amdahl: 5 % of the step is the most that it could win",
)
MOST_KERNELS = 3
_UNTRACED = ("untraced", "unexplained")


@dataclass(frozen=True, slots=True)
class Stage:
    """One capture of the loop, or why it was not made."""

    name: str
    capture: Capture | None
    why: str
    resumed: bool = False


@dataclass(slots=True)
class Stages:
    """The loop's folder. `make` captures unless the stage's manifest is there; a broken attempt is moved aside."""

    folder: Path
    done: list[Stage] = field(default_factory=list)

    def make(self, name: str, why: str, capture: Callable[[Path], Capture]) -> Capture:
        """The stage's capture: taken up if it exists, else made now."""
        place = self.folder / name
        resumed = (place / MANIFEST).is_file()
        tell(f"loop: {name}: {'taken from ' + str(place) if resumed else why}")
        if not resumed and place.exists():
            place.rename(_free_name(place))
        found = Capture.load(place) if resumed else capture(place)
        self.done.append(Stage(name, found, why, resumed))
        return found

    def skip(self, name: str, why: str) -> None:
        """The stage is not needed, or cannot be made."""
        tell(f"loop: {name}: left out: {why}")
        self.done.append(Stage(name, None, why))


def unexplained_share(trace: Trace) -> float:
    """The largest share of a step that a device is idle without a cause in the trace."""
    from timesink.measures.blamed_time import blamed_time

    return max((part.share for part in blamed_time(trace, _UNTRACED)), default=0.0)


def kernels_worth_it(trace: Trace) -> tuple[str, ...]:
    """Patterns of the few kernels that take enough of a step to be looked into, the longest first."""
    from timesink.measures.kernel_targets import kernel_targets

    worth = [target for target in kernel_targets(trace) if target.step_ratio >= KERNEL_SHARE.default]
    return tuple(target.pattern.removeprefix("regex:") for target in worth[:MOST_KERNELS])


def with_kernels(timeline: Trace, profiled: Trace) -> Trace:
    """The timeline, and the profiled kernels of its rank 0 beside it: one run of the program twice, not two ranks."""
    from dataclasses import replace

    import polars as pl

    from timesink.model.tables import DEVICES, SOURCES

    added = {table: profiled[table] for table in profiled if table not in timeline}
    both = {table: pl.concat([timeline.get(table), profiled.get(table)]) for table in (SOURCES, DEVICES)}
    filled = both[DEVICES].group_by("rank", "device").agg(pl.all().drop_nulls().last())  # each knows other facts
    added |= {SOURCES: both[SOURCES], DEVICES: DEVICES.check(filled.sort("rank", "device"))}
    return replace(timeline, tables={**timeline.tables, **added}, notes=(*timeline.notes, *profiled.notes))


def joined(first: Diagnosis, second: Diagnosis | None) -> Diagnosis:
    """The first diagnosis, with what the second can decide and it cannot. One ruling per rule, as before."""
    from dataclasses import replace

    from timesink.findings import NotApplicable, Undecided

    if second is None:
        return first
    other = {ruling.card.code: ruling for ruling in second.rulings}
    rulings, taken = [], []
    for ruling in first.rulings:
        instead = other.get(ruling.card.code)
        open_here = isinstance(ruling.verdict, Undecided)
        if open_here and instead is not None and not isinstance(instead.verdict, Undecided | NotApplicable):
            rulings.append(instead)
            taken.append(ruling.card.code)
        else:
            rulings.append(ruling)
    findings = [*first.findings, *(entry for entry in second.findings if entry[0].code in taken)]
    findings.sort(key=lambda entry: (-_worth(entry[1]), entry[0].code, entry[1].message))
    notes = (
        f"decided by the nsys capture: {', '.join(taken)}" if taken else "the nsys capture decides no further rule",
        f"the nsys capture by itself says: {second.statement}",
    )
    sources = (*first.sources, *second.sources)
    return replace(
        first, rulings=tuple(rulings), findings=tuple(findings), sources=sources, notes=(*first.notes, *notes)
    )


def stored_stages(stages: Stages) -> str:
    """What was made and why, as JSON, for `loop.json`."""
    rows = [
        {
            "stage": stage.name,
            "why": stage.why,
            "resumed": stage.resumed,
            "folder": None if stage.capture is None else stage.capture.folder.name,
            "overhead_ratio": None if stage.capture is None else stage.capture.overhead_ratio,
            "missing": [] if stage.capture is None else list(stage.capture.missing),
        }
        for stage in stages.done
    ]
    return json.dumps(rows, indent=1) + "\n"


def _worth(finding: object) -> float:
    worth = getattr(finding, "recoverable", None)
    return 0.0 if worth is None else float(worth.value)


def _free_name(place: Path) -> Path:
    number = 1
    while (aside := place.with_name(f"{place.name}.incomplete-{number}")).exists():
        number += 1
    return aside
