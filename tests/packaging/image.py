"""The container file without an engine: each stage is a root of its own, and every line is done there as it stands.

The base is a plain Debian with the Python that `FROM` names under `/usr/local`, as the image of that name has it.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIBRARIES = ("ca-certificates", "libffi8", "libssl3", "zlib1g", "libsqlite3-0", "liblzma5", "libbz2-1.0")  # of Python
_OF_MACHINE = ("etc/ssl/certs", "etc/resolv.conf")  # how this machine reaches a package index


def base(folder: Path, suite: str, python: Path) -> Path:
    """A root with Debian of that suite and the Python of that prefix, which finds its own place."""
    include = f"--include={','.join(_LIBRARIES)}"
    made = ["debootstrap", "--variant=minbase", include, suite, folder]
    subprocess.run(made, check=True, capture_output=True, timeout=900)
    put_python(folder, python)
    return folder


def put_python(root: Path, python: Path) -> None:
    """That Python under `/usr/local`, which it takes for its own prefix."""
    ignored = shutil.ignore_patterns("test", "site-packages", "__pycache__")
    shutil.copytree(python, root / "usr/local", symlinks=True, ignore=ignored, dirs_exist_ok=True)
    for name in _OF_MACHINE:
        target = root / name
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        copy = shutil.copytree if (Path("/") / name).is_dir() else shutil.copy
        copy(Path("/") / name, target)
    stage = Stage(root)
    stage.run("ldconfig && ln -sf python3 /usr/local/bin/python && python -m ensurepip")


class Stage:
    """What the lines of a stage leave behind in its root: where one stands, as whom, with which variables."""

    def __init__(self, root: Path, given: dict[str, str] | None = None) -> None:
        self.root, self.folder, self.user = root, "/", "root"
        self.environment = {"PATH": _PATH, "HOME": "/tmp", **(given or {})}
        self.entry: list[str] = []
        self.words: list[str] = []

    def do(self, word: str, rest: str, context: Path, built: dict[str, Path]) -> None:
        """One line of the file; what is not known here is refused."""
        if word == "RUN":
            self.run(rest)
        elif word == "WORKDIR":
            self.folder = rest
            (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *names, target = rest.split()
            origin = context
            if names[0].startswith("--from="):
                origin = built[names.pop(0).removeprefix("--from=")]
            self._copy([origin / name.lstrip("/") for name in names], target)
        elif word == "ENV":
            self.environment |= dict(pair.split("=", 1) for pair in rest.split())
        elif word == "USER":
            self.user = rest
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(self, {"ENTRYPOINT": "entry", "CMD": "words"}[word], json.loads(rest))
        else:
            assert word == "LABEL", word

    def _copy(self, sources: Sequence[Path], target: str) -> None:
        to = self.root / (target.lstrip("/") if target.startswith("/") else f"{self.folder.lstrip('/')}/{target}")
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, to, dirs_exist_ok=True)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)

    def run(self, line: str) -> str:
        """What `/bin/sh -c` prints of it in that root."""
        return self._in_root(["/bin/sh", "-c", line])

    def start(self, *words: str) -> str:
        """What `docker run` of the image prints."""
        return self._in_root([*self.entry, *(words or self.words)])

    def _in_root(self, words: Sequence[str]) -> str:
        inside = ["/usr/bin/env", "-i", "-C", self.folder, *(f"{n}={v}" for n, v in self.environment.items()), *words]
        ran = subprocess.run(
            ["chroot", f"--userspec={self.user}", self.root, *inside],
            capture_output=True, text=True, check=False, timeout=1200, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert ran.returncode == 0, f"{words}: {ran.stdout[-1000:]}\n{ran.stderr[-3000:]}"
        return ran.stdout


def image(lines: Sequence[tuple[str, str]], root: Path, context: Path, scratch: Path, given: dict[str, str]) -> Stage:
    """The last stage of a container file whose lines these are, made from copies of the base."""
    built: dict[str, Path] = {}
    for number, stage in enumerate(_stages(lines)):
        (_, opening), *body = stage
        own = scratch / f"stage{number}"
        subprocess.run(["cp", "-a", root, own], check=True)
        made = Stage(own, given)
        for word, rest in body:
            made.do(word, rest, context, built)
        built[opening.rpartition(" AS ")[2]] = own
    return made


def _stages(lines: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    starts = [at for at, (word, _) in enumerate(lines) if word == "FROM"]
    yield from (list(lines[a:b]) for a, b in zip(starts, [*starts[1:], len(lines)], strict=True))
