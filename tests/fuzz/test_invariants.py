"""Whatever a file holds, reading it ends in a trace or in a declared error, within bounds, touching nothing else."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz.__main__ import tried
from fuzz.guard import Broken, holds
from fuzz.mutations import mutated
from fuzz.seeds import OF_FORMAT, ROOT, files_of, tar_of
from fuzz.targets import groups, targets

from timesink.errors import UnreadableTrace
from timesink.readers import readers

FOUND = sorted((ROOT / "fuzz" / "corpus" / "found").iterdir())
CASES = {"records": 250, "nsys_report": 20}  # the others: about five seconds of CPU time each
SEED = 20_26


@pytest.fixture(autouse=True)
def no_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "TIMESINK_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))


def test_every_reader_has_inputs_to_mutate() -> None:
    formats = {reader.format for reader in readers()}
    assert formats == set(OF_FORMAT)


@pytest.mark.slow
@pytest.mark.parametrize("name", groups())
def test_mutations_of_real_files_break_no_invariant(name: str) -> None:
    rng = random.Random(SEED)
    for _ in range(CASES.get(name, 40)):
        target = rng.choice(groups()[name])
        tried(target, mutated(rng.choice(target.seeds()), rng, target.seeds()))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.name)
def test_what_broke_an_invariant_once_does_so_no_more(file: Path) -> None:
    target = next(target for name, target in targets().items() if file.name.startswith(f"{name}-"))
    tried(target, file.read_bytes())


def test_the_same_seed_gives_the_same_mutations() -> None:
    data = targets()["torch_logs"].seeds()
    one, other = (mutated(data[0], random.Random(SEED), data) for _ in range(2))
    assert one == other != data[0]


def test_a_folder_survives_its_archive() -> None:
    files = {"a.parquet": b"1", "b.parquet": b""}
    assert files_of(tar_of(files)) == files


def _write(path: Path) -> None:
    path.with_name("..").joinpath("elsewhere").write_text("x")


def _refuse(path: Path) -> None:
    raise UnreadableTrace(path, "bad")


BREAKING: dict[str, Callable[[Path], object]] = {
    "reads another file": lambda path: Path("/etc/hostname").read_text(),
    "writes outside its folder": _write,
    "starts a process": lambda path: subprocess.run([sys.executable, "-c", ""], check=True),
    "opens a connection": lambda path: socket.socket().connect(("127.0.0.1", 9)),
    "fails undeclared": lambda path: 1 / 0,
    "leaves the user without a way out": _refuse,
}


@pytest.mark.parametrize("how", BREAKING)
def test_the_guard_sees_work_that(how: str, tmp_path: Path) -> None:
    with pytest.raises(Broken):
        holds(BREAKING[how], _input(tmp_path))


def test_the_guard_lets_its_own_folder_be_read_and_written(tmp_path: Path) -> None:
    assert holds(lambda path: path.with_name("out").write_text(path.read_text()), _input(tmp_path)) == ""


def _input(folder: Path) -> Path:
    path = folder / "input"
    path.write_text("x")
    return path
