"""From paths on the command line to the trace that was asked for, with what is known of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.capture.recorded_run import link_times, recorded_run
from timesink.cli.output import answer_is_partial, working
from timesink.errors import UnreadableTrace
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.model.trace import Trace


def read_traces(  # what of files is read: the options of every command that reads any
    paths: Sequence[Path],
    *,
    ranks: Sequence[int] | None = None,
    cache: bool = True,
    linked_only: bool = False,
    window: str | None = None,
    graphs_from: Sequence[Path] = (),
) -> Trace:
    """The files as one trace, cut down to the window, the ranks and the GPU work asked for, with what the files of
    `graphs_from` say of the kernels that its graphs replay.

    Of a damaged file what could be read is returned, and the command's answer is marked as partial.
    """
    from timesink._native import keep_freed
    from timesink.model.window import Span

    keep_freed(one_heap=True)  # to have pages cleared anew takes up to a tenth of a command's time
    span = None if window is None else Span.parse(window)
    names = scrub(paths[0].name) if len(paths) == 1 else f"{len(paths)} files"
    with working(f"reading {names}") as show:
        from timesink.readers import read

        trace = read(
            paths, ranks=ranks, linked_only=linked_only, cache=cache, window=span,
            watch=lambda done, of: show(f"{done} of {of} files read"),
        )  # fmt: skip
        if graphs_from:
            from timesink.readers.recorded import with_capture

            trace = with_capture(trace, read(graphs_from, ranks=ranks, cache=cache))
    for damage in trace.damage:
        answer_is_partial(UnreadableTrace(trace.source, damage, remedy="record or copy the file again"))
    return trace


def of_run(
    trace: Trace, given_ms: float | None, paths: Sequence[Path], facts: Mapping[str, str] | None = None
) -> Trace:
    """The trace with what is known of its run: its step time without a profiler, its facts, what collectives take.

    Each is as given, else as its capture has it, else unknown; a step of 0 ms is not known, whatever was measured.
    """
    from timesink.units import NS_PER_MS

    run = recorded_run(paths)
    if times := link_times(paths):
        from timesink.model.trace import LinkTime

        trace = trace.with_link_times(tuple(LinkTime(*time) for time in times))
    if known := {**run.facts, **(facts or {})}:
        trace = trace.with_facts(known)
    if run.settings:
        trace = trace.with_settings(run.settings)
    if given_ms is not None:
        return trace.with_unprofiled_step(given_ms * NS_PER_MS) if given_ms else trace
    steps_ns = tuple(ms * NS_PER_MS for ms in run.steps_ms)
    return trace.with_unprofiled_step(run.step_ms * NS_PER_MS, steps_ns) if run.step_ms else trace
