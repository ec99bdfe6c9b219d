"""What is fuzzed: every reader of the registry, the whole diagnosis, and every file of records timesink takes.

A new reader is here by being in the registry; the tests ask that it has seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

from fuzz import records, seeds
from timesink.readers import Reader, ReadLimits, readers

# NVIDIA's own program is not what is fuzzed here.
_NO_NSYS = MissingTool("no nsys here", remedy="install it")
LIMITS = ReadLimits(unpacked_bytes=512 << 20)


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz. `file` is the name the input gets; "" unpacks it as a folder."""

    name: str
    file: str
    seeds: Callable[[], tuple[bytes, ...]]
    work: Callable[[Path], object]

    def placed(self, data: bytes, folder: Path) -> Path:
        """The input on disk, alone in its folder."""
        if self.file:
            path = folder / self.file
            path.write_bytes(data)
            return path
        path = folder / "export"
        path.mkdir()
        for name, content in _files(data).items():
            (path / Path(name).name).write_bytes(content)
        return path


def targets() -> dict[str, Target]:
    """Every target by name."""
    every = [_reader(reader) for reader in readers()]
    every += [
        Target(f"diagnose-{reader.format}", seeds.FILE_NAMES[reader.format], _seeds(reader.format), diagnosed(reader))
        for reader in readers()
        if reader.format != "nsys_report"
    ]
    every += [Target(record.name, record.file, _made(record.seeds), record.work) for record in records.RECORDS]
    return {target.name: target for target in every}


def _reader(reader: Reader) -> Target:
    return Target(reader.format, seeds.FILE_NAMES[reader.format], _seeds(reader.format), checked(reader))


@cache
def _seeds(format_: str) -> Callable[[], tuple[bytes, ...]]:
    return cache(seeds.OF_FORMAT[format_])


def _made(given: tuple[bytes, ...]) -> Callable[[], tuple[bytes, ...]]:
    return lambda: given


def checked(reader: Reader) -> Callable[[Path], object]:
    """Read, and check every table against its declaration."""

    def work(path: Path) -> None:
        reader.recognises(path, head_of(path))
        with mock.patch("timesink.readers.nsys.tool.find_nsys", side_effect=_NO_NSYS):
            trace = reader.read(path, LIMITS)
        for table in trace:
            table.check(trace[table])

    return work


def diagnosed(reader: Reader) -> Callable[[Path], object]:
    """Read, diagnose, and write the diagnosis in every format."""

    def work(path: Path) -> None:
        from timesink.engine import diagnose
        from timesink.reporters import Format, render

        diagnosis = diagnose(reader.read(path, LIMITS))
        for form in Format:
            render(diagnosis, form).encode("utf-8")

    return work


def _files(data: bytes) -> Mapping[str, bytes]:
    try:
        return seeds.files_of(data)
    except Exception:  # noqa: BLE001  # a damaged archive is the harness's own affair: an empty export
        return {}
