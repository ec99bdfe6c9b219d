"""A copy of a folder that shares nothing with it: no link leads out of it, no file has two names.

What a link of the folder means is copied in its place, once; a link to what is copied is a link within the copy.
"""

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_GIB: Final = 1 << 30
MOST_BYTES, MOST_FILES = 4 * _GIB, 200_000
"""What a copy may hold: half a minute of a plain disk."""
_SKIPPED: Final = frozenset({"__pycache__", ".git", "node_modules"})
_ENVIRONMENT: Final = "pyvenv.cfg"  # the interpreter of a program is named by its path, so none is run in a copy
_SHOWN: Final = 5


class TooLarge(Exception):
    """A folder is too large to be copied. `largest` are the entries of it that hold most, with their bytes."""

    def __init__(self, folder: Path, held: dict[Path, int], files: int) -> None:
        self.bytes, self.files = sum(held.values()), files
        self.largest = sorted(held.items(), key=lambda one: -one[1])[:_SHOWN]
        shown = ", ".join(f"{path} ({size / _GIB:.2g} GiB)" for path, size in self.largest)
        least = "at least " if files > MOST_FILES else ""
        super().__init__(f"{folder} holds {least}{self.bytes / _GIB:.2g} GiB in {files} files: {shown}")


@dataclass(slots=True)
class _Copying:
    """What is to be copied. `roots` are the folders that are copied, each with its copy."""

    roots: dict[Path, Path]
    left_out: Collection[Path]
    folders: list[tuple[Path, Path]] = field(default_factory=list)
    files: list[tuple[Path, Path]] = field(default_factory=list)
    links: list[tuple[Path, Path]] = field(default_factory=list)
    held: dict[Path, int] = field(default_factory=dict)

    def plan(self, source: Path, target: Path, top: Path | None = None) -> None:
        """Note all of a folder that its copy has not yet; `top` is the entry whose size it counts for."""
        for entry in sorted(os.scandir(source), key=lambda one: one.name):
            path, to = Path(entry.path), target / entry.name
            if entry.name in _SKIPPED or path in self.left_out:
                continue
            if entry.is_symlink():
                self._plan_link(path, to, top or path)
            elif entry.is_dir():
                self._plan_folder(path, to, top or path)
            elif entry.is_file() and (to.is_symlink() or not to.exists()):
                self._plan_file(path, to, top or path)

    def _plan_folder(self, path: Path, to: Path, top: Path) -> None:
        if (path / _ENVIRONMENT).exists() or not os.access(path, os.R_OK | os.X_OK):
            return
        self.folders.append((path, to))
        self.plan(path, to, top)

    def _plan_file(self, path: Path, to: Path, top: Path) -> None:
        if os.access(path, os.R_OK):
            self.files.append((path, to))
            self.held[top] = self.held.get(top, 0) + path.stat().st_size
        if len(self.files) > MOST_FILES:
            raise TooLarge(next(iter(self.roots)), self.held, len(self.files))

    def _plan_link(self, path: Path, to: Path, top: Path) -> None:
        """What it leads to is copied, if it is not already; a link that leads nowhere outside is left out."""
        if to.exists() and not to.is_symlink():
            return
        try:
            meant = path.resolve()
            is_folder, is_file = meant.is_dir(), meant.is_file()
        except (OSError, RuntimeError):  # a circle of links
            return
        for root, copy in self.roots.items():
            if meant.is_relative_to(root):
                self.links.append((copy / meant.relative_to(root), to))
                return
        if is_folder:
            self.roots[meant] = to
            self._plan_folder(meant, to, top)
        elif is_file:
            self._plan_file(meant, to, top)


def copy_apart(here: Path, folder: Path, left_out: Collection[Path] = ()) -> None:
    """Copy into `folder` all of `here` that is not in it, and in place of links what they lead to. Environments of
    Python, what git keeps for itself, and what is no plain file are left out. `TooLarge` before anything is copied."""
    here, folder = here.resolve(), folder.resolve()
    copying = _Copying({here: folder}, {folder, *(path.resolve() for path in left_out)})
    for link in list(_links(folder)):
        meant = Path(os.path.realpath(link))
        if not meant.is_relative_to(folder):  # of a work tree: it leads to what it led to before
            link.unlink()
    copying.plan(here, folder)
    free = shutil.disk_usage(folder).free
    if sum(copying.held.values()) > min(MOST_BYTES, free // 2):
        raise TooLarge(here, copying.held, len(copying.files))
    for _, target in copying.folders:
        target.mkdir(parents=True, exist_ok=True)
    for source, target in copying.files:
        shutil.copy2(source, target)
        target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IWUSR)
    for meant, link in copying.links:
        if not link.is_symlink():
            link.symlink_to(meant)
    for source, target in reversed(copying.folders):
        shutil.copystat(source, target)
        target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IRWXU)


def _links(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        yield from (path for name in (*folders, *names) if (path := Path(root, name)).is_symlink())
