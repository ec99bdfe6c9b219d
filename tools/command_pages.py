"""The page of every command: what `--help` prints, and an example that was run on files of the documentation's tests.

What a command measures anew each time, starts or serves is shown as a line to type, without an answer.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from typer.core import TyperGroup

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.docs.commands import workplace

from timesink.cli.app import run
from timesink.cli.commands import COMMANDS
from timesink.cli.parser import loaded

WIDTH, SHOWN_LINES = "100", 24
EXAMPLES = {
    "which": 'timesink doctor "step slow, GPU utilisation 60 %"',
    "diagnose": "timesink diagnose run.json.gz",
    "report": "timesink report run.json.gz -o report.html",
    "export": "timesink report --export perfetto run.json.gz -o run.pftrace",
    "query": "timesink query run.json.gz 'SELECT kind, count(*) AS n FROM device_ops GROUP BY kind ORDER BY n DESC'",
    "watch": "timesink report --watch runs --once",
    "statement": "timesink show statement run.json.gz",
    "summary": "timesink show run.json.gz --top 3",
    "idle": "timesink show idle run.json.gz --top 5",
    "lines": "timesink show lines run.json.gz --top 5",
    "compile": "timesink show compile run.json.gz logs/",
    "plan": "timesink plan run.json.gz",
    "what-if": "timesink plan run.json.gz --change 'scale kernel:nvjet 0.5'",
    "ranks": "timesink ranks traces/",
    "pipeline": "timesink ranks --pipeline rank0.jsonl rank1.jsonl",
    "kernels": "timesink kernels report.ncu-rep",
    "roofline": "timesink kernels --roofline report.ncu-rep",
    "classify": "timesink show ops run.json.gz",
    "metrics check": "timesink kernels --metrics sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "next": "timesink kernels --next run.json.gz",
    "rules": "timesink explain",
    "explain": "timesink explain IDL101",
    "tables": "timesink show tables run.json.gz",
    "compare": "timesink compare before.json.gz after.json.gz",
    "baseline check": "timesink gate baseline check pyproject.toml",
    "memory show": "timesink memory show snapshot.pickle",
    "memory plan": "timesink memory plan gpt.json",
}
TO_TYPE = {
    "capture torch": "timesink capture torch -- python train.py",
    "capture nsys": "timesink capture nsys -- python train.py",
    "capture nccl-bench": "timesink capture nccl-bench --sizes-of capture/trace -- torchrun --nproc-per-node=2",
    "capture ncu": "timesink capture ncu -- python train.py",
    "loop": "timesink capture --loop -- python train.py",
    "open": "timesink report --open run.json.gz",
    "serve": "timesink report --serve run.json.gz",
    "verify": "timesink verify --before 'python old.py' --after 'python new.py'",
    "gate": "timesink gate --suite train --before ./old/run.sh --after ./new/run.sh",
    "calibrate": "timesink gate calibrate 'python train.py'",
    "mcp": "timesink mcp --root runs",
    "doctor": "timesink doctor",
    "demo": "timesink demo",
}


def command_pages() -> Iterator[tuple[str, str]]:
    """Every page: its path under docs/, and its text."""
    yield "commands/index.md", commands_index()
    with in_workplace():
        for name in COMMANDS:
            yield f"commands/{name}.md", command_page(name)


@contextmanager
def in_workplace() -> Iterator[None]:
    """Be in a folder with every file that the pages speak of, in a window of the pages' width."""
    with TemporaryDirectory() as folder:
        environment = workplace(Path(folder)) | {"COLUMNS": WIDTH, "XDG_CACHE_HOME": f"{folder}/.cache"}
        here = Path.cwd()
        os.chdir(folder)
        try:
            with patch.dict(os.environ, environment):
                yield
        finally:
            os.chdir(here)


def commands_index() -> str:
    """The commands in the order of `timesink --help`."""
    rows = [f"| [`timesink {name}`]({name}.md) | {summary} |" for name, summary in COMMANDS.items()]
    return "\n".join(["# Commands", "", "| command | does |", "|---|---|", *rows])


def command_page(name: str) -> str:
    """Help and example of a command and of those below it."""
    command = loaded(name)
    parts = [name, *(f"{name} {sub}" for sub in command.commands)] if isinstance(command, TyperGroup) else [name]
    text = [f"# timesink {name}", ""]
    for part in parts:
        text += [f"## timesink {part}", ""] if part != name else []
        text += ["```text", printed(f"timesink {part} --help").rstrip(), "```", ""]
        if line := EXAMPLES.get(part, TO_TYPE.get(part)):
            text += ["```console", f"$ {line}", *(shortened(printed(line)) if part in EXAMPLES else ()), "```", ""]
    return "\n".join(text)


def printed(line: str) -> str:
    """What the command prints, on either stream."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(out):
        run(shlex.split(line)[1:])
    text = out.buffer.getvalue().decode()
    return "\n".join(row.rstrip() for row in text.splitlines())


def shortened(text: str) -> list[str]:
    """The first lines, and how many more there are."""
    lines = text.splitlines()
    more = len(lines) - SHOWN_LINES
    return lines if more <= 1 else [*lines[:SHOWN_LINES], f"... {more} more lines"]
