"""The commands there are: what each does, where it is, and the help that shows them all.

A command is a function in `cli/` and a row of `GROUPED`. Only the file of the command that runs is imported, so
`--help` stays quick however many commands there are.
"""

from __future__ import annotations

import os
from importlib import import_module
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

from timesink import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

GROUPED: dict[str, dict[str, tuple[str, str]]] = {
    "Capture": {
        "capture": ("capture:app", "Record a program with torch.profiler, nsys or ncu."),
        "capture --loop": ("loop:loop", "Capture, diagnose, capture what is still open, and join it all."),
        "capture --redact": ("capture:redact", "Take what names people, machines and secrets out of a capture."),
        "doctor": ("which:doctor", "Show which profilers work here, or which one answers a question."),
        "doctor SYMPTOM": ("which:doctor", "Show which profiler answers a question, with its exact command."),
        "doctor --checklist": ("which:checklist", "List what to fix and write down, ticked by a capture."),
    },
    "Look": {
        "diagnose": ("diagnose:diagnose", "Name the bottleneck of a trace and price its fix."),
        "diagnose --start-up": ("diagnose:start_up", "Say where the time before the first steady step went."),
        "report": ("diagnose:report", "Write the diagnosis as one HTML file with timelines."),
        "report --serve": ("export:serve", "Show a report whose timeline holds every event."),
        "report --open": ("export:open_trace", "Show a trace in the Perfetto UI."),
        "report --export FORMAT": (
            "export:export",
            "Write a trace for Perfetto, speedscope or flame graphs, or one of its tables.",
        ),
        "show": ("show:steps", "Show figures of a trace: steps, idle, start-up, ops, ranges, calls, lines, compile."),
        "show steps": ("show:steps", "Show budget, steps, kernels, copies, waits and launches."),
        "show idle": ("show:idle", "Show what each GPU waited for while it was idle."),
        "show start-up": ("show:start_up", "Show where the time before the first steady step went."),
        "show ops": ("show:ops", "Show the roofline of each operator, and what to do about it."),
        "show ranges": ("show:ranges", "Show the ranges of the program, with the GPU work launched in them."),
        "show calls": ("show:calls", "Show calls into CUDA and the operating system."),
        "show lines": ("show:lines", "Show GPU time, idle time and CPU time by line of the program."),
        "show compile": ("show:compilation", "Show graph breaks, recompilations and compile times."),
        "show checks": ("show:checks", "Show the five checks of a timeline, each found, clear or undecided."),
        "show tables": ("show:tables", "List what a trace holds and what was lost on the way."),
        "show statement": ("show:statement", "Print one-line results to quote."),
        "kernels": ("kernels:kernels", "Show what limits each profiled kernel and the most it could gain."),
        "kernels --roofline": ("kernels:roofline", "Draw the roofline of profiled kernels."),
        "kernels --next": ("kernels:next_command", "Print the ncu command for the kernels worth a closer look."),
        "kernels --metrics": ("kernels:metrics", "Check names of profiler metrics against a chip."),
        "ranks": ("ranks:ranks", "Find the late rank, and split communication into waiting and transfer."),
        "ranks --pipeline": ("ranks:pipeline", "Tell whether a pipeline's period is its longest stage or their sum."),
        "memory": ("memory:app", "Show, plan and compare what holds GPU memory."),
        "query": ("query:query", "Answer SQL over the tables of a trace."),
        "explain": ("diagnose:explain", "Explain one rule: what it finds, how, what to do; or list them."),
    },
    "Change": {
        "plan": ("show:plan", "Rank the changes to make, each with its price; price one change."),
        "plan --change CHANGE": ("show:plan", "Price changes to a program before they are made."),
        "plan machine": ("trial:machine", "Measure this host and its GPU, for the prices of every plan."),
        "try": ("trial:try_changes", "Measure what changes win in a running program, and which to keep."),
        "fix": ("trial:fix", "Edit a program where it loses time, in a copy, and prove each edit."),
        "verify": ("verify.verify:verify", "Tell whether a change made the steps faster or slower."),
        "verify --ledger": ("verify.verify:app", "Keep predictions and what became of them."),
        "compare": ("verify.compare:compare", "Show what changed between two captures, and why."),
    },
    "Keep": {
        "gate": ("verify.gate:gate", "Fail where a change makes the program slower, and only then."),
        "gate --limits": ("verify.gate:limits", "Hold numbers of a trace or report to limits; nothing runs."),
        "gate baseline": ("verify.gate:app", "Keep baselines: run summaries of the trunk."),
        "gate calibrate": ("verify.verify:calibrate", "Measure how much runs of one unchanged program differ here."),
    },
    "More": {
        "mcp": ("mcp:mcp", "Serve coding agents over stdio (Model Context Protocol)."),
    },
    "Unlisted": {
        "demo": ("demo:demo", "Diagnose a bundled training run, before and after its fix."),
    },
}
"""What is typed, in groups after what a user does and in the order it is done; where it is in `cli/` (file and
function), and what it does. `More` is shown by `--help-all` only, `Unlisted` by no help.

A name of one word is a command. What follows it chooses another thing that it does: an option, which is left out of the
words that are handed on unless it has a value (`--export FORMAT`), or a word, which may stand anywhere (`show TRACE
idle`).
"""

