"""What is fuzzed: every reader of the registry and the diagnosis of what it read, every file of records, every command.

A new reader is here by being in the registry, a new command by its lines in `commands.py`; the tests ask for both.
"""

from __future__ import annotations

import pkgutil
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from unittest import mock

import timesink
from fuzz import answers, commands, laws, records, seeds
from fuzz.mutations import mutated
from timesink.errors import MissingTool
from timesink.model.trace import Trace
from timesink.model.window import Window
from timesink.readers import Reader, ReadLimits, WindowReader, head_of, readers
from timesink.readers.plausibility import make_plausible

# NVIDIA's own program is not what is fuzzed here.
_NO_NSYS = MissingTool("no nsys here", remedy="install it")
LIMITS = ReadLimits(unpacked_bytes=512 << 20)


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz. `file` is the name the input gets; "" unpacks it as a folder. `ready` is called before
    anything is watched; `change` mutates an input.
    """

    name: str
    file: str
    seeds: Callable[[], tuple[bytes, ...]]
    work: Callable[[Path], object]
    group: str
    ready: Callable[[], object] = tuple
    change: Callable[[bytes, random.Random, Sequence[bytes]], bytes] = mutated

    def placed(self, data: bytes, folder: Path) -> Path:
        """The input on disk, alone in its folder."""
        imported()
        self.ready()
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
    """What shares one budget: each reader and each command has its own, the small records one in all, the laws one."""
    found: dict[str, list[Target]] = {}
    for target in targets().values():
        found.setdefault(target.group, []).append(target)
    return found


@cache
def targets() -> dict[str, Target]:
    """Every target by name."""
    every = [_reader(reader) for reader in readers()]
    every += [
        Target(record.name, record.file, _made(record.seeds), record.work, "records") for record in records.RECORDS
    ]
    every += [_command(command, kind) for command, kind in commands.pairs()]
    every += [Target("laws", "trace.json", laws.programs, laws.holds, "laws", laws.warm, laws.gently)]
    return {target.name: target for target in every}


def _command(command: str, kind: str) -> Target:
    group = "-".join(command.replace("--", "").lower().split())
    file, made = commands.kinds()[kind]
    return Target(
        f"{group}.{kind}", file, made, commands.work_of(command, kind), group, partial(commands.ready, command, kind)
    )


def _reader(reader: Reader) -> Target:
    if reader.format not in seeds.OF_FORMAT:
        raise LookupError(f"no inputs of the format {reader.format}: add them to OF_FORMAT in fuzz/seeds.py")
    file, made = seeds.OF_FORMAT[reader.format]
    return Target(reader.format, file, cache(made), work_of(reader), reader.format)


def _made(given: tuple[bytes, ...]) -> Callable[[], tuple[bytes, ...]]:
    return lambda: given


def work_of(reader: Reader) -> Callable[[Path], object]:
    """Read, whole and through a window, and check every table against its declaration; of one input in eight, the
    diagnosis in every format.
    """

    def work(path: Path) -> None:
        reader.recognises(path, head_of(path))
        with mock.patch("timesink.readers.nsys.find_nsys", side_effect=_NO_NSYS):
            trace = make_plausible(reader.read(path, LIMITS))
            cut = through_a_window(reader, path)
        for part in (trace, cut) if cut is not None else (trace,):
            for table in part:
                table.check(part[table])
        rows = sum(frame.height for frame in trace.tables.values())
        if rows % 8 == 0:
            diagnosed(trace)

    return work


@cache
def imported() -> None:
    """Import what commands need, before anything is watched."""
    for module in pkgutil.walk_packages(timesink.__path__, "timesink."):
        if module.name.startswith(("timesink.cli", "timesink.export", "timesink.views", "timesink.render")):
            import_module(module.name)


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
    answers.check_diagnosis(diagnosis)
    for form in formats_of("Diagnosis"):
        answers.check_text(render(diagnosis, form))


def _files(data: bytes) -> Mapping[str, bytes]:
    try:
        return seeds.files_of(data)
    except Exception:  # noqa: BLE001  # a damaged archive is the harness's own affair: an empty export
        return {}
