"""The parser of the whole command line: resolves the command, runs it, and turns errors into exit codes."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
from click.shell_completion import shell_complete

from timesink.cli import completion
from timesink.cli.commands import (
    COMMANDS,
    ENTRIES,
    OPTIONS,
    OPTIONS_OF_MOST,
    SERVERS,
    entry_of,
    help_page,
    modes,
    resolve,
    version,
)
from timesink.cli.help import ShownGroup
from timesink.cli.output import begin, over, partial_answers, show_error
from timesink.cli.parameters import command_of
from timesink.errors import MissingTool, TimesinkError, ToolFailed, UsageError
from timesink.untrusted.spending import watched

WRONG_INPUT = 2
FAULT = 70
INTERRUPTED = 130
COMPLETE = "_TIMESINK_COMPLETE"


EVERYWHERE = {name for names, _ in OPTIONS_OF_MOST for name in names.split(", ")}


class LazyCommands(ShownGroup):
    """Lists the commands of `COMMANDS` and imports the one that is resolved."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`help COMMAND` is `COMMAND --help`; the options of every command may stand before it."""
        if args[:1] == ["help"]:
            args = args[1:] if ctx.resilient_parsing or not args[1:] else [*args[1:], "--help"]
        before = list(takewhile(EVERYWHERE.__contains__, args))
        rest = args[len(before) :]
        end = rest.index("--") if "--" in rest else len(rest)
        return super().parse_args(ctx, [*rest[:end], *before, *rest[end:]])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command's name, the command itself, and the arguments left for it."""
        name, entry, rest = resolve(args)
        if not entry:
            return super().resolve_command(ctx, args)
        return name, loaded(entry, name), rest

    def get_help(self, ctx: Any) -> str:
        """The commands in their groups, each with what it does, whole."""
        return help_page()


def parsed_and_run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors are shown here and nowhere else."""
    begin()
    root = group()
    if asked := os.environ.get(COMPLETE):
        sys.exit(shell_complete(root, {}, "timesink", COMPLETE, asked))
    try:
        with root.make_context("timesink", list(arguments)) as context:
            code = root.invoke(context)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except TimesinkError as error:
        code = 5 if isinstance(error, (MissingTool, ToolFailed)) else 2
        show_error(error, code, arguments)
    except click.ClickException as error:
        code = error.exit_code
        show_error(error, code, arguments)
    except BrokenPipeError:  # whoever read the answer has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:  # where no command says it better: a full disk, a folder that nobody may write to
        code = WRONG_INPUT
        show_error(_told(error), code, arguments)
    except EOFError:
        code = WRONG_INPUT
        show_error(UsageError("a file ends before it should", remedy="write or copy it again"), code, arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001  # a fault of ours is no verdict
        code = FAULT
        show_error(_report(error), code, arguments)
    finally:
        over()
    if code == INTERRUPTED:
        sys.stderr.write("timesink: interrupted\n")
    if code in (0, None) and partial_answers():
        code = WRONG_INPUT
        show_error(partial_answers()[0], code, ())
    return int(code or 0)


def _told(error: OSError) -> UsageError:
    try:
        Path.cwd()
    except FileNotFoundError:
        return UsageError("the current folder is gone", remedy="change to one that is there: cd ~")
    what = f"cannot read or write {error.filename or 'a file'}: {error.strerror or error}"
    return UsageError(what, remedy="make room, or choose another place")


def _report(error: Exception) -> TimesinkError:
    """What to do about an exception that nobody expected. `TIMESINK_DEBUG=1` shows where it came from."""
    if os.environ.get("TIMESINK_DEBUG") == "1":
        traceback.print_exception(error)
    at = traceback.extract_tb(error.__traceback__)[-1]
    what = f"a fault of timesink: {type(error).__name__}: {error} (in {Path(at.filename).name}, line {at.lineno})"
    return TimesinkError(what, remedy="report it as a bug, with what the same command shows under TIMESINK_DEBUG=1")


def group() -> LazyCommands:
    """The root command; its subcommands are stubs until one is resolved."""
    said = {
        "--version": version,
        "--install-completion": completion.install,
        "--show-completion": lambda: completion.script()[1],
    }
    params = [
        click.Option(
            names.split(", ")[::-1], is_flag=True, is_eager=True, expose_value=False, help=about,
            callback=partial(_say, said[names.split(", ")[-1]]),
        )
        for names, about in OPTIONS[:-1]
    ]  # fmt: skip
    stubs = {name: click.Command(name, help=summary) for name, summary in COMMANDS.items()}
    return LazyCommands(
        "timesink", commands=stubs, params=params, context_settings={"help_option_names": ["-h", "--help"]}
    )


def loaded(entry: str, name: str = "") -> Any:
    """The command of that entry, its file imported, under the name by which it was asked for."""
    command: Any = command_of(entry_of(entry), name or entry)
    if entry not in SERVERS:
        command.invoke = watched()(command.invoke)
    command.modes = [(choice, ENTRIES[mode][1]) for mode, choice in modes(entry)]
    return command


def _say(said: Callable[[], str], context: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(said())
        raise click.exceptions.Exit
