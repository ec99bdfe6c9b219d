"""The command `timesink`: finds the file of the command asked for, runs it, and turns errors into exit codes.

A command is one file `cli/<name>.py` that holds a function `command`, and one line in `COMMANDS`; those that share a
file are listed in `PLACES`. Only the file of the command that runs is imported, so `--help` stays quick however
many commands there are.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Never

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from timesink import __version__
from timesink.errors import MissingTool, TimesinkError, ToolFailed

COMMANDS = {
    "which": "Say which profiler answers a question, and its exact command.",
    "capture": "Record a program with torch.profiler, nsys or ncu.",
    "loop": "Capture, diagnose, capture what is still open, and join it all.",
    "diagnose": "Name the bottleneck of a trace and price its fix.",
    "report": "Write the diagnosis as one HTML file with timelines.",
    "export": "Write a trace for Perfetto or speedscope, or one of its tables.",
    "open": "Show a trace in the Perfetto UI.",
    "query": "Answer SQL over the tables of a trace.",
    "summary": "Show budget, steps, kernels, copies, waits and launches.",
    "idle": "Show what each GPU waited for while it was idle.",
    "compile": "Show graph breaks, recompilations and compile times.",
    "what-if": "Price changes to a program before they are made.",
    "ranks": "Say which rank is late, and what is waiting and what is transfer.",
    "pipeline": "Score how much of logged stage times overlaps, and fail below a share.",
    "kernels": "Show what limits each profiled kernel and the most it could gain.",
    "roofline": "Draw the roofline of profiled kernels.",
    "metrics": "Check names of profiler metrics against a chip.",
    "next": "Print the ncu command for the kernels worth a closer look.",
    "rules": "List the rules and their limits.",
    "explain": "Explain one rule: what it finds, how, what to do.",
    "tables": "List what a trace holds and what was lost on the way.",
    "compare": "Say what moved between two captures, and why.",
    "verify": "Say whether one change made the steps slower or faster.",
    "gate": "Fail where a change makes the program slower, and only then.",
    "calibrate": "Measure how much runs of one unchanged program differ here.",
    "baseline": "Keep baselines: run summaries of the trunk.",
    "ledger": "Keep predictions and what became of them.",
    "memory": "Show, plan and compare what holds GPU memory.",
    "redact": "Take what names people, machines and secrets out of a capture.",
    "mcp": "Serve coding agents over stdio (Model Context Protocol).",
    "doctor": "Show versions and which profilers work here.",
    "demo": "Diagnose a bundled training run, before and after its fix.",
}

# File and function of a command that is not `command` in `cli/<name>.py`.
PLACES = {
    "report": ("diagnose", "report"),
    "tables": ("summary", "tables"),
    "pipeline": ("ranks", "pipeline"),
    "roofline": ("kernels", "roofline"),
    "next": ("kernels", "next_command"),
    "open": ("export", "open_command"),
    "explain": ("rules", "explain"),
    "calibrate": ("verify.verify", "calibrate"),
    "verify": ("verify.verify", "command"),
    "compare": ("verify.compare", "command"),
    "gate": ("verify.gate", "command"),
    "baseline": ("verify.baseline", "command"),
    "ledger": ("verify.ledger", "command"),
}

EXIT_CODES = (
    "Exit codes: 0 success; 1 a gate failed (slower); 2 the request or its input is wrong; 3 inconclusive (only with "
    "--strict); 4 the comparison is invalid; 5 a profiler or another tool failed or is missing; 130 interrupted."
)
INTERRUPTED = 130
# Modules, rules and tables live until a command ends. Looking for cycles among them, while it works and twice more as
# the interpreter ends, took a sixth of the diagnosis of a small trace. A server still collects, less often.
RARE_COLLECTIONS = (200_000, 2, 2)


class LazyCommands(TyperGroup):
    """Lists every command from `COMMANDS` and imports the one that is resolved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command's name, the command itself, and the arguments left for it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name in COMMANDS else stub, rest


def loaded(name: str) -> Any:
    """The command of that name, its file imported."""
    from timesink.cli.options import ungrouped

    entry = entry_of(name)
    if isinstance(entry, typer.Typer):
        group = entry
    else:
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        group.command(name)(ungrouped(entry))
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
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors are shown here and nowhere else."""
    from timesink.cli.output import show_error

    try:
        code = group().main(args=list(arguments), prog_name="timesink", standalone_mode=False)
    except TimesinkError as error:
        code = 5 if isinstance(error, (MissingTool, ToolFailed)) else 2
        show_error(error, code, arguments)
    except TyperException as error:
        code = error.exit_code
        show_error(error, code, arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        sys.stderr.write("timesink: interrupted\n")
    return int(code or 0)


def group() -> TyperGroup:
    """The root command; its subcommands are stubs until one is resolved."""
    app = typer.Typer(
        cls=LazyCommands,
        help="Find the time a GPU program loses, prove it from the profile, price one change.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    root.commands.update({name: TyperCommand(name, help=summary) for name, summary in COMMANDS.items()})
    return root


def _root(version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True)) -> None:
    if version:
        sys.stdout.write(f"timesink {__version__}\n")
        raise typer.Exit
