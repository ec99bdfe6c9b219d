"""Stages of a pipeline from times that its program logged: item by item, what each rank worked and what that hid.

A log holds one record a line, JSON or CSV: an item (`item`, else the order of the lines), its `rank` (else one rank a
file) and timestamps. `tA0` and `tA1` are the begin and end of part A, `tDecode` and `tEmit` those of the part
``decode``; `tSend` and `tRecv` are when an item left its rank and came back; parts named send, recv or transfer move
data and are no work. A JSON line without an item may say `unit`, `rank`, `clock`, `facts` and `every` for the rest of
its file: of so many items the first two were timed.

All parts of a rank are one stage: they share a device, so they cannot hide each other. Every rank has a clock of its
own, and only times of one rank are subtracted, unless all logs name one clock. Of item k:

``period_k``: the time since the item before left the pipeline, on the clock of the rank that it leaves.
``stage_k`` of a rank: the time that its parts took.  ``smaller_k``: all stages but the longest.
``hidden_k`` = sum of stages - period_k, at least 0 and at most ``smaller_k``.
OverlapScore = sum of ``hidden_k`` / sum of ``smaller_k``: 0 where the period is the sum, 1 where it is the longest.

Example: stages of 450 and 300 ms and a period of 450 ms hide 300 of 300 ms: 1. With a period of 750 ms they hide none.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge import profiler_texts
from timesink.knowledge.assumptions import steps
from timesink.measures.communication.pipelines import OverlapScore, PipelineStage
from timesink.model.arrays import Int64Array, median
from timesink.model.intervals import Intervals
from timesink.records import Record, State, field
from timesink.untrusted import read_rows
from timesink.untrusted.plain_json import parsed

UNITS_NS: Final[Mapping[str, int]] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MOVES: Final = ("send", "recv", "transfer")  # parts that move data
_DECODE: Final = ("decode", "tDecode", "tEmit")
_AWAY: Final = ("tSend", "tRecv")
_HEAD: Final = "timesink_stages"  # what the first line of a log of `timesink.stages` has
_ITEM: Final = ("step", "item")
_TIMES: Final = ("end_ns", "stage_ns", "moved_ns", "away_ns")
ITEMS: Final = {**dict.fromkeys(_ITEM, pl.Float64), **dict.fromkeys(_TIMES, pl.Int64)}
"""Columns of `LoggedRank.items`."""
SPANS: Final = {**dict.fromkeys(_ITEM, pl.Float64), "part": pl.String, "begin_ns": pl.Int64, "end_ns": pl.Int64}
"""Columns of `LoggedRank.spans`."""
_FARTHEST_NS: Final = 1 << 61  # the difference of two such times is an int64 still


class Part(Record):
    """One stretch of work of a rank for an item: its name and the columns of its begin and end."""

    name: str
    begin: str
    end: str


class LoggedRank(Record):
    """One stage: the names of its `parts`, its `work` on its clock, and per item when it ended and how long it took.
    `spans` are its parts and its transfers, item by item."""

    rank: int
    parts: tuple[str, ...]
    work: Intervals
    items: pl.DataFrame
    spans: pl.DataFrame

    @property
    def name(self) -> str:
        """``rank 0 (A + decode)``."""
        return f"rank {self.rank} ({' + '.join(self.parts)})"


class StageLogs(Record):
    """What the logs of a pipeline say together.

    `series` has a row per item that every rank logged and that follows another: item, period_ns, stage<rank>_ns,
    smaller_ns, hidden_ns, transfer_ns (null where nothing logs it), away_ns (null likewise), idle<rank>_ns (the rank
    did not work, between the ends of this item and the one before), mesh_idle_ns (no rank worked; null unless
    `one_clock`: all logs name one clock) and bubble_ratio (1 - sum of stages / (ranks x period)).
    Where `every` is above 2, only the first two of so many items are timed: the second has a row, and what ranks did
    meanwhile for items that are not timed is not known, so idle times are null.
    `left_out` items were not logged by every rank. `facts` are what the logs say of the run.
    """

    ranks: tuple[LoggedRank, ...]
    series: pl.DataFrame
    one_clock: bool
    left_out: int
    facts: Mapping[str, str]
    every: int = 1

    @property
    def is_sample(self) -> bool:
        """Whether some items were not timed."""
        return self.every > profiler_texts.STAGE_RUN

    @property
    def overlap(self) -> OverlapScore:
        """The usual (median) stages and period. Its score is that of these medians; `score` is that of the items."""
        stages = (PipelineStage(rank.name, self._median(f"stage{rank.rank}_ns")) for rank in self.ranks)
        return OverlapScore(tuple(stages), self._median("period_ns"))

    @property
    def score(self) -> float | None:
        """OverlapScore over all items, 0 to 1; None for a single stage."""
        smaller_ns = int(self.series["smaller_ns"].sum())
        return int(self.series["hidden_ns"].sum()) / smaller_ns if smaller_ns else None

    def _median(self, column: str) -> float:
        return median(self.series[column].to_numpy())


class _File(State):
    """What the lines without an item said so far of the file they stand in."""

    path: Path
    rank: int
    factor: int
    clock: str = ""
    every: int = 1
    facts: dict[str, str] = field(default_factory=dict)


Key = tuple[float, float]  # step and item
Times = dict[str, float]


def read_stage_logs(paths: Sequence[Path], unit: str = "s", columns: Sequence[Part] = (), skip: int = 0) -> StageLogs:
    """The stages that `paths` logged; without the first `skip` items of every step.

    `unit` of the timestamps is a key of `UNITS_NS`; a log that states its own is read in that. `columns` name the parts
    where they are not named as above. Raises `UnreadableTrace` for a line that is no record (it names the line), for a
    log without a stage, for a part that ends before it begins, and for fewer than three items.
    """
    merged: dict[int, dict[Key, Times]] = {}
    files = []
    for number, path in enumerate(paths):
        file = _File(path, number, UNITS_NS[unit])
        found = False
        for order, (rank, record) in enumerate(_read_times(file)):
            key = (record.get("step", 0.0), record.get("item", float(order)))
            known = merged.setdefault(rank, {}).setdefault(key, {})
            if twice := sorted(known.keys() & record.keys() - {"step", "item", "rank"}):
                raise UnreadableTrace(
                    path, f"item {key[1]:g} of rank {rank} is there twice ({twice[0]})",
                    remedy="give one run here; another one goes with --against, once for each of its files",
                )  # fmt: skip
            known.update(record)
            found = found or bool(_parts(record, columns))
        if not found:
            raise UnreadableTrace(
                path,
                "no column is named like tA0 and tA1",
                remedy="log a begin and an end per stage, or give --columns",
            )
        files.append(file)
    ranks = tuple(_read_rank(paths[0], rank, records, columns) for rank, records in sorted(merged.items()))
    one_clock = len({file.clock for file in files}) == 1 and bool(files[0].clock)
    facts = {name: value for file in files for name, value in file.facts.items()}
    return stage_logs(paths[0], ranks, one_clock, skip, facts, max(file.every for file in files))


def stage_logs(
    path: Path, ranks: Sequence[LoggedRank], one_clock: bool, skip: int, facts: Mapping[str, str], every: int = 1
) -> StageLogs:
    """What ranks say together whose items are known; `UnreadableTrace` of `path` where there are too few."""
    series, left_out = _build_series(ranks, one_clock, skip, every)
    if series.height < steps.REPEATS.whole - 1:
        raise UnreadableTrace(
            path,
            f"{series.height + bool(series.height)} items are too few for a period",
            remedy="record at least three items on every rank, with the same item numbers",
        )
    return StageLogs(tuple(ranks), series, one_clock, left_out, facts, every)


def _parts(record: Mapping[str, object], columns: Sequence[Part]) -> list[Part]:
    """The parts of which a record has both ends."""
    if columns:
        return [part for part in columns if part.begin in record and part.end in record]
    names = sorted({found[1] for key in record if (found := profiler_texts.STAGE_BOUNDARY.match(key))})
    parts = [Part(name, f"t{name}0", f"t{name}1") for name in names]
    return [part for part in [*parts, Part(*_DECODE)] if part.begin in record and part.end in record]


def _read_rank(path: Path, rank: int, records: Mapping[Key, Times], columns: Sequence[Part]) -> LoggedRank:
    """One stage: an item's work is the union of its parts."""
    rows, spans, names, all_begins, all_ends = [], list[tuple[object, ...]](), dict[str, None](), [], []
    for (step, item), record in sorted(records.items()):
        parts = _parts(record, columns)
        for part in parts:
            if record[part.end] < record[part.begin]:
                raise UnreadableTrace(
                    path, f"stage {part.name} ends before it begins", place=f"item {item:g} of rank {rank}",
                    remedy="check the columns and their unit",
                )  # fmt: skip
        moving = [part for part in parts if part.name.lower() in _MOVES]
        working = [part for part in parts if part not in moving]
        if not working:
            continue
        names.update(dict.fromkeys(part.name for part in working))
        spans += [(step, item, part.name, record[part.begin], record[part.end]) for part in parts]
        begins, ends = [record[part.begin] for part in working], [record[part.end] for part in working]
        all_begins += begins
        all_ends += ends
        moved = _length([record[part.begin] for part in moving], [record[part.end] for part in moving])
        away = record[_AWAY[1]] - record[_AWAY[0]] if all(name in record for name in _AWAY) else None
        rows.append((step, item, max(ends), _length(begins, ends), moved if moving else None, away))
    work = Intervals.union_of(np.array(all_begins, np.int64), np.array(all_ends, np.int64))
    items, shown = (
        pl.DataFrame(some, kept, orient="row", strict=False) for some, kept in ((rows, ITEMS), (spans, SPANS))
    )
    return LoggedRank(rank, tuple(names), work, items, shown)


