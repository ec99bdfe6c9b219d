"""The command `timesink`: finds the file of the command asked for, runs it, and turns errors into exit codes.

A command is one file `cli/<name>.py` that holds a function `command`, and one line in `GROUPS`; those that share a
file are listed in `PLACES`. Only the file of the command that runs is imported, so `--help` stays quick however
many commands there are.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill
from typing import Any, Never

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from timesink import __version__
from timesink.cli.help import ShownGroup, write_commands
from timesink.errors import MissingTool, TimesinkError, ToolFailed, UsageError

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
WRONG_INPUT = 2
INTERRUPTED = 130
# Modules, rules and tables live until a command ends. Looking for cycles among them, while it works and twice more as
# the interpreter ends, took a sixth of the diagnosis of a small trace. A server still collects, less often.
RARE_COLLECTIONS = (200_000, 2, 2)


class LazyCommands(ShownGroup):
    """Lists every command from `GROUPS` and imports the one that is resolved."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`help COMMAND` is `COMMAND --help`."""
        if args[:1] == ["help"]:
            args = args[1:] if ctx.resilient_parsing or not args[1:] else [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command's name, the command itself, and the arguments left for it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name in COMMANDS else stub, rest

    def show_overview(self, ctx: Any) -> None:
        """What it is for, how to begin, and the names of the commands: one screen."""
        typer.echo(overview())
        raise typer.Exit

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands in their groups, each with what it does, whole."""
        for heading, commands in GROUPS.items():
            write_commands(formatter, heading, [(f"{name:9}", summary) for name, summary in commands.items()])


def overview() -> str:
    """The first screen: purpose, three ways to begin, every command by group."""
    begin = "\n".join(f"  {command:43}{what}" for command, what in BEGIN)
    every = "\n".join(f"  {heading:9}{'  '.join(commands)}" for heading, commands in GROUPS.items())
    every = "\n".join(
        fill(line, 80, subsequent_indent=" " * 11, break_on_hyphens=False, break_long_words=False)
        for line in every.splitlines()
    )
    return f"{PURPOSE}\n\n{begin}\n\n{every}\n\n{HINT}"


def loaded(name: str) -> Any:
    """The command of that name, its file imported."""
    from timesink.cli.options import Commands

    entry = entry_of(name)
    if isinstance(entry, typer.Typer):
        group = entry
    else:
        group = Commands()
        group.command(name)(entry)
    command = typer.main.get_command(group)
    command.name = name
    return command


def entry_of(name: str) -> Any:
    """The function behind a command, its file imported; the group `app` where the file holds one instead."""
    file, function = PLACES.get(name, (name.replace("-", "_"), "command"))
    module = import_module(f"timesink.cli.{file}")
    return getattr(module, "app", None) or getattr(module, function)


def main() -> Never:
    """Entry point of the console script."""
    gc.set_threshold(*RARE_COLLECTIONS)
    code = run(sys.argv[1:])
    if "duckdb" not in sys.modules:  # what it keeps must be collected, or it reports leaks as the interpreter ends
        gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors are shown here and nowhere else."""
    from timesink.cli.output import begin, partial_answers, show_error

    begin()
    try:
        code = group().main(args=list(arguments), prog_name="timesink", standalone_mode=False)
    except TimesinkError as error:
        code = 5 if isinstance(error, (MissingTool, ToolFailed)) else 2
        show_error(error, code, arguments)
    except TyperException as error:
        code = error.exit_code
        show_error(error, code, arguments)
    except BrokenPipeError:  # whoever read the answer has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:  # where no command says it better: a full disk, a folder that nobody may write to
        code = WRONG_INPUT
        what = f"cannot read or write {error.filename or 'a file'}: {error.strerror or error}"
        show_error(UsageError(what, remedy="make room, or choose another place"), code, arguments)
    except (KeyboardInterrupt, typer.Abort) as ended:
        code = INTERRUPTED
        if isinstance(ended.__cause__, EOFError):  # typer takes the end of a cut file for the end of its input
            code = WRONG_INPUT
            show_error(UsageError("a file ends before it should", remedy="write or copy it again"), code, arguments)
    if code == INTERRUPTED:
        sys.stderr.write("timesink: interrupted\n")
    if code in (0, None) and partial_answers():
        code = WRONG_INPUT
        show_error(partial_answers()[0], code, ())
    return int(code or 0)


def group() -> TyperGroup:
    """The root command; its subcommands are stubs until one is resolved."""
    app = typer.Typer(
        cls=LazyCommands,
        help=PURPOSE,
        epilog=EXIT_CODES,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    root.commands.update({name: TyperCommand(name, help=summary) for name, summary in COMMANDS.items()})
    return root


def _say_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"timesink {__version__}\n")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", "-V", help="Show the version and exit.", is_eager=True, callback=_say_version
    ),
) -> None:
    """Nothing of its own: a command does the work."""
