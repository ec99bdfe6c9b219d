"""Clocks of different hosts, aligned on collectives: a point estimate, and limits that causality proves.

The estimate is the median of how far ends lie apart: a collective is over for everybody at about the same instant. The
limits hold whatever the skew of those ends; the estimate is moved into them where it lies outside. Sends and receives
limit clocks too, each pair on one side; they enter the estimate only where collectives do not connect all clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.communication.clock_bounds import UNKNOWN, Visits, offset_bounds
from timesink.model.arrays import Int64Array

# Two clocks of disciplined hosts drift apart by no more: 500 ppm is the fastest that NTP slews a clock (RFC 5905).
MAX_DRIFT_RATIO: Final = 5e-4
# A drift is fitted over at least this much time and this many collectives, and kept where it exceeds the noise.
_DRIFT_WINDOW_NS: Final = 1_000_000_000
_DRIFT_CALLS: Final = 12
_ABOVE_NOISE: Final = 4.0
_ROUNDS: Final = 4
# Clocks of one host differ by what ends of a collective differ by; those of two hosts seldom by so little.
_SAME_CLOCK_NS: Final = 20_000
_ASSUMED_ERROR_NS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Clock:
    """One clock against the first. `offset_ns` is what it shows beyond clock 0, in the middle of its calls; the true
    offset lies within `error_ns` of it (None: nothing limits it). `residual_ns` is the median distance of single
    collectives from the estimate. `drift_ratio` is 0 where none rises above the noise.
    """

    name: str
    ranks: tuple[int, ...]
    offset_ns: int
    error_ns: int | None
    drift_ratio: float
    residual_ns: int
    calls: int
    consistent: bool


@dataclass(frozen=True, slots=True, eq=False)
class Clocks:
    """`calls`: the matched calls with `offset_ns` and `error_ns` (null: unbounded) of their clock at that moment;
    `pairs`: the same of sends and receives.

    `shared_clock_ok` says whether ranks known to share a clock agree with that, by the same limits; None where no two
    ranks do. `assumed_shared`: no file says so, but all ranks seem to be on one host. Times minus `offset_ns` are on
    the clock of the first rank.
    """

    clocks: tuple[Clock, ...]
    calls: pl.DataFrame
    pairs: pl.DataFrame
    shared_clock_ok: bool | None
    assumed_shared: bool = False

    @property
    def worst_error_ns(self) -> int | None:
        """The largest error of any clock; None where one of them is not limited at all."""
        errors = [clock.error_ns for clock in self.clocks]
        return None if None in errors else max((error for error in errors if error is not None), default=0)


def align_clocks(calls: pl.DataFrame, members: pl.DataFrame, pairs: pl.DataFrame | None = None) -> Clocks:
    """Align the clocks of the ranks in matched `calls` and `pairs` (of sends and receives, instance numbers of their
    own); `members` says which ranks share a clock.

    Where no file names its host, ranks whose GPUs are different ones of a list they all see, and whose clocks then turn
    out to show the same time, are taken to share a host, and so a clock.
    """
    pairs = calls.clear() if pairs is None else pairs
    found = _align(calls, pairs, members)
    if not _on_one_host(members, found):
        return found
    shared = _align(calls, pairs, members.with_columns(clock=pl.lit("one host, as it seems")))
    error = pl.lit(_ASSUMED_ERROR_NS, pl.Int64)
    return Clocks(
        tuple(replace(clock, error_ns=_ASSUMED_ERROR_NS) for clock in shared.clocks),
        shared.calls.with_columns(error_ns=error),
        shared.pairs.with_columns(error_ns=error),
        shared.shared_clock_ok,
        assumed_shared=True,
    )


def _on_one_host(members: pl.DataFrame, found: Clocks) -> bool:
    ranks = members["rank"].n_unique()
    if len(found.clocks) < 2 or members["host"].null_count() < members.height or members.height != ranks:
        return False
    visible = members["visible_devices"].unique().to_list()
    if members["device"].n_unique() != ranks or len(visible) != 1 or (visible[0] or 0) < ranks:
        return False
    return all(
        clock.consistent and clock.error_ns is not None and abs(clock.offset_ns) <= min(clock.error_ns, _SAME_CLOCK_NS)
        for clock in found.clocks[1:]
    )


def _align(calls: pl.DataFrame, pairs: pl.DataFrame, members: pl.DataFrame) -> Clocks:
    every = pl.concat([calls.with_columns(paired=pl.lit(False)), pairs.with_columns(paired=pl.lit(True))])
    clock_of = _clocks_of(members, every)
    every = every.join(clock_of, on="rank", how="left", maintain_order="left")
    known = every.filter("rigorous")
    number = known["clock_number"].to_numpy().astype(np.int64)
    visits = _visits(known, number)
    low, high = offset_bounds(visits, MAX_DRIFT_RATIO)
    alone = every.filter(~pl.col("paired"))
    fits = _fit_clocks(alone if _connects_all(alone, every) else every)
    names = clock_of.sort("clock_number").group_by("clock_number", "clock", maintain_order=True).agg("rank")
    found, parts = [], [every.clear().with_columns(offset_ns=pl.lit(0, pl.Int64), error_ns=pl.lit(0, pl.Int64))]
    for at, name, ranks in names.rows():
        mine = every.filter(pl.col("clock_number") == at)
        bounds = _Limits.of(visits, low, high, at)
        clock, aligned = _aligned_clock(mine, fits.get(at), bounds, at)
        found.append(replace(clock, name=name, ranks=tuple(sorted(ranks))))
        parts.append(aligned)
    whole = pl.concat(parts).drop("clock", "clock_number").sort("instance", "rank", "device")
    calls, pairs = (whole.filter(pl.col("paired") == paired).drop("paired") for paired in (False, True))
    return Clocks(tuple(found), calls, pairs, _shared_clock_ok(known, clock_of))


def _connects_all(calls: pl.DataFrame, every: pl.DataFrame) -> bool:
    """Whether each clock of `every` is reached from any other over these calls."""
    clocks = every["clock_number"].n_unique()
    if calls["clock_number"].n_unique() < clocks:
        return False
    if clocks < 2:  # every trace of one process: it need not wait for SciPy
        return True
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    clock, instance = (calls[name].rank("dense").to_numpy() - 1 for name in ("clock_number", "instance"))
    size = clocks + calls["instance"].n_unique()
    edges = coo_array((np.ones(clock.size), (clock, clocks + instance)), shape=(size, size))
    return int(connected_components(edges, directed=False)[0]) == 1


@dataclass(frozen=True, slots=True, eq=False)
class _Limits:
    """Limits of one clock's offset at the times of its rigorous calls."""

    time_ns: Int64Array
    low_ns: Int64Array
    high_ns: Int64Array

    @classmethod
    def of(cls, visits: Visits, low: Int64Array, high: Int64Array, clock: int) -> _Limits:
        mine = np.flatnonzero(visits.clock == clock)
        mine = mine[np.argsort(visits.start_ns[mine], kind="stable")]
        mine = mine[(low[mine] > -UNKNOWN) & (high[mine] < UNKNOWN)]
        return cls(visits.start_ns[mine], low[mine], high[mine])

    def at(self, time_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The limits at other times: those of the call before and the call after, widened by drift, intersected."""
        if not self.time_ns.size:
            return np.full(time_ns.size, -UNKNOWN, np.int64), np.full(time_ns.size, UNKNOWN, np.int64)
        after = np.minimum(np.searchsorted(self.time_ns, time_ns), self.time_ns.size - 1)
        before = np.maximum(after - 1, 0)
        lows, highs = [], []
        for near in (before, after):
            wider = np.ceil(np.abs(time_ns - self.time_ns[near]) * MAX_DRIFT_RATIO).astype(np.int64)
            lows.append(self.low_ns[near] - wider)
            highs.append(self.high_ns[near] + wider)
        return np.maximum(*lows), np.minimum(*highs)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Offset at `middle_ns` by the clock's own time, and its change with time."""

    offset_ns: int
    drift_ratio: float
    middle_ns: int
    residual_ns: int

    def at(self, time_ns: Int64Array) -> Int64Array:
        moved = np.rint(self.drift_ratio * (time_ns - self.middle_ns)).astype(np.int64)
        return np.asarray(self.offset_ns + moved, np.int64)


def _clocks_of(members: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """rank, clock, clock_number; clock 0 is that of the lowest rank with calls. A rank of unknown clock has its own."""
    own = pl.coalesce("clock", pl.format("rank {}", "rank"))
    silent = ~pl.col("rank").is_in(calls["rank"].unique().implode())
    ranks = members.select("rank", own.alias("clock")).unique("rank", keep="first", maintain_order=True)
    order = ranks.sort(silent, "rank")["clock"].unique(maintain_order=True).to_list()
    numbers = {name: at for at, name in enumerate(order)}
    number = pl.col("clock").replace_strict(numbers, return_dtype=pl.Int64, default=None)
    return ranks.with_columns(number.alias("clock_number")).sort("rank")


def _visits(calls: pl.DataFrame, clock: Int64Array) -> Visits:
    instance, start, end = (calls[name].to_numpy() for name in ("instance", "start_ns", "end_ns"))
    kind = calls["kind"]
    return Visits(clock, instance, start, end, holds=(kind != "recv").to_numpy(), held=(kind != "send").to_numpy())


def _fit_clocks(calls: pl.DataFrame) -> dict[int, _Fit]:
    """The point estimate of each clock: medians of ends against what the others say of each collective's end.

    Two medians in turn, offset and common end, settle after a few rounds also where no group spans all clocks.
    """
    if not calls.height:
        return {}
    clock = calls["clock_number"].to_numpy().astype(np.int64)
    instance = calls["instance"].to_numpy()
    end, start = calls["end_ns"].to_numpy(), calls["start_ns"].to_numpy()
    base = {int(at): int(end[clock == at].min()) for at in np.unique(clock)}
    own = end - np.array([base[int(at)] for at in clock], np.int64)
    offset = _first_offsets(clock, instance, own)
    for _ in range(_ROUNDS):
        common = _common_end(clock, instance, own - offset[clock])
        offset = _group_medians(clock, own - common, offset)
        offset = offset - offset[0]
    apart = own - _common_end(clock, instance, own - offset[clock])
    zero = base.get(0, min(base.values()))
    return {
        int(at): _fit_line(start[clock == at], apart[clock == at], base[int(at)] - zero, bool(at == 0))
        for at in np.unique(clock)
    }


def _first_offsets(clock: Int64Array, instance: Int64Array, own: Int64Array) -> Int64Array:
    """A first guess: clocks reached from clock 0 over collectives they share, one after another."""
    count = int(clock.max()) + 1
    offset, reached = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    reached[0] = True
    while True:
        inside = reached[clock]
        ends = np.full(int(instance.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(ends, instance[inside], (own - offset[clock])[inside])
        new = ~inside & (ends[instance] > np.iinfo(np.int64).min)
        if not new.any():
            return offset
        for at in np.unique(clock[new]):
            mine = new & (clock == at)
            offset[at] = int(np.median(own[mine] - ends[instance[mine]]))
            reached[at] = True


def _common_end(clock: Int64Array, instance: Int64Array, aligned: Int64Array) -> Int64Array:
    """For each row, when its collective ended: by clock 0 where that took part, else by the median of those there."""
    frame = pl.DataFrame({"instance": instance, "end": aligned, "first": clock == 0})
    by_first = pl.col("end").filter("first").median().over("instance")
    end = pl.coalesce(by_first, pl.col("end").median().over("instance"))
    return frame.select(end.round().cast(pl.Int64)).to_series().to_numpy()


def _group_medians(group: Int64Array, value: Int64Array, otherwise: Int64Array) -> Int64Array:
    found = otherwise.copy()
    medians = pl.DataFrame({"group": group, "value": value}).group_by("group").agg(pl.col("value").median())
    found[medians["group"].to_numpy()] = np.rint(medians["value"].to_numpy()).astype(np.int64)
    return found


def _fit_line(start: Int64Array, apart: Int64Array, shift: int, reference: bool) -> _Fit:
    """Offset and drift of one clock from single differences; drift only where it rises above their noise."""
    middle = int(start.min() + (start.max() - start.min()) // 2)
    level = int(np.median(apart))
    noise = float(np.median(np.abs(apart - level)))
    flat = _Fit(0 if reference else level + shift, 0.0, middle, round(noise))
    if reference or start.size < _DRIFT_CALLS or int(np.ptp(start)) < _DRIFT_WINDOW_NS:
        return flat
    order = np.argsort(start, kind="stable")
    third = start.size // 3
    early, late = order[:third], order[-third:]
    run = float(np.median(start[late]) - np.median(start[early]))
    slope = float(np.median(apart[late]) - np.median(apart[early])) / run if run > 0 else 0.0
    slope = float(np.clip(slope, -MAX_DRIFT_RATIO, MAX_DRIFT_RATIO))
    straight = apart - slope * (start - middle)
    left = float(np.median(np.abs(straight - np.median(straight))))
    if abs(slope) * run < _ABOVE_NOISE * max(left, 1.0):
        return flat
    return _Fit(int(np.median(straight)) + shift, slope, middle, round(left))


def _aligned_clock(calls: pl.DataFrame, fit: _Fit | None, limits: _Limits, number: int) -> tuple[Clock, pl.DataFrame]:
    time = calls["start_ns"].to_numpy()
    if number == 0 or fit is None:
        residual = fit.residual_ns if fit else 0
        known = 0 if number == 0 else None
        clock = Clock("", (), 0, known, 0.0, residual, calls.height, True)
        return clock, calls.with_columns(offset_ns=pl.lit(0, pl.Int64), error_ns=pl.lit(known, pl.Int64))
    low, high = limits.at(time)
    consistent = bool((low <= high).all())
    guess = fit.at(time)
    offset = np.where(low <= high, np.clip(guess, low, high), guess)
    bounded = (low > -UNKNOWN) & (high < UNKNOWN)
    error = np.where(bounded, np.maximum(high - offset, offset - low), 0)
    middle_low, middle_high = limits.at(np.array([fit.middle_ns]))
    middle = int(np.clip(fit.offset_ns, middle_low[0], middle_high[0])) if consistent else fit.offset_ns
    worst = int(error.max()) if bounded.all() and consistent else None
    clock = Clock("", (), middle, worst, fit.drift_ratio, fit.residual_ns, calls.height, consistent)
    columns = pl.DataFrame({"offset_ns": offset, "error_ns": error, "bounded": bounded & consistent})
    aligned = pl.concat([calls, columns], how="horizontal").with_columns(
        pl.when("bounded").then(pl.col("error_ns")).alias("error_ns")
    )
    return clock, aligned.drop("bounded")


def _shared_clock_ok(known: pl.DataFrame, clock_of: pl.DataFrame) -> bool | None:
    """Whether offset 0 lies within the limits of ranks that are said to share the first rank's clock."""
    shared = clock_of.group_by("clock").agg(pl.col("rank").sort()).filter(pl.col("rank").list.len() > 1)
    if not shared.height or not known.height:
        return None
    for ranks in shared["rank"].to_list():
        mine = known.filter(pl.col("rank").is_in(ranks))
        number = mine["rank"].replace_strict({rank: at for at, rank in enumerate(ranks)}, return_dtype=pl.Int64)
        low, high = offset_bounds(_visits(mine, number.to_numpy()), 0.0)
        if ((low > 0) | (high < 0)).any():
            return False
    return True