def _length(begins: Sequence[float], ends: Sequence[float]) -> int:
    return Intervals.union_of(np.array(begins, np.int64), np.array(ends, np.int64)).total_ns


def _build_series(ranks: Sequence[LoggedRank], one_clock: bool, skip: int, every: int) -> tuple[pl.DataFrame, int]:
    """The rows of `StageLogs.series`, and how many items not every rank logged."""
    table = _join_ranks(ranks)
    left_out = pl.concat([rank.items.select(_ITEM) for rank in ranks]).unique().height - table.height
    begins = [_of(rank, "end_ns").shift(1).over("step").alias(f"begin_ns.{rank.rank}") for rank in ranks]
    after = pl.col("item") - pl.col("item").shift(1).over("step")
    table = table.with_columns(*begins, after=after, order=pl.int_range(pl.len()).over("step"))
    is_sample = every > profiler_texts.STAGE_RUN
    table = table.filter(pl.col("order") > skip, (pl.col("after") == 1) if is_sample else pl.lit(True))
    stages = np.stack([table[f"stage_ns.{rank.rank}"].to_numpy() for rank in ranks])
    leaving = _find_last_rank(ranks)
    period, serial = _own_period(table, leaving), stages.sum(axis=0)
    smaller = serial - stages.max(axis=0, initial=0)
    unknown = pl.Series([None] * table.height, dtype=pl.Int64)
    idle = {
        rank.rank: unknown if is_sample else _own_period(table, rank) - _measure_work(rank.work, table, rank)
        for rank in ranks
    }
    columns = {
        "item": table["item"],
        "period_ns": period,
        **{f"stage{rank.rank}_ns": own for rank, own in zip(ranks, stages, strict=True)},
        "smaller_ns": smaller,
        "hidden_ns": np.clip(serial - period, 0, smaller),
        "transfer_ns": _sum_transfers(table, ranks),
        "away_ns": _measure_away(table, ranks),
        **{f"idle{rank}_ns": own for rank, own in idle.items()},
        "mesh_idle_ns": period - _measure_work(Intervals.union_all(rank.work for rank in ranks), table, leaving)
        if one_clock and not is_sample
        else unknown,
        "bubble_ratio": np.maximum(0.0, 1 - serial / np.maximum(1, len(ranks) * period)),
    }
    return pl.DataFrame(columns), left_out


