"""How help looks: one line of usage, arguments and options by what they stand for, commands in groups.

Click shows types (`<int range>`); people see what to type instead.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from timesink.cli.output import begin
from timesink.startup import start_small

# What means the same everywhere: `timesink --help` shows it once for all commands.
EVERYWHERE: Final = ("verbose", "quiet", "no_cache", "no_color")


class ShownCommand(click.Command):
    """A command whose help names what to type. `modes` are what else it does: what to type for each, its summary."""

    modes: Sequence[tuple[str, str]] = ()
    shows_all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The command is known from here on, whatever is wrong with its words."""
        begin(ctx.command_path.partition(" ")[2])
        if "--help-all" in args[: args.index("--") if "--" in args else None]:
            self.shows_all = True
            click.echo(self.get_help(ctx))
            raise click.exceptions.Exit
        ctx.default_map = _configured({name for param in self.params for name in param.opts}, args)
        rest = super().parse_args(ctx, args)
        if paths := ctx.params.get("paths"):
            start_small([Path(path) for path in paths])
        elif places := ctx.params.get("places"):
            start_small([Path(place) for place in places], apart=True)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] PATH... [SQL]`."""
        return ["[OPTIONS]", *(_usage(param) for param in self.get_params(ctx) if is_argument(param))]

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """With the options: nothing here."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options."""
        _write_parameters(self, ctx, formatter)


class ShownGroup(click.Group):
    """Commands under one name, with `modes` as a command has. Without one of them it shows its help: no error."""

    modes: Sequence[tuple[str, str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments the help is what was asked for."""
        if args == ["--help-all"]:
            self.show_overview(ctx)
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            self.show_overview(ctx)
        return super().parse_args(ctx, args)

    def show_overview(self, ctx: Any) -> None:
        """What is shown where no command is named; ends the program."""
        click.echo(ctx.get_help())
        raise click.exceptions.Exit

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
    """What stands for the value of a parameter in help; empty for a switch."""
    return "" if not is_argument(param) and param.is_flag else param.metavar or ""


def _usage(param: Any) -> str:
    name = value_name(param)
    name += "..." if param.nargs != 1 and not name.endswith("...") else ""
    return name if param.required or name.startswith("[") else f"[{name}]"


def is_shown(param: Any) -> bool:
    """Whether `--help` of a command shows this parameter, and not `--help-all` alone."""
    return param.name not in EVERYWHERE and not getattr(param, "is_rare", False)


def _write_parameters(command: ShownCommand | ShownGroup, ctx: Any, formatter: Any) -> None:
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    shows_all, left = getattr(command, "shows_all", True), False
    for param in command.get_params(ctx):
        if is_argument(param):
            rows["Arguments"].append((value_name(param), param.help or ""))
        elif shows_all or is_shown(param):
            names = ", ".join(sorted(param.opts, key=len))
            rows["Options"].append((f"{names} {value_name(param)}".strip(), _about(param, ctx)))
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


def _about(param: click.Parameter, ctx: click.Context) -> str:
    """What help says of an option: its sentence, its default, its bounds."""
    text = (param.get_help_record(ctx) or ("", ""))[1]
    least, most = getattr(param.type, "least", None), getattr(param.type, "most", None)
    if least is None:
        return text
    bounds = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
    return f"{text[:-1]}; {bounds}]" if text.endswith("]") and "  [default: " in text else f"{text}  [{bounds}]"
