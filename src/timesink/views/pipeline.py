"""The tables and the picture of `timesink ranks --pipeline`: what stages say of the period, item by item and against
another run. Stages come from logs, or from traces of all ranks; then the schedule and its price are there too."""

from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Final, Self

import polars as pl

from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.profiler_texts import STAGE_RUN
from timesink.measures.communication.depths import Depths, Stage, depths
from timesink.measures.communication.pipelines import Schedule, ideal_bubble, schedule
from timesink.measures.communication.stage_logs import Part, StageLogs, read_stage_logs
from timesink.measures.communication.stage_traces import traced_stages
from timesink.measures.steps import step_times
from timesink.model.trace import Trace
from timesink.readers.formats import recognised
from timesink.records import Record, replace
from timesink.units import NS_PER_S, share_text, time_text
from timesink.verify.calibration import RunDeviation, judge_captures
from timesink.verify.limits import STEP_THRESHOLD
from timesink.verify.outcomes import ChangeVerdict
from timesink.views import Cell, Field, Page, Sheet, declare, listed, sheet_of
from timesink.views.figures import Chart, GanttChart, StageChart, StageSpan
from timesink.views.stage_parts import parts_named

_FULL, _NONE = 0.95, 0.05  # scores that are called the longest stage, and the sum
_ITEMS_SHOWN: Final = 12  # of a text, so that it stays on one screen
_QUANTILES = "p50_ns: p50, p90_ns: p90, p99_ns: p99"
# Times of the whole pipeline.
_TIMES = declare(
    "period_ns: period, hidden_ns: hidden, transfer_ns: transfer, away_ns: transfer and waiting, "
    "mesh_idle_ns: no stage works"
)


class PipelineGate(Record):
    """What a pipeline must reach: an OverlapScore of `least_score`, and a median period of `most_period_ns` or less."""

    least_score: float
    most_period_ns: float | None = None

    def failures(self, logs: StageLogs) -> list[str]:
        """A sentence for each limit that the logs miss; a single stage has no score and fails."""
        missed = []
        if logs.score is None:
            missed.append("one stage alone has no OverlapScore")
        elif logs.score < self.least_score:
            missed.append(f"OverlapScore {logs.score:.2f} is below {self.least_score:g}")
        period_ns = logs.overlap.period_ns
        if self.most_period_ns is not None and period_ns > self.most_period_ns:
            missed.append(f"the period of {time_text(period_ns)} is above {time_text(self.most_period_ns)}")
        return missed


_FORETOLD: Final = (2, 4)  # times as many items, or micro-batches, as now
_RECORDS: Final = (".jsonl", ".ndjson")
_LOGS: Final = (*_RECORDS, ".csv", ".log", ".txt")


def are_logs(paths: Sequence[Path]) -> bool:
    """Whether files are logs of stages, by their names; else they are traces."""
    return all(path.suffix.lower() in _LOGS for path in paths)


def are_records(paths: Sequence[Path]) -> bool:
    """The same where other files may be meant: a compiler's log has a name like that, and a kernel report is CSV."""
    reports = [path for path in paths if path.suffix.lower() == ".csv" and path.is_file() and recognised(path)]
    return not reports and all(path.suffix.lower() in (*_RECORDS, ".csv") for path in paths)


def logs_of_ranks(paths: Sequence[Path]) -> list[Path]:
    """The files; for one that is not there the logs that each rank wrote under that name, run.rank0.jsonl for
    run.jsonl."""
    found: list[Path] = []
    for path in paths:
        ranks = [] if path.exists() else sorted(path.parent.glob(f"{escape(path.stem)}.rank*{path.suffix}"))
        found += ranks or [path]
    return found


class Staged(Record):
    """The stages of a run, and the trace that they are from, if any."""

    logs: StageLogs
    trace: Trace | None = None

    @classmethod
    def logged(cls, paths: Sequence[Path], unit: str = "s", columns: str = "", skip: int = 0) -> Self:
        """What `paths` logged. `columns` names parts, ``encode=t_in..t_out,send=t_out..t_sent``; '' for those that are
        named by custom."""
        return cls(read_stage_logs(logs_of_ranks(paths), unit, [Part(*part) for part in parts_named(columns)], skip))

    @classmethod
    def traced(cls, trace: Trace, skip: int = 0) -> Self:
        """What a trace of all ranks shows, without the first `skip` steps."""
        return cls(traced_stages(trace, skip), trace)


