"""Where steps begin on the host: ProfilerStep ranges, else ranges that repeat at top level, else nothing.

Order of trust follows the profilers' own marks first; a kernel pattern that repeats is `periodicity.py`'s last resort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from timesink.model.names import mapped, matches
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace

PROFILER_STEP = r"^ProfilerStep#\d+$"
STEP_NAME = r"(?i)(^|[^a-z])(step|iter|iteration|batch|micro_?batch|execute_model)[^a-z]*$"
NO_STEP_NAME = r"(?i)optim|sched|load|fetch|next|zero|copy|log"
FRAMEWORK_NAME = (
    r"^[A-Za-z_]\w*::|, (seq|op_id) = "  # aten::, FSDP:: and the ranges of emit_nvtx are operators, not steps
)
REPEATS = 3  # two occurrences show one period, and no second one to check it by
STEADY_SHARE = 2 / 3  # of the distances between unnamed marks must lie within a factor of two of their median

_THREAD = ("rank", "process", "thread")


class Marker(StrEnum):
    """What told steps apart."""

    PROFILER_STEP = "profiler_step"
    RANGE = "range"
    KERNEL_PATTERN = "kernel_pattern"


@dataclass(frozen=True, slots=True, eq=False)
class MarkedSteps:
    """Steps of one process: `frame` has label, thread, host_start_ns, host_end_ns, mark_end_ns, in order of start.

    A step lasts from its mark to the next; the last one to the end of its own range, or, where the marks are phases
    that fill less than half of the period, for the median period. `mark_end_ns` is the end of the step's own range,
    which may leave a stretch before the next mark. `name` is the mark's stem.
    """

    rank: int
    process: int
    marker: Marker
    name: str
    frame: pl.DataFrame


def marked_steps(trace: Trace) -> list[MarkedSteps]:
    """The steps each process marked, in order of (rank, process); processes without marks are left out."""
    profiler = _profiler_steps(trace)
    named = {(found.rank, found.process): found for found in _range_steps(trace)}
    return [marked for _, marked in sorted((named | profiler).items())]


def _profiler_steps(trace: Trace) -> dict[tuple[int, int], MarkedSteps]:
    columns = [*_THREAD, "name", "start_ns", "end_ns"]
    parts = [
        frame.filter(matches(frame["name"], PROFILER_STEP)).select(columns)
        for frame in (trace.get(RANGES), trace.get(HOST_OPS))
    ]
    rows = pl.concat([part.with_columns(pl.col("name").cast(pl.String)) for part in parts])
    found = {}
    for (rank, process), steps in _by(rows.unique(maintain_order=True), "rank", "process"):
        thread = _most_frequent(steps["thread"])
        found[rank, process] = _marked(
            steps.filter(pl.col("thread") == thread), rank, process, (Marker.PROFILER_STEP, "ProfilerStep")
        )
    return found


def _range_steps(trace: Trace) -> Iterator[MarkedSteps]:
    ranges = trace.get(RANGES)
    stems = mapped(ranges["name"], lambda names: names.str.replace_all(r"\d+", "#"), pl.String).alias("stem")
    rows = ranges.select(*_THREAD, "depth", "name", "start_ns", "end_ns").with_columns(stems)
    rows = rows.filter(~pl.col("stem").str.contains(FRAMEWORK_NAME))
    launches = trace.get(API_CALLS).filter(pl.col("correlation").is_not_null()).select(*_THREAD, "start_ns")
    for (rank, process), mine in _by(_top_repeats(rows), "rank", "process"):
        calls = launches.filter((pl.col("rank") == rank) & (pl.col("process") == process))
        chosen = _best_family(mine, calls)
        if chosen is not None:
            thread, stem = chosen
            steps = mine.filter((pl.col("thread") == thread) & (pl.col("stem") == stem))
            steps = steps.with_columns(pl.col("name").cast(pl.String))
            yield _marked(steps, rank, process, (Marker.RANGE, stem))


def _top_repeats(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges of the outermost depth of their thread at which any name comes back often enough."""
    family = [*_THREAD, "depth", "stem"]
    often = rows.group_by(family).len().filter(pl.col("len") >= REPEATS)
    top = often.filter(pl.col("depth") == pl.col("depth").min().over(_THREAD))
    return rows.join(top.select(family), on=family, how="semi", maintain_order="left")


