"""Run a command so that it can change nothing outside of a folder of its own, without root, in one of three ways:

overlay    user and mount namespaces; every folder is covered by an overlay whose upper layer lies in the run's folder.
           The program sees its usual paths, and its writes succeed there. What no overlay can cover is read-only.
read-only  the same namespaces without overlays: a copy of the program's folder stands in its place, elsewhere a write
           is an error.
landlock   no namespaces: the program runs in such a copy, elsewhere a write is an error; calls that set modes, times
           and attributes do nothing.

Which of them a machine allows is tried, never guessed from versions. `NoSandbox` says why there is none.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from timesink.sandbox.copies import TooLarge, copy_apart
from timesink.sandbox.launcher import state_of

WAYS: Final = ("overlay", "read-only", "landlock")
SEALED: Final = "sealed"
"""All is read-only and nothing is covered: for an interpreter that has yet to begin the program."""
OFFLINE: Final = {
    "WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": "file:./mlruns", "COMET_START_MODE": "offline", "DO_NOT_TRACK": "1",
    "NEPTUNE_MODE": "offline", "CLEARML_OFFLINE_MODE": "1", "SWANLAB_MODE": "offline", "HF_HUB_DISABLE_TELEMETRY": "1",
}  # fmt: skip
"""For trackers that upload; a program that sets its mode in code is not bound by these."""
_CACHES: Final = {"TRITON_CACHE_DIR": "~/.triton", "TORCHINDUCTOR_CACHE_DIR": f"/tmp/torchinductor_{os.getuid()}"}
_LEAST_FREE_BYTES: Final = 1 << 30
_TRIED_S: Final = 60.0
_FOREIGN: Final = (1000, 1 << 28)  # files of others that we may write, and their bytes: more are not looked after
_REFUSALS: Final = {
    "landlock": "Read-only file system|Permission denied|Invalid cross-device link",
    "": "Read-only file system|Value too large for defined data type|Invalid cross-device link",
}
_MPS: Final = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"


Shown = Mapping[Path, Path | None]
"""Paths of a run, each with the file whose content it finds there; None: nothing."""


@dataclass(frozen=True, slots=True)
class Grants:
    """What else a run is given: files `shown` with another content, folders of `records` that it may write for us,
    descriptors that it may `keep`, and, where no layers can be laid, whether it has a copy of the folder."""

    shown: Shown = field(default_factory=dict)
    records: Collection[Path] = ()
    keep: Sequence[int] = ()
    copies: bool = True


NOTHING: Final = Grants()


class NoSandbox(Exception):
    """No way is to be had here, and nothing was run. `missed` says of each what it answered."""

    def __init__(self, missed: Sequence[str]) -> None:
        super().__init__("; ".join(missed))
        self.missed = tuple(missed)


@dataclass(frozen=True, slots=True)
class Written:
    """What a run wrote or deleted at a path, as the program names it; `at` holds the content."""

    path: Path
    is_deleted: bool
    bytes: int
    at: Path


@dataclass(slots=True)
class BoxedRun:
    """A run that goes on, or has ended: waited for as a `subprocess.Popen` is. `close` when what it wrote is read."""

    scratch: Path
    here: Path
    way: str
    life: int
    process: Any = None
    layers: dict[Path, Path] = field(default_factory=dict)
    before: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Of the process that waits for the program, at the head of a group of its own."""
        return int(self.process.pid)

    @property
    def returncode(self) -> int | None:
        """The program's status, negative for a signal."""
        return self.process.returncode  # type: ignore[no-any-return]

    def poll(self) -> int | None:
        """Its status; None where it still runs."""
        return self.process.poll()  # type: ignore[no-any-return]

    def wait(self, timeout: float | None = None) -> int:
        """Its status once it ends, `TimeoutExpired` where it does not in time."""
        status: int = self.process.wait(timeout)
        if status < 0:  # whoever waits for the program may have been killed itself, and sweeps no more
            _end_left(self.scratch)
        return status

    def written(self) -> list[Written]:
        """All that it wrote or deleted, by path; what we showed it and it left alone is not among it."""
        found = list(_in_layers(self.layers, self.before))
        if self.way != "overlay":
            now = {path: state_of(path) for path in _files(self.scratch / "copy")}
            for path in now.keys() | self.before.keys():
                if now.get(path) != self.before.get(path):
                    there = self.here / path.relative_to(self.scratch / "copy")
                    found.append(Written(there, path not in now, now.get(path, (0,))[0], path))
        return sorted(found, key=lambda one: one.path)

    def found(self, path: Path) -> Path:
        """Where the content lies of a path as the program names it, whether or not it wrote there."""
        path = self.here / path
        if self.way != "overlay":
            return self.scratch / "copy" / path.relative_to(self.here) if path.is_relative_to(self.here) else path
        for layer, folder in self.layers.items():
            if path.is_relative_to(folder) and os.path.lexists(layer / path.relative_to(folder)):
                return layer / path.relative_to(folder)
        return path

    def denied(self, said: str) -> list[str]:
        """The lines of what it said that tell of a refused write: such a run is no fair one."""
        words = re.compile(_REFUSALS.get(self.way, _REFUSALS[""]))
        return [line.strip() for line in said.splitlines() if words.search(line)]

    def close(self) -> None:
        """End what is left of it, and remove all that it wrote."""
        with suppress(OSError):
            os.close(self.life)
        if self.process is not None:
            self.wait()
        clean(self.scratch)


