"""How help looks: one line of usage, arguments and options by what they stand for, commands in groups.

Typer shows the types of Python (`<list[Path]>`, `<int range>`); people see what to type instead. `ShownCommand` and
`ShownGroup` do that for every command, and take the spellings that options had before without showing them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Final, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from timesink.cli.output import begin

# The name an option has everywhere, and what it was called in some commands before.
FORMER_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "--output": ("--out",),
    "--only": ("--select",),
    "--skip": ("--ignore",),
}
_OPENBLAS: Final = "OPENBLAS_NUM_THREADS"
# These alone import a sixth of all modules that a diagnosis would, among them all that reads mail.
_NOT_USED: Final = ("polars.catalog.unity", "polars.io.delta", "polars.io.iceberg")
_MASKED: Final = "numpy.ma"
_SMALL_BYTES: Final = 4_000_000  # a trace of 40 MB, packed


class ShownCommand(TyperCommand):
    """A command whose help names what to type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The command is known from here on, whatever is wrong with its words."""
        begin(ctx.command_path.partition(" ")[2])
        ctx.default_map = _configured({name for param in self.params for name in param.opts}, args)
        _read_plainly(self.get_params(ctx))
        rest = super().parse_args(ctx, args)
        if paths := ctx.params.get("paths"):
            _begin_small([Path(path) for path in paths])
        elif places := ctx.params.get("places"):
            _begin_small([Path(place) for place in places], apart=True)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] PATH... [SQL]`."""
        return ["[OPTIONS]", *(_usage(param) for param in self.get_params(ctx) if is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options."""
        _write_parameters(self, ctx, formatter)

    def make_parser(self, ctx: Any) -> Any:
        """The parser, which knows former spellings too."""
        return _with_former_options(self, super().make_parser(ctx))


class ShownGroup(TyperGroup):
    """Commands under one name. Without one of them it shows its help, and that is no error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments the help is what was asked for."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            self.show_overview(ctx)
        _read_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def show_overview(self, ctx: Any) -> None:
        """What is shown where no command is named; ends the program."""
        typer.echo(ctx.get_help())
        raise typer.Exit

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options, then commands."""
        _write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with the first sentence of its help."""
        shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_line(command.help or "")) for name, command in shown])

    def make_parser(self, ctx: Any) -> Any:
        """The parser, which knows former spellings too."""
        return _with_former_options(self, super().make_parser(ctx))


def _begin_small(paths: Sequence[Path], *, apart: bool = False) -> None:
    """Let NumPy and Polars, where they are not loaded yet, begin with as few threads as pay, and Polars without parts
    that no command uses.

    NumPy's for products of matrices, of which there are none, spin as they begin. Polars gets one for small files and
    two for others: a diagnosis asks hundreds of questions of small tables, and to wake others for a part of one takes
    longer than it. Files are decoded on threads of their own. Of files that are read `apart`, side by side, each has
    one thread for all of that, where they are enough for every core.
    """
    if _OPENBLAS not in os.environ and not {"numpy", "polars"} & sys.modules.keys():
        os.environ[_OPENBLAS] = "1"
        importlib.import_module("numpy")
        del os.environ[_OPENBLAS]  # a program that this command begins may want them
    if "polars" in sys.modules:
        return
    sys.modules.update({name: _NotUsed(name) for name in _NOT_USED})
    if _MASKED not in sys.modules and (numpy := sys.modules.get("numpy")):
        numpy.ma = sys.modules[_MASKED] = _Unmasked(_MASKED, numpy.False_)  # type: ignore[attr-defined]
    if apart and sum(map(_files_at, paths)) >= (os.cpu_count() or 1):
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    elif all(path.is_file() for path in paths):
        is_small = sum(path.stat().st_size for path in paths) <= _SMALL_BYTES
        os.environ.setdefault("POLARS_MAX_THREADS", "1" if is_small else "2")


def _files_at(path: Path) -> int:
    """How many files lie in a folder; what is no folder, or cannot be listed, counts as one."""
    try:
        return sum(1 for _ in path.iterdir())
    except OSError:
        return 1


class _NotUsed(ModuleType):
    """A part of Polars in which every name stands for nothing; what lies inside of it is the real one."""

    def __getattr__(self, name: str) -> list[str] | None:
        if name == "__path__":
            within = self.__name__.split(".")[1:]
            return [str(Path(place, *within)) for place in importlib.import_module("polars").__path__]
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class _Unmasked(ModuleType):
    """What Polars asks of NumPy's arrays with masks, of which there are none; all else the real module answers, which
    from then on stands in its place. `nomask` is the same object as there: another thread may ask for it in between."""

    def __init__(self, name: str, nomask: object) -> None:
        super().__init__(name)
        self.nomask = nomask
        self._loading = RLock()

    def getmask(self, values: object) -> object:
        """That of an array without one."""
        return self.nomask

    def getdata(self, values: object) -> object:
        """An array without a mask is its own data."""
        return values

    def __getattr__(self, name: str) -> Any:
        with self._loading:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return getattr(importlib.import_module(self.__name__), name)


class _Plainly:
    """Turns plain words into values: nothing, texts, paths, whole numbers, what the option itself parses.

    Typer would ask pydantic, the import of which takes longer than all else before a small file is read. It still does
    for whatever is not plain, and for what is wrong, so that its messages stay. A typer that keeps its own converter
    elsewhere never looks here.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter."""
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        try:
            if value is None:
                return () if param.multiple or param.nargs == -1 else None
            if get_origin(kind) is list and isinstance(value, list | tuple):
                return [_plain(word, get_args(kind)[0], info) for word in value]
            return _plain(value, kind, info)
        except ValueError:
            param._runtime_param = None
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _read_plainly(params: Iterable[Any]) -> None:
    for param in params:
        param._runtime_param = _Plainly()


def _plain(value: Any, kind: Any, info: Any) -> Any:
    """One plain value; `ValueError` for any other."""
    if info.parser:
        return info.parser(value)
    if kind is Path and (info.exists or not info.file_okay or not info.dir_okay or info.resolve_path):
        raise ValueError(value)
    if kind in (str, Path) and isinstance(value, str | Path):
        return _readable(kind(value)) if kind is Path else str(value)
    number = int(value) if kind is int and str(value).isdecimal() else None
    if number is None or (info.min is not None and number < info.min) or (info.max is not None and number > info.max):
        raise ValueError(value)
    return number


def _readable(path: Path) -> Path:
    if path.exists() and not os.access(path, os.R_OK):
        raise ValueError(path)
    return path


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
    if "--report" in options and any(word.partition("=")[0] == "--report" for word in args):
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


def _write_parameters(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        if is_argument(param):
            rows["Arguments"].append((value_name(param), record[1].removesuffix("[required]").strip()))
        else:
            names = ", ".join(sorted(param.opts, key=len))
            names += "".join(f" / {name}" for name in param.secondary_opts)
            rows["Options"].append((f"{names} {value_name(param)}".strip(), _plain_bounds(record[1], param)))
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


def _with_former_options(command: TyperCommand | TyperGroup, parser: Any) -> Any:
    spelled = {name for param in command.params for name in param.opts}
    for param in command.params:
        if former := {old for name in param.opts for old in FORMER_OPTIONS.get(name, ())} - spelled:
            action = "append" if param.multiple else "store"
            parser.add_option(obj=param, opts=sorted(former), dest=param.name, action=action, nargs=param.nargs)
    return parser
