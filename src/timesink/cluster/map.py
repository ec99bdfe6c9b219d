"""The map step: one file of a run becomes one small `Job`, in any thread, process or host that has the file."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl

from timesink._native import keep_freed
from timesink.cluster import RankFile, access_errors, facts_beside, filesystem, reason_of
from timesink.errors import TimesinkError
from timesink.measures.ranks.job import Job, in_order, job
from timesink.model.tables import SOURCES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import Record, replace

RETRIES = 2


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Summarised(Record, eq=False):
    """What became of one file: its job, or why it has none (`failure`).
    `lost` counts records that the file held and the reader could not keep. `damage`: what is wrong with the file
    itself, so that only part of it was read."""

    file: RankFile
    job: Job | None
    failure: str = ""
    lost: int = 0
    damage: str = ""


Map = Callable[[RankFile], Summarised]


def summarise(file: RankFile) -> Summarised:
    """Read, measure and let go of one file. A damaged file is a result, not an exception."""
    for attempt in range(RETRIES + 1):
        try:
            return _summarised(file)
        except TimesinkError as error:
            return Summarised(file, None, str(error).removeprefix(file.shown).lstrip(": "))
        except MemoryError:
            return Summarised(file, None, "more memory is needed than a worker has")
        except access_errors() as error:
            failure = reason_of(error, file.url)
            if attempt == RETRIES:
                return Summarised(file, None, failure)
    raise AssertionError("the last attempt returns")


def _summarised(file: RankFile) -> Summarised:
    keep_freed()  # for the next file's tables: to have pages cleared anew takes a thirtieth of a rank's time
    with within_reach([file]) as (path,):
        return _of_path(file, path)


@contextmanager
def within_reach(files: Sequence[RankFile]) -> Iterator[list[Path]]:
    """The files' paths; those behind an address are fetched, for as long as this lasts. Raises `access_errors`."""
    with ExitStack() as stack:
        yield [stack.enter_context(_fetched(file)) if file.is_remote else file.path for file in files]


@contextmanager
def _fetched(file: RankFile) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="timesink-") as folder:
        target = Path(folder) / file.name
        system, path = filesystem(file.url)
        system.get_file(path, str(target))
        yield target


def _of_path(file: RankFile, path: Path) -> Summarised:
    trace = _named(read(path, cache=False), file.shown)
    lost = sum(note.count for note in trace.notes if note.kind.is_loss)
    return Summarised(file, _with_manifest(job(trace), path), lost=lost, damage="; ".join(trace.damage))


def _with_manifest(made: Job, path: Path) -> Job:
    """The job with the manifest's facts added; what the trace itself states comes first."""
    beside = facts_beside(path, made.ranks).join(made.parity, on=["rank", "fact"], how="anti")
    return replace(made, parity=in_order(pl.concat([made.parity, beside]))) if beside.height else made


def _named(trace: Trace, shown: str) -> Trace:
    """The trace under the name it was asked for, which for a fetched file is not where it lay."""
    sources = trace.get(SOURCES).with_columns(path=pl.lit(shown))
    return Trace(shown, {**trace.tables, SOURCES: sources}, trace.notes)
