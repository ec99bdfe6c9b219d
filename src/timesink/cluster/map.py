"""The map step: one file of a run becomes one small `Job`, in any thread, process or host that has the file.

Jobs are cached on disk, one file per rank, named by what they were made of, so that a run cut short can go on.
"""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

from timesink._native import keep_freed
from timesink.cluster.files import RankFile, access_errors, facts_beside, filesystem, reason_of
from timesink.errors import TimesinkError
from timesink.measures.ranks.job import SCHEMAS, Job, in_order, job
from timesink.model.tables import SOURCES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.readers.file import digest_of
from timesink.startup import dataclass, replace
from timesink.untrusted.whole_file import whole_file

# Changes whenever the same trace would give another job.
VERSION = 10
_LOST = "lost_count"


def folder() -> Path:
    """The folder of cached jobs, next to the answers that are kept."""
    if chosen := os.environ.get("TIMESINK_CACHE_DIR"):
        return Path(chosen) / "ranks"
    from platformdirs import user_cache_path

    return user_cache_path("timesink") / "ranks"


def place_of(digest: str, source: str) -> Path:
    """The file that holds the job of a trace with these bytes under this name."""
    import hashlib

    named = hashlib.sha256(source.encode()).hexdigest()[:16]
    return folder() / f"v{VERSION}-{digest}-{named}.zip"


def load(place: Path) -> tuple[Job, int] | None:
    """The cached job, and how many records were lost on the way to it; None where the file is missing or damaged."""
    try:
        with zipfile.ZipFile(place) as archive:
            frames = {name: pl.read_ipc(io.BytesIO(archive.read(name))) for name in SCHEMAS}
            lost = int(archive.read(_LOST))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, pl.exceptions.PolarsError):
        return None
    if any(frames[name].schema != pl.Schema(schema) for name, schema in SCHEMAS.items()):
        return None
    return Job(**frames), lost


def store(place: Path, job: Job, lost: int) -> None:
    """Keep a job: whole or not at all. A folder that cannot be written is no error."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # for the user alone
        with whole_file(place) as part:
            part.touch(0o600)  # for the user alone
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for table in SCHEMAS:
                    content = io.BytesIO()
                    getattr(job, table).write_ipc(content)
                    archive.writestr(table, content.getvalue())
                archive.writestr(_LOST, str(lost))
    except OSError:
        return


RETRIES = 2


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Task:
    """A file to summarise. `keep` says whether its job may be taken from and put into the cache."""

    file: RankFile
    keep: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Summarised:
    """What became of one file: its job, or why it has none (`failure`).
    `lost` counts records that the file held and the reader could not keep. `damage`: what is wrong with the file
    itself, so that only part of it was read."""

    file: RankFile
    job: Job | None
    failure: str = ""
    lost: int = 0
    damage: str = ""


Map = Callable[[Task], Summarised]


def summarise(task: Task) -> Summarised:
    """Read, measure and let go of one file. A damaged file is a result, not an exception."""
    for attempt in range(RETRIES + 1):
        try:
            return _summarised(task)
        except TimesinkError as error:
            return Summarised(task.file, None, str(error).removeprefix(task.file.shown).lstrip(": "))
        except MemoryError:
            return Summarised(task.file, None, "more memory is needed than a worker has")
        except access_errors() as error:
            failure = reason_of(error, task.file.url)
            if attempt == RETRIES:
                return Summarised(task.file, None, failure)
    raise AssertionError("the last attempt returns")


def _summarised(task: Task) -> Summarised:
    keep_freed()  # for the next file's tables: to have pages cleared anew takes a thirtieth of a rank's time
    if not task.file.is_remote:
        return _of_path(task, Path(task.file.url.removeprefix("file://")))
    with tempfile.TemporaryDirectory(prefix="timesink-") as folder:
        target = Path(folder) / task.file.name
        system, path = filesystem(task.file.url)
        system.get_file(path, str(target))
        return _of_path(task, target)


def _of_path(task: Task, path: Path) -> Summarised:
    cache_file = place_of(digest_of(path), task.file.shown) if task.keep and path.is_file() else None
    if cache_file is not None and (cached := load(cache_file)) is not None:
        return Summarised(task.file, _with_manifest(cached[0], path), lost=cached[1])
    trace = _named(read(path, cache=False), task.file.shown)
    summary = job(trace)
    lost = sum(note.count for note in trace.notes if note.kind.is_loss)
    damage = "; ".join(trace.damage)
    if cache_file is not None and not damage:
        store(cache_file, summary, lost)
    return Summarised(task.file, _with_manifest(summary, path), lost=lost, damage=damage)


def _with_manifest(made: Job, path: Path) -> Job:
    """The job with the manifest's facts added; what the trace itself states comes first."""
    beside = facts_beside(path, made.ranks).join(made.parity, on=["rank", "fact"], how="anti")
    return replace(made, parity=in_order(pl.concat([made.parity, beside]))) if beside.height else made


def _named(trace: Trace, shown: str) -> Trace:
    """The trace under the name it was asked for, which for a fetched file is not where it lay."""
    sources = trace.get(SOURCES).with_columns(path=pl.lit(shown))
    return Trace(shown, {**trace.tables, SOURCES: sources}, trace.notes)
