"""Files that are written whole or not at all. Standard library only."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, of the same name, that takes the place of `path` when the block ends, or is gone if it fails.

    A reader sees the old file or the new one. A file that is replaced hands on its mode; a link still leads to it.
    Of two writers the last one to end stays. What a killed writer left, the next one of the same file removes.
    """
    target = path.resolve()
    with _folder_beside(target) as folder:
        unfinished = folder / target.name
        yield unfinished
        if target.exists():
            unfinished.chmod(target.stat().st_mode & 0o777)
        unfinished.replace(target)


def write_whole(path: Path, text: str) -> None:
    """Replace a file's text, in UTF-8, as `whole_file` does."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    """An empty folder for this writer alone: the one named after the target, or, while another writer has that, any."""
    folder = target.with_name(f".writing-{target.name}")
    lock = _locked(folder)
    if lock is None:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-", ignore_cleanup_errors=True) as other:
            yield Path(other)
        return
    try:
        _clear(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that keeps a folder for this writer until it is closed, which the system does for one that is
    killed. None where a writer has it, where it is not this user's own, and where folders cannot be locked."""
    if fcntl is None:
        return None
    try:
        folder.mkdir(0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked, current = os.fstat(descriptor), folder.lstat()  # the writer before may have removed what was opened
        private = locked.st_uid == os.geteuid() and not stat.S_IMODE(locked.st_mode) & 0o077
        if private and os.path.samestat(locked, current):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _clear(folder: Path) -> None:
    for leftover in folder.iterdir():
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
