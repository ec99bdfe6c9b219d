"""The commands there are: what each does, where it is, and the help that shows them all.

A command is one file `cli/<name>.py` that holds a function `command`, and one line in `GROUPS`; those that share a
file are listed in `PLACES`. Only the file of the command that runs is imported, so `--help` stays quick however
many commands there are.
"""

from __future__ import annotations

from importlib import import_module
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

from timesink import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# What a user does, in the order it is done, and the commands for it.
GROUPS = {
    "Capture": {
        "which": "Say which profiler answers a question, and its exact command.",
        "capture": "Record a program with torch.profiler, nsys or ncu.",
        "loop": "Capture, diagnose, capture what is still open, and join it all.",
        "next": "Print the ncu command for the kernels worth a closer look.",
        "redact": "Take what names people, machines and secrets out of a capture.",
    },
    "Look": {
        "diagnose": "Name the bottleneck of a trace and price its fix.",
        "report": "Write the diagnosis as one HTML file with timelines.",
        "watch": "Diagnose captures as they appear in a folder.",
        "statement": "Print the sentences that a team writes down of a run.",
        "summary": "Show budget, steps, kernels, copies, waits and launches.",
        "idle": "Show what each GPU waited for while it was idle.",
        "lines": "Show GPU time, idle time and host time by line of the program.",
        "compile": "Show graph breaks, recompilations and compile times.",
        "kernels": "Show what limits each profiled kernel and the most it could gain.",
        "roofline": "Draw the roofline of profiled kernels.",
        "classify": "Say of every operator what bounds it, how near it comes, and what to do.",
        "ranks": "Say which rank is late, and what is waiting and what is transfer.",
        "pipeline": "Say whether the period of a pipeline is its longest stage or their sum.",
        "memory": "Show, plan and compare what holds GPU memory.",
        "query": "Answer SQL over the tables of a trace.",
        "serve": "Show a report whose timeline holds every event.",
        "open": "Show a trace in the Perfetto UI.",
        "export": "Write a trace for Perfetto, speedscope or flame graphs, or one of its tables.",
    },
    "Change": {
        "plan": "Say what to change, in which order, and where it ends.",
        "what-if": "Price changes to a program before they are made.",
        "compare": "Say what moved between two captures, and why.",
        "verify": "Say whether one change made the steps slower or faster.",
        "ledger": "Keep predictions and what became of them.",
    },
    "Keep": {
        "gate": "Fail where a change makes the program slower, and only then.",
        "baseline": "Keep baselines: run summaries of the trunk.",
        "calibrate": "Measure how much runs of one unchanged program differ here.",
    },
    "More": {
        "demo": "Diagnose a bundled training run, before and after its fix.",
        "doctor": "Show versions and which profilers work here.",
        "rules": "List the rules and their limits.",
        "explain": "Explain one rule: what it finds, how, what to do.",
        "tables": "List what a trace holds and what was lost on the way.",
        "metrics": "Check names of profiler metrics against a chip.",
        "mcp": "Serve coding agents over stdio (Model Context Protocol).",
    },
}
COMMANDS = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}

# File and function of a command that is not `command` in `cli/<name>.py`.
PLACES = {
    "report": ("diagnose", "report"),
    "compile": ("summary", "compilation"),
    "statement": ("summary", "statement"),
    "lines": ("summary", "lines"),
    "tables": ("summary", "tables"),
    "roofline": ("kernels", "roofline"),
    "classify": ("kernels", "classify"),
    "plan": ("what_if", "plan"),
    "pipeline": ("ranks", "pipeline"),
    "next": ("kernels", "next_command"),
    "open": ("export", "open_command"),
    "explain": ("rules", "explain"),
    "loop": ("loop.loop", "command"),
    "watch": ("watch.watch", "command"),
    "serve": ("serve.serve", "command"),
    "calibrate": ("verify.verify", "calibrate"),
    "verify": ("verify.verify", "command"),
    "compare": ("verify.compare", "command"),
    "gate": ("verify.gate", "command"),
    "baseline": ("verify.baseline", "command"),
    "ledger": ("verify.ledger", "command"),
}

PURPOSE = "Find the time a GPU program loses, prove it from the profile, price one change."
BEGIN = (
    ("timesink demo", "see it work on a bundled capture"),
    ("timesink diagnose TRACE", "what costs most, what a fix wins"),
    ("timesink capture torch -- python train.py", "record a program of yours"),
)
HINT = "timesink help COMMAND explains one; timesink --help says what each does."
EXIT_CODES = (
    "Exit codes: 0 success; 1 a gate failed (slower, or won less than --at-least); 2 the request or its input is "
    "wrong; 3 inconclusive (only with --strict); 4 the comparison is invalid; 5 a profiler or another tool failed or "
    "is missing; 130 interrupted."
)
OPTIONS = (
    ("-V, --version", "Show the version and exit."),
    ("--install-completion", "Install completion for the current shell."),
    ("--show-completion", "Show completion for the current shell, to copy it or customize the installation."),
    ("-h, --help", "Show this message and exit."),
)


def help_page() -> str:
    """What it is for, its options, every command with what it does, and its exit codes."""
    width = max(min(get_terminal_size().columns, 100) - 2, 50)
    indent = "  "
    parts = [
        "Usage: timesink [OPTIONS] COMMAND [ARGS]...",
        fill(PURPOSE, width, initial_indent=indent, subsequent_indent=indent),
        _listed("Options", OPTIONS, width),
        *(_listed(heading, commands.items(), width) for heading, commands in GROUPS.items()),
        fill(EXIT_CODES, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False),
    ]
    return "\n\n".join(parts)


def _listed(heading: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    rows = tuple(rows)
    column = max(9, *(len(name) for name, _ in rows)) + 4
    lines = (
        fill(what, width, initial_indent=f"  {name}".ljust(column), subsequent_indent=" " * column)
        for name, what in rows
    )
    return "\n".join([f"{heading}:", *lines])


def overview() -> str:
    """The first screen: purpose, three ways to begin, every command by group."""
    begin = "\n".join(f"  {command:43}{what}" for command, what in BEGIN)
    every = "\n".join(f"  {heading:9}{'  '.join(commands)}" for heading, commands in GROUPS.items())
    every = "\n".join(
        fill(line, 80, subsequent_indent=" " * 11, break_on_hyphens=False, break_long_words=False)
        for line in every.splitlines()
    )
    return f"{PURPOSE}\n\n{begin}\n\n{every}\n\n{HINT}"


def version() -> str:
    """What `--version` says."""
    return f"timesink {__version__}"


def entry_of(name: str) -> Any:
    """The function behind a command, its file imported; the group `app` where the file holds one instead."""
    file, function = PLACES.get(name, (name.replace("-", "_"), "command"))
    module = import_module(f"timesink.cli.{file}")
    return getattr(module, "app", None) or getattr(module, function)