def _end_left(scratch: Path) -> None:
    """End every process that has the run's own folder in its environment."""
    mark = os.fsencode(scratch)
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with suppress(OSError):  # it ended, or is another user's
                if mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The best way that this machine allows for programs of the folder `here`, with runs below `root`. `missed` says
    why better ways were not to be had, `read_only` where no layer could be laid."""

    here: Path
    root: Path
    way: str
    pids: bool
    missed: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    network: bool = True
    foreign: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, here: Path, ways: Sequence[str] = WAYS, network: bool = True, roots: Sequence[Path] = ()) -> Self:
        """Try each way, and each place for what runs write, by a run of nothing. `NoSandbox` where none works."""
        missed: list[str] = []
        here = here.resolve()
        for way, pids in [(one, pids) for one in ways for pids in ((True, False) if one != "landlock" else (False,))]:
            for place in roots or _places():
                clear_killed(place, "timesink-box")
                root = Path(tempfile.mkdtemp(prefix=f"timesink-box-{os.getpid()}-", dir=place)).resolve()
                hold(root)
                box = cls(here, root, way, pids, tuple(missed), network=network)
                try:
                    run = box.start([sys.executable, "-ISE", "-c", _TRIAL], asked=Grants(copies=False))
                    status = run.wait(_TRIED_S)
                    notes = run.layers
                    run.close()
                    if status == 0:
                        foreign = _foreign(here) if way == "overlay" and os.geteuid() else {}
                        return cls(here, root, way, pids, tuple(missed), tuple(map(str, notes)), network, foreign)
                    missed.append(f"{way}: a run of nothing ended with status {status}")
                except (NoSandbox, subprocess.TimeoutExpired, OSError) as error:
                    missed.append(f"{way}{' with a namespace of processes' * pids}, in {place}: {error}")
                clean(root)
        raise NoSandbox(missed)

    def close(self) -> None:
        """Remove the folder of runs."""
        clean(self.root)

    def sealed(self) -> Self:
        """The same for what has yet to begin the program: all that it finds is read-only."""
        return replace(self, way=SEALED, pids=False)

    def start(
        self,
        words: Sequence[str],
        variables: Mapping[str, str] = os.environ,
        *,
        output: int | None = None,
        errors: int | None = None,
        asked: Grants = NOTHING,
    ) -> BoxedRun:
        """Begin a run of `words` in `here`, with these variables and no other. `NoSandbox` where it cannot begin."""
        run, spec, variables = self.prepare(words, variables, asked)
        told, tell = os.pipe()
        lived, run.life = os.pipe()
        spec |= {"tell": tell, "life": lived}  # of which we hold the other ends
        argv = [sys.executable, "-ISE", str(Path(__file__).with_name("launcher.py"))]
        out, err = (subprocess.DEVNULL if one is None else one for one in (output, errors))
        run.process = subprocess.Popen(
            argv, env=dict(variables), stdin=subprocess.PIPE, stdout=out, stderr=out if errors is None else err,
            pass_fds=[tell, lived, *asked.keep], start_new_session=True, cwd="/",
        )  # fmt: skip
        os.close(tell)
        os.close(lived)
        with suppress(BrokenPipeError), run.process.stdin as given:
            given.write(json.dumps(spec).encode())
        answered(run, told)
        return run

    def prepare(
        self, words: Sequence[str], variables: Mapping[str, str], asked: Grants
    ) -> tuple[BoxedRun, dict[str, Any], dict[str, str]]:
        """The folder of a run, what its launcher must know, and the variables that it has."""
        scratch = Path(tempfile.mkdtemp(prefix="run", dir=self.root))
        for name in ("tmp", "upper", "work", "copy"):
            (scratch / name).mkdir()
        run = BoxedRun(scratch, self.here, self.way, -1)
        given, place = {**variables, **OFFLINE}, self.here
        caches = {str(Path(given.get(name, usual)).expanduser()): self._stored(name) for name, usual in _CACHES.items()}
        mps = given.get(_MPS[0], _MPS[1])
        writable = [str(folder.resolve()) for folder in asked.records] + [mps] * Path(mps).is_dir()
        if self.way == SEALED:
            given["TMPDIR"] = str(scratch / "tmp")  # some libraries ask for a place as they are imported
        if self.way in ("read-only", "landlock"):
            given |= {"TMPDIR": str(scratch / "tmp"), **{name: self._stored(name) for name in _CACHES}}
            if asked.copies:
                _copy(self.here, scratch / "copy", asked.shown)
            run.before = {path: state_of(path) for path in _files(scratch / "copy")}
        if self.way == "landlock":
            place = scratch / "copy"
            writable += [str(scratch / "copy"), str(scratch / "tmp"), *map(self._stored, _CACHES)]
            words = [self._moved(word, place) for word in words]
        homes = (given.get("HOME", "/"), given.get("TMPDIR", "/tmp"), "/tmp", "/var/tmp")
        named = [str(parent) for word in words if word[:1] == "/" for parent in (Path(word), Path(word).parent)]
        spec = {
            "way": self.way, "pids": self.pids, "network": self.network, "words": list(words), "place": str(place),
            "here": str(self.here), "scratch": str(scratch), "root": str(self.root), "writable": writable,
            "caches": caches if self.way == "overlay" else {},
            "mine": [name for name in (str(self.here), *homes, *named) if Path(name).is_dir()],
            "shown": {**self.foreign, **{str(path): str(source or "") for path, source in asked.shown.items()}},
        }  # fmt: skip
        return run, spec, given

    def own(self, path: Path) -> Path:
        """The path of the user's that a path means which a run named."""
        inner = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        return self.here.joinpath(*inner[2:]) if inner[1:2] == ("copy",) else path

    def _moved(self, word: str, place: Path) -> str:
        """A word of the command line that names a Python file below `here`, as it is named in the copy."""
        path = Path(word)
        is_ours = path.is_absolute() and path.suffix == ".py" and path.is_relative_to(self.here)
        return str(place / path.relative_to(self.here)) if is_ours else word

    def _stored(self, name: str) -> str:
        folder = self.root / "caches" / name
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)


