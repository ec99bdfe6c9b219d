"""Clocks of different hosts, aligned on collectives: a point estimate, and the bounds that causality proves.

The estimate is a median of differences of ends: a collective is over for everybody at about the same instant. The
bounds (`clock_bounds`) hold however much those ends differ; an estimate outside them is moved to the nearer bound.
Sends and receives bound clocks too, each pair on one side; they enter the estimate only where collectives do not
connect all clocks. Throughout, an offset is what a clock shows minus what clock 0 shows at the same instant, in ns.
"""

from typing import Final, Self

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import ALIKE_ENDS
from timesink.measures.communication.clock_bounds import UNKNOWN, Visits, offset_bounds
from timesink.model.arrays import Int64Array, median
from timesink.records import Record, replace

_ROUNDS: Final = 4  # a fixed number: the same trace gives the same clocks


class Clock(Record):
    """One clock against clock 0.

    `offset_ns` is its offset in the middle of its calls; the true one lies within `error_ns` of it (None: nothing
    bounds it). `residual_ns` is the median distance of single collectives from the estimate. `drift_ratio` is the
    change of the offset per time, 0 where none rises above the noise. `consistent`: its bounds do not contradict.
    """

    ranks: tuple[int, ...]
    offset_ns: int
    error_ns: int | None
    drift_ratio: float
    residual_ns: int
    calls: int
    consistent: bool


class Clocks(Record, eq=False):
    """All clocks of a job, and its calls placed on clock 0.

    `calls` are the matched calls with `offset_ns` and `error_ns` (null: unbounded) of their clock at that moment, and
    `pairs` the same of sends and receives: a time minus `offset_ns` is the time on the clock of the first rank.
    `shared_clock_ok` says whether ranks known to share a clock agree with that, by the same bounds; None where no two
    ranks share one. `assumed_shared`: no file says so, but all ranks seem to be on one host.
    """

    clocks: tuple[Clock, ...]
    calls: pl.DataFrame
    pairs: pl.DataFrame
    shared_clock_ok: bool | None
    assumed_shared: bool = False

    @property
    def worst_error_ns(self) -> int | None:
        """The largest error of any clock; None where one of them is not bounded at all."""
        errors = [clock.error_ns for clock in self.clocks]
        return None if None in errors else max((error for error in errors if error is not None), default=0)


def align_clocks(calls: pl.DataFrame, members: pl.DataFrame, pairs: pl.DataFrame | None = None) -> Clocks:
    """Align the clocks of the ranks in matched `calls` and in `pairs`, the matched sends and receives.

    `members` (of a `Job`) says which ranks share a clock. Instance numbers of pairs must differ from those of calls.
    Where no file names its host, the ranks are taken to share a host, and so a clock, if they use different GPUs of a
    list that all of them see and their clocks turn out to show the same time.
    """
    pairs = calls.clear() if pairs is None else pairs
    clocks = _align(calls, pairs, members)
    if not _on_one_host(members, clocks):
        return clocks
    shared = _align(calls, pairs, members.with_columns(clock=pl.lit("one host, as it seems")))
    error = pl.lit(assumed.CLOCK_ERROR_US.ns, pl.Int64)
    return Clocks(
        tuple(replace(clock, error_ns=assumed.CLOCK_ERROR_US.ns) for clock in shared.clocks),
        shared.calls.with_columns(error_ns=error),
        shared.pairs.with_columns(error_ns=error),
        shared.shared_clock_ok,
        assumed_shared=True,
    )


def _on_one_host(members: pl.DataFrame, clocks: Clocks) -> bool:
    ranks = members["rank"].n_unique()
    if len(clocks.clocks) < 2 or members["host"].null_count() < members.height or members.height != ranks:
        return False
    visible = members["visible_devices"].unique().to_list()
    if members["device"].n_unique() != ranks or len(visible) != 1 or (visible[0] or 0) < ranks:
        return False
    return all(
        clock.consistent
        and clock.error_ns is not None
        and abs(clock.offset_ns) <= min(clock.error_ns, assumed.SAME_CLOCK_US.ns)
        for clock in clocks.clocks[1:]
    )


