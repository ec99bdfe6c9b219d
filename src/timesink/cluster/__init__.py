"""Many ranks: one file at a time becomes a small `Job`, and the jobs become one; on one machine or on a cluster.

A run consists of files: paths, folders, globs, URLs, or a list of those below its own folder (`.ranks`). Next to a
trace, `timesink capture` writes a manifest of its machine, for comparing hosts: clocks, drivers, variables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from timesink.errors import MissingTool, UnreadableTrace, UsageError, cannot_read, unknown
from timesink.readers import trace_files
from timesink.records import Record
from timesink.untrusted import is_made_of
from timesink.untrusted.budget import FEWER, crowded, usual_limits
from timesink.untrusted.masking import kept_variables
from timesink.untrusted.plain_json import document

if TYPE_CHECKING:
    import polars as pl
    from fsspec import AbstractFileSystem


# A manifest is a text file of this ending with one path or glob below its folder a line; `#` begins a comment.
MANIFEST_SUFFIX: Final = ".ranks"
_FOREIGN: Final = (
    ("aiohttp", "ClientError"), ("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError"),
    ("gcsfs.retry", "HttpError"), ("google.auth.exceptions", "GoogleAuthError"),
    ("azure.core.exceptions", "AzureError"),
)  # fmt: skip
_TRACES: Final = (".json", ".json.gz", ".json.xz", ".json.zst", ".sqlite", ".nsys-rep", ".qdrep")


ENGINES: Final = ("threads", "serial", "processes", "dask")
"""Where files are read; the address of a Dask scheduler, or the file that holds it, stands for Dask too."""


def check_engine(name: str) -> None:
    """`UsageError` for what is no engine."""
    if not (name in ENGINES or "://" in name or Path(name).is_file()):
        raise unknown("engine", name, ENGINES)


class RankFile(Record, order=True):
    """One file of the run. `url` may hold credentials: show `shown` instead."""

    url: str
    size_bytes: int

    @property
    def shown(self) -> str:
        """The place without user, password, query or fragment."""
        return without_credentials(self.url)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.shown.rstrip("/").rsplit("/", maxsplit=1)[-1]

    @property
    def path(self) -> Path:
        """Where it lies on this machine, unless it is remote."""
        return Path(self.url.removeprefix("file://"))

    @property
    def is_remote(self) -> bool:
        """Whether the file must be fetched before it is read."""
        return _is_url(self.url) and not self.url.lower().startswith("file://")


def _is_url(text: str) -> bool:
    scheme, found, _ = text.partition("://")
    return bool(found) and len(scheme) > 1 and scheme[0].isalpha() and is_made_of(scheme, "+.-")


def without_credentials(url: str) -> str:
    """A URL as it may be shown: signed queries and `user:password@` left out."""
    if not _is_url(url):
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def access_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What file systems raise where access fails: those of their libraries are no OSErrors."""
    foreign = (getattr(sys.modules.get(module), name, None) for module, name in _FOREIGN)
    return (OSError, *others, *(kind for kind in foreign if isinstance(kind, type)))


def reason_of(error: Exception, url: str) -> str:
    """What an error says, without the credentials of the URL: libraries repeat it in parts."""
    parts = urlsplit(url)
    text = (str(error) or type(error).__name__).replace(url, without_credentials(url))
    secrets = [parts.query, parts.fragment, parts.netloc.rpartition("@")[0], parts.password or ""]
    secrets.append(unquote(secrets[-1]))
    for piece in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(piece, "***")
    return text


def find_files(places: Sequence[str]) -> tuple[RankFile, ...]:
    """Every file of the run once, largest first, so that the longest work starts first; ties by name.

    Raises
    ------
    UnreadableTrace
        A place holds no trace, or cannot be listed.
    """
    files = {file for place in _listed(places) for file in _files_of(place)}
    if not files:
        raise UnreadableTrace("", "no file to read", remedy="name at least one trace, folder or URL")
    if len(files) > (most := usual_limits().files):
        raise UnreadableTrace(
            "", f"{len(files):,} files are named, and no more than {most:,} are looked at", remedy=FEWER
        )
    return tuple(sorted(files, key=lambda file: (-file.size_bytes, file.url)))


def _listed(places: Iterable[str]) -> Iterable[str]:
    for place in places:
        if place.endswith(MANIFEST_SUFFIX) and not _is_url(place):
            yield from _manifest(Path(place))
        else:
            yield place


