"""Folders as users have them, and all that can be told of a tree from outside."""

import hashlib
import os
import sqlite3
import subprocess
from pathlib import Path

IGNORED = ("*.pt", "*.csv", "*.db", "localpkg/", "runs/", "data", "vendor/loose/", "latest*", "__pycache__/")


def state(*roots: Path) -> dict[str, tuple[object, ...]]:
    """Of each path below: kind and mode, owner, links, size, times, attributes, and a hash of the content."""
    found: dict[str, tuple[object, ...]] = {}
    for root in roots:
        for folder, folders, names in os.walk(root):
            for path in [Path(folder), *(Path(folder, name) for name in (*names, *folders))]:
                there = path.lstat()
                names_of = [(name, os.getxattr(path, name, follow_symlinks=False)) for name in _attributes(path)]
                found[str(path)] = (
                    there.st_mode, there.st_uid, there.st_gid, there.st_nlink, there.st_ino,
                    there.st_mtime_ns, names_of, _content(path),
                )  # fmt: skip
    return found


def changes(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    """The paths that are otherwise, with what is."""
    fields = ("mode", "owner", "group", "names", "inode", "time", "attributes", "content")
    told = []
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was is None or now is None:
            told.append(f"{path}: {'new' if was is None else 'gone'}")
        elif was != now:
            told.append(f"{path}: {[name for name, a, b in zip(fields, was, now, strict=True) if a != b]}")
    return told


def _attributes(path: Path) -> list[str]:
    return sorted(os.listxattr(path, follow_symlinks=False))


def _content(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def in_git(folder: Path, *words: str) -> str:
    """What git says there."""
    asked = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True).stdout


def make_project(root: Path, script: str) -> Path:
    """A program in a git repository, with all that git does not hold, and data of the user's beside it in `root`."""
    here, away = root / "project", root / "away"
    for folder in ("localpkg", "runs/a", "vendor/loose", "own", ".hidden"):
        (here / folder).mkdir(parents=True)
    for folder in ("rows/deep", "package", "shared"):
        (away / folder).mkdir(parents=True)
    for name, text in {
        "train.py": script, "own/parts.py": "x = 1\r\ny = 2\r\n", "best.pt": "weights", "history.csv": "1,2\n",
        "localpkg/loop.py": "z = 1\r\n", "runs/a/log.txt": "log", "vendor/loose/it.py": "w = 1\n",
        ".hidden/note": "note", ".gitignore": "\n".join(IGNORED), "new.py": "not_committed = 1\n",
    }.items():  # fmt: skip
        (here / name).write_bytes(text.encode())
    for name in ("rows/deep/rows.txt", "rows/x.npy", "package/far.py", "shared/tracked.py"):
        (away / name).write_text("v = 1\n")
    with sqlite3.connect(here / "table.db") as table:
        table.execute("create table t(a)")
    table.close()
    os.link(here / "best.pt", here / "latest_hard.pt")
    (here / "latest.pt").symlink_to("best.pt")
    (here / "data").symlink_to(away / "rows")
    (here / "latest_gone").symlink_to(away / "gone")
    (here / "latest_loop").symlink_to(here)
    (here / "localpkg" / "far").symlink_to(away / "package")
    (here / "shared").symlink_to(away / "shared")  # git holds this link
    (here / "runs").chmod(0o750)
    os.utime(here / "best.pt", (1, 1))
    module = root / "module"
    module.mkdir()
    (module / "inner.py").write_text("i = 1\n")
    in_git(module, "init", "-q")
    in_git(module, "add", ".")
    in_git(module, "commit", "-q", "-m", "first")
    in_git(here, "init", "-q")
    in_git(here, "submodule", "add", "-q", str(module), "vendor/sub")
    in_git(here, "add", "train.py", "own", ".gitignore", "shared")
    in_git(here, "commit", "-q", "-m", "first")
    (here / "own" / "parts.py").write_bytes(b"x = 1\r\ny = 3\r\n")
    return here
