"""One file of a run becomes one small `Job`: the map step. It runs in any thread, process or host that has the file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from timesink.errors import TimesinkError
from timesink.measures.job import Job, job
from timesink.model.tables import SOURCES
from timesink.model.trace import Trace
from timesink.ranks import stored
from timesink.ranks.files import RankFile, access_errors, filesystem, reason_of
from timesink.ranks.manifest_facts import facts_beside
from timesink.readers import read
from timesink.readers.cache import digest_of

RETRIES = 2


@dataclass(frozen=True, slots=True)
class Task:
    """A file to summarise. `keep` says whether its job may be taken from and put into the cache."""

    file: RankFile
    keep: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Summarised:
    """What became of one file: its job, or why it has none (`failure`).
    `lost` counts records that the file held and the reader could not keep."""

    file: RankFile
    job: Job | None
    failure: str = ""
    lost: int = 0


def summarise(task: Task) -> Summarised:
    """Read, measure and let go of one file. A damaged file is a result, not an exception."""
    for attempt in range(RETRIES + 1):
        try:
            return _summarised(task)
        except TimesinkError as error:
            return Summarised(task.file, None, str(error))
        except MemoryError:
            return Summarised(task.file, None, "more memory is needed than a worker has")
        except access_errors() as error:
            failure = reason_of(error, task.file.url)
            if attempt == RETRIES:
                return Summarised(task.file, None, failure)
    raise AssertionError("the last attempt returns")


def _summarised(task: Task) -> Summarised:
    if not task.file.is_remote:
        return _of_path(task, Path(task.file.url.removeprefix("file://")))
    with tempfile.TemporaryDirectory(prefix="timesink-") as folder:
        target = Path(folder) / task.file.name
        system, path = filesystem(task.file.url)
        system.get_file(path, str(target))
        return _of_path(task, target)


def _of_path(task: Task, path: Path) -> Summarised:
    place = stored.place_of(digest_of(path), task.file.shown) if task.keep and path.is_file() else None
    if place is not None and (kept := stored.load(place)) is not None:
        return Summarised(task.file, _with_manifest(kept[0], path), lost=kept[1])
    trace = _named(read(path, cache=False), task.file.shown)
    made = job(trace)
    lost = sum(note.count for note in trace.notes if note.kind == "data_loss")
    if place is not None:
        stored.store(place, made, lost)
    return Summarised(task.file, _with_manifest(made, path), lost=lost)


def _with_manifest(made: Job, path: Path) -> Job:
    """What the trace itself states comes before what stands beside it."""
    beside = facts_beside(path, made.ranks).join(made.parity, on=["rank", "fact"], how="anti")
    return replace(made, parity=pl.concat([made.parity, beside])) if beside.height else made


def _named(trace: Trace, shown: str) -> Trace:
    """The trace under the name it was asked for, which for a fetched file is not where it lay."""
    sources = trace.get(SOURCES).with_columns(path=pl.lit(shown))
    return Trace(shown, {**trace.tables, SOURCES: sources}, trace.notes)
