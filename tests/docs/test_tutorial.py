"""The commands of the two worked examples run, on the captures that were kept and a stand-in for the programs.

The programs themselves need a GPU; `tests/benchmarks/test_worked.py` runs them at tiny size.
"""

import gzip
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from benchmarks.worked.pack import kept
from benchmarks.worked.tables import RESULTS, page

from timesink.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
PAGES = {"transformer-layer.md": "layer", "gpt2-step.md": "gpt2"}
STAND_IN = "import time, timesink\nfor _ in range(30):\n    time.sleep(1e-3)\n    timesink.step(check=1)\n"
SENTENCE = re.compile(r"^> (.*(?:\n> .*)*)", re.MULTILINE)


def commands(name: str) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", (TUTORIAL / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_run_in_their_order(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = PAGES[name]
    package = tmp_path / "benchmarks" / "worked"
    package.mkdir(parents=True)
    (package / f"{example}.py").write_text(STAND_IN)
    plain = next(path for path in kept(RESULTS / f"{example}.captures.columns.xz", tmp_path) if path.stem == "plain")
    capture = tmp_path / "runs" / "plain"
    place = f"{tmp_path}{os.pathsep}{ROOT / 'src'}"
    monkeypatch.setenv("PYTHONPATH", place)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    lines = commands(name)
    assert {line.split()[1] for line in lines} >= {"capture", "diagnose", "verify"}
    assert any(" --ledger " in line for line in lines)
    for line in lines:
        words = shlex.split(line)
        if "--loop" in words:  # captures, too, and judges a real program: test_commands.py checks its options
            continue
        if words[1] == "capture":  # PyTorch may be absent: check the options, and put the kept capture in its place
            words.insert(words.index("--"), "--print")
        if "--pairs" in words:
            words[words.index("--pairs") + 1] = "2"
        # The two sides of `verify` are the same program: either may seem slower.
        assert run(words[1:]) in ((0, 1) if words[1] == "verify" else (0,)), line
        capture.mkdir(parents=True, exist_ok=True)
        (capture / "rank0.json.gz").write_bytes(gzip.compress(plain.read_bytes()))


@pytest.mark.parametrize("name", PAGES)
def test_every_flag_of_a_page_is_one_of_its_program(name: str) -> None:
    program = (ROOT / "benchmarks" / "worked" / f"{PAGES[name]}.py").read_text(encoding="utf-8")
    flags = [flag for line in commands(name) for flag in re.findall(r"benchmarks\.worked\.\w+((?: --?[\w-]+)*)", line)]
    flags = [flag for given in flags for flag in given.split()]
    assert flags
    assert [flag for flag in flags if f'"{flag}"' not in program] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_quoted_sentence_is_one_that_timesink_said(name: str) -> None:
    said = " ".join((RESULTS / f"{PAGES[name]}.json").read_text(encoding="utf-8").split())
    quoted = SENTENCE.findall((TUTORIAL / name).read_text(encoding="utf-8"))
    assert quoted
    for paragraph in re.split(r"\n> *\n", "\n> \n".join(quoted)):
        text = " ".join(paragraph.replace("\n> ", " ").split()).removeprefix("> ")
        assert re.sub(r"^[A-Z]{3}\d+ [^:]*: ", "", text) in said


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_the_results(name: str) -> None:
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")}
    text = (TUTORIAL / name).read_text(encoding="utf-8")
    assert page(text, results) == text
