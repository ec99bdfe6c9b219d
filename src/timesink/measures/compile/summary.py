"""What a compiler's log adds up to, how much of a recorded run the host spent compiling, and exact counts for gates.

Of the log: compilations, graph breaks and recompilations per function; caches; phases. A recompilation is late where
every function of its rank had been compiled for the first time before it: then the program meets nothing new, and only
a guard fails again. Seconds of compilation are those of whole frames; phases are parts of them and of each other, so
they do not sum to them.

Counts of a compiled program are exact: a change of one is a change of the program, not noise.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import polars as pl

from timesink.knowledge.ranges import COMPILED_ONCE, COMPILING, NUMBER
from timesink.measures.compile import compiled_regions
from timesink.measures.steps import steps
from timesink.measures.timeline.launches import launches
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, COMPILE_EVENTS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class FrameSummary(Record):
    """One function on one rank. `guard` is the guard that failed most often, whatever the numbers in it, as it failed
    last; `guard_failures` is how often. `guards` is the number of guards, `eager` why the function runs uncompiled."""

    rank: int
    function: str
    file: str | None
    line: int | None
    compilations: int
    compile_ns: int
    recompilations: int
    late_recompilations: int
    guard: str | None
    guard_failures: int
    guards: int | None
    eager: str | None


class GraphBreak(Record):
    """One place at which graphs break, and how often the compiler met it."""

    rank: int
    file: str | None
    line: int | None
    reason: str | None
    function: str | None
    count: int


class CompileSummary(Record, eq=False):
    """The logs of all ranks. `caches`: hits, misses and bypasses. `phases`: name, time in ns and count, longest
    first."""

    frames: tuple[FrameSummary, ...]
    breaks: tuple[GraphBreak, ...]
    caches: dict[str, int]
    phases: tuple[tuple[str, int, int], ...]

    @property
    def graph_breaks(self) -> int:
        """Graph breaks of the rank that has most; the ranks of a job compile the same program."""
        return _most((part.rank, part.count) for part in self.breaks)

    @property
    def recompilations(self) -> int:
        """Recompilations of the rank that has most."""
        return _most((frame.rank, frame.recompilations) for frame in self.frames)

    @property
    def late_recompilations(self) -> int:
        """Of these, those after every function was compiled once."""
        return _most((frame.rank, frame.late_recompilations) for frame in self.frames)


@remembered
def compile_summary(trace: Trace) -> CompileSummary:
    """Sum up the log; everything is empty where the trace has none."""
    events = trace.get(COMPILE_EVENTS).with_columns(pl.col("event", "function", "file").cast(pl.String))
    initial = events.filter(pl.col("event") == "compile", pl.col("compilation") == 0)
    first_ns = dict(initial.group_by("rank").agg(pl.col("start_ns").max()).iter_rows())
    key = ["rank", "function", "file", "line"]
    named = events.filter(pl.col("function").is_not_null() & ~pl.col("event").is_in(["phase", *_CACHES]))
    parts = named.filter(pl.col("event") != "graph_break").partition_by(key, as_dict=True, maintain_order=True)
    frames = [_frame(part, first_ns.get(part["rank"][0], 0)) for part in parts.values()]
    frames.sort(key=lambda frame: (frame.rank, -frame.compile_ns, frame.function, frame.line or 0))
    caches = {name: int((events["event"] == name).sum()) for name in _CACHES}
    return CompileSummary(tuple(frames), _breaks(events), caches, _phases(events))


_CACHES = ("cache_hit", "cache_miss", "cache_bypass")


def _frame(part: pl.DataFrame, first_ns: int) -> FrameSummary:
    first = part.row(0, named=True)
    compiled = part.filter(pl.col("event") == "compile")
    again = part.filter(pl.col("event") == "recompile")
    reasons = again["reason"].drop_nulls().to_list()
    failed = Counter(_unnumbered(reason) for reason in reasons)
    alike, failures = min(failed.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    guard = next((reason for reason in reversed(reasons) if _unnumbered(reason) == alike), None)
    eager = part.filter(pl.col("event").is_in(["failure", "limit", "skipped"]))
    guards = part["guards"].drop_nulls()
    return FrameSummary(
        rank=first["rank"],
        function=first["function"],
        file=first["file"],
        line=first["line"],
        compilations=compiled.height,
        compile_ns=int((compiled["end_ns"] - compiled["start_ns"]).sum()),
        recompilations=again.height,
        late_recompilations=int((again["start_ns"] > first_ns).sum()),
        guard=guard,
        guard_failures=failures,
        guards=int(guards.to_numpy().max()) if len(guards) else None,
        eager=f"{eager['event'][-1]}: {_first_line(eager['reason'][-1])}" if eager.height else None,
    )


def _first_line(reason: str | None) -> str:
    """What the compiler says before it explains, hints and refers."""
    return next((line.strip().rstrip(":") for line in (reason or "").splitlines() if line.strip()), "no reason given")


def _unnumbered(guard: str) -> str:
    """The guard without the numbers it compares with: one guard fails for another number each time."""
    return re.sub(NUMBER, "#", guard)


def _breaks(events: pl.DataFrame) -> tuple[GraphBreak, ...]:
    key = ["rank", "file", "line", "reason"]
    rows = events.filter(pl.col("event") == "graph_break")
    counted = rows.group_by(key).agg(pl.col("function").drop_nulls().first(), pl.len().alias("count"))
    ordered = counted.sort("rank", "count", "file", "line", "reason", descending=[False, True, False, False, False])
    return tuple(GraphBreak(*row) for row in ordered.select(*key, "function", "count").iter_rows())


def _phases(events: pl.DataFrame) -> tuple[tuple[str, int, int], ...]:
    rows = events.filter(pl.col("event") == "phase")
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("time")
    counted = rows.group_by("function").agg(length, pl.len().alias("count"))
    return tuple(counted.sort("time", "function", descending=[True, False]).iter_rows())


def _most(counts: Iterable[tuple[int, int]]) -> int:
    totals: Counter[int] = Counter()
    for rank, count in counts:
        totals[rank] += count
    return max(totals.values(), default=0)


class CompileTime(Record):
    """One rank: time in which any thread compiled, of the recorded span from its first event to its last."""

    rank: int
    compile_ns: int
    span_ns: int

    @property
    def share(self) -> float:
        """Share of the span, 0 to 1."""
        return self.compile_ns / self.span_ns if self.span_ns else 0.0


@remembered
def compile_time(trace: Trace) -> tuple[CompileTime, ...]:
    """The time each rank with device work spent compiling."""
    tables = [trace.get(table).select("rank", "name", "start_ns", "end_ns") for table in (RANGES, HOST_OPS)]
    compiling = pl.concat([frame.filter(matches(frame["name"], COMPILING)) for frame in tables], how="vertical_relaxed")
    recorded = [*tables, trace.get(API_CALLS), trace.get(DEVICE_OPS)]
    ends = (pl.col("start_ns").min(), pl.col("end_ns").max())
    spans = pl.concat([part.group_by("rank").agg(ends) for part in recorded]).group_by("rank").agg(ends)
    spans = spans.filter(pl.col("rank").is_in(trace.get(DEVICE_OPS)["rank"].unique().implode())).sort("rank")
    return tuple(
        CompileTime(rank, Intervals.of(compiling.filter(pl.col("rank") == rank)).total_ns, last_ns - first_ns)
        for rank, first_ns, last_ns in spans.iter_rows()
    )


@remembered
def compile_counters(trace: Trace) -> Mapping[str, float]:
    """The counts of a trace, a log, or both read together, without those that were not recorded: breaks and
    recompilations need a log; the rest needs a trace, with steps. Per step: the device that has most."""
    log = compile_summary(trace) if COMPILE_EVENTS in trace else None
    regions = compiled_regions(trace) if DEVICE_OPS in trace else ()
    queues = launches(trace).values() if DEVICE_OPS in trace else ()
    made = [queue.launches_per_step for queue in queues if queue.launches_per_step is not None]
    counts = {
        "graph_breaks": log.graph_breaks if log else None,
        "recompilations": log.recompilations if log else None,
        "late_recompilations": log.late_recompilations if log else None,
        "steady_compilations": _steady(trace),
        "regions_per_step": max((part.per_step for part in regions), default=None),
        "graphs_per_step": max((part.graphs for part in regions), default=None),
        "launches_per_step": max(made, default=None),
    }
    return {name: float(count) for name, count in counts.items() if count is not None}


def _steady(trace: Trace) -> int | None:
    """Compilations that begin in kept steps, of the rank with most; None without kept steps."""
    kept = steps(trace).kept
    if not kept.height:
        return None
    marks = kept.select("rank", "process", "host_start_ns", "host_end_ns").sort("host_start_ns")
    counts = [0]
    for frame in (trace.get(RANGES), trace.get(HOST_OPS)):
        part = frame.filter(matches(frame["name"], COMPILED_ONCE) & (frame["process"] >= 0)).sort("start_ns")
        joined = part.select("rank", "process", "start_ns").join_asof(
            marks, left_on="start_ns", right_on="host_start_ns", by=["rank", "process"], check_sortedness=False
        )
        inside = joined.filter(pl.col("start_ns") < pl.col("host_end_ns"))
        counts.append(int(inside.group_by("rank").len()["len"].to_numpy().max(initial=0)))
    return max(counts)
