"""The units that repeat within the steady steps of a trace, with their share of a step, dearest first."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernel_names import short_name
from timesink.measures.repeats.kinds import Kind, KindTeller
from timesink.measures.repeats.order import BACKWARD, GPU, HOST, IDLE, INSIDE, CallOrder, call_order
from timesink.measures.repeats.search import ALIKE, UnitRun, repeated_runs
from timesink.measures.steps import steps
from timesink.model.arrays import Float64Array, Int64Array, median
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_SEARCHED: Final = 30_000  # events: as many whole steps, spread over the recording, and one at least
_SPEAKS: Final = 0.03  # of the step, by the CPU, the GPU or its idle time: of less no rule says anything
_TOLD: Final = 12  # units whose kinds are found out: a step has few loops that matter
_NAMED: Final = frozenset(Kind) - {Kind.UNTOLD, Kind.MAY_DEPEND, Kind.GROWS, Kind.READS, Kind.PYTHON, Kind.EXCHANGES}
"""Kinds that have findings of their own, or are no loop to be named."""
FAR: Final = 4.0  # times the usual time between calls: what lies beyond is not the loop's


class RepeatedUnit(Record, eq=False):
    """A unit that runs `times` times in a row, in `rows` rows a step.

    `names` are its operators, or kernels and calls, `leading` the one with most GPU time (a kernel by its short name);
    `share` of a step by HOST to BACKWARD of the order; `runs` those of the steps that were searched; `because` what
    showed the kind.
    """

    names: tuple[str, ...]
    leading: str
    times: float
    rows: float
    share: Float64Array
    runs: tuple[UnitRun, ...]
    kind: Kind
    because: str

    @property
    def longest(self) -> UnitRun:
        """The run with most units."""
        return max(self.runs, key=lambda run: run.starts.size)

    @property
    def said(self) -> str:
        """What is in it, in a few words."""
        more = len(self.names) - 1
        return f"{self.leading} and {more} other{'s' if more > 1 else ''}" if more else self.leading

    @property
    def per_step(self) -> float:
        """How many units a step runs."""
        return self.times * self.rows


@remembered
def repeated_units(trace: Trace) -> tuple[RepeatedUnit, ...]:
    """What repeats in the steady steps, dearest first; of a trace without steps, in its first events."""
    order = call_order(trace)
    windows, period_ns = _windows(trace, order)
    searched = _spread(order, windows)
    total = np.concatenate((np.zeros((BACKWARD + 1, 1)), np.cumsum(_own_cost(order), axis=1)), axis=1)
    whole_ns = period_ns * len(searched)
    found = [(_share(order, total, runs) / whole_ns, runs) for runs in _alike_runs(order, searched).values()]
    told = sorted((one for one in found if _weight(one[0]) >= _SPEAKS), key=lambda one: -_weight(one[0]))
    teller = KindTeller(trace, order)
    return tuple(_unit(order, teller, share, runs, len(searched)) for share, runs in told[:_TOLD])


def launched_again(trace: Trace, idle_ratio: float) -> RepeatedUnit | None:
    """The unit that most of so much idle time of a step lies before, and no finding of its own names; None where no
    unit stands out."""
    units = (unit for unit in repeated_units(trace) if unit.kind not in _NAMED)
    return next((unit for unit in units if unit.share[IDLE] > idle_ratio / 2), None)


def every_run(trace: Trace, unit: RepeatedUnit) -> list[UnitRun]:
    """The rows of a unit in all steady steps, not only in those that were searched first."""
    order = call_order(trace)
    windows, _ = _windows(trace, order)
    if len(_spread(order, windows)) == len(windows):
        return list(unit.runs)
    return _alike_runs(order, windows)[_names_of(order, unit.longest)]


def _alike_runs(order: CallOrder, windows: list[tuple[int, int]]) -> dict[tuple[int, ...], list[UnitRun]]:
    """The rows in some steps, by the names that their units hold."""
    parts, alike = list(_parts(order, windows)), defaultdict[tuple[int, ...], list[UnitRun]](list)
    if not parts:
        return alike
    between = [np.array([-1 - number]) for number in range(len(parts))]  # no row goes on over these
    rows = np.concatenate([piece for pair in zip(parts, between, strict=True) for piece in pair])
    code = np.where(rows >= 0, order.name[rows], len(order.names) - rows)
    for run in repeated_runs(np.unique(code, return_inverse=True)[1].astype(np.int64), rows):
        alike[_names_of(order, run)].append(run)
    return alike


def _names_of(order: CallOrder, run: UnitRun) -> tuple[int, ...]:
    return tuple(np.unique(order.name[run.unit]).tolist())


def _unit(
    order: CallOrder, teller: KindTeller, share: Float64Array, runs: list[UnitRun], searched: int
) -> RepeatedUnit:
    longest = max(runs, key=lambda run: run.starts.size)
    names = tuple(order.names[name] for name in order.name[longest.unit].tolist())
    dearest = int(np.lexsort((order.cost_ns[INSIDE, longest.unit], order.cost_ns[GPU, longest.unit]))[-1])
    of_operator = order.op[longest.unit.start + dearest] >= 0
    leading = names[dearest] if of_operator else short_name(names[dearest])
    told = teller.tell(longest, names, share)
    times = sum(run.starts.size for run in runs) / len(runs)
    return RepeatedUnit(names, leading, times, len(runs) / searched, share, tuple(runs), told.kind, told.because)


def _weight(share: Float64Array) -> float:
    return float(share[[HOST, GPU, IDLE]].max())


def _own_cost(order: CallOrder) -> Float64Array:
    """Costs but for autograd's events, which count with those that caused them."""
    return np.where(order.is_autograd, 0.0, order.cost_ns)