def _align(calls: pl.DataFrame, pairs: pl.DataFrame, members: pl.DataFrame) -> Clocks:
    every = pl.concat([calls.with_columns(paired=pl.lit(False)), pairs.with_columns(paired=pl.lit(True))])
    clock_of = _number_clocks(members, every)
    every = every.join(clock_of, on="rank", how="left", maintain_order="left")
    rigorous = every.filter("rigorous")
    visits = _read_visits(rigorous, rigorous["clock_number"].to_numpy().astype(np.int64))
    low, high = offset_bounds(visits, assumed.DRIFT_MOST.value)
    collectives = every.filter(~pl.col("paired"))
    fits = _fit_clocks(collectives if _connects_all(collectives, every) else every)
    shared = clock_of.group_by("clock_number").agg("rank").sort("clock_number")
    clocks, parts = [], [every.clear().with_columns(offset_ns=pl.lit(0, pl.Int64), error_ns=pl.lit(0, pl.Int64))]
    for number, ranks in shared.rows():
        own = every.filter(pl.col("clock_number") == number)
        clock, placed = _place_calls(own, fits.get(number), _Bounds.of(visits, low, high, number), number)
        clocks.append(replace(clock, ranks=tuple(sorted(ranks))))
        parts.append(placed)
    placed = pl.concat(parts).drop("clock", "clock_number").sort("instance", "rank", "device")
    calls, pairs = (placed.filter(pl.col("paired") == paired).drop("paired") for paired in (False, True))
    return Clocks(tuple(clocks), calls, pairs, _shared_clock_ok(rigorous, clock_of))


def _connects_all(calls: pl.DataFrame, every: pl.DataFrame) -> bool:
    """Whether each clock of `every` is reached from any other over these calls."""
    clocks = every["clock_number"].n_unique()
    if calls["clock_number"].n_unique() < clocks:
        return False
    clock, instance = (calls[name].rank("dense").to_numpy() - 1 for name in ("clock_number", "instance"))
    reached, used, count = np.arange(clocks) == 0, np.zeros(calls["instance"].n_unique(), bool), 0
    while count < (count := int(reached.sum())) < clocks:
        used[instance[reached[clock]]] = True
        reached[clock[used[instance]]] = True
    return count == clocks


