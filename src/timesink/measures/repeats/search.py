"""Finds units that repeat in an order of symbols: the shortest unit first, then loops of loops.

For each lag the order is compared with itself, shifted by the lag: a long row of equal symbols is a run of a unit as
long as the lag. The shortest unit wins, its run becomes one symbol, and the shorter order is searched again:

    select mm relu select mm relu select mm relu cat  select mm relu select mm relu ... cat
    A                                            cat  A                                cat    A: 3 events, lag 3
    B                                                                                         B: 2 symbols, lag 2

Lags times symbols are compared, bytes or words at a time, so it is linear in symbols.
"""

from typing import Final

import numpy as np

from timesink.model.arrays import Int64Array
from timesink.records import Record

LONGEST: Final = 400  # symbols of a unit
LEAST: Final = 4  # times in a row: fewer are alike by chance, as the copies of one batch are
ALIKE: Final = 0.7  # of a row: in the rest, units have a symbol more or less
_LEVELS: Final = 5  # loops in loops
_PROBES: Final = 8  # of a lag, which throw most lags out


class UnitRun(Record, eq=False):
    """Units in a row: the event that each begins with, ascending, and the event after the last."""

    starts: Int64Array
    stop: int

    @property
    def unit(self) -> slice:
        """The events of its second unit: the first may be cut off."""
        return slice(int(self.starts[1]), int(self.starts[2]))


def repeated_runs(code: Int64Array, rows: Int64Array) -> list[UnitRun]:
    """All runs in an order of symbols, inner loops first. `rows` are their events; no run crosses a negative one."""
    first, last = np.arange(code.size), np.arange(code.size) + 1
    found, part = list[UnitRun](), np.cumsum(rows < 0, dtype=np.int64)
    for _ in range(_LEVELS):
        symbols, kept, after = dict[tuple[int, ...], int](), np.ones(code.size, np.bool_), code.copy()
        for lag, low, high in tandem(code, part):
            kept[low + 1 : high] = False
            starts = _unit_starts(code[low:high], lag) + low
            found.append(UnitRun(rows[first[starts]], int(rows[last[high - 1] - 1]) + 1))
            symbol = tuple(sorted(code[low : low + lag].tolist()))
            after[low], last[low] = symbols.setdefault(symbol, int(code.max()) + 1 + len(symbols)), last[high - 1]
        if not symbols:
            break
        first, last = first[kept], last[kept]
        part = np.asarray(part[kept], np.int64)
        code = np.unique(after[kept], return_inverse=True)[1].astype(np.int64)
    return [run for run in found if run.starts.size >= LEAST]


def tandem(code: Int64Array, part: Int64Array) -> list[tuple[int, int, int]]:
    """Rows in which a unit comes `LEAST` times or more: the unit's length, the first place, the place after the last.

    Of rows that overlap that of the shortest unit is taken. Pieces are one row if at most about a unit lies between any
    two of them, and no border of parts.
    """
    if code.size < LEAST:
        return []
    drawn = np.random.default_rng(0).integers(1, 1 << 40, int(code.max()) + 1)
    total = np.append(0, np.cumsum(drawn[code]))  # a unit's sum is the same over every rotation of it
    small, taken = code.astype(np.min_scalar_type(int(code.max()))), np.zeros(code.size, np.bool_)
    found = list[tuple[int, int, int]]()
    for lag in _likely_lags(small):
        first, last = _pieces(small, lag)
        free = ~(taken[first] | taken[last - 1 + lag])
        for low, high in _rows(first[free], last[free], lag, total, part):
            if not taken[low : high + lag].any():
                taken[low : high + lag] = True
                found.append((lag, low, high + lag))
    return found


def _likely_lags(code: Int64Array) -> list[int]:
    """The lags after which symbols come again, by probes: a piece as long as the lag holds `_PROBES` - 1 or more."""
    likely = list[int]()
    for lag in range(1, min(LONGEST, code.size // LEAST) + 1):
        stride = max(lag // _PROBES, 1)
        differ = np.flatnonzero(code[lag::stride] != code[:-lag:stride])
        row = np.diff(differ, prepend=-1, append=-(-(code.size - lag) // stride)) - 1
        if row.max() >= min(lag, _PROBES - 1):
            likely.append(lag)
    return likely


def _pieces(code: Int64Array, lag: int) -> tuple[Int64Array, Int64Array]:
    """Stretches of a lag's length or more in which each symbol comes again after the lag."""
    same = code[lag:] == code[:-lag]
    turns = np.flatnonzero(same[1:] != same[:-1]) + 1
    turns = np.concatenate(([0] * bool(same[0]), turns, [same.size] * bool(same[-1]))).astype(np.int64)
    first, last = turns[::2], turns[1::2]
    kept = last - first >= lag
    return first[kept], last[kept]


def _rows(first: Int64Array, last: Int64Array, lag: int, total: Int64Array, part: Int64Array) -> list[tuple[int, int]]:
    """Pieces joined into rows that are long enough, and long pieces of rows that are not alike enough."""
    if not first.size:
        return []
    least, unit = (LEAST - 1) * lag, total[first + lag] - total[first]
    goes_on = (first[1:] - last[:-1] <= lag + lag // 4 + 1) & (unit[1:] == unit[:-1])
    goes_on &= part[first[1:]] == part[first[:-1]]
    begin = np.flatnonzero(np.append(True, ~goes_on))
    end = np.append(begin[1:], first.size) - 1
    alike, span = np.add.reduceat(last - first, begin), last[end] - first[begin]
    whole = (alike >= least) & (alike >= ALIKE * span)
    alone = np.repeat(~whole, end - begin + 1) & (last - first >= least)
    low = np.concatenate((first[begin[whole]], first[alone]))
    high = np.concatenate((last[end[whole]], last[alone]))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _unit_starts(code: Int64Array, lag: int) -> Int64Array:
    """Where units begin: at a symbol that a unit has once, even where other symbols come more often in some."""
    once = [symbol for symbol in code[:lag].tolist() if (code[:lag] == symbol).sum() == 1]
    counts = [int((code == symbol).sum()) for symbol in once[:8]]
    usual = sorted(counts)[len(counts) // 2] if counts else 0
    if not usual:
        return np.arange(0, code.size - lag + 1, lag)
    return np.flatnonzero(code == once[counts.index(usual)])
