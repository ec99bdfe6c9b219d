"""Jobs on disk: one file a rank, named by what it was made of, so that a run cut short goes on where it was."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import polars as pl

from timesink.measures.job import SCHEMAS, Job
from timesink.whole_file import whole_file

# Changes whenever the same trace would give another job.
VERSION = 8
_LOST = "lost_count"


def folder() -> Path:
    """Where jobs are kept: beside the tables of the reader's cache."""
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
    """The job kept there and the records lost on the way to it; None where there is none, or it is not whole."""
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
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(place) as part:
            part.touch(0o600)
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for table in SCHEMAS:
                    content = io.BytesIO()
                    getattr(job, table).write_ipc(content)
                    archive.writestr(table, content.getvalue())
                archive.writestr(_LOST, str(lost))
    except OSError:
        return
