"""What is fuzzed: every reader of the registry and the diagnosis of what it read, and every file of records.

A new reader is here by being in the registry; the tests ask that it has seeds.
"""

from __future__ import annotations

import contextlib
import io
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest import mock

import timesink
from fuzz import records, seeds
from timesink.errors import MissingTool
from timesink.model.trace import Trace
from timesink.model.window import Window
from timesink.readers import Reader, ReadLimits, WindowReader, head_of, readers

# Controls other than the newline, bidirectional and other invisible characters, lone surrogates.
_ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
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
        imported()
        if self.file:
            path = folder / self.file
            path.write_bytes(data)
            return path
        path = folder / "export"
        path.mkdir()
        for name, content in _files(data).items():
            (path / Path(name).name).write_bytes(content)
        return path


def groups() -> dict[str, list[Target]]:
    """What shares one budget: each reader has its own, the small records one in all."""
    small = {record.name for record in records.RECORDS}
    every = targets()
    found = {name: [target] for name, target in every.items() if name not in small}
    return {**found, "records": [every[name] for name in every if name in small]}


@cache
def targets() -> dict[str, Target]:
    """Every target by name."""
    every = [_reader(reader) for reader in readers()]
    every += [Target(record.name, record.file, _made(record.seeds), record.work) for record in records.RECORDS]
    return {target.name: target for target in every}


def _reader(reader: Reader) -> Target:
    if reader.format not in seeds.OF_FORMAT:
        raise LookupError(f"no inputs of the format {reader.format}: add them to OF_FORMAT in fuzz/seeds.py")
    file, made = seeds.OF_FORMAT[reader.format]
    return Target(reader.format, file, cache(made), work_of(reader))


def _made(given: tuple[bytes, ...]) -> Callable[[], tuple[bytes, ...]]:
    return lambda: given


def work_of(reader: Reader) -> Callable[[Path], object]:
    """Read, whole and through a window, and check every table against its declaration; of one input in eight, the
    diagnosis in every format.
    """

    def work(path: Path) -> None:
        reader.recognises(path, head_of(path))
        with mock.patch("timesink.readers.nsys.report.find_nsys", side_effect=_NO_NSYS):
            trace = reader.read(path, LIMITS)
            cut = through_a_window(reader, path)
        for part in (trace, cut) if cut is not None else (trace,):
            for table in part:
                table.check(part[table])
        rows = sum(frame.height for frame in trace.tables.values())
        if rows % 8 == 0:
            diagnosed(trace)
        if rows % 8 == 1:
            commanded(path, COMMANDS[rows // 8 % len(COMMANDS)])

    return work


# What opens a file and is no reader: FILE is the input, OUT a name beside it.
COMMANDS = (
    "export FILE -o OUT.pftrace", "export FILE -o OUT.speedscope.json", "export FILE -o OUT.collapsed",
    "report FILE -o OUT.html",
    "compare FILE FILE", "roofline FILE", "kernels FILE", "ranks FILE", "summary FILE -f json", "statement FILE",
    "pipeline FILE", "compile FILE", "memory show FILE", "tables FILE", "what-if FILE remove-sync",
)  # fmt: skip


@cache
def imported() -> None:
    """Import what commands need, before anything is watched."""
    for module in pkgutil.walk_packages(timesink.__path__, "timesink."):
        if module.name.startswith(("timesink.cli", "timesink.export", "timesink.views", "timesink.render")):
            import_module(module.name)


def commanded(path: Path, command: str) -> None:
    """Run a command on the file: it may refuse it, and neither break nor say that somebody interrupted it."""
    from timesink.cli.app import run

    given = {"FILE": str(path), "OUT": str(path.with_name("out"))}
    words = [given.get(word, word.replace("OUT", given["OUT"])) for word in command.split()]
    said = io.StringIO()
    with contextlib.chdir(path.parent), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(words)
    if code not in CODES or "interrupted" in said.getvalue():
        raise AssertionError(f"{command} ends with {code}: {said.getvalue()[-300:]}")


CODES = (0, 1, 2, 3, 4, 5)


def through_a_window(reader: Reader, path: Path) -> Trace | None:
    """The middle third of the file, where its format has a timeline and it holds anything on it."""
    if not isinstance(reader, WindowReader):
        return None
    opened = reader.open(path, LIMITS)
    if opened.extent_ns is None:
        return None
    first, last = opened.extent_ns
    third = (last - first) // 3
    return opened.within(Window(first + third, last - third, first, last))


def diagnosed(trace: Trace) -> None:
    """Diagnose, and write the diagnosis in every format: nothing in it may act on a terminal."""
    from timesink.diagnosis.engine import diagnose
    from timesink.render import formats_of, render

    diagnosis = diagnose(trace)
    for form in formats_of("Diagnosis"):
        text = render(diagnosis, form)
        text.encode("utf-8")
        if found := _ACTS.search(text):
            raise AssertionError(f"{form} holds {found.group()!r}")


def _files(data: bytes) -> Mapping[str, bytes]:
    try:
        return seeds.files_of(data)
    except Exception:  # noqa: BLE001  # a damaged archive is the harness's own affair: an empty export
        return {}
