"""The trace that answers: how `timesink.read` makes it, and what it is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, overload

from timesink.errors import UsageError, unknown
from timesink.model import trace as model
from timesink.model.presentable import Frames, given_as
from timesink.model.span import Span
from timesink.model.tables import ALL, DEVICE_OPS, KERNEL_PROFILES
from timesink.model.window import Window
from timesink.notebook.display import TimelinePicture, origin_of
from timesink.records import field_names, replace
from timesink.units import NS_PER_MS

if TYPE_CHECKING:
    from typing import TypeAlias

    import polars as pl

    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.untrusted.budget import ReadLimits
    from timesink.verify.outcomes import GateResult
    from timesink.views import Page

    # What `timesink.read` takes, or what it returned.
    Capture: TypeAlias = model.Trace | str | Path | Sequence[str | Path]


class AnsweringTrace(model.Trace):
    """Tables of one or more ranks on one clock, and the questions that can be asked of them.

    Every question is answered as the command of the same name answers it. Where the trace cannot answer, a `UsageError`
    says what to record instead; nothing is answered from tables that are not there.

    >>> trace = timesink.read("run.json.gz")
    >>> trace
    <Trace run.json.gz: 1 rank, 10 tables, 33,463 rows>
    """

    def diagnose(
        self,
        *,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        overrides: Mapping[str, float] = MappingProxyType({}),
        unprofiled_step_ms: float | None = None,
    ) -> Diagnosis:
        """The bottleneck, and what a fix would win back: `timesink diagnose`.

        `only` and `skip` take codes of rules, or how they begin. `overrides` maps ``"CODE.limit"`` to a value.
        `unprofiled_step_ms` is the step time without a profiler, in milliseconds, against which host work is priced.

        >>> trace.diagnose()
        <Diagnosis input_pipeline: ... findings, ... rules>
        >>> [card.code for card, _ in trace.diagnose(only=["IDL101"]).findings]
        ['IDL101']
        """
        from timesink.diagnosis.engine import diagnose
        from timesink.diagnosis.registry import all_rules, find_all
        from timesink.diagnosis.undiagnosable import check_diagnosis

        unwanted = find_all(skip)
        rules = tuple(rule for rule in find_all(only) or all_rules() if rule not in unwanted)
        diagnosis = diagnose(self, rules, overrides, unprofiled_step_ms)
        check_diagnosis(self, diagnosis)
        return replace(diagnosis, origin=origin_of("diagnose", self))

    def summary(self, *, top: int = 10) -> Page:
        """Budget, steps, kernels, operators, copies, waits and launches, `top` rows a table: `timesink show`.

        >>> trace.summary(top=3).table("steps")["count"][0]
        11
        """
        from timesink.diagnosis.undiagnosable import check_timeline
        from timesink.views.summary import summary_page

        check_timeline(self, "times")
        return replace(summary_page(self, top), origin=origin_of("summary", self))

    def idle(self, *, top: int = 15) -> Page:
        """What each GPU waited for while it was idle, and the `top` places: `timesink show idle`.

        >>> trace.idle().table("causes").select("cause", "idle_ns").row(0)
        ('loader', 20340364)
        """
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.summary import idle_page

        check_device_work(self, "idle time")
        return replace(idle_page(self, top), origin=origin_of("idle", self))

    def kernels(self, *, top: int = 10) -> Page:
        """Of a Nsight Compute report what limits each kernel (`timesink kernels`); of a timeline the `top` kernels by
        time.

        >>> trace.kernels(top=1).table("kernels")["count"][0]
        204
        >>> timesink.read("report.ncu-rep").kernels().table("kernels")["limiter"][0]
        'memory_bound_kernel'
        """
        if KERNEL_PROFILES in self and DEVICE_OPS not in self:
            from timesink.views.kernels import kernels_page

            page = kernels_page(self)
        else:
            from timesink.diagnosis.undiagnosable import check_device_work
            from timesink.views.summary import timed_kernels_page

            check_device_work(self, "kernel time")
            page = timed_kernels_page(self, top)
        return replace(page, origin=origin_of("kernels", self))

    def ranks(self, *, top: int = 16) -> Page:
        """Which rank is late, and what is waiting and what is transfer: `timesink ranks`.

        >>> timesink.read("traces/").ranks().table("budgets").select("rank", "span_ns").rows()
        [(0, 145824081), (1, 111795948)]
        """
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.ranks import page_of_trace

        check_device_work(self, "time of each rank")
        return replace(page_of_trace(self, top), origin=origin_of("ranks", self))

    def timeline(self, diagnosis: Diagnosis | None = None, *, full: bool = False) -> TimelinePicture:
        """The timeline of `timesink report`, which a notebook shows. With a diagnosis its findings are marked.

        Where there are more events than a page of 2 MB holds, short ones that follow one another closely share a box;
        `full` keeps each by itself.

        >>> trace.timeline(trace.diagnose())
        <TimelinePicture of 148 ms: 1 rank, 9 lanes, 35,060 events>
        """
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.report import claims_of
        from timesink.views.timeline import timeline_of
        from timesink.views.timeline.runs import MOST_RUNS

        check_device_work(self, "timeline")
        claims = () if diagnosis is None else claims_of(diagnosis)
        drawn = timeline_of(self, claims, sys.maxsize if full else MOST_RUNS)
        if drawn is None:
            raise UsageError("nothing ran on a GPU, so there is no timeline", remedy="record a run that uses one")
        return TimelinePicture(drawn)

    def plan(self, *, unprofiled_step_ms: float | None = None) -> Page:
        """What to change, in which order, and where it ends: `timesink plan`.

        Each change is replayed in the program that those before it leave, and together they win what the last row says.

        >>> trace.plan().table("ladder").select("change", "effort").row(0)
        ('loader_workers', 'a flag')
        """
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.plan import plan_page

        check_device_work(self, "step to plan for")
        return replace(plan_page(_of_step(self, unprofiled_step_ms)), origin=origin_of("plan", self))

    def what_if(self, *changes: str, unprofiled_step_ms: float | None = None) -> Page:
        """The price of changes before they are made, written as for `timesink plan --change`.

        `UsageError` for a change that cannot be read, and for a trace without steps.

        >>> prices = trace.what_if("remove_sync", "scale kernel:nvjet 0.5").table("prices")
        >>> prices["change"].to_list()[:2]
        ['remove_sync', 'scale kernel:nvjet 0.5']
        """
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.fixes.table import parse_change
        from timesink.views.plan import what_if_page

        if not changes:
            raise UsageError("no change to price given", remedy='name one, such as what_if("remove_sync")')
        parsed = tuple(parse_change(text) for text in changes)
        check_device_work(self, "step to replay")
        page = what_if_page(_of_step(self, unprofiled_step_ms), parsed)
        return replace(page, origin=origin_of("what-if", self))

    def compare(self, after: model.Trace) -> GateResult:
        """What moved from this trace to a later one: `timesink.compare`."""
        return compare(self, after)

    def window(self, span: str) -> AnsweringTrace:
        """The same trace cut to a stretch, counted from its first event: `--window`.

        `UsageError` for what is no window, and for one that begins after the trace's end.

        >>> trace.window("40ms:100ms")
        <Trace run.json.gz: 1 rank, 10 tables, 13,947 rows>
        """
        extent = self.extent_ns
        if extent is None:
            raise UsageError(f"{self.source} holds nothing that has a time", remedy="leave the window out")
        return self.within(Window.of(Span.parse(span), *extent))

    @overload
    def table(self, name: str, to: Literal["polars"] = "polars") -> pl.DataFrame: ...
    @overload
    def table(self, name: str, to: Literal["arrow", "pandas"]) -> Any: ...
    def table(self, name: str, to: Frames = "polars") -> Any:
        """One of its tables, as a Polars frame, a PyArrow table or a pandas frame. Times are int64 nanoseconds.

        `UsageError` for a table that was not recorded, with those that were. `trace["device_ops"]` is the Polars frame.

        >>> trace.table("device_ops").columns[:4]
        ['rank', 'device', 'process', 'context']
        >>> trace.table("device_ops", to="arrow").num_rows
        3264
        """
        for table, frame in self.tables.items():
            if table.name == name:
                return given_as(frame, to)
        if name not in {table.name for table in ALL}:
            raise unknown("table", name, [table.name for table in ALL])
        held = ", ".join(table.name for table in self.tables)
        raise UsageError(f"{self.source} has no table {name}: it was not recorded", remedy=f"the trace holds {held}")


Trace = AnsweringTrace
"""Its public name. To whoever asks there is one kind of trace; only here it answers."""


def read(  # noqa: PLR0913  # every way to read a file is one keyword of the public function
    path: str | Path | Iterable[str | Path],
    *,
    rank: int | None = None,
    ranks: Collection[int] | None = None,
    linked_only: bool = False,
    cache: bool = True,
    limits: ReadLimits | None = None,
    window: str | Span | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Trace:
    """A file, a folder of one job's ranks, or a list of files as one trace. The format is found from the content.

    What `timesink capture` noted beside the trace comes along: the step time without a profiler, and facts of the run.

    Parameters
    ----------
    rank
        Overrides what the file says of its rank.
    ranks
        Keep only the rows of these ranks.
    linked_only
        Leave out the GPU work whose launch is not in the file; a note says how much that is.
    cache
        Take the digest of the file's bytes, by which what is kept of it is named.
    limits
        What may be spent on the file.
    window
        Read only this stretch, counted from the first event: ``12.5s:13.5s``, ``800ms:``, ``:3s``.
    watch
        Told, of several files, how many are read, and of how many.

    Raises
    ------
    UnreadableTrace
        No reader takes the file, or its reader cannot make a trace of it.
    UsageError
        What was given is no path; the window makes no sense; a rank is not there.

    Examples
    --------
    >>> timesink.read("run.json.gz")
    <Trace run.json.gz: 1 rank, 10 tables, 33,463 rows>
    >>> timesink.read("traces/")  # the ranks of one job
    <Trace traces/rank0.json, traces/rank1.json: 2 ranks, 10 tables, 66,794 rows>
    """
    from timesink.capture.recorded_run import recorded_run
    from timesink.readers import read as read_files

    paths = [_path(one) for one in ([path] if isinstance(path, (str, Path)) or not _is_listing(path) else path)]
    trace = read_files(
        paths, rank=rank, ranks=ranks, linked_only=linked_only, cache=cache, limits=limits, window=window, watch=watch
    )
    return _answering(recorded_run(paths).told_to(trace))


def compare(before: Capture, after: Capture) -> GateResult:
    """What moved between two captures, in parts that sum to the change of the step, and what became of the findings.

    Its verdict is inconclusive: one capture per side holds no noise between runs. `timesink verify` decides.

    >>> timesink.compare("before.json.gz", "after.json.gz")
    <GateResult two captures: inconclusive, 5 rows>
    """
    from timesink.diagnosis.engine import diagnose as diagnosis_of
    from timesink.verify.compare import compare_captures

    traces = trace_of(before), trace_of(after)
    result = compare_captures(traces, (diagnosis_of(traces[0]), diagnosis_of(traces[1])))
    return replace(result, origin=origin_of("compare", *traces))


def _of_step(trace: model.Trace, step_ms: float | None) -> model.Trace:
    """The trace whose step takes that long without a profiler, where it is said."""
    return trace if step_ms is None else trace.with_unprofiled_step(step_ms * NS_PER_MS)


def trace_of(capture: Capture) -> Trace:
    """The capture, read where it is a path, with the methods of the public one."""
    if isinstance(capture, Trace):
        return capture
    return _answering(capture) if isinstance(capture, model.Trace) else read(capture)


def _answering(trace: model.Trace) -> Trace:
    """The same trace, with the methods of the public one."""
    return Trace(**{name: getattr(trace, name) for name in field_names(trace)})


def _is_listing(given: Any) -> bool:
    return isinstance(given, Iterable) and not hasattr(given, "columns")  # a frame is no list of paths


def _path(given: Any) -> Path:
    if isinstance(given, (str, Path)):
        return Path(given)
    what = type(given).__name__
    raise UsageError(
        f"a capture is read from a path, and this is of type {what}",
        remedy="give a path, a folder, a list of paths, or what timesink.read returned",
    )
