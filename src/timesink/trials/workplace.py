"""A copy of the current folder on a git branch of its own, where a program is edited and run.

In a git repository the copy is a work tree of it, with all that is changed and not committed; its branch stays when the
work tree goes. Elsewhere it is a repository of its own, of the Python files. All else is copied beside what git holds,
so that nothing that the program writes is the user's; what is too large to be copied is refused.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final

from timesink.errors import ToolFailed, UsageError
from timesink.sandbox.copies import TooLarge, copy_apart
from timesink.sandbox.runs import Sandbox, Shown, clear_killed

_SETTINGS: Final = {
    "user.name": "timesink fix", "user.email": "timesink@localhost", "commit.gpgsign": "false",
    "core.hooksPath": os.devnull, "core.fsmonitor": "false",
}  # fmt: skip
"""No hook of the repository runs: it may do anything to the files beside it."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """`folder` stands for `here`; `base` is the commit that holds the program as it is, and `held` its plain files.
    Where there is a `box`, runs are made in it, where they find the files of `folder` in `here`."""

    here: Path
    folder: Path
    branch: str
    base: str
    is_work_tree: bool
    held: frozenset[Path]
    box: Sandbox | None = None

    def own(self, file: Path) -> Path:
        """The copy of a file below `here`."""
        return self.folder / file.relative_to(self.here)

    def words(self, program: Sequence[str]) -> list[str]:
        """The program's command line: in a copy a Python file of `here` that has a full path means the copy's, and an
        interpreter that is named from `here` is that one."""
        if self.box is not None:
            return list(program)
        paths = [(word, Path(word)) for word in program]
        words = [
            str(self.own(path)) if path.suffix == ".py" and path.is_absolute() and path.is_relative_to(self.here) else w
            for w, path in paths
        ]
        is_ours = "/" in words[0] and not (self.folder / words[0]).exists()
        return [str(self.here / words[0]) if is_ours else words[0], *words[1:]]

    def shown(self, more: Iterable[Path] = ()) -> Shown:
        """What a box shows in `here`: the Python files of `folder`, and `more` files of it, whether or not there."""
        files = {file for file in self.held if file.suffix == ".py"} | set(more)
        return {self.here / file.relative_to(self.folder): file if file.is_file() else None for file in files}

    def seen(self, path: Path) -> Path:
        """The copy of a file of `here` that git holds; any other path as it is."""
        own = self.own(path) if path.is_relative_to(self.here) else path
        return own if own in self.held else path

    def name(self, path: Path) -> Path:
        """A file's path from `here`."""
        return path.relative_to(self.folder if path.is_relative_to(self.folder) else self.here)

    def keep(self, message: str, files: Iterable[Path]) -> str:
        """Commit these files as they are now, and no other; the commit's short name."""
        for file in files:
            is_there = ["add", "-f"] if file.exists() else ["rm", "-q", "--cached", "--ignore-unmatch"]
            _git(self.folder, *is_there, "--", str(file))
        _git(self.folder, "commit", "-q", "--no-verify", "-m", message)
        return _git(self.folder, "rev-parse", "--short", "HEAD").strip()

    def edited(self) -> list[Path]:
        """The files that commits since `base` changed, as they lie here."""
        names = _git(self.folder, "diff", "--name-only", "--relative", "-z", self.base, "HEAD").split("\0")
        return [self.here / name for name in names if name]

    def apply(self) -> list[Path]:
        """Write what was kept into the files of `here`. `UsageError` where one was changed meanwhile."""
        files = self.edited()
        for file in files:
            before = _git(self.folder, "show", f"{self.base}:./{file.relative_to(self.here)}")
            if file.read_text(encoding="utf-8") != before:
                raise UsageError(f"{file} was changed meanwhile", remedy=f"merge the branch {self.branch} by hand")
        for file in files:
            shutil.copyfile(self.own(file), file)
        return files

    def close(self) -> None:
        """Take the work tree away; its branch stays if it holds anything, and so does a copy."""
        is_empty = _git(self.folder, "rev-parse", "HEAD").strip() == self.base
        if not self.is_work_tree and is_empty:
            shutil.rmtree(self.folder)
        if self.is_work_tree:
            root = _git(self.folder, "rev-parse", "--show-toplevel").strip()
            _git(self.here, "worktree", "remove", "--force", root)
            if is_empty:
                _git(self.here, "branch", "-q", "-D", self.branch)


def changed_since(base: str) -> list[Path]:
    """The files below the current folder, named from it, that are otherwise than in that commit; Python files that it
    has not are among them."""
    here = Path.cwd().resolve()
    names = _git(here, "diff", "--name-only", "--relative", "-z", base).split("\0")
    names += _git(here, "ls-files", "--others", "--exclude-standard", "-z", "*.py").split("\0")
    return [Path(name) for name in names if name]


