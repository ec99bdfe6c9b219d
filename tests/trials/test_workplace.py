"""The copy that a program is edited and run in shares no byte with what the user has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.sandbox.trees import changes, in_git, make_project, state

from timesink.errors import UsageError
from timesink.sandbox import copies
from timesink.trials.turns import Shown
from timesink.trials.workplace import Workplace, open_workplace

WRITES_ALL = """
import os, sqlite3
from pathlib import Path
def wreck(folder, seen):
    real = os.path.realpath(folder)
    if real in seen: return
    seen.add(real)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name in (".git", "train.py"): continue
        if os.path.isdir(path): wreck(path, seen); continue
        if path.endswith(".db"):
            with sqlite3.connect(path) as table: table.execute("insert into t values (1)")
        with open(path, "ab") as file: file.write(b"appended")
        with open(path, "r+b") as file: file.write(b"over")
        os.chmod(path, 0o600); os.utime(path, (5, 5))
        try: os.setxattr(path, "user.note", b"x")
        except OSError: pass
        Path(path + ".new").write_text("new")
        os.rename(path + ".new", path)
    os.chmod(folder, 0o700)
wreck(".", set())
print("all")
"""
IN_GIT, COPIED = True, False


@pytest.fixture(params=[IN_GIT, COPIED], ids=["work tree", "copy"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    here = make_project(tmp_path / "user", WRITES_ALL)
    monkeypatch.chdir(here)
    return open_workplace("timesink-fix", tmp_path / "copy", tmp_path / "tree" if request.param else None)


def test_a_program_that_writes_into_all_it_finds_changes_nothing_of_the_user(place: Workplace, tmp_path: Path) -> None:
    shutil.rmtree(place.here / ".git", ignore_errors=True) if not place.is_work_tree else None
    before = state(tmp_path / "user")
    ran = subprocess.run([sys.executable, "train.py"], cwd=place.folder, capture_output=True, text=True, check=False)
    assert ran.stdout == "all\n", ran.stderr
    for file in place.folder.rglob("*.py"):
        Shown(SimpleNamespace(), place.folder, {file: (b"a", b"edited")}, 0.0).write("after")  # type: ignore[arg-type]
        assert file.read_bytes() == b"edited"
    assert changes(before, state(tmp_path / "user")) == []


def test_the_program_finds_what_it_finds_in_its_own_folder(place: Workplace) -> None:
    for name in (
        "best.pt", "latest.pt", "latest_hard.pt", "history.csv", "table.db", "data/deep/rows.txt", "localpkg/loop.py",
        "localpkg/far/far.py", "shared/tracked.py", "vendor/sub/inner.py", "vendor/loose/it.py", "own/parts.py",
        "latest_loop/best.pt", ".hidden/note", "runs/a/log.txt", "new.py",
    ):  # fmt: skip
        assert (place.folder / name).read_bytes() == (place.here / name).read_bytes(), name
    assert not os.path.lexists(place.folder / "latest_gone")
    assert (place.folder / "best.pt").stat().st_mtime == 1


def test_only_plain_files_of_git_are_edited_and_a_commit_holds_only_them(place: Workplace) -> None:
    assert place.folder / "own" / "parts.py" in place.held and place.folder / "new.py" in place.held
    if place.is_work_tree:
        assert not any("localpkg" in file.parts or "shared" in file.parts for file in place.held)
    edited = place.folder / "own" / "parts.py"
    edited.write_bytes(b"x = 9\r\n")
    place.keep("Edit", [edited])
    assert place.edited() == [place.here / "own" / "parts.py"]
    assert in_git(place.folder, "show", "--name-only", "--format=", "HEAD").split() == ["own/parts.py"]


def test_a_file_that_leads_out_of_the_copy_is_not_written(place: Workplace, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("mine")
    (place.folder / "out.py").symlink_to(other)
    (place.folder / "outside").symlink_to(tmp_path)
    for file in (place.folder / "out.py", place.folder / "outside" / "other.py", place.folder / ".." / "other.py"):
        with pytest.raises(UsageError, match="leads out of the copy"):
            Shown(SimpleNamespace(), place.folder, {file: (b"", b"")}, 0.0).write("after")  # type: ignore[arg-type]
    assert other.read_text() == "mine"


def test_what_is_too_large_is_refused_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_project(tmp_path / "user", "")
    (here / "runs" / "large.bin").write_bytes(b"x" * 5000)
    monkeypatch.chdir(here)
    monkeypatch.setattr(copies, "MOST_BYTES", 4000)
    with pytest.raises(UsageError, match=r"runs \(.*move what the program only reads out of the folder"):
        open_workplace("timesink-fix", None, tmp_path / "tree")
    assert not (tmp_path / "tree").exists() and in_git(here, "branch", "--list", "timesink-fix") == ""


def test_no_hook_of_the_repository_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = make_project(tmp_path / "user", "")
    for name in ("post-checkout", "pre-commit", "post-commit", "prepare-commit-msg", "reference-transaction"):
        hook = here / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-{name}\n")
        hook.chmod(0o755)
    monkeypatch.chdir(here)
    place = open_workplace("timesink-fix", None, tmp_path / "tree")
    place.own(here / "train.py").write_text("x = 3\n")
    place.keep("Edit", [place.own(here / "train.py")])
    place.close()
    assert list(tmp_path.glob("hook-*")) == []


def test_an_interpreter_in_the_folder_is_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = make_project(tmp_path / "user", "")
    (here / ".venv" / "bin").mkdir(parents=True)
    (here / ".venv" / "pyvenv.cfg").write_text("home = /usr\n")
    (here / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(here)
    place = open_workplace("timesink-fix", tmp_path / "copy")
    assert place.words([".venv/bin/python", "train.py"]) == [f"{here}/.venv/bin/python", "train.py"]
    assert place.words(["python", "train.py"]) == ["python", "train.py"]
    assert not (place.folder / ".venv").exists()


def test_what_a_killed_run_left_is_taken_away_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work tree, and its branch where nothing was kept on it; that of a run that goes on stays."""
    here = make_project(tmp_path / "user", "")
    monkeypatch.chdir(here)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for number, keeps in ((ended.pid, False), (ended.pid, True), (os.getpid(), False)):
        scratch = tmp_path / f"timesink-fix-{number}-{'kept' if keeps else 'none'}"
        (tmp_path / f"later-{scratch.name}").mkdir()
        place = open_workplace("timesink-fix", None, tmp_path / f"later-{scratch.name}" / "tree")
        if keeps:
            place.own(here / "train.py").write_text("x = 3\n")
            place.keep("Edit", [place.own(here / "train.py")])
        in_git(here, "worktree", "move", str(place.folder), str(tmp_path / "moved"))
        scratch.mkdir()
        in_git(here, "worktree", "move", str(tmp_path / "moved"), str(scratch / "tree"))
    fresh = tmp_path / "timesink-fix-0-now"
    fresh.mkdir()
    open_workplace("timesink-fix", None, fresh / "tree").close()
    branches = in_git(here, "branch", "--format=%(refname:short)").split()
    assert [name for name in branches if "timesink" in name] == ["timesink-fix", "timesink-fix-2"]
    assert in_git(here, "log", "-1", "--format=%s", "timesink-fix") == "Edit\n"
    left = [path.name for path in tmp_path.glob("timesink-fix-*") if path != fresh]
    assert left == [f"timesink-fix-{os.getpid()}-none"]
