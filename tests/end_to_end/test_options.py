"""How many options there are: twelve a command in its help, the others under --help-all, 260 over all commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from timesink.cli.app import run
from timesink.cli.commands import COMMANDS, ENTRIES, modes
from timesink.cli.help import EVERYWHERE, is_argument, is_shown
from timesink.cli.parser import loaded

MOST_SHOWN, MOST_OF_ALL = 12, 260


def commands(command: Any) -> Iterator[Any]:
    """The command or, of a group, those in it, and what the group itself takes."""
    yield command
    for other in command.commands.values() if isinstance(command, TyperGroup) else ():
        yield from commands(other)


def options(command: Any) -> list[Any]:
    return [param for param in command.params if not is_argument(param) and not param.hidden]


def offered(name: str) -> set[str]:
    """The options that a command offers in one of the things it does, those that choose one of them included.

    An option that two of them share counts once; those of `EVERYWHERE` belong to no command.
    """
    choices = modes(name)
    entries = [name, *(entry for entry, _ in choices)]
    own = {
        max(option.opts, key=len)
        for entry in entries
        for command in commands(loaded(entry))
        for option in options(command)
        if option.name not in EVERYWHERE
    }
    return own | {choice.split()[0] for _, choice in choices if choice.startswith("-")}


def test_no_command_shows_more_options_than_a_reader_takes_in() -> None:
    shown = {
        (entry, command.name): sum(map(is_shown, options(command)))
        for entry in ENTRIES
        for command in commands(loaded(entry))
    }
    assert {place: count for place, count in shown.items() if count > MOST_SHOWN} == {}


def test_there_are_no_more_options_than_anybody_needs() -> None:
    counts = {name: len(offered(name)) for name in COMMANDS}
    assert sum(counts.values()) <= MOST_OF_ALL, counts


@pytest.mark.parametrize("words", [["gate"], ["capture", "nsys"], ["diagnose"]])
def test_the_rest_of_the_options_is_under_help_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for option in ("--help", "--help-all"):
        assert run([*words, option]) == 0
        texts.append(capsys.readouterr().out)
    few, all_of_them = texts
    assert "--help-all  " in few and "--quiet" not in few and "--no-cache" not in few
    assert "--help-all" not in all_of_them
    assert ("--no-cache" in all_of_them) or ("--quiet" in all_of_them)
    assert len(all_of_them) > len(few)
