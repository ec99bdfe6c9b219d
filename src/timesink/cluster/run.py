"""All files of a run as one job: map, sort out who is which rank, merge."""

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from timesink.cluster import RankFile
from timesink.cluster.engines import Engine, Threads
from timesink.cluster.map import Summarised, summarise
from timesink.errors import UnreadableTrace
from timesink.measures.ranks.job import SCHEMAS, Job, job
from timesink.model.tables import SOURCES
from timesink.model.trace import NoteKind, Trace
from timesink.readers.ranks import ranks_by_name
from timesink.records import Record, replace

Watcher = Callable[[int, int, Summarised], None]


class Run(Record, eq=False):
    """The merged job, and what did not get into it.

    `quarantined`: files that could not be read, with the reason. `damaged`: files of which only a part could be read,
    with the reason. `assumed`: half a sentence on where the ranks come from, empty where every file states its own.
    `lost_count`: damaged records.
    """

    job: Job
    file_count: int
    quarantined: tuple[tuple[str, str], ...]
    damaged: tuple[tuple[str, str], ...]
    assumed: str
    lost_count: int


def run_of(files: Sequence[RankFile], engine: Engine | None = None, *, watch: Watcher | None = None) -> Run:
    """Summarise every file and merge. The result depends neither on the engine nor on the order of the files.

    `watch(done, all, result)` is called for each file that is done. Raises `UnreadableTrace` where no file can be read,
    and `UsageError` where several claim one rank.
    """
    done: list[Summarised] = []
    for result in (engine or Threads()).map(summarise, files):
        done.append(result)
        if watch is not None:
            watch(len(done), len(files), result)
    done.sort(key=lambda result: (result.file.shown, result.file.url))
    failed = tuple((result.file.shown, result.failure) for result in done if result.job is None)
    readable = [result for result in done if result.job is not None]
    if not readable:
        shown, reason = failed[0]
        several = f"none of {len(files)} files can be read; the first: " if len(files) > 1 else ""
        raise UnreadableTrace(shown, several + reason)
    parts, assumed = _ranked(readable)
    return Run(
        job=_tree(parts),
        file_count=len(files),
        quarantined=failed,
        damaged=tuple((result.file.shown, result.damage) for result in readable if result.damage),
        assumed=assumed,
        lost_count=sum(result.lost for result in readable),
    )


def run_in(trace: Trace) -> Run:
    """The ranks of a trace that was read whole, as a job."""
    made = job(trace)
    files = trace[SOURCES]["path"].n_unique() if SOURCES in trace else 1
    damaged = tuple((trace.source, reason) for reason in trace.damage)
    lost = sum(note.count for note in trace.notes if note.kind is NoteKind.DATA_LOSS)
    return Run(made, files, (), damaged, "", lost)


def _tree(parts: list[Job]) -> Job:
    """Merge by pairs, so that no row is copied more often than the logarithm of their number."""
    while len(parts) > 1:
        parts = [Job.merged(parts[at : at + 8]) for at in range(0, len(parts), 8)]  # few enough to hold at once
    return parts[0]


def _ranked(done: list[Summarised]) -> tuple[list[Job], str]:
    """Every job under a rank of its own. Ranks claimed by several files come from the file names, if those differ."""
    jobs = [result.job for result in done if result.job is not None]
    files = [(job.ranks, Path(result.file.shown)) for job, result in zip(jobs, done, strict=True)]
    named = ranks_by_name(files, ordered=False)
    if named is None:
        return jobs, ""
    renamed = [with_ranks_from(job, first) for job, first in zip(jobs, named, strict=True)]
    return renamed, "several files claim one rank; ranks are taken from the file names"


def with_ranks_from(job: Job, first: int) -> Job:
    """The same job with its lowest rank called `first`, and each other one as far above it as before."""
    column = pl.col("rank") + (first - min(job.ranks, default=first))
    return replace(job, **{name: getattr(job, name).with_columns(column) for name in SCHEMAS})