ENTRIES = {typed: entry for entries in GROUPED.values() for typed, entry in entries.items()}
GROUPS = {
    heading: [typed for typed in entries if " " not in typed]
    for heading, entries in GROUPED.items()
    if heading != "Unlisted"
}
# What serves for as long as its user likes: each request has a budget of its own.
SERVERS = {"report --serve", "mcp"}
COMMANDS = {name: ENTRIES[name][1] for names in GROUPS.values() for name in names}
SHOWN = {heading: names for heading, names in GROUPS.items() if heading != "More"}
_SWITCHES = {"--verbose", "-v", "--no-cache", "--no-color", "--tree"}

PURPOSE = "Find the time a GPU program loses, prove it from the profile, price one change."
BEGIN = (
    ("timesink demo", "see it work on a bundled capture"),
    ("timesink TRACE", "what costs most, what a fix wins"),
    ("timesink capture torch -- python train.py", "record a program of yours"),
)
HINT = "timesink help COMMAND explains one; timesink --help says what each does."
EXIT_CODES = (
    "Exit codes: 0 success; 1 a gate failed (slower, or won less than --at-least), or nothing wins (try, fix); 2 the "
    "request or its input is wrong; 3 inconclusive (only with --strict); 4 the comparison is invalid; 5 a profiler or "
    "another tool failed or is missing; 70 a fault of timesink; 130 interrupted."
)
OPTIONS = (
    ("-V, --version", "Show the version and exit."),
    ("--install-completion", "Install completion for the current shell."),
    ("--show-completion", "Show completion for the current shell, to copy it or customize the installation."),
    ("-h, --help", "Show this message and exit."),
)
# Options of every command that they make sense for: they may stand before it, and only `--help-all` of a command shows
# them again.
OPTIONS_OF_MOST = (
    ("-v, --verbose", "Show everything, with names in full."),
    ("-q, --quiet", "Show no progress, and nothing that a program prints."),
    ("--no-cache", "Read the files anew; keep nothing in the user's cache folder."),
    ("--no-color", "Write no colour (NO_COLOR and FORCE_COLOR count too)."),
)


def help_page(groups: Mapping[str, Sequence[str]] = SHOWN) -> str:
    """What it is for, its options, the commands with what each does, and its exit codes."""
    width = max(min(get_terminal_size().columns, 100) - 2, 50)
    indent = "  "
    parts = [
        "Usage: timesink [OPTIONS] COMMAND [ARGS]...\n       timesink FILE...   the same as timesink diagnose FILE...",
        fill(PURPOSE, width, initial_indent=indent, subsequent_indent=indent),
        _listed("Options", OPTIONS, width),
        _listed("Options of most commands", OPTIONS_OF_MOST, width),
        *(_listed(heading, ((name, COMMANDS[name]) for name in names), width) for heading, names in groups.items()),
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
    """The first screen: purpose, three ways to begin, the commands that `--help` shows by group."""
    begin = "\n".join(f"  {command:43}{what}" for command, what in BEGIN)
    every = "\n".join(f"  {heading:9}{'  '.join(names)}" for heading, names in SHOWN.items())
    return f"{PURPOSE}\n\n{begin}\n\n{every}\n\n{HINT}"


def version() -> str:
    """What `--version` says."""
    return f"timesink {__version__}"


def resolve(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """The name by which a command was asked for, the one of `ENTRIES` that it means, and the words left for it.

    Words that begin with a file ask for its diagnosis.
    The meaning is empty where there is none.
    """
    name, *rest = words
    if name in ENTRIES and " " not in name:
        meant, rest = _chosen(name, rest)
        return " ".join(part for part in meant.split() if not part.isupper()), meant, rest
    if os.path.exists(name) or (not name.startswith("-") and set(name) & {".", os.sep}):  # noqa: PTH110
        return "diagnose", "diagnose", list(words)
    return name, "", rest


def _chosen(command: str, words: list[str]) -> tuple[str, list[str]]:
    """Which of the things that a command does the words choose, and the words without the one that chooses it."""
    end = words.index("--") if "--" in words else len(words)
    for entry, choice in modes(command):
        option, _, value = choice.partition(" ")
        for at in reversed(range(end)):
            is_it = words[at].partition("=")[0] == option
            if choice[0] != "-":  # a word of its own, not the value of an option before it
                is_it = is_it and (not at or words[at - 1][0:1] != "-" or words[at - 1] in _SWITCHES)
            elif option == "--ledger":  # with a number it closes that entry with what is measured
                is_it = is_it and "=" not in words[at] and not "".join(words[at + 1 : at + 2]).isdecimal()
            if is_it:
                return entry, words if value else [*words[:at], *words[at + 1 :]]
    return command, words


def modes(command: str) -> list[tuple[str, str]]:
    """The entries of what else a command does, and what chooses each."""
    return [(entry, entry[len(command) + 1 :]) for entry in ENTRIES if entry.startswith(f"{command} ")]


def entry_of(name: str) -> Any:
    """The function behind an entry, its file imported; the group `app` where the file holds one instead."""
    file, _, function = ENTRIES[name][0].partition(":")
    return getattr(import_module(f"timesink.cli.{file}"), function)
