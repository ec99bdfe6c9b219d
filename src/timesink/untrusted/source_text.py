"""One line of a source file that a trace names. The name is untrusted: nothing outside the given folder is read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

_SOURCES: Final = frozenset((".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"))
_MOST_BYTES: Final = 4 << 20
_CHARACTERS: Final = 100


def source_line(folder: Path, file: str | None, line: int | None) -> str | None:
    """The text of that line, without its indentation and cut to 100 characters; None where there is none to show.

    The path, and then each of its tails, is looked up below `folder`; of what lies elsewhere nothing is shown.
    """
    if file is None or line is None or line < 1:
        return None
    lines = _lines(folder, file)
    if line > len(lines):
        return None
    return lines[line - 1].strip()[:_CHARACTERS] or None


@lru_cache(maxsize=64)
def _lines(folder: Path, file: str) -> tuple[str, ...]:
    """The lines of the file; none where it is no readable source file below the folder."""
    parts = [part for part in PurePosixPath(file.replace("\\", "/")).parts if part not in ("/", "", ".")]
    if PurePosixPath(file).suffix not in _SOURCES or ".." in parts or "\0" in file:
        return ()
    try:
        root = folder.resolve()
        for first in range(len(parts)):
            found = root.joinpath(*parts[first:]).resolve()
            if found.is_relative_to(root) and found.is_file() and found.stat().st_size <= _MOST_BYTES:
                return tuple(found.read_text("utf-8").splitlines())
    except (OSError, ValueError, RuntimeError):  # too long a name, a loop of links, no UTF-8
        return ()
    return ()