def pipeline_page(staged: Staged, gate: PipelineGate) -> tuple[Page, bool]:
    """The answer in a sentence, the stages, the quantities per item as quantiles, what a change would do, and each
    item; and whether it passes."""
    logs = staged.logs
    missed = gate.failures(logs)
    title = f"{statement(logs)}{_failed(missed)}"
    shown = (_stages(logs), _overlap(logs, gate, not missed), _quantities(logs), *_changed(staged), _items(logs))
    charts: list[Chart] = [stage_chart(logs, title), *gantt_charts(logs)]
    return Page(title, shown, notes(logs), charts=tuple(charts)), not missed


_GANTT_ITEMS: Final = 10  # as many as can be told apart


def gantt_charts(logs: StageLogs) -> Iterator[GanttChart]:
    """Who worked on which item, when, for the last items; none where only sums of stages, or some items, are known.

    Without one clock every rank is drawn on its own, from its own first item on.
    """
    items = logs.series["item"].tail(_GANTT_ITEMS).to_list()
    kept = [rank.spans.filter(pl.col("item").is_in(items)) for rank in logs.ranks]
    if logs.is_sample or not all(spans.height for spans in kept):
        return
    first = [int(spans["begin_ns"].min()) for spans in kept]  # type: ignore[arg-type]
    origin = [min(first)] * len(first) if logs.one_clock else first
    parts = tuple(dict.fromkeys(part for spans in kept for part in spans["part"].to_list()))
    spans = tuple(
        StageSpan(row, f"{item:g}", parts.index(part), begin - origin[row], end - origin[row])
        for row, some in enumerate(kept)
        for item, part, begin, end in some.select("item", "part", "begin_ns", "end_ns").iter_rows()
    )
    clock = "one clock" if logs.one_clock else _OWN_CLOCKS
    title, note = f"Who worked when: the last {len(items)} items", f"blank: the rank stood still; {clock}"
    ranks = tuple(rank.name for rank in logs.ranks)
    yield GanttChart(title, note, max(span.end_ns for span in spans), ranks, parts, spans)


_OWN_CLOCKS = "every rank on its own clock, from its own first item on: rows are not in step"


def stage_chart(logs: StageLogs, title: str) -> StageChart:
    """The period, the stages and the bubble of each item."""

    def values(column: str) -> tuple[float, ...]:
        return tuple(logs.series[column].cast(pl.Float64).to_list())

    stages = tuple((rank.name, values(f"stage{rank.rank}_ns")) for rank in logs.ranks)
    items = tuple(f"{item:g}" for item in logs.series["item"])
    return StageChart(title, items, values("period_ns"), stages, values("bubble_ratio"))


def _changed(staged: Staged) -> Iterator[Sheet]:
    """What fills the bubble, and what more items at a time or more micro-batches would do."""
    logs, trace = staged.logs, staged.trace
    plan = None if trace is None else schedule(trace)
    if trace is not None and plan is not None and not plan.is_serial:
        yield _bubble(plan)
        yield _schedules(plan)
        return
    if logs.score is None or logs.score > _NONE:
        return
    apart = None if trace is None else depths(trace)
    stages = tuple(Stage(stage.time_ns, 1.0) for stage in logs.overlap.stages)
    moved_ns = max(0.0, logs.overlap.period_ns - logs.overlap.serial_ns) / len(stages)
    found = apart if apart is not None else Depths(stages, moved_ns, measured=False)
    columns, now_ns = "depth: items at a time, period_ns: period, saves_ns: saves", logs.overlap.period_ns
    rows = ((depth, then_ns := found.period_ns(depth), max(0.0, now_ns - then_ns)) for depth in _FORETOLD)
    if apart is None:
        note = "if stages do not slow each other; receives that wait beside them do: read traces to count that"
    else:
        how = "as kernels did that ran both ways" if apart.measured else "by the SMs that receives hold"
        note = f"stages beside a waiting receive take {apart.stages[0].slowdown:.2f} times as long, {how}"
    yield sheet_of("depths", "with more items at a time, predicted", rows, columns, note)


def _bubble(plan: Schedule) -> Sheet:
    names = ("fills and drains", "uneven stages", "transfers, launches and waiting")
    times_ns = (plan.filling_ns, plan.uneven_ns, plan.excess_ns)
    rows = ((name, ns, ns / max(plan.period_ns, 1.0)) for name, ns in zip(names, times_ns, strict=True))
    note = f"{plan.title}; ideal (p - 1) / (v m + p - 1): {share_text(plan.ideal_ratio)}"
    return listed("pipeline.bubble", rows, note)