class _Bounds(Record, eq=False):
    """Lowest and highest offset of one clock at the times of its rigorous calls, ascending."""

    time_ns: Int64Array
    low_ns: Int64Array
    high_ns: Int64Array

    @classmethod
    def of(cls, visits: Visits, low: Int64Array, high: Int64Array, clock: int) -> Self:
        rows = np.flatnonzero((visits.clock == clock) & (low > -UNKNOWN) & (high < UNKNOWN))
        rows = rows[np.argsort(visits.start_ns[rows], kind="stable")]
        return cls(visits.start_ns[rows], low[rows], high[rows])

    def at(self, time_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The bounds at other times: those of the call before and of the call after, widened by drift, intersected.

        With calls at 0 and 1_000_000 ns, bounds [-50, 50] and [0, 20], and 500 ns of drift per 1_000_000:

            time_ns   from the call before    from the call after    result
                  0           -50 ..  50            -500 .. 520       -50 ..  50
            100_000          -100 .. 100            -450 .. 470      -100 .. 100
            900_000          -500 .. 500             -50 ..  70       -50 ..  70
        """
        if not self.time_ns.size:
            return np.full(time_ns.size, -UNKNOWN, np.int64), np.full(time_ns.size, UNKNOWN, np.int64)
        after = np.minimum(np.searchsorted(self.time_ns, time_ns), self.time_ns.size - 1)
        before = np.maximum(after - 1, 0)
        lows, highs = [], []
        for near in (before, after):
            wider = np.ceil(np.abs(time_ns - self.time_ns[near]) * assumed.DRIFT_MOST.value).astype(np.int64)
            lows.append(self.low_ns[near] - wider)
            highs.append(self.high_ns[near] + wider)
        return np.maximum(*lows), np.minimum(*highs)


class _Fit(Record):
    """Offset at `middle_ns` by the clock's own time, its change with time, and the median distance from that line."""

    offset_ns: int
    drift_ratio: float
    middle_ns: int
    residual_ns: int

    def at(self, time_ns: Int64Array) -> Int64Array:
        moved = np.rint(self.drift_ratio * (time_ns - self.middle_ns)).astype(np.int64)
        return np.asarray(self.offset_ns + moved, np.int64)


def _number_clocks(members: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """rank, clock, clock_number; clock 0 is that of the lowest rank with calls. A rank of unknown clock has its own."""
    own = pl.coalesce("clock", pl.format("rank {}", "rank"))
    silent = ~pl.col("rank").is_in(calls["rank"].unique().implode())
    ranks = members.select("rank", own.alias("clock")).unique("rank", keep="first", maintain_order=True)
    order = ranks.sort(silent, "rank")["clock"].unique(maintain_order=True).to_list()
    numbers = {name: number for number, name in enumerate(order)}
    number = pl.col("clock").replace_strict(numbers, return_dtype=pl.Int64, default=None)
    return ranks.with_columns(number.alias("clock_number")).sort("rank")


def _read_visits(calls: pl.DataFrame, clock: Int64Array) -> Visits:
    """A collective whose ranks all need the whole of each other is over for everybody within the time that its shortest
    call took, which is that of the last to come: so no call reaches further back than that from its own end."""
    kind, length = calls["kind"], pl.col("end_ns") - pl.col("start_ns")
    shortest = length.min().over("instance") + assumed.CLOCK_ERROR_US.ns
    back = pl.when(pl.col("kind").is_in([*ALIKE_ENDS])).then(pl.col("end_ns") - shortest).otherwise("start_ns")
    entered = calls.select("instance", pl.max_horizontal("start_ns", back).alias("start_ns"), "end_ns")
    instance, start, end = (column.to_numpy() for column in entered)
    return Visits(clock, instance, start, end, holds=(kind != "recv").to_numpy(), held=(kind != "send").to_numpy())


def _fit_clocks(calls: pl.DataFrame) -> dict[int, _Fit]:
    """The point estimate of each clock, by number: how its ends differ from the common end of each collective.

    Offsets follow from common ends and common ends from offsets, each by a median in turn. That settles after a few
    rounds, also where no group spans all clocks. Two collectives of two clocks, with ends by each clock:

        clock  instance  end   first end of the clock  own end   common end  difference
          0        0     100                     100         0            0           0
          0        1     300                     100       200          200           0
          1        0    1140                    1140         0            0           0
          1        1    1344                    1140       204          200           4    median 2, + 1140 - 100
    """
    if not calls.height:
        return {}
    clock = calls["clock_number"].to_numpy().astype(np.int64)
    instance, start, end = (calls[name].to_numpy() for name in ("instance", "start_ns", "end_ns"))
    first_end = np.full(int(clock.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_end, clock, end)
    own_end = end - first_end[clock]  # clocks may differ by decades, which medians in float64 would not resolve
    offset = _guess_offsets(clock, instance, own_end)
    for _ in range(_ROUNDS):
        difference = own_end - _common_end(clock, instance, own_end - offset[clock])
        offset = _group_medians(clock, difference, offset)
        offset = offset - offset[0]
    difference = own_end - _common_end(clock, instance, own_end - offset[clock])
    fits = {}
    for number in np.unique(clock).tolist():
        own = clock == number
        shift = int(first_end[number]) - int(first_end[0])
        fits[number] = _fit_line(start[own], difference[own], shift, is_reference=number == 0)
    return fits


def _guess_offsets(clock: Int64Array, instance: Int64Array, own_end: Int64Array) -> Int64Array:
    """A first guess per clock: clocks are reached from clock 0 over collectives they share, one after another.

    A clock's guess is the median difference between its ends and the latest end that reached clocks give:

        clock  instance  own end
          0        0         0     reached first: collective 0 ends at 0
          1        0         7     offset 7 - 0 = 7
          1        1        30     then collective 1 ends at 30 - 7 = 23
          2        1        33     offset 33 - 23 = 10
    """
    count, never = int(clock.max()) + 1, np.iinfo(np.int64).min
    offset, reached = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    reached[0] = True
    while True:
        inside = reached[clock]
        ends = np.full(int(instance.max()) + 1, never)
        np.maximum.at(ends, instance[inside], (own_end - offset[clock])[inside])
        new = ~inside & (ends[instance] > never)
        if not new.any():
            return offset
        for number in np.unique(clock[new]):
            own = new & (clock == number)
            offset[number] = int(median(own_end[own] - ends[instance[own]]))
            reached[number] = True


def _common_end(clock: Int64Array, instance: Int64Array, aligned_end: Int64Array) -> Int64Array:
    """For each row, when its collective ended: by clock 0 where that took part, else the median of its participants.

    clock     0  1  1  2
    instance  0  0  1  1
    end       5  9  4  8
    result    5  5  6  6
    """
    frame = pl.DataFrame({"instance": instance, "end": aligned_end, "first": clock == 0})
    by_first = pl.col("end").filter("first").median().over("instance")
    end = pl.coalesce(by_first, pl.col("end").median().over("instance"))
    return frame.select(end.round().cast(pl.Int64)).to_series().to_numpy()


def _group_medians(group: Int64Array, value: Int64Array, otherwise: Int64Array) -> Int64Array:
    """The median value of each group by its number, rounded; groups without a row keep their element of `otherwise`."""
    medians = pl.DataFrame({"group": group, "value": value}).group_by("group").agg(pl.col("value").median())
    result = otherwise.copy()
    result[medians["group"].to_numpy()] = np.rint(medians["value"].to_numpy()).astype(np.int64)
    return result


def _fit_line(start: Int64Array, difference: Int64Array, shift: int, is_reference: bool) -> _Fit:
    """Offset and drift of one clock from single differences of ends, plus `shift`.

    The slope runs from the median of the first third of the calls to that of the last third (a resistant line, Tukey,
    "Exploratory Data Analysis", 1977). It is kept only where it explains several times what the calls scatter around
    the line; else the clock has a constant offset, the median.
    """
    middle = int(start.min() + (start.max() - start.min()) // 2)
    level = int(median(difference))
    noise = median(np.abs(difference - level))
    flat = _Fit(0 if is_reference else level + shift, 0.0, middle, round(noise))
    if is_reference or start.size < assumed.DRIFT_CALLS.whole or int(np.ptp(start)) < assumed.DRIFT_WINDOW_US.ns:
        return flat
    order = np.argsort(start, kind="stable")
    third = start.size // 3  # both ends, without the middle
    early, late = order[:third], order[-third:]
    run = float(median(start[late]) - median(start[early]))
    slope = float(median(difference[late]) - median(difference[early])) / run if run > 0 else 0.0
    slope = float(np.clip(slope, -assumed.DRIFT_MOST.value, assumed.DRIFT_MOST.value))
    level_without_slope = difference - slope * (start - middle)
    scatter = median(np.abs(level_without_slope - median(level_without_slope)))
    if abs(slope) * run < assumed.DRIFT_ABOVE_NOISE.value * max(scatter, 1.0):
        return flat
    return _Fit(int(median(level_without_slope)) + shift, slope, middle, round(scatter))


def _place_calls(calls: pl.DataFrame, fit: _Fit | None, bounds: _Bounds, number: int) -> tuple[Clock, pl.DataFrame]:
    """One clock, yet without its ranks, and its calls with `offset_ns` and `error_ns`.

    The offset at a call is the fit moved into the bounds; the error is the distance to the farther bound. Where bounds
    contradict each other, the fit stands as it is and the error is unknown.

        fit   bounds     offset  error
         10   -5 .. 15       10     15
         30   -5 .. 15       15     20
         10   none           10   null
         10   20 ..  5       10   null, and not consistent
    """
    time = calls["start_ns"].to_numpy()
    if number == 0 or fit is None:
        residual = fit.residual_ns if fit else 0
        error = 0 if number == 0 else None
        clock = Clock((), 0, error, 0.0, residual, calls.height, True)
        return clock, calls.with_columns(offset_ns=pl.lit(0, pl.Int64), error_ns=pl.lit(error, pl.Int64))
    low, high = bounds.at(time)
    consistent = bool((low <= high).all())
    guess = fit.at(time)
    offset = np.where(low <= high, np.clip(guess, low, high), guess)
    bounded = (low > -UNKNOWN) & (high < UNKNOWN)
    errors = np.where(bounded, np.maximum(high - offset, offset - low), 0)
    middle_low, middle_high = bounds.at(np.array([fit.middle_ns]))
    middle = int(np.clip(fit.offset_ns, middle_low[0], middle_high[0])) if consistent else fit.offset_ns
    worst = int(errors.max()) if bounded.all() and consistent else None
    clock = Clock((), middle, worst, fit.drift_ratio, fit.residual_ns, calls.height, consistent)
    known_error = pl.when(pl.Series(bounded & consistent)).then(pl.Series(errors))
    return clock, calls.with_columns(pl.Series("offset_ns", offset), known_error.alias("error_ns"))


def _shared_clock_ok(rigorous: pl.DataFrame, clock_of: pl.DataFrame) -> bool | None:
    """Whether offset 0 lies within the bounds of all ranks that are said to share a clock; None where none do."""
    shared = clock_of.group_by("clock").agg(pl.col("rank").sort()).filter(pl.col("rank").list.len() > 1)
    if not shared.height or not rigorous.height:
        return None
    for ranks in shared["rank"].to_list():
        theirs = rigorous.filter(pl.col("rank").is_in(ranks))
        numbers = {rank: number for number, rank in enumerate(ranks)}
        number = theirs["rank"].replace_strict(numbers, return_dtype=pl.Int64)
        low, high = offset_bounds(_read_visits(theirs, number.to_numpy()), 0.0)
        if ((low > 0) | (high < 0)).any():
            return False
    return True
