"""The walkthroughs of the docs are typed line by line, on captures of GPUs: each line that they show is printed.

A capture is not made again: its command is checked with `--print`, as on a machine that has the newest tools.
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked

from timesink.cli.app import run
from timesink.cli.demo import __file__ as demo

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/tutorial/walkthroughs").glob("*.md"))
BLOCK = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUIDES = ROOT / "benchmarks/guides"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages speak of, where they speak of it."""
    folder = tmp_path_factory.mktemp("walkthroughs")
    for archive in (
        GUIDES / "captures/one.tar.xz",
        GUIDES / "captures/links.tar.xz",
        ROOT / "benchmarks/stages/results/h200_x2.tar.xz",
    ):
        unpacked(archive, folder)
    shutil.copy(Path(demo).with_name("gpt_before.json.xz"), folder / "trace.json.gz")
    for path in (GUIDES / "programs.py", *(GUIDES / "captures").glob("*.txt")):
        shutil.copy(path, folder)
    figures = json.loads((folder / "current.json").read_text())
    (folder / "baseline.json").write_text(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    return folder


def shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command of a page with the lines that it prints there."""
    for command, printed in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield command, [" ".join(line.split()) for line in printed.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_walkthrough_prints_what_it_shows(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for extra in ("duckdb", "perfetto", "mcp"):  # a walkthrough needs one plain install
        monkeypatch.setitem(sys.modules, extra, None)
    commands = list(shown(page))
    assert len(commands) >= 8
    for command, lines in commands:
        captures = command.startswith("timesink capture ")
        words = shlex.split(command.replace(" -- ", " --print -- ", 1) if captures else command)[1:]
        capsys.readouterr()
        code = run(words)
        printed = capsys.readouterr()
        failed = any("FAILED" in line or "wrong on" in line for line in lines)
        assert (code != 0) == failed, f"{command}\n{printed.out}{printed.err}"
        assert captures or lines, command
        said = [" ".join(line.split()) for line in printed.out.splitlines()]
        assert [line for line in lines if line not in said] == [], f"{command}\n{printed.out}"


def test_there_is_a_walkthrough_of_each_guide() -> None:
    assert [page.stem for page in PAGES] == [
        "lab-course", "nsight-systems-lab", "pipeline-topic", "three-views", "transformer-layer-post",
    ]  # fmt: skip