def _best_family(rows: pl.DataFrame, launches: pl.DataFrame) -> tuple[int, str] | None:
    """(thread, stem) of the ranges that best mark steps: named like a step, else steady and covering most time.

    Ranges in which nothing is launched mark no step by themselves; if those that do come in rounds of several, the
    first of the round is the mark.
    """
    families = (
        rows.group_by("thread", "stem")
        .agg(
            pl.len().alias("count"),
            pl.col("start_ns").min().alias("first"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("covered"),
            _steady(pl.col("start_ns").sort().diff().drop_nulls()).alias("steady"),
        )
        .with_columns(_hinted(pl.col("stem")).alias("hinted"))
        .filter(pl.col("hinted") | pl.col("steady"))
        .sort(["hinted", "covered", "thread", "stem"], descending=[True, True, False, False])
    )
    working = [f for f in families.iter_rows(named=True) if _launches_inside(rows, launches, f["thread"], f["stem"])]
    if not working:
        return None
    best = working[0]
    if not best["hinted"]:
        alike = families.filter(
            (pl.col("thread") == best["thread"]) & ((pl.col("count") - best["count"]).abs() <= 1)
        ).sort("first", "stem")
        best = alike.row(0, named=True)
    return best["thread"], best["stem"]


def _steady(distance: pl.Expr) -> pl.Expr:
    middle = distance.median()
    return distance.is_between(middle / 2, 2 * middle).mean() >= STEADY_SHARE


def _hinted(stem: pl.Expr) -> pl.Expr:
    plain = stem.str.strip_chars("#_ .:-")
    return plain.str.contains(STEP_NAME) & ~plain.str.contains(NO_STEP_NAME)


def _launches_inside(rows: pl.DataFrame, launches: pl.DataFrame, thread: int, stem: str) -> bool:
    """Whether any launching call lies in one of the family's ranges; true where the trace has no such calls at all."""
    if not launches.height:
        return True
    mine = rows.filter((pl.col("thread") == thread) & (pl.col("stem") == stem)).sort("start_ns")
    inside = launches.sort("start_ns").join_asof(mine.select("start_ns", "end_ns"), on="start_ns", suffix="_range")
    return bool(inside.select((pl.col("end_ns") > pl.col("start_ns")).any()).item())


def _marked(steps: pl.DataFrame, rank: int, process: int, mark: tuple[Marker, str]) -> MarkedSteps:
    ordered = steps.sort("start_ns", "end_ns", "name").unique("start_ns", keep="last", maintain_order=True)
    start, end = pl.col("start_ns"), pl.col("end_ns")
    period, length = start.diff().median(), (end - start).median()
    last_end = pl.when(2 * length < period).then(start + period.cast(pl.Int64)).otherwise(end)
    frame = ordered.select(
        pl.col("name").alias("label"),
        "thread",
        start.alias("host_start_ns"),
        start.shift(-1).fill_null(last_end).alias("host_end_ns"),
        end.alias("mark_end_ns"),
    )
    return MarkedSteps(rank=rank, process=process, marker=mark[0], name=mark[1], frame=frame)


def _by(rows: pl.DataFrame, *keys: str) -> Iterator[tuple[tuple[int, int], pl.DataFrame]]:
    for (rank, process), part in sorted(rows.partition_by(keys, as_dict=True, maintain_order=True).items()):
        yield (int(rank), int(process)), part


def _most_frequent(values: pl.Series) -> int:
    counts = values.value_counts().sort(["count", values.name], descending=[True, False])
    return int(counts[values.name][0])
