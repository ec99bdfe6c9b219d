"""A program that tries to change what the user has, in as many ways as it knows: `writing.py WORLD [NAME ...]`.

Each way has a process and things of its own. It prints, of each, what became of it; without a sandbox every one of them
changes something outside of the program's folder, or the program's own files.
"""

import json
import logging
import mmap
import multiprocessing
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import CDLL
from pathlib import Path


def thing(name: str) -> Path:
    return AWAY / "things" / name


def _mapped(name: str) -> None:
    with thing(name).open("r+b") as file, mmap.mmap(file.fileno(), 0) as seen:
        seen[:2] = b"xx"


def _by_descriptor(name: str) -> None:
    folder = os.open(AWAY / "things", os.O_RDONLY)
    os.write(os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=folder), b"x")


def _by_proc(name: str) -> None:
    with thing(name).open("rb") as file:
        Path(f"/proc/self/fd/{file.fileno()}").write_bytes(b"x")


def _table(mode: str) -> Callable[[str], None]:
    def write(name: str) -> None:
        table = sqlite3.connect(thing(name))
        table.execute(f"pragma journal_mode={mode}")
        table.execute("create table t(a)")
        table.commit()
        table.close()

    return write


def _shell(line: str) -> Callable[[str], None]:
    return lambda name: subprocess.run(line.format(thing(name)), shell=True, check=True, capture_output=True) and None


def _tensors(name: str) -> None:
    import torch

    torch.save({"w": torch.zeros(3)}, thing(name))


def _array(name: str) -> None:
    import numpy as np

    np.memmap(thing(name), dtype="u1", mode="r+")[:] = 7


def _log(name: str) -> None:
    logging.FileHandler(thing(name)).emit(logging.makeLogRecord({"msg": "x"}))


def _worker(name: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=shutil.copy, args=("/etc/passwd", thing(name)))
    process.start()
    process.join()
    if process.exitcode:
        raise OSError("the worker failed")


def _orphan(name: str) -> None:
    if not os.fork():
        os.setsid()
        if not os.fork():
            for at in range(300):
                thing(name).write_text(str(at))
                time.sleep(0.1)
        os._exit(0)
    os.wait()
    time.sleep(0.3)


def _from_nothing(name: str) -> None:
    made = os.open(AWAY, os.O_TMPFILE | os.O_RDWR)
    os.write(made, b"x")
    there = os.open("/", os.O_RDONLY)  # with a folder given Python asks the kernel to follow links
    os.link(f"/proc/self/fd/{made}", AWAY / "things" / f"new_{name}", src_dir_fd=there, follow_symlinks=True)


def _native(name: str) -> None:
    library = CDLL(None)
    descriptor = library.creat(os.fsencode(thing(name)), 0o644)
    if descriptor < 0 or library.write(descriptor, b"xx", 2) != 2:
        raise OSError("creat")


def _nested(name: str) -> None:
    line = "mount -o remount,rw,bind / ; umount -l {0}; umount -l /tmp; umount -l /home; echo x > {0}"
    subprocess.run(["unshare", "-Urm", "sh", "-c", line.format(thing(name))], check=True, capture_output=True)


def _others_root(name: str) -> None:
    done = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        if int(process) != os.getpid():
            try:
                Path(f"/proc/{process}/root{thing(name)}").write_text("x")
                done += 1
            except OSError:
                continue
    if not done:
        raise OSError("none could be reached")


