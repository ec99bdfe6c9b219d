"""How help looks: one line of usage, arguments and options by what they stand for, commands in groups.

Typer shows the types of Python (`<list[Path]>`, `<int range>`); people see what to type instead. `ShownCommand` and
`ShownGroup` do that for every command.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from timesink.cli.output import begin
from timesink.startup import read_plainly, start_small

# What marks an option that is shown by `--help-all` only, and those that mean the same everywhere: `timesink --help`
# shows them once for all commands.
RARE: Final = "rare"
EVERYWHERE: Final = ("verbose", "quiet", "no_cache", "no_color")


class ShownCommand(TyperCommand):
    """A command whose help names what to type. `modes` are what else it does: what to type for each, its summary."""

    modes: Sequence[tuple[str, str]] = ()
    shows_all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The command is known from here on, whatever is wrong with its words."""
        begin(ctx.command_path.partition(" ")[2])
        if "--help-all" in args[: args.index("--") if "--" in args else None]:
            self.shows_all = True
            typer.echo(self.get_help(ctx))
            raise typer.Exit
        ctx.default_map = _configured({name for param in self.params for name in param.opts}, args)
        read_plainly(self.get_params(ctx))
        rest = super().parse_args(ctx, args)
        if paths := ctx.params.get("paths"):
            start_small([Path(path) for path in paths])
        elif places := ctx.params.get("places"):
            start_small([Path(place) for place in places], apart=True)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] PATH... [SQL]`."""
        return ["[OPTIONS]", *(_usage(param) for param in self.get_params(ctx) if is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options."""
        _write_parameters(self, ctx, formatter)


class ShownGroup(TyperGroup):
    """Commands under one name, with `modes` as a command has. Without one of them it shows its help: no error."""

    modes: Sequence[tuple[str, str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments the help is what was asked for."""
        if args == ["--help-all"]:
            self.show_overview(ctx)
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            self.show_overview(ctx)
        read_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def show_overview(self, ctx: Any) -> None:
        """What is shown where no command is named; ends the program."""
        typer.echo(ctx.get_help())
        raise typer.Exit

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Commands, then options."""
        self.format_commands(ctx, formatter)
        _write_parameters(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with the first sentence of its help."""
        shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_line(command.help or "")) for name, command in shown])


def _configured(options: set[str], args: list[str]) -> dict[str, Any]:
    """What the project's pyproject.toml sets of these options, by the name of the parameter."""
    if not options & {"--only", "--suite"} or {"--help", "-h"} & set(args):
        return {}
    from timesink.untrusted.configuration import configuration

    found = configuration()
    if found is None:
        return {}
    if "--only" in options:
        return {"skip": list(found.skip), "limits": [f"{name}={value}" for name, value in found.limits.items()]}
    suite = next((value for value in _values(args, "--suite")), "default")
    chosen = {key: value for key, value in found.suites.get(suite, {}).items() if f"--{key}" in options}
    budgets = found.suites.get(suite, {}).get("limits", ())
    if {"--limit", "--baseline"} <= options:
        chosen["limit"] = list(budgets)
    return {key.replace("-", "_"): value for key, value in chosen.items()}


def _values(args: list[str], option: str) -> Iterable[str]:
    """The values that the words give to an option, the last first."""
    words = args[: args.index("--")] if "--" in args else args
    for word, following in reversed([*pairwise([*words, ""])]):
        name, equals, value = word.partition("=")
        if name == option:
            yield value if equals else following


def first_line(text: str) -> str:
    """The first paragraph of a help text, on one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())


def is_argument(param: Any) -> bool:
    """Whether a parameter is told by its place, not by its name."""
    return bool(param.param_type_name == "argument")


def value_name(param: Any) -> str:
    """What stands for the value of a parameter in help: its metavar, else its choices; empty for a switch."""
    if not is_argument(param) and (param.is_flag or param.count):
        return ""
    choices = param.type_descriptor.choices if param.type_descriptor.is_choice else None
    return param.metavar or "|".join(str(getattr(choice, "value", choice)) for choice in choices or ())


def _usage(param: Any) -> str:
    name = value_name(param)
    name += "..." if param.nargs != 1 and not name.endswith("...") else ""
    return name if param.required or name.startswith("[") else f"[{name}]"


def is_shown(param: Any) -> bool:
    """Whether `--help` of a command shows this parameter, and not `--help-all` alone."""
    return param.name not in EVERYWHERE and getattr(param, "rich_help_panel", None) != RARE


def _write_parameters(command: ShownCommand | ShownGroup, ctx: Any, formatter: Any) -> None:
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    shows_all, left = getattr(command, "shows_all", True), False
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        if is_argument(param):
            rows["Arguments"].append((value_name(param), record[1].removesuffix("[required]").strip()))
        elif shows_all or is_shown(param):
            names = ", ".join(sorted(param.opts, key=len))
            names += "".join(f" / {name}" for name in param.secondary_opts)
            rows["Options"].append((f"{names} {value_name(param)}".strip(), _plain_bounds(record[1], param)))
        else:
            left = True
    if left:
        rows["Options"].append(("--help-all", "Show every option."))
    rows["Also (each with --help of its own)"] = [
        (f"{ctx.command_path} {typed}", what) for typed, what in command.modes
    ]
    for heading, listed in rows.items():
        if listed:
            with formatter.section(heading):
                formatter.write_dl(listed)


def _plain_bounds(text: str, param: Any) -> str:
    """`[default: 30.0; x>=0.01]` as people say it."""
    least, most = getattr(param, "min", None), getattr(param, "max", None)
    if least is None:
        return text
    if most is None:
        return text.replace(f"x>={least}", f"at least {_short(least)}")
    return text.replace(f"{least}<=x<={most}", f"{_short(least)} to {_short(most)}")


def _short(figure: float) -> str:
    return str(figure).removesuffix(".0")
