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

from click import Group

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.docs.commands import workplace

from timesink.cli.app import run
from timesink.cli.commands import COMMANDS, entry_of, modes
from timesink.cli.parser import loaded

WIDTH, SHOWN_LINES, REFUSED = "100", 24, 2
EXAMPLES = {
    "doctor SYMPTOM": 'timesink doctor "step slow, GPU utilization 60 %"',
    "diagnose": "timesink run.json.gz",
    "report": "timesink report run.json.gz -o report.html",
    "report --export FORMAT": "timesink report run.json.gz --export perfetto -o run.pftrace",
    "query": "timesink query run.json.gz 'SELECT kind, count(*) AS n FROM device_ops GROUP BY kind ORDER BY n DESC'",
    "show": "timesink show run.json.gz --top 3",
    "show idle": "timesink show run.json.gz idle --top 5",
    "show lines": "timesink show run.json.gz lines --top 5",
    "show compile": "timesink show run.json.gz logs/ compile",
    "show ops": "timesink show run.json.gz ops",
    "show ranges": "timesink show run.json.gz ranges --tree",
    "show calls": "timesink show run.json.gz calls",
    "show tables": "timesink show run.json.gz tables",
    "show statement": "timesink show run.json.gz statement",
    "plan": "timesink plan run.json.gz",
    "plan --change CHANGE": "timesink plan run.json.gz --change 'scale kernel:nvjet 0.5'",
    "ranks": "timesink ranks traces/",
    "ranks --pipeline": "timesink ranks --pipeline rank0.jsonl rank1.jsonl",
    "kernels": "timesink kernels report.ncu-rep",
    "kernels --roofline": "timesink kernels report.ncu-rep --roofline",
    "kernels --metrics": "timesink kernels --metrics sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "kernels --next": "timesink kernels run.json.gz --next",
    "explain": "timesink explain IDL101",
    "compare": "timesink compare before.json.gz after.json.gz",
    "gate --limits": "timesink gate --limits run.json.gz --limit 'mean(steps.period_ns) <= 20 ms'",
    "gate baseline check": "timesink gate baseline check pyproject.toml",
    "memory show": "timesink memory show snapshot.pickle",
    "memory plan": "timesink memory plan gpt.json",
}
TO_TYPE = {
    "capture torch": "timesink capture torch -- python train.py",
    "capture nsys": "timesink capture nsys -- python train.py",
    "capture nccl-bench": "timesink capture nccl-bench --sizes-of capture/trace -- torchrun --nproc-per-node=2",
    "capture ncu": "timesink capture ncu -- python train.py",
    "capture --loop": "timesink capture --loop -- python train.py",
    "capture --redact": "timesink capture --redact run.json.gz",
    "report --open": "timesink report run.json.gz --open",
    "report --serve": "timesink report run.json.gz --serve",
    "verify": "timesink verify --before 'python old.py' --after 'python new.py'",
    "verify --ledger add": "timesink verify --ledger add 'pinned batches copy beside kernels' --predicted 0.8,1.2,1.6",
    "gate": "timesink gate --suite train --before ./old/run.sh --after ./new/run.sh",
    "gate calibrate": "timesink gate calibrate -- python train.py",
    "mcp": "timesink mcp --root runs",
    "doctor": "timesink doctor",
}


def command_pages() -> Iterator[tuple[str, str]]:
    """Every page: its path in the documentation, and its text."""
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
    """Help and example of a command, of what else it does, and of the commands below it. What a word chooses beside the
    command's own answer (`show steps`) has no part of its own where it is that answer."""
    text = [f"# timesink {name}", ""]
    for entry in (name, *(entry for entry, _ in modes(name))):
        if entry != name and entry_of(entry) is entry_of(name):
            parts = [entry] if entry in EXAMPLES else []
        else:
            command = loaded(entry)
            parts = [entry, *(f"{entry} {sub}" for sub in command.commands)] if isinstance(command, Group) else [entry]
        for part in parts:
            typed = " ".join(word for word in part.split() if not word.isupper())
            text += [f"## timesink {part}", ""] if part != name else []
            text += ["```text", printed(f"timesink {typed} --help-all").rstrip(), "```", ""]
            if line := EXAMPLES.get(part, TO_TYPE.get(part)):
                text += ["```console", f"$ {line}", *(shortened(printed(line)) if part in EXAMPLES else ()), "```", ""]
    return "\n".join(text)


def printed(line: str, *, refused: bool = False) -> str:
    """What the command prints, on either stream. Where it is refused, and only there, `refused` says so."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(out):
        code = run(shlex.split(line)[1:])
    if (code == REFUSED) != refused:
        sys.exit(f"an example of the pages ends with {code}: {line}\n{out.buffer.getvalue().decode()}")
    text = out.buffer.getvalue().decode()
    return "\n".join(row.rstrip() for row in text.splitlines())


def shortened(text: str) -> list[str]:
    """The first lines, and how many more there are."""
    lines = text.splitlines()
    more = len(lines) - SHOWN_LINES
    return lines if more <= 1 else [*lines[:SHOWN_LINES], f"... {more} more lines"]