WAYS: dict[str, Callable[[str], object]] = {
    "written": lambda n: thing(n).write_text("x"),
    "appended": lambda n: thing(n).open("a").write("x"),
    "over": lambda n: thing(n).open("r+b").write(b"x"),
    "cut_at_open": lambda n: os.close(os.open(thing(n), os.O_WRONLY | os.O_TRUNC)),
    "cut_at_reading": lambda n: os.close(os.open(thing(n), os.O_RDONLY | os.O_TRUNC)),
    "cut": lambda n: os.truncate(thing(n), 1),
    "grown": lambda n: os.truncate(thing(n), 99999),
    "by_descriptor": _by_descriptor, "by_proc": _by_proc, "mapped": _mapped, "native": _native,
    "direct": lambda n: os.pwrite(os.open(thing(n), os.O_WRONLY | os.O_SYNC), b"x", 0),
    "allocated": lambda n: os.posix_fallocate(os.open(thing(n), os.O_WRONLY), 0, 1 << 20),
    "sent": lambda n: os.sendfile(os.open(thing(n), os.O_WRONLY), os.open("/etc/passwd", os.O_RDONLY), 0, 50),
    "removed": lambda n: thing(n).unlink(),
    "renamed": lambda n: thing(n).rename(thing(n).with_suffix(".gone")),
    "renamed_over": lambda n: thing("renamed_from").rename(thing(n)),
    "replaced_by_temporary": lambda n: (thing(n + ".new").write_text("x"), os.replace(thing(n + ".new"), thing(n))),
    "moved_in": lambda n: (Path(n).write_text("x"), shutil.move(n, thing(n))),
    "moved_folder": lambda n: shutil.move(AWAY / "folders" / n, AWAY / "folders" / "moved_there"),
    "emptied_folder": lambda n: shutil.rmtree(AWAY / "folders" / n),
    "made_folder": lambda n: (AWAY / "folders" / f"new_{n}" / "deep").mkdir(parents=True),
    "linked": lambda n: os.link(thing(n), AWAY / "linked_there"),
    "linked_here": lambda n: (os.link(thing(n), n), Path(n).write_text("x")),
    "other_name": lambda n: (AWAY / "other_name").write_text("x"),
    "pointed": lambda n: (AWAY / "pointed_there").symlink_to("/nowhere"),
    "pointed_out": lambda n: (Path(n).symlink_to(thing(n)), Path(n).write_text("x")),
    "pointed_anew": lambda n: ((AWAY / "newest").unlink(), (AWAY / "newest").symlink_to("x")),
    "through_link": lambda n: Path("data/rows.npy").write_text("x"),
    "mode": lambda n: thing(n).chmod(0o600),
    "mode_of_folder": lambda n: (AWAY / "folders" / n).chmod(0o700),
    "times": lambda n: os.utime(thing(n), (1, 1)),
    "attribute": lambda n: os.setxattr(thing(n), "user.note", b"x"),
    "copied_with_all": lambda n: shutil.copy2("/etc/passwd", thing(n)),
    "pipe": lambda n: os.mkfifo(AWAY / "pipe"),
    "socket": lambda n: socket.socket(socket.AF_UNIX).bind(str(WORLD / "s")),
    "from_nothing": _from_nothing,
    "table": _table("delete"), "table_ahead": _table("wal"),
    "shell": _shell("echo x > {0}"), "shell_appended": _shell("echo x | tee -a {0}"),
    "stream_edited": _shell("sed -i s/o/x/ {0}"), "copied_by_cp": _shell("cp /etc/passwd {0}"),
    "written_by_dd": _shell("dd if=/dev/zero of={0} bs=9 count=1 conv=notrunc"), "git": _shell("git init -q {0}.git"),
    "background": _shell("(setsid nohup sh -c 'while :; do date > {0}; sleep .1; done' >/dev/null 2>&1 &) ; sleep .4"),
    "tensors": _tensors, "array": _array, "log": _log, "worker": _worker, "orphan": _orphan,
    "home": lambda n: (Path.home() / ".bashrc").open("a").write("x"),
    "home_cache": lambda n: (os.makedirs(Path.home() / ".cache/a"), (Path.home() / ".cache/a/b").write_text("x")),
    "checkpoint": lambda n: Path("best.pt").write_text("x"),
    "history": lambda n: Path("history.csv").open("a").write("x"),
    "above": lambda n: Path("../away/things", n).write_text("x"),
    "package": lambda n: Path("localpkg/loop.py").write_text("x = 2"),
    "module": lambda n: Path("vendor/sub/inner.py").write_text("x"),
    "own_source": lambda n: Path("train.py").write_text("x"),
    "repository": lambda n: Path(".git/config").open("a").write("[x]"),
    "own_database": lambda n: sqlite3.connect("table.db").execute("pragma user_version = 3"),
    "nested": _nested, "others_root": _others_root,
}  # fmt: skip


def make_things(away: Path) -> None:
    """What the ways change: a file and a folder of each name."""
    for folder in ("things", "folders"):
        (away / folder).mkdir(parents=True, exist_ok=True)
    for name in (*WAYS, "renamed_from"):
        if not name.startswith("table"):
            (away / "things" / name).write_text("some of the user's own\n")
        (away / "folders" / name).mkdir(exist_ok=True)
        (away / "folders" / name / "file").write_text("in a folder")
    os.link(away / "things" / "written", away / "other_name")
    (away / "newest").symlink_to("things")


if __name__ == "__main__":
    WORLD = Path(sys.argv[1])
    AWAY = WORLD / "away"
    for name in sys.argv[2:] or WAYS:
        if not os.fork():
            try:
                WAYS[name](name)
                answer = "done"
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"[:120]
            print(json.dumps([name, answer]), flush=True)
            os._exit(0)
        os.wait()
    print('["all", "done"]', flush=True)
    if "STAYS" in os.environ:
        time.sleep(60)
