"""Runs that are forked from an interpreter that stands ready are apart from the user's files, and from each other."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.sandbox.trees import changes, state

from timesink.sandbox.runs import NoSandbox, Sandbox
from timesink.trials.ahead import VARIABLE
from timesink.trials.apart import ProgramApart

pytest.importorskip("torch")
PROGRAM = """
import os, sys
from pathlib import Path
import tempfile, torch._dynamo
tempfile.TemporaryFile()
assert Path("best.pt").read_text() == "weights" and "torch" in sys.modules
Path("best.pt").write_text("mine")
Path("new").write_text("x")
Path(os.environ["RECORDS"], os.environ["NAME"]).write_text(Path("part.py").read_text())
print(os.environ["NAME"], os.getpid(), os.environ["WANDB_MODE"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["overlay", "read-only"])
def test_runs_forked_from_one_interpreter_share_nothing(way: str, tmp_path: Path) -> None:
    here, records, other = tmp_path / "here", tmp_path / "records", tmp_path / "other.py"
    for folder in (here, records):
        folder.mkdir()
    for path, text in ((here / "train.py", "import torch\n" + PROGRAM), (here / "part.py", "old"), (other, "edited")):
        path.write_text(text)
    (here / "best.pt").write_text("weights")
    try:
        box = Sandbox.open(here, [way])
    except NoSandbox as why:
        pytest.skip(f"{way}: {why}")
    before = state(here)
    with (
        closing(box),
        closing(ProgramApart([sys.executable, "train.py"], box, records, lambda: {here / "part.py": other})) as apart,
    ):
        for name in ("first", "second", "third"):
            read, write = os.pipe()
            run = apart.start({"RECORDS": str(records), "NAME": name}, write)
            os.close(write)
            with os.fdopen(read) as said:
                text = said.read()
            assert run.wait(120) == 0, text
            assert text.split()[0] == name and text.split()[2] == "offline"
            assert (records / name).read_text() == "edited"
            assert {one.path.name for one in run.written()} >= {"best.pt", "new"}
            apart.stand_ready(())
    assert changes(before, state(here)) == []
    assert VARIABLE not in os.environ


_COMES_AND_GOES = """
import os, tempfile
while os.getppid() == {parent}:
    for made in [tempfile.mkdtemp(prefix="timesink-churn-") for _ in range(30)]:
        os.rmdir(made)
"""


@pytest.mark.slow
def test_a_run_begins_while_others_make_and_remove_folders_beside_its_own(tmp_path: Path) -> None:
    """The folder of runs is a mount point for what stands ready: each folder beside it has a layer of its own."""
    here, records = tmp_path / "here", tmp_path / "records"
    for folder in (here, records):
        folder.mkdir()
    (here / "train.py").write_text("print(1)")
    try:
        box = Sandbox.open(here, ["overlay"])
    except NoSandbox as why:
        pytest.skip(f"overlay: {why}")
    code, variables = _COMES_AND_GOES.format(parent=os.getpid()), {**os.environ, "TMPDIR": str(box.root.parent)}
    others = [subprocess.Popen([sys.executable, "-c", code], env=variables) for _ in range(2)]
    try:
        with closing(box), closing(ProgramApart([sys.executable, "train.py"], box, records)) as apart:
            apart.stand_ready(())
            with Path(os.devnull).open("wb") as nowhere:
                assert [apart.start({}, nowhere.fileno()).wait(120) for _ in range(4)] == [0] * 4
    finally:
        for other in others:
            other.kill()
            other.wait()
        for left in box.root.parent.glob("timesink-churn-*"):
            left.rmdir()
