"""Prices that were measured: what the operators of a trace take in the form that a change gives them, in place of what
`table.md` and the assumptions say of all programs.

`trials.prices` asks for them and runs the operators; here they are put into the changes that a plan replays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

import numpy as np

from timesink.knowledge.assumptions import ALL
from timesink.model.arrays import Float64Array, Int64Array
from timesink.records import Record, field, replace
from timesink.whatif import Change, Range
from timesink.whatif.changes.kernels import FuseOptimizer, OfKernels, ShortenKernels

Origin = Literal["measured here", "measured for this GPU"]
MINDED: Final = {"compile": "compile", "compile_graph": "compile", "bf16": "bf16", "fp16": "fp16"}
"""Changes beside which the kernels of others are others, and what they make of them."""


class MeasuredKernels(Record, eq=False):
    """Kernels of a (rank, device) in the form that a fix gives them: `keep[n]` is the share of its time that each of
    the sorted `rows` of `device_ops` keeps in case n, as of `ShortenKernels`. `host_us` is what the host then needs for
    all that a step launches of them, where that was measured."""

    device: tuple[int, int]
    rows: Int64Array
    keep: tuple[Float64Array, ...]
    host_us: Range | None = None


class MeasuredForm(Record):
    """What was measured of one fix, in ns of the device per step: the kernels it alters, how much of their time was run
    anew, what that takes as recorded in the trace, as recorded in the bench, and changed in the bench."""

    fix: str
    origin: Origin
    altered_ns: float
    traced_ns: float
    bench_ns: float
    changed_ns: float

    @property
    def scale(self) -> float | None:
        """What the trace took over what the bench took for the same."""
        return self.traced_ns / self.bench_ns if self.bench_ns else None


class MeasuredPrices(Record, eq=False):
    """What was measured for a trace: kernels by fix, and by the fix and what another one makes of them (`MINDED`);
    figures in place of assumptions by their names; the forms for people; and, where nothing could be measured, why."""

    kernels: Mapping[str, MeasuredKernels] = field(default_factory=dict)
    beside: Mapping[tuple[str, str], MeasuredKernels] = field(default_factory=dict)
    figures: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    forms: tuple[MeasuredForm, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""

    def applied(self, fix: str, parts: tuple[Change, ...], beside: Collection[str]) -> tuple[Change, ...]:
        """The changes of a fix with what was measured of their kernels; those of which nothing was stay as they are."""
        found = self.kernels.get(fix)
        for other in sorted({MINDED[name] for name in beside if name in MINDED}):
            found = self.beside.get((fix, other), found)
        if found is None:
            return parts
        own = [at for at, part in enumerate(parts) if getattr(part, "device", None) == found.device]
        if not own:
            return parts
        holds = [at for at in own if np.isin(found.rows, getattr(parts[at], "rows", ())).any()]
        chosen = (holds or own)[0]
        return tuple(_with(part, found) if at == chosen else part for at, part in enumerate(parts))

    @contextmanager
    def assumed(self) -> Iterator[None]:
        """Take the measured figures for those assumptions that nobody has set."""
        own = [(ALL[name], figures) for name, figures in self.figures.items() if not ALL[name].changed]
        before = [(one.low, one.value, one.high) for one, _ in own]
        try:
            for one, figures in own:
                one.low, one.value, one.high = figures
            yield
        finally:
            for (one, _), figures in zip(own, before, strict=True):
                one.low, one.value, one.high = figures


def _with(part: Change, found: MeasuredKernels) -> Change:
    if isinstance(part, FuseOptimizer) and found.host_us is not None:
        part = replace(part, fixed_us=found.host_us, per_launch_us=Range.exact(0.0))
    if isinstance(part, OfKernels):
        return replace(part, kernels=_shortened(part.kernels, found))
    return _shortened(part, found) if isinstance(part, ShortenKernels) else part


def _shortened(part: ShortenKernels, found: MeasuredKernels) -> ShortenKernels:
    """Measured kernels keep what was measured; one that may get shorter `beside` the others does so once."""
    rows = np.union1d(part.rows, found.rows)
    own, measured = np.searchsorted(rows, part.rows), np.searchsorted(rows, found.rows)
    keep = []
    for assumed, known in zip(part.keep, found.keep, strict=True):
        share = np.ones(rows.size)
        share[own], share[measured] = assumed, known  # in this order
        keep.append(share)
    beside = part.beside
    if beside is not None:
        again = np.isin(beside.rows, found.rows)
        beside = replace(beside, keep=tuple(np.where(again, 1.0, share) for share in beside.keep))
    return replace(part, rows=rows, keep=tuple(keep), beside=beside)
