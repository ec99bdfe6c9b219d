"""The commands there are: what each does, where it is, and the help that shows them all.

A command is a function in `cli/` and a row of `commands.txt`. Only the file of the command that runs is imported, so
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

ENTRIES: dict[str, tuple[str, str]] = {}
"""By what is typed: where it is in `cli/` (file and function), and what it does."""
GROUPS: dict[str, list[str]] = {}
"""What a user does, in the order it is done, and the commands for it."""


def _read_table() -> None:
    group = ""
    with open(f"{__file__.rpartition('.')[0]}.txt", encoding="utf-8") as table:  # noqa: PTH123 (`--help` imports no pathlib)
        lines = table.read().splitlines()
    for line in lines:
        if line[:1] == " ":
            typed, function, summary = (cell.strip() for cell in line.split("  ") if cell.strip())
            ENTRIES[typed] = function, summary
            if " " not in typed and group != "Unlisted":
                GROUPS.setdefault(group, []).append(typed)
        elif line[:1] not in ("", "#"):
            group = line


_read_table()
# What serves for as long as its user likes: each request has a budget of its own.
SERVERS = {"report --serve", "mcp"}
COMMANDS = {name: ENTRIES[name][1] for names in GROUPS.values() for name in names}
SHOWN = {heading: names for heading, names in GROUPS.items() if heading != "More"}
_SWITCHES = {"--verbose", "-v", "--no-cache", "--no-color", "--linked-only", "--tree"}

PURPOSE = "Find the time a GPU program loses, prove it from the profile, price one change."
BEGIN = (
    ("timesink demo", "see it work on a bundled capture"),
    ("timesink TRACE", "what costs most, what a fix wins"),
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
