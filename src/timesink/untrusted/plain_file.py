"""What may be opened: files and folders. A pipe, a device or a socket would keep a reader waiting for ever."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from timesink.errors import UnreadableTrace

_REMEDY = "give a plain file or a folder"


def refuse_special(path: Path) -> None:
    """`UnreadableTrace` for what is neither a file nor a folder, and for a name that no file can have.

    What is not there is left for whoever opens it to say.
    """
    try:
        mode = path.stat().st_mode
    except (ValueError, UnicodeError) as error:  # a null character, half of a surrogate pair
        raise UnreadableTrace(ascii(str(path)), "no file can have this name", remedy=_REMEDY) from error
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UnreadableTrace(path, "it is no plain file", remedy=_REMEDY)


def plain_files(path: Path, roots: Sequence[Path] = ()) -> Iterator[Path]:
    """The file, or every file in the folder, by name. `UnreadableTrace` for one that is special, or whose link leaves
    the roots, where there are any.
    """
    for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
        refuse_special(part)
        if roots and not any(part.resolve().is_relative_to(root) for root in roots):
            raise UnreadableTrace(part, "its link leads outside the folders that may be read", remedy=_REMEDY)
        if not part.is_dir():
            yield part