def _windows(trace: Trace, order: CallOrder) -> tuple[list[tuple[int, int]], float]:
    """The steady steps of the first rank in the host's time, and how long a step is; without steps the first events."""
    found = steps(trace)
    kept = found.kept.sort("rank", "host_start_ns")
    if not kept.height:
        first = np.sort(order.start_ns)[:_SEARCHED]
        own = [(int(first[0]), int(first[-1]) + 1)] if first.size else []
        return own, float(own[0][1] - own[0][0]) if own else 1.0
    of_rank = pl.col("rank") == kept["rank"][0]
    own = kept.filter(of_rank).select("host_start_ns", "host_end_ns").rows()
    period_ns = found.windows.filter(of_rank)["period_ns"].mean()
    return own, float(period_ns) if isinstance(period_ns, float) else float(own[0][1] - own[0][0])


def _spread(order: CallOrder, windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """As many windows as hold `_SEARCHED` events, spread over the recording, and one at least."""
    starts = np.sort(order.start_ns)
    held = sum(int(np.diff(np.searchsorted(starts, window))[0]) for window in windows)
    count = min(max(int(_SEARCHED * len(windows) // max(held, 1)), 1), len(windows))
    return [windows[place] for place in np.linspace(0, len(windows) - 1, count).astype(int).tolist()]


def _parts(order: CallOrder, windows: list[tuple[int, int]]) -> Iterator[Int64Array]:
    """The events of each thread in each window, but for threads that mostly do autograd's work."""
    edges = np.flatnonzero(np.diff(order.line, prepend=-1, append=-1))
    for window in windows:
        for low, high in pairwise(edges.tolist()):
            rows = low + np.arange(*np.searchsorted(order.start_ns[low:high], window))
            if rows.size and order.is_autograd[rows].mean() < ALIKE:
                yield rows[~order.is_autograd[rows]]


def _share(order: CallOrder, total: Float64Array, runs: list[UnitRun]) -> Float64Array:
    """What runs cost together, in ns."""
    cost = np.sum([total[:, run.stop] - total[:, run.starts[0]] for run in runs], axis=0)
    cost[HOST] -= sum(_beyond_ns(order, run) for run in runs)
    return np.asarray(cost, np.float64)


def _beyond_ns(order: CallOrder, run: UnitRun) -> float:
    """Host time that is not the loop's: behind the last event, and between calls in units that have far more of it than
    the others; less what autograd did for it elsewhere, where the loop itself does not wait for that."""
    own, starts = slice(int(run.starts[0]), run.stop), run.starts - run.starts[0]
    length = np.diff(np.append(order.start_ns[run.starts], order.end_ns[run.stop - 1])).astype(np.float64)
    length = np.maximum(length - np.add.reduceat(order.cost_ns[INSIDE, own], starts), 0)
    later = order.backward_ns[own].min() > order.end_ns[run.stop - 1]
    more = np.maximum(length - FAR * median(length), 0).sum() - later * order.cost_ns[BACKWARD, own].sum()
    return float(order.to_next_ns[run.stop - 1] + more)
