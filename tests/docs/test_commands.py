"""Every command that the documentation shows is run as it stands, page by page, in the order of the page.

The README's first, and those that serve or start programs, are typed into a shell; the others are called.
"""

import re
import shlex
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from tests.docs.commands import NEEDS_MORE, PAGES, TRAIN, VERDICTS, fenced, inline, needs_more, workplace
from tests.trials.program import PROGRAM

from timesink.cli.app import run
from timesink.cli.commands import resolve
from timesink.cli.parser import loaded

RUN = {page: [line for line in fenced(page) if not needs_more(line)] for page in PAGES}
# These start or serve programs, or wait, and are typed into a shell; the others are called here.
SHELLED = ("capture", "verify", "gate", "mcp", "demo", "ranks", "report --serve")
CHECKED = [(page, line) for page in PAGES for line in [*fenced(page), *inline(page)]]


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Typist = Callable[[str, Path, dict[str, str]], Ran]
OF_A_SHELL = re.compile(r"[|&;<>$`*?~{}#()]")


@pytest.fixture
def called(capfd: pytest.CaptureFixture[str]) -> Typist:
    """Runs a line in this process, which spares an interpreter its start; for lines that need no shell."""

    def call(line: str, folder: Path, environment: dict[str, str]) -> Ran:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run(shlex.split(line)[1:])
        return Ran(code, *capfd.readouterr())

    return call


def shelled(line: str, folder: Path, environment: dict[str, str]) -> Ran:
    ran = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


LONG = {
    *("README", "verify", "it-got-slower", "ci-gate", "many-ranks", "perfetto", "try-changes", "fix-a-program"),
    *("query", "diagnose-a-trace", "first-step", "report", "read-a-kernel-report", "compile-and-spikes"),
    *("measure-kernels", "a-thousand-ranks", "pipelines", "look-at-a-window", "compare-captures", "limits"),
}
"""Pages whose commands run programs or wait, for two seconds and more."""
TYPED = [pytest.param(page, marks=pytest.mark.slow if page.stem in LONG else ()) for page in PAGES if RUN[page]]


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, called: Typist, request: pytest.FixtureRequest) -> None:
    environment = workplace(tmp_path)
    for shown in RUN[page]:
        line = shown
        entry = resolve(line.split()[1:])[1]
        name = entry.partition(" ")[0]
        if entry in ("report --open", "report --export FORMAT", "query"):
            pytest.importorskip("duckdb" if name == "query" else "perfetto")
        if {name, entry} & {"try", "fix", "plan machine"}:
            if find_spec("torch") is None:
                continue
            # PyTorch's import alone takes seconds on a busy machine, and nothing runs past the end of a budget.
            line = line.replace(" try ", " try --budget 40 ").replace(" fix ", " fix --budget 40 ")
            (tmp_path / "train.py").write_text(PROGRAM.replace("sleep(0.02)", "sleep(0.002)"))
        opens = entry == "report --open"
        if opens:
            request.getfixturevalue("port_of_perfetto")
        typed = f"{line} --no-browser --timeout 1" if opens else line
        here = (
            not {name, entry} & {*SHELLED}
            and (page.name != "README.md" or shown != RUN[page][0])
            and not OF_A_SHELL.search(line)
        )
        ran = (called if here else shelled)(typed, tmp_path, environment)
        (tmp_path / "train.py").write_text(TRAIN)
        if opens:
            assert "no page took the trace" in ran.stderr
            assert ran.stdout.startswith("https://ui.perfetto.dev/#!/?url=http%3A%2F%2F127.0.0.1%3A9001")
            continue
        assert ran.returncode in VERDICTS.get(name, (0,)), f"{line}\n{ran.stdout[-600:]}\n{ran.stderr[-1200:]}"
        words = shlex.split(line)
        made = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-o", "--svg")]
        assert all((tmp_path / file).stat().st_size > 200 for file in made), line


@pytest.mark.parametrize(("page", "line"), CHECKED, ids=[f"{page.stem}: {line[:70]}" for page, line in CHECKED])
def test_every_command_that_is_named_exists_with_its_options(page: Path, line: str) -> None:
    """Also of those that cannot be run here: the command, the ones inside it, and every option before `--`."""
    words = line.split(" -- ", maxsplit=1)[0].split()[1:]
    if words[0].startswith("-") or words[0].isupper():
        return
    _, entry, rest = resolve([words[0].strip(",;:"), *words[1:]])
    assert entry, f"{page.name}: there is no {words[0]!r}"
    command = loaded(entry)
    context = click.Context(command)
    while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
        inner = command.get_command(context, rest[0])
        assert inner is not None or rest[0].isupper(), f"{page.name}: {line}"
        if inner is None:
            return
        command, rest = inner, rest[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    quoted = False
    for word in rest:
        if not quoted and word.startswith("-") and len(word) > 1 and not word[1:2].isdigit():
            assert word.split("=")[0].strip(",;") in {*known, "--help", "-h", "--help-all"}, (
                f"{page.name}: {line}: {word}"
            )
        quoted ^= (word.count("'") + word.count('"')) % 2 == 1


def test_what_cannot_be_run_is_still_in_the_documentation() -> None:
    shown = [line for page in PAGES for line in fenced(page)]
    for beginning in NEEDS_MORE:
        assert any(line.startswith(beginning) for line in shown) or beginning == "timesink capture --loop", beginning


def test_most_commands_are_run() -> None:
    shown = [line for page in PAGES for line in fenced(page)]
    assert sum(map(len, RUN.values())) >= 0.75 * len(shown) >= 30
