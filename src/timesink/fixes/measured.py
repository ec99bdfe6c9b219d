"""Prices that were measured: what the operators of a trace take in the form that a change gives them, in place of what
the rows and the assumptions say of all programs.

`trials.prices` asks for them and runs the operators; here they are put into the changes that a plan replays.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal

import numpy as np

from timesink.fixes import BenchForm
from timesink.fixes.table import BY_NAME, FIXES
from timesink.knowledge.assumptions import ALL
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.records import Record, field, replace
from timesink.whatif import Case, Change, Figure, Range
from timesink.whatif.changes.host import FeedLoader
from timesink.whatif.changes.kernels import EnterRegions, FuseOptimizer, OfKernels, ShortenKernels, UnderAutocast

Origin = Literal["measured here", "measured for this GPU"]
MINDED: Final = {fix.name: fix.bench.makes for fix in FIXES if fix.bench.makes}
"""Changes beside which the kernels of others are others, and what they make of them."""
FALLBACKS: Final = {
    "kernels that were run": (
        "tf32_of_peaks", "tf32_peaks", "bf16_of_tf32", "bf16_of_fp32", "fp16_of_fp32", "autocast_of_tf32",
        "autocast_of_fp32", "autocast_streaming", "aligned_by_name", "aligned_since_hopper", "layout_converters",
        "attention_products", "attention_between", "attention_wide", "optimizer_kernels", "foreach_kernels",
    ),
    "calls of the CPU": (
        "autocast_casts", "region_entered", "region_trained", "graph_replay_us", "graph_kernel_us", "graph_gap_us",
        "optimizer_fixed_us", "optimizer_launch_us",
    ),
    "copies": ("pinned_time",),
}  # fmt: skip
"""Assumptions of `fixes` that count only where nothing was measured in their place, by what is measured."""


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
    figures in place of assumptions by their names; what a `cast`, one around a `convolution`, entering a compiled
    `region`, and the `fetch` of a batch of a worker and each `megabyte` of it take the host, in us; the forms for
    people; and, where nothing could be measured, why."""

    kernels: Mapping[str, MeasuredKernels] = field(default_factory=dict)
    beside: Mapping[tuple[str, str], MeasuredKernels] = field(default_factory=dict)
    figures: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    calls: Mapping[str, Range] = field(default_factory=dict)
    forms: tuple[MeasuredForm, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""

    def origin(self, fix: str) -> str:
        """Where the price of a fix comes from, in words."""
        form = next((one for one in self.forms if one.fix == fix), None)
        if form is not None:
            return form.origin
        bench = BY_NAME[fix].bench if fix in BY_NAME else BenchForm()
        if bench.figure in self.figures:
            return "measured for this GPU"
        return "CPU measured, kernels assumed" if bench.call in self.calls else "assumed"

    def applied(self, fix: str, parts: tuple[Change, ...], beside: Collection[str]) -> tuple[Change, ...]:
        """The changes of a fix with what was measured of their kernels; those of which nothing was stay as they are."""
        parts = tuple(map(self._on_host, parts))
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
        changed, others = _with(parts[chosen], found)
        return (*parts[:chosen], changed, *parts[chosen + 1 :], *others)

    def _on_host(self, part: Change) -> Change:
        """A change with what its calls take this host."""
        if isinstance(part, EnterRegions) and "region" in self.calls:
            return replace(part, entry_us=self.calls["region"])
        if isinstance(part, FeedLoader) and "fetch" in self.calls:
            return replace(part, fetch_us=self.calls["fetch"], megabyte_us=self.calls["megabyte"])
        if isinstance(part, UnderAutocast) and "cast" in self.calls:
            cast_us = self.calls["cast"]
            return replace(part, cast_us=cast_us, convolved_us=self.calls.get("convolution", cast_us))
        return part

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


def _with(part: Change, found: MeasuredKernels) -> tuple[Change, tuple[Change, ...]]:
    """A change with what was measured of its kernels; and of other kernels, whose launches it leaves alone where these
    are still there."""
    if isinstance(part, FuseOptimizer) and found.host_us is not None:
        part = replace(part, fixed_us=found.host_us, per_launch_us=Range.exact(0.0))
    kernels = part.kernels if isinstance(part, OfKernels) else part
    if not isinstance(kernels, ShortenKernels):
        return part, ()
    own = np.isin(found.rows, kernels.rows)
    shorter = _shortened(kernels, found.rows[own], [share[own] for share in found.keep])
    if shorter.beside is not None:  # one that may get shorter `beside` the others does so once
        again = np.isin(shorter.beside.rows, found.rows)
        keep = tuple(np.where(again, 1.0, share) for share in shorter.beside.keep)
        shorter = replace(shorter, beside=replace(shorter.beside, keep=keep))
    changed = replace(part, kernels=shorter) if isinstance(part, OfKernels) else shorter
    goes = found.keep[Case.EXPECTED.value] == 0.0
    others = [
        _others(found, kind, saved)
        for kind, saved in ((~own & goes, kernels.launches_saved), (~own & ~goes, Range.exact(0.0)))
        if kind.any()
    ]
    return changed, tuple(others)


def _others(found: MeasuredKernels, chosen: BoolArray, launches_saved: Figure) -> ShortenKernels:
    keep = tuple(share[chosen] for share in found.keep)
    return ShortenKernels(found.device, found.rows[chosen], keep, launches_saved=launches_saved)


def _shortened(part: ShortenKernels, rows: Int64Array, measured: Sequence[Float64Array]) -> ShortenKernels:
    """The same where each of these `rows` of it keeps what was measured."""
    place, keep = np.searchsorted(part.rows, rows), [share.copy() for share in part.keep]
    for share, known in zip(keep, measured, strict=True):
        share[place] = known
    return replace(part, keep=tuple(keep))
