"""The Python API: what the commands answer, as objects that print shortly, show themselves in a notebook and can be
written (`to_json`, `to_html`, …). `docs/python/` has a page for each.

A function takes a capture: a `Trace`, or what `read` takes. Each is also a method of the `Trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from timesink.errors import UsageError
from timesink.notebook.trace import Trace, origin_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace as PlainTrace
    from timesink.model.window import Span
    from timesink.untrusted.unpack import ReadLimits
    from timesink.verify.outcomes import GateResult
    from timesink.views.page import Page

    # What `timesink.read` takes, or what it returned.
    Capture: TypeAlias = PlainTrace | str | Path | Sequence[str | Path]


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
        Keep the tables in the user's cache folder, and take them from there where the same bytes were read before.
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
    from timesink.units import NS_PER_MS

    paths = [_path(one) for one in ([path] if isinstance(path, (str, Path)) or not _is_listing(path) else path)]
    trace = read_files(
        paths, rank=rank, ranks=ranks, linked_only=linked_only, cache=cache, limits=limits, window=window, watch=watch
    )
    run = recorded_run(paths)
    trace = trace.with_facts(run.facts) if run.facts else trace
    if run.step_ms:
        steps_ns = tuple(step_ms * NS_PER_MS for step_ms in run.steps_ms)
        trace = trace.with_unprofiled_step(run.step_ms * NS_PER_MS, steps_ns)
    return _answering(trace)


def diagnose(
    capture: Capture,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    overrides: Mapping[str, float] = MappingProxyType({}),
    unprofiled_step_ms: float | None = None,
) -> Diagnosis:
    """Name the bottleneck of a capture and price its fix: `Trace.diagnose`.

    >>> timesink.diagnose("run.json.gz").bottleneck
    <Bottleneck.INPUT_PIPELINE: 'input_pipeline'>
    """
    return _trace(capture).diagnose(only=only, skip=skip, overrides=overrides, unprofiled_step_ms=unprofiled_step_ms)


def summary(capture: Capture, *, top: int = 10) -> Page:
    """Budget, steps, kernels, copies, waits and launches: `Trace.summary`."""
    return _trace(capture).summary(top=top)


def idle(capture: Capture, *, top: int = 15) -> Page:
    """What each GPU waited for while it was idle: `Trace.idle`."""
    return _trace(capture).idle(top=top)


def kernels(capture: Capture, *, top: int = 10) -> Page:
    """What limits each kernel of a Nsight Compute report, or which kernels take most of a timeline: `Trace.kernels`."""
    return _trace(capture).kernels(top=top)


def plan(capture: Capture, *, unprofiled_step_ms: float | None = None) -> Page:
    """What to change, in which order, and where it ends: `Trace.plan`."""
    return _trace(capture).plan(unprofiled_step_ms=unprofiled_step_ms)


def what_if(capture: Capture, *changes: str, unprofiled_step_ms: float | None = None) -> Page:
    """The price of changes before they are made: `Trace.what_if`."""
    return _trace(capture).what_if(*changes, unprofiled_step_ms=unprofiled_step_ms)


def compare(before: Capture, after: Capture) -> GateResult:
    """What moved between two captures, in parts that sum to the change of the step, and what became of the findings.

    Its verdict is inconclusive: one capture per side holds no noise between runs. `timesink verify` decides.

    >>> timesink.compare("before.json.gz", "after.json.gz")
    <GateResult two captures: inconclusive, 5 rows>
    """
    from timesink.diagnosis.engine import diagnose as diagnosis_of
    from timesink.verify.compare import compare_captures

    traces = _trace(before), _trace(after)
    result = compare_captures(traces, (diagnosis_of(traces[0]), diagnosis_of(traces[1])))
    return replace(result, origin=origin_of("compare", *traces))


def _trace(capture: Capture) -> Trace:
    from timesink.model.trace import Trace as PlainTrace

    if isinstance(capture, Trace):
        return capture
    return _answering(capture) if isinstance(capture, PlainTrace) else read(capture)


def _answering(trace: PlainTrace) -> Trace:
    """The same trace, with the methods of the public one."""
    return Trace(**{field.name: getattr(trace, field.name) for field in fields(trace)})


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


def load_ipython_extension(shell: Any) -> None:
    """Register with this shell: what `%load_ext timesink.notebook` calls."""
    from timesink.notebook.display import register

    register(shell)