_TRIAL: Final = "import tempfile; tempfile.TemporaryFile().write(b'x')"


def answered(run: BoxedRun, told: int) -> None:
    """Wait for the launcher's answer. `NoSandbox` with its reason where the program did not begin."""
    with os.fdopen(told, "rb") as answers:
        answer = answers.read().decode(errors="replace")  # ends where the program begins
    if answer[:1] != "{":
        run.close()
        raise NoSandbox([answer or "the launcher died"])
    notes = json.loads(answer)
    run.layers = {run.scratch / "upper" / name: Path(folder) for name, folder in notes["layers"].items()}
    run.before |= {run.scratch / "upper" / name: tuple(state) for name, state in notes["before"].items()}


def clean(folder: Path) -> None:
    """Remove a folder, with what the kernel and a program closed; links are not followed."""
    for root, folders, _ in os.walk(folder):
        for inner in [Path(root, name) for name in folders]:
            if not inner.is_symlink():
                with suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def hold(folder: Path) -> None:
    """Keep a folder from `clear_killed` for as long as this process lives."""
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)


def clear_killed(place: Path, name: str) -> list[Path]:
    """Remove the folders `name-PID-...` of ours there whose process was killed before it could; which they were."""
    found = []
    for folder in place.glob(f"{name}-*-*"):
        pid = folder.name.removeprefix(f"{name}-").partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and folder.lstat().st_uid == os.geteuid() and not Path(f"/proc/{pid}").exists():
                lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it may be a process of another container
                    found.append(folder)
                    clean(folder)
                finally:
                    os.close(lock)
    return found


def _places() -> list[Path]:
    """Folders that can hold what runs write, the usual first: layers can lie on no overlay and no network."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = [path for path in (Path(tempfile.gettempdir()), Path("/var/tmp"), home, Path("/dev/shm")) if path.is_dir()]
    roomy = [path for path in found if os.access(path, os.W_OK) and shutil.disk_usage(path).free > _LEAST_FREE_BYTES]
    return list(dict.fromkeys(roomy))


def _copy(here: Path, copy: Path, shown: Shown) -> None:
    try:
        copy_apart(here, copy)
    except TooLarge as much:
        raise NoSandbox([f"no layer can be laid over the folder, so each run has a copy of it, and {much}"]) from much
    for path, source in shown.items():
        if path.is_relative_to(here):
            target = copy / path.relative_to(here)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if source is not None:
                shutil.copy2(source, target)


def _foreign(here: Path) -> dict[str, str]:
    """Files of other owners that we may write: the kernel cannot copy those into a layer, so they are put there."""
    found: dict[str, str] = {}
    left = _FOREIGN[1]
    for path in _files(here):
        there = path.lstat()
        if there.st_uid == os.geteuid() or not stat.S_ISREG(there.st_mode) or not os.access(path, os.R_OK | os.W_OK):
            continue
        left -= there.st_size
        if len(found) >= _FOREIGN[0] or left < 0:
            break
        found[str(path)] = str(path)
    return found


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        yield from (Path(root, name) for name in (*names, *(f for f in folders if Path(root, f).is_symlink())))


def _in_layers(layers: Mapping[Path, Path], before: Mapping[Path, tuple[int, ...]]) -> Iterator[Written]:
    for layer, folder in layers.items():
        for path in _files(layer):
            there = path.lstat()
            if before.get(path) != state_of(path):
                is_deleted = stat.S_ISCHR(there.st_mode) and not there.st_rdev
                yield Written(folder / path.relative_to(layer), is_deleted, there.st_size, path)