def open_workplace(
    branch: str, copy: Path | None = None, scratch: Path | None = None, base: str = "", box: Sandbox | None = None
) -> Workplace:
    """A work tree in `scratch` of the repository that we are in; without it a copy of the current folder in `copy`. It
    holds what is there, or where `base` is given that commit, and without a box all that git does not hold.

    `UsageError` where that folder is there already. A branch that is there already makes the next one `BRANCH-2`.
    """
    here = Path.cwd().resolve()
    if scratch is None:
        free = (here / name for name in _numbered(branch) if not (here / name).exists())
        folder = copy.resolve() if copy is not None else next(free)
        if folder.exists():
            raise UsageError(f"{folder} is there already", remedy="name a folder that is not, for the edited copy")
        files = list(_python_files(here, folder))
        if not files:
            raise UsageError(f"no Python file is in {here}", remedy="run it in the folder of the program")
        folder.mkdir(parents=True)
        _git(folder, "init", "-q", "-b", branch)
        _copy(here, folder, files)
        return _ready(here, folder, branch, "the program as it is", False, box)
    _clear_killed(here, scratch)
    taken = set(_git(here, "for-each-ref", "--format=%(refname:short)", "refs/heads").split())
    branch = next(name for name in _numbered(branch) if name not in taken)
    inner = _git(here, "rev-parse", "--show-prefix").strip()
    _git(here, "worktree", "add", "-q", "-b", branch, str(scratch), base or "HEAD")
    if base:
        return _ready(here, scratch / inner, branch, "the program as it was", True, box)
    changed = _git(here, "diff", "--name-only", "--relative", "-z", "HEAD").split("\0")
    added = _git(here, "ls-files", "--others", "--exclude-standard", "-z", "*.py").split("\0")
    _copy(here, scratch / inner, (here / name for name in (*changed, *added) if name))
    return _ready(here, scratch / inner, branch, "the program as it is, with what was not committed", True, box)


def _clear_killed(here: Path, scratch: Path) -> None:
    """Take away work trees whose run was killed, and their branches if nothing was kept on them."""
    for gone in clear_killed(scratch.parent.parent, "timesink-fix"):
        listed = _git(here, "worktree", "list", "--porcelain").split("\n\n")
        tree = next((one for one in listed if one.startswith(f"worktree {gone}/")), "")
        _git(here, "worktree", "prune")
        branch = tree.partition("branch refs/heads/")[2].partition("\n")[0]
        last = _git(here, "log", "-1", "--format=%s", branch, "--", fails=True).strip() if branch else ""
        others = _git(here, "branch", "--format=%(refname:short)", "--contains", branch).split() if branch else []
        if branch and (last.startswith("the program as it is") or len(others) > 1):
            _git(here, "branch", "-q", "-D", branch)


def _numbered(name: str) -> Iterator[str]:
    """The name, then the name with each number from 2 on."""
    return chain([name], (f"{name}-{at}" for at in count(2)))


def head(folder: Path | None = None) -> str:
    """The commit of the git repository that the folder (the current one) belongs to; empty where there is none."""
    return _git(folder or Path.cwd(), "rev-parse", "--verify", "-q", "HEAD", fails=True).strip()


def _ready(here: Path, folder: Path, branch: str, message: str, is_work_tree: bool, box: Sandbox | None) -> Workplace:
    """Commit what is there, then copy what is not, where runs need it."""
    _git(folder, "add", "-A", "--", ".")
    if _git(folder, "status", "--porcelain").strip():
        _git(folder, "commit", "-q", "--no-verify", "-m", message)
    base = _git(folder, "rev-parse", "HEAD").strip()
    listed = (entry.split("\t") for entry in _git(folder, "ls-tree", "-r", "-z", base).split("\0") if entry)
    held = frozenset(folder / name for what, name in listed if what.startswith("100"))
    workplace = Workplace(here, folder, branch, base, is_work_tree, held, box)
    try:
        copy_apart(here, folder) if box is None else None
    except TooLarge as much:
        workplace.close() if is_work_tree else shutil.rmtree(folder)
        raise UsageError(
            f"a run may write into what git does not hold, so that is copied, and {much}",
            remedy="move what the program only reads out of the folder and name it by its full path",
        ) from much
    return workplace


def _python_files(here: Path, folder: Path) -> Iterator[Path]:
    """All but those of environments, of hidden folders, and of the copy itself."""
    for file in here.rglob("*.py"):
        parts = file.relative_to(here).parts
        if not file.is_relative_to(folder) and "site-packages" not in parts and not any(p[0] == "." for p in parts):
            yield file


def _copy(here: Path, folder: Path, files: Iterable[Path]) -> None:
    for file in files:
        target = folder / file.relative_to(here)
        for part in (*reversed(target.relative_to(folder).parents), target.relative_to(folder)):
            if (folder / part).is_symlink():  # of the commit: what is there now is no link, and it may lead anywhere
                (folder / part).unlink()
        if not file.exists():
            target.unlink(missing_ok=True)
        elif file.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def _git(folder: Path, *words: str, fails: bool = False) -> str:
    """What git says; `ToolFailed` where it fails, unless it may."""
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    try:
        ran = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as absent:
        if fails:
            return ""
        raise ToolFailed("git is not there", remedy="install git: each kept edit is a commit") from absent
    if ran.returncode and not fails:
        last = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ToolFailed(f"git {words[0]} failed: {last}", remedy="run it by hand in the folder to see why")
    return "" if ran.returncode else ran.stdout
