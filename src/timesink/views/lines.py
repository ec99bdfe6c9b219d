"""The tables of `timesink show lines`: GPU, idle and host time by line of the program and by call path."""

from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from timesink.measures.lines import PathTime, line_times, path_times
from timesink.measures.lines.stacks import Line
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace
from timesink.views import Field, Page, Sheet, declare, first_rows, sheet_of

_KNOWN = {"line": "", "function": "function", "range": "range", "fused": "fused"}
_SHOWN = 4  # of the other lines of a fused kernel
NOWHERE = "(no line recorded)"


def lines_page(trace: Trace, top: int, folder: Path) -> Page:
    """The `top` lines and call paths. Lines are read from source files below `folder`."""
    return Page(
        f"Lines of {trace.source}",
        (first_rows(_lines(trace, folder), top), first_rows(_paths(trace), top)),
        _notes(trace),
    )


def folder_of(capture: Path) -> Path:
    """Where a capture lies: of the files that it names, those below are read and no others, unless a person says where
    the program is."""
    return capture if capture.is_dir() else capture.parent


def _lines(trace: Trace, folder: Path) -> Sheet:
    times = line_times(trace)
    total_ns, several = max(sum(time.gpu_ns for time in times), 1), len({time.rank for time in times}) > 1
    columns = declare(
        *("rank",) * several,
        "gpu_ns: GPU time [bar], gpu_ratio: share, operations: ops, idle_ns: GPU idle, host_ns: CPU time, "
        "place: line [name], function [name]",
        Field("known", "known by", words=_KNOWN),
        "source [name]",
    )
    rows = []
    for time in times:
        if time.gpu_ns or time.idle_ns or time.host_ns:
            line, ranks = time.line, (time.rank,) * several
            known = (
                (line.function, line.known, source_line(folder, line.file, line.line)) if line else (None, None, None)
            )
            spent = (time.gpu_ns, time.gpu_ns / total_ns, time.operations, time.idle_ns, time.host_ns)
            rows.append((*ranks, *spent, place_text(line), *known))
    return sheet_of("lines", "Time by line", rows, columns, "GPU time and idle time sum to the recording's")


def _paths(trace: Trace) -> Sheet:
    times = path_times(trace)
    columns = declare(
        *("rank",) * (len({time.rank for time in times}) > 1),
        "gpu_ns: GPU time [bar], operations: ops, idle_ns: GPU idle",
        Field("path", "call path, outermost first", is_name=True),
    )
    return sheet_of("paths", "Flame graph", times, columns, path=path_text)


def place_text(line: Line | None) -> str:
    """``train.py:12``; a range by its name; the lines of one kernel as ``train.py:12+13+norm.py:7``."""
    if line is None:
        return NOWHERE
    if line.file is None:
        return line.function
    others = [str(at) if file == line.file else f"{file}:{at}" for file, at in line.others]
    left = [f"{len(others) - _SHOWN} more"] if len(others) > _SHOWN else []
    return "+".join([f"{line.file}:{line.line}", *others[:_SHOWN], *left])


def path_text(time: PathTime) -> str:
    """``train.py:12 > model.py:30``."""
    return " > ".join(map(place_text, time.stack)) or NOWHERE


def _notes(trace: Trace) -> tuple[str, ...]:
    known = {time.line.known for time in line_times(trace) if time.line is not None and (time.gpu_ns or time.idle_ns)}
    notes = []
    if "function" in known:
        notes.append(
            "known by function: the profiler recorded the line on which the function begins, not the line that was "
            "called from; timesink capture torch --stacks records both"
        )
    if "fused" in known:
        notes.append("fused: the compiler made one kernel of these lines, whose time counts for them together")
    if not known - {"range"}:
        frames = trace.get(FRAMES).height
        notes.append(
            f"{frames:,} frames were recorded, and all that led to GPU work are of libraries"
            if frames
            else "no stacks were recorded: timesink capture torch --stacks -- python train.py records lines"
        )
    return tuple(notes)


_SOURCES: Final = frozenset((".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"))
_MOST_BYTES: Final = 4 << 20  # of a source file
_CHARACTERS: Final = 100


def source_line(folder: Path, file: str | None, line: int | None) -> str | None:
    """The text of that line, without its indentation and cut to 100 characters; None where there is none to show.

    The path, and then each of its tails, is looked up below `folder`; of what lies elsewhere nothing is shown.
    """
    if file is None or line is None or line < 1:
        return None
    lines = _lines_of_file(folder.resolve(), file)  # wherever the process stands by then
    if line > len(lines):
        return None
    return lines[line - 1].strip()[:_CHARACTERS] or None


@lru_cache(maxsize=64)  # files of one page
def _lines_of_file(folder: Path, file: str) -> tuple[str, ...]:
    """The lines of the file; none where it is no readable source file below the folder."""
    parts = [part for part in PurePosixPath(file.replace("\\", "/")).parts if part not in ("/", "", ".")]
    if PurePosixPath(file).suffix not in _SOURCES or ".." in parts or "\0" in file:
        return ()
    try:
        for first in range(len(parts)):
            found = folder.joinpath(*parts[first:]).resolve()
            if found.is_relative_to(folder) and found.is_file() and found.stat().st_size <= _MOST_BYTES:
                return tuple(found.read_text("utf-8").splitlines())
    except (OSError, ValueError, RuntimeError):  # too long a name, a loop of links, no UTF-8
        return ()
    return ()