def _manifest(path: Path) -> list[str]:
    """What its lines name below its folder. `UsageError` where one leads elsewhere: such lists are mailed as traces
    are, and what they name is opened."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableTrace(path, f"the manifest cannot be read: {error}", remedy="check the path") from error
    entries = [line.partition("#")[0].strip() for line in lines]
    folder = path.resolve().parent
    for entry in filter(None, entries):
        if not _lies_below(folder, entry):
            what = f"{path} names {without_credentials(entry)!r}, which does not lie below its folder"
            raise UsageError(what, remedy="give that address or path on the command line")
    return [str(path.parent / entry) for entry in entries if entry]


def _lies_below(folder: Path, entry: str) -> bool:
    """Whether all that a path or pattern stands for lies in the folder, links followed."""
    named = folder / entry
    if "://" in entry or ".." in named.parts or not named.is_relative_to(folder):
        return False
    found = [named] if named.exists() else folder.glob(str(named.relative_to(folder)))
    return all(one.resolve().is_relative_to(folder) for one in found)


def _files_of(place: str) -> list[RankFile]:
    if _is_url(place):
        return _remote(place)
    path = Path(place)
    if any(mark in place for mark in "*?[") and not path.exists():
        paths = sorted(path for path in Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    else:
        paths = _inside(path)
    return _some(place, [RankFile(str(path), _size(path)) for path in paths])


def _inside(path: Path) -> list[Path]:
    """The traces of a folder, with files that are named like one: a damaged rank is to be reported, not passed over."""
    files = [] if not path.is_dir() or crowded(path) else sorted(path.iterdir())
    named = [file for file in files if _is_named(file)]
    try:
        known = trace_files(path)
    except UnreadableTrace:
        if not named:
            raise
        known = []
    return known if known == [path] else sorted({file for file in known if file.name not in _BESIDE} | {*named})


def _is_named(file: PurePath) -> bool:
    return file.name.lower().endswith(_TRACES) and file.name not in _BESIDE


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.iterdir())
        return path.stat().st_size
    except OSError as error:
        raise cannot_read(path, error) from error


def _remote(url: str) -> list[RankFile]:
    """The file at a URL, the matches of a pattern, or the traces right below a folder."""
    system, path = filesystem(url)
    try:
        if _is_pattern(url):
            inside = sorted(system.glob(path))
        elif not urlsplit(url).path.lower().endswith(_TRACES) and system.isdir(path):  # over http that is a download
            inside = [name for name in sorted(system.ls(path, detail=False)) if _is_named(PurePosixPath(str(name)))]
        else:
            return [RankFile(url, int(system.info(path).get("size") or 0))]
        files = [RankFile(_beside(url, system, name), int(system.info(name).get("size") or 0)) for name in inside]
    except access_errors(ValueError) as error:
        remedy = "check the URL and the access to it"
        raise UnreadableTrace(without_credentials(url), reason_of(error, url), remedy=remedy) from error
    return _some(without_credentials(url), files)


def _is_pattern(url: str) -> bool:
    """Whether a URL is a pattern of several files. In a web address a question mark begins the query."""
    parts = urlsplit(url)
    if parts.scheme.lower() in ("http", "https"):
        return "*" in parts.path
    return any(mark in url for mark in "*?[")


def _some(place: str, files: list[RankFile]) -> list[RankFile]:
    """What was found there: a place that holds nothing is a mistake in its name, not a run of fewer ranks."""
    if not files:
        raise UnreadableTrace(place, "no trace lies there", remedy="check the name")
    return files


def filesystem(url: str) -> tuple[AbstractFileSystem, Any]:
    """The file system that serves a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
    except ImportError as error:
        scheme = urlsplit(url).scheme
        raise MissingTool(
            f"nothing here reads {scheme}:// ({error})", remedy="pip install fsspec, and what the message names"
        ) from error
    except ValueError as error:
        raise UsageError(f"{without_credentials(url)}: {error}", remedy="give a path or a known URL") from error
    return system, path


def _beside(url: str, system: AbstractFileSystem, name: str) -> str:
    """A file's own URL, with the credentials and the query of the URL it was found by."""
    own, asked = str(system.unstrip_protocol(name)), urlsplit(url)
    if "@" not in asked.netloc and not asked.query:
        return own
    parts = urlsplit(own)
    return urlunsplit((parts.scheme, asked.netloc or parts.netloc, parts.path, parts.query or asked.query, ""))


_NAME: Final = "manifest.json"
_BESIDE: Final = (_NAME, "nccl-bench.json")  # what `timesink capture` leaves beside its traces
_MOST_BYTES: Final = 1 << 20  # a manifest of a thousand GPUs has some 300 kB
_LONGEST: Final = 40  # a driver version or a name of a GPU is shorter
_OF_GPUS: Final = {
    "driver_version": "GPU driver", "clocks.max.sm": "highest SM clock", "clocks.mem": "memory clock",
    "power.limit": "power limit", "compute_mode": "compute mode", "mig.mode.current": "MIG",
}  # fmt: skip


def facts_beside(path: Path, ranks: tuple[int, ...]) -> pl.DataFrame:
    """rank, fact, value as in `Job.parity`, from the manifest in the trace's folder; empty without one."""
    import polars as pl

    from timesink.measures.ranks.parity import OF_ONE_RANK, PARITY

    manifest = _read(path.parent / _NAME)
    listed = manifest.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    facts = {fact: sorted({str(gpu[key])[:_LONGEST] for gpu in gpus if key in gpu}) for key, fact in _OF_GPUS.items()}
    rows = [(fact, " and ".join(values)) for fact, values in facts.items() if values]
    if isinstance(manifest.get("cuda_of_driver"), str) and manifest["cuda_of_driver"]:
        rows.append(("CUDA of the driver", manifest["cuda_of_driver"][:_LONGEST]))
    variables = manifest.get("environment")
    if isinstance(variables, dict):
        texts = {str(name): str(value) for name, value in variables.items() if name not in OF_ONE_RANK}
        rows += kept_variables(texts).items()
    return pl.DataFrame([(rank, *row) for rank in ranks for row in rows], schema=PARITY, orient="row")


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        content = document(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and "timesink_manifest" in content else {}
