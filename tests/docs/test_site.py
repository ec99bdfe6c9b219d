"""The documentation builds without a warning, needs no network to be read, and its commands run."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import lxml.html
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMMANDS = ("report.md", "query.md", "perfetto.md")  # pages whose commands need only a trace
STACKS = {
    "traceEvents": [
        {"ph": "X", "cat": "python_function", "name": f"train.py({line}): {name}", "pid": 1, "tid": 1, "ts": ts,
         "dur": dur, "args": {"Python id": line}}
        for name, line, ts, dur in (("main", 1, 100, 90), ("load", 2, 110, 20), ("step", 3, 140, 40))
    ]
}  # fmt: skip
NEEDS = {"query": "duckdb", "open": "perfetto", "export": "perfetto"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install mkdocs-material)")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING -" not in built.stderr
    return target


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in sorted(DOCS.rglob("*.md")):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = "//script/@src | //img/@src | //iframe/@src | //link[@rel='stylesheet' or @rel='preload']/@href"
    for page in sorted(site.rglob("*.html")):
        sources = lxml.html.parse(str(page)).xpath(fetched)
        assert [source for source in sources if re.match(r"(https?:)?//", source)] == []


def commands(page: str) -> list[str]:
    """The lines of a page's fenced blocks that run timesink, without their remarks."""
    blocks = re.findall(
        r"^```\n(.*?)^```", (DOCS / "how-to" / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [line for block in blocks for line in block.splitlines()]
    return [re.sub(r"\s{2,}# .*", "", line) for line in lines if line.startswith("timesink ")]


EVERY = [(page, line) for page in COMMANDS for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), EVERY, ids=[line for _, line in EVERY])
def test_a_command_of_the_documentation_runs(page: str, line: str, tmp_path: Path) -> None:
    words = shlex.split(line)
    if words[1] in NEEDS:
        pytest.importorskip(NEEDS[words[1]], reason=f"{NEEDS[words[1]]} is not installed")
    (tmp_path / "traces").mkdir()
    for name, target in (
        ("gpt_before", "run.json.gz"),
        ("gpt_before", "traces/a.json.gz"),
        ("gpt_after", "traces/b.json.gz"),
    ):
        with as_file(files("timesink").joinpath(f"demo/{name}.json.gz")) as source:
            shutil.copy(source, tmp_path / target)
    (tmp_path / "stacks.json.gz").write_bytes(gzip.compress(json.dumps(STACKS).encode()))
    command = [sys.executable, "-m", "timesink", *words[1:]]
    if words[1] == "open":
        command += ["--no-browser", "--timeout", "1"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    if words[1] == "open":
        assert "no page took the trace" in ran.stderr
        assert ran.stdout.startswith("https://ui.perfetto.dev/#!/?url=http%3A%2F%2F127.0.0.1%3A9001")
    else:
        assert ran.returncode == 0, ran.stderr
        made = [words[at + 1] for at, word in enumerate(words) if word == "-o"] or ["report.html"] * (
            words[1] == "report"
        )
        assert all((tmp_path / name).stat().st_size > 200 for name in made)


def test_every_page_of_commands_has_some() -> None:
    assert {page for page, _ in EVERY} == set(COMMANDS)