def _schedules(plan: Schedule) -> Sheet:
    """The ideal bubble of other numbers of micro-batches and chunks, and the step that is foretold of the former."""
    count, rows = len(plan.stage_ns), list[tuple[Cell, ...]]()
    for more in _FORETOLD:
        many = more * plan.micro_batches
        most, step, least = (plan.period_ns - gain for gain in plan.gain_ns(many, 1.0))
        rows.append((many, plan.chunks, ideal_bubble(count, many, plan.chunks), step, least, most))
    chunks = plan.chunks + 1
    rows.append((plan.micro_batches, chunks, ideal_bubble(count, plan.micro_batches, chunks), None, None, None))
    return listed("pipeline.schedules", rows)


def _failed(missed: Sequence[str]) -> str:
    return f"; FAILED: {', '.join(missed)}" if missed else ""


def statement(logs: StageLogs) -> str:
    """``period 450 ms at depth=2 is the longest stage (rank 0 (A + decode), 450 ms): OverlapScore 1.00``."""
    overlap, score = logs.overlap, logs.score
    at = ", ".join(f"{name}={value}" for name, value in logs.facts.items())
    rate = rate_text(overlap.period_ns, logs.facts, "item")
    period = f"period {time_text(overlap.period_ns)}{f' at {at}' if at else ''} ({rate})"
    longest = f"the longest stage ({overlap.longest.name}, {time_text(overlap.longest.time_ns)})"
    if score is None:
        return f"{period}: one stage alone, {time_text(overlap.longest.time_ns)}, overlaps with nothing"
    if score >= _FULL:
        return f"{period} is {longest}: OverlapScore {score:.2f}"
    serial = f"the sum of the stages ({time_text(overlap.serial_ns)})"
    if overlap.period_ns > overlap.serial_ns:
        waits = time_text(overlap.period_ns - overlap.serial_ns)
        return f"{period} is {serial} and {waits} of transfers and waiting: OverlapScore {score:.2f}"
    if score <= _NONE:
        return f"{period} is {serial}: OverlapScore {score:.2f}"
    return f"{period} lies between {longest} and {serial}: OverlapScore {score:.2f}"


_COUNTED: Final = {
    "frames": "frames",
    "tokens": "tokens",
    "images": "images",
    "batch": "samples",
    "batch_size": "samples",
}


def rate_text(period_ns: float, facts: Mapping[str, str], item: str = "step") -> str:
    """How many in a second: ``97.8 frames/s`` where a fact of the run counts those of a step, else ``32.6 steps/s``."""
    many = ((facts.get(name, ""), what) for name, what in _COUNTED.items())
    count, what = next(((int(text), what) for text, what in many if text.isdecimal() and int(text)), (1, f"{item}s"))
    if not period_ns:
        return f"no {what}"
    rate = count * NS_PER_S / period_ns
    return f"{rate:,.0f} {what}/s" if rate >= 1000 else f"{rate:.3g} {what}/s"


def notes(logs: StageLogs) -> tuple[str, ...]:
    """What the figures do not hold."""
    said = ["OverlapScore: 0 one stage after another, 1 the period is the longest stage; parts of a rank are one stage"]
    if not logs.one_clock:
        said.append("the ranks have clocks of their own, which are not compared: when no stage works is not known")
    if logs.is_sample:
        said.append(
            f"{STAGE_RUN} of each {logs.every} items were timed, one after the other: figures are of the second "
            "of them, and what the ranks did meanwhile for items that were not timed is not known, "
            "so no idle time is given"
        )
    if logs.left_out:
        said.append(f"{logs.left_out} items that not every rank logged are left out")
    return tuple(said)


def _stages(logs: StageLogs) -> Sheet:
    """The longest sets the pace, so it stands first."""
    columns = f"stage [name], {_QUANTILES}" + ("" if logs.is_sample else ", idle_ns: idle p50")
    rows = []
    for rank in sorted(logs.ranks, key=lambda rank: -_median(logs.series[f"stage{rank.rank}_ns"])):
        idle = () if logs.is_sample else (_median(logs.series[f"idle{rank.rank}_ns"]),)
        rows.append((rank.name, *_quantiles(logs.series[f"stage{rank.rank}_ns"]), *idle))
    return sheet_of("stages", "stages", rows, columns, "all that a rank works on an item")


def _overlap(logs: StageLogs, gate: PipelineGate, passed: bool) -> Sheet:
    overlap = logs.overlap
    score = None if logs.score is None else round(logs.score, 4)  # digits that mean something
    seen = (overlap.period_ns, overlap.serial_ns, overlap.headroom_ns, overlap.bubble_ratio, score)
    row = (*seen, gate.least_score, gate.most_period_ns, "yes" if passed else "no")
    return listed("pipeline.overlap", (row,))