def _of(rank: LoggedRank, column: str) -> pl.Expr:
    return pl.col(f"{column}.{rank.rank}")


def _join_ranks(ranks: Sequence[LoggedRank]) -> pl.DataFrame:
    """The items that every rank logged, in their order: columns step, item, and those of each rank as ``name.rank``."""
    table = ranks[0].items.select(_ITEM)
    for rank in ranks:
        own = rank.items.select(*_ITEM, *(pl.col(name).alias(f"{name}.{rank.rank}") for name in _TIMES))
        table = table.join(own, on=_ITEM, how="inner")
    return table.sort(_ITEM)


def _find_last_rank(ranks: Sequence[LoggedRank]) -> LoggedRank:
    """The rank on which an item ends: the first if it works on it twice (encode and decode), else the last."""
    return ranks[0] if len(ranks[0].parts) > 1 else ranks[-1]


def _own_period(table: pl.DataFrame, rank: LoggedRank) -> Int64Array:
    return (table[f"end_ns.{rank.rank}"] - table[f"begin_ns.{rank.rank}"]).to_numpy()


def _measure_work(work: Intervals, table: pl.DataFrame, rank: LoggedRank) -> Int64Array:
    """How much of `work` lies between the ends of each item and the one before on `rank`."""
    return work.covered_ns(table[f"begin_ns.{rank.rank}"].to_numpy(), table[f"end_ns.{rank.rank}"].to_numpy())


