"""Files that are written whole or not at all. Standard library only."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, of the same name, that takes the place of `path` when the block ends, or is gone if it fails.

    A reader sees the old file or the new one. A file that is replaced hands on its mode; a link still leads to it.
    """
    target = path.resolve()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-", ignore_cleanup_errors=True) as folder:
        part = Path(folder) / target.name
        yield part
        if target.exists():
            part.chmod(target.stat().st_mode & 0o777)
        part.replace(target)