def _quantities(logs: StageLogs) -> Sheet:
    """Per item: how often which value."""
    rows = ((time.head, *_quantiles(logs.series[time.key])) for time in _timed(logs))
    note = f"{logs.series.height} items; p90 from {assumed.P90_NEEDS.whole} on, p99 from {assumed.P99_NEEDS.whole}"
    return sheet_of("quantities", "per item", rows, f"quantity: per item [name], {_QUANTILES}", note)


def _timed(logs: StageLogs) -> list[Field]:
    """The times of the whole pipeline that the series hold."""
    return [time for time in _TIMES if logs.series[time.key].count()]


def _items(logs: StageLogs) -> Sheet:
    """A row per item, whole in JSON and CSV."""
    period, *others = _timed(logs)
    stages = (f"stage{rank.rank}_ns: rank {rank.rank}" for rank in logs.ranks)
    idle = (f"idle{rank.rank}_ns: rank {rank.rank} idle" for rank in logs.ranks if not logs.is_sample)
    columns = declare("item", period, *stages, *others, *idle, "bubble_ratio: bubble")
    return sheet_of("items", "items", logs.series, columns)


def in_text(page: Page) -> Page:
    """The page with the first items only, for readers of text."""
    *sheets, items = page.sheets
    more = len(items.rows) - _ITEMS_SHOWN
    if items.key != "items" or more <= 0:
        return page
    first = replace(items, rows=items.rows[:_ITEMS_SHOWN], note=f"{more} more with -f csv")
    return replace(page, sheets=(*sheets, first))


def _quantiles(values: pl.Series) -> tuple[Cell, ...]:
    """p50, p90 and p99; None where there are too few values."""
    times = step_times(values.drop_nulls())
    return times.p50_ns, times.p90_ns, times.p99_ns


def _median(values: pl.Series) -> float:
    return float(values.quantile(0.5, "linear") or 0.0)


def compared_page(
    sides: tuple[Staged, Staged], gate: PipelineGate, deviation: RunDeviation | None = None
) -> tuple[Page, bool]:
    """What changed from one run to another: the period first, with the verdict of `compare`, then what it is made of;
    and whether the second passes. Without a `deviation` between runs one run a side gives no final verdict."""
    before, after = (side.logs for side in sides)
    missed = gate.failures(after)
    old, new = before.overlap.period_ns, after.overlap.period_ns
    verdict = _judged(before, after, "period_ns", deviation)
    change = f"{100 * (new / old - 1):+.1f} %" if old else "–"
    title = f"period {time_text(old)} -> {time_text(new)} ({change}): {verdict.label}; "
    title += f"OverlapScore {_score(before)} -> {_score(after)}"
    title += f": now {statement(after).split(' is ', 1)[-1]}" if " is " in statement(after) else ""
    why = [f"{verdict.label}: {verdict.explanation}; {verdict.to_resolve}"] if verdict.explanation else []
    said = (f"before: {statement(before)}", *why, *notes(after))
    sheet = listed("pipeline.changes", _changes(before, after, deviation))
    return Page(f"{title}{_failed(missed)}", (sheet,), said), not missed


def _judged(before: StageLogs, after: StageLogs, column: str, deviation: RunDeviation | None) -> ChangeVerdict:
    old, new = (logs.series[column].drop_nulls().cast(pl.Float64).to_list() for logs in (before, after))
    return judge_captures(old, new, STEP_THRESHOLD, deviation)


def _score(logs: StageLogs) -> str:
    return "–" if logs.score is None else f"{logs.score:.2f}"


def _changes(before: StageLogs, after: StageLogs, deviation: RunDeviation | None) -> Iterator[tuple[Cell, ...]]:
    shown = _timed(before)
    named = {
        **{time.key: time.head for time in _timed(after) if time in shown},
        **{f"stage{rank.rank}_ns": rank.name for rank in after.ranks},
        **{f"idle{rank.rank}_ns": f"rank {rank.rank} idle" for rank in after.ranks},
    }
    for column, words in named.items():
        if column not in before.series.columns or not (before.series[column].count() and after.series[column].count()):
            continue
        old, new = _median(before.series[column]), _median(after.series[column])
        is_time = column == "period_ns" or column.startswith("stage")  # waits and gaps may be nothing: no ratio
        effect = _judged(before, after, column, deviation) if is_time else None
        known = None if effect is None else effect.effect
        ratios = (None, None, None) if known is None else (known.ratio - 1, known.low - 1, known.high - 1)
        yield words, old, new, new - old, *ratios, None if effect is None else effect.label