def _sum_transfers(table: pl.DataFrame, ranks: Sequence[LoggedRank]) -> pl.Series:
    """The transfers that ranks logged, null where none did."""
    moved = [_of(rank, "moved_ns") for rank in ranks]
    logged = pl.any_horizontal(column.is_not_null() for column in moved)
    return table.select(moved=pl.when(logged).then(pl.sum_horizontal(moved)))["moved"]


def _measure_away(table: pl.DataFrame, ranks: Sequence[LoggedRank]) -> pl.Series:
    """From send to receive, without the work of the other ranks: transfers, and waiting in their queues.

    A difference of lengths, each on its own clock. Null where no rank logs both.
    """
    serial = pl.sum_horizontal(_of(rank, "stage_ns") for rank in ranks)
    away = [(_of(rank, "away_ns") - (serial - _of(rank, "stage_ns"))).clip(lower_bound=0) for rank in ranks]
    return table.select(away=pl.max_horizontal(away))["away"]


def _read_times(file: _File) -> Iterator[tuple[int, Times]]:
    """The rank and the times, in nanoseconds, of each record; what a line says of its file is kept there."""
    for line, record in enumerate(_records(file.path), start=1):
        timed = [key for key in record if key.startswith("t") and isinstance(record[key], (int, float))]
        if _HEAD in record or (not timed and not isinstance(record.get("item"), (int, float))):
            _note_file(file, record)
            continue
        numbers = _keep_numbers(record)
        rank = int(numbers.get("rank", file.rank))
        about = {key: value for key, value in numbers.items() if key in _ITEM}
        times = {key: value * file.factor for key, value in numbers.items() if key not in (*_ITEM, "rank")}
        if any(abs(number) > _FARTHEST_NS for number in (rank, *about.values(), *times.values())):
            raise UnreadableTrace(
                file.path, "a time is centuries away", place=f"line {line}", remedy="state the unit of the times"
            )
        yield rank, about | {key: round(time) for key, time in times.items()}


def _note_file(file: _File, record: Mapping[str, object]) -> None:
    file.factor = UNITS_NS.get(str(record.get("unit")), file.factor)
    if isinstance(rank := record.get("rank"), int):
        file.rank = rank
    if isinstance(every := record.get("every"), int) and every > 0:
        file.every = every
    file.clock = str(record.get("clock") or file.clock)
    if isinstance(facts := record.get("facts"), dict):
        file.facts.update({str(name): str(value) for name, value in facts.items()})


def _records(path: Path) -> Iterator[dict[str, object]]:
    """Each line by column."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableTrace(path, f"cannot be read as text: {error}", remedy="give JSON lines or CSV") from error
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _parse_line(path, number, line)
    else:
        rows = read_rows(text)
        try:
            heads = next(rows, [])
            for row in rows:
                yield dict(_keep_numbers(dict(zip(heads, row, strict=False))))
        except ValueError as error:
            raise UnreadableTrace(path, str(error), remedy="give JSON lines or CSV") from error


def _parse_line(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        record = parsed(line)
    except ValueError as error:
        raise UnreadableTrace(
            path, f"no JSON object: {error}", place=f"line {number}", remedy="mend or remove it"
        ) from error
    if not isinstance(record, dict):
        raise UnreadableTrace(path, "no JSON object", place=f"line {number}", remedy="mend or remove it")
    return record


def _keep_numbers(record: Mapping[str, object]) -> dict[str, float]:
    """The columns that hold finite numbers; whole ones stay whole."""
    numbers: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        try:
            number = int(value) if isinstance(value, str) and value.strip().lstrip("-").isdigit() else value
            number = float(number) if isinstance(number, str) else number
            is_finite = math.isfinite(number)
        except (ValueError, OverflowError):
            continue
        if is_finite:
            numbers[key] = number
    return numbers
