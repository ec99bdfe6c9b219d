"""How a parameter of a command is typed, and the click command that a function's signature makes.

A command is a function whose parameters say how they are typed:

    def roofline(
        report: Annotated[Path, Argument("REPORT", "A Nsight Compute report.")],
        top: Annotated[int, Option("--top", "N", "Rows of each table.", least=1)] = 10,
        *,
        writing: PageOutput,
    ) -> int: ...

A parameter whose type is a `Record` is a group: the fields of that record are parameters of the command.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from timesink.cli.help import ShownCommand, ShownGroup
from timesink.errors import UnreadableTrace
from timesink.records import Record, field_names
from timesink.render import Format, formats_of

# The help lists these after all other options, in this order.
_LAST: Final = ("verbose", "no_cache", "strict", "exit_zero", "no_color")

PLACE: Final = "PLACE"
"""An argument of this name is a path, an address or a pattern of paths."""
_OF_SEVERAL: Final = ("://", "*", "?", "[")

Offers = Callable[[click.Context, str], Sequence[str | tuple[str, str]]]
"""What the shell offers for the beginning of a word: values, or values with a word about each."""


class Option(Record):
    """An option: its names with spaces between, what stands for its value ("" makes it a switch), what help says.

    `complete` is what the shell offers; a `rare` one is shown by --help-all only; `writes` are the classes of results
    whose formats are to choose from. `must` raises `UsageError` for a word that can mean nothing (`asked`).
    """

    names: str
    value: str = ""
    about: str = ""
    least: float | None = None
    most: float | None = None
    complete: Offers | tuple[str, ...] = ()
    rare: bool = False
    writes: tuple[str, ...] = ()
    must: Callable[[str], object] | None = None


class Argument(Record):
    """A word told by its place: what stands for it, what help says, what the shell offers."""

    value: str
    about: str
    least: float | None = None
    most: float | None = None
    complete: Offers | tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    must: Callable[[str], object] | None = None


class Commands(Record):
    """Commands under one name. `first` runs before any of them, and alone where none is named."""

    about: str
    of: Mapping[str, Callable[..., Any]]
    first: Callable[..., Any] | None = None


def command_of(made: Callable[..., Any] | Commands, name: str) -> ShownCommand | ShownGroup:
    """The click command of a function, or of commands under one name."""
    settings: dict[str, Any] = {"context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100}}
    if not isinstance(made, Commands):
        return ShownCommand(name, params=_parameters(made), callback=_flat(made), help=_help(made), **settings)
    below: dict[str, click.Command] = {typed: command_of(function, typed) for typed, function in made.of.items()}
    if made.first is None:
        return ShownGroup(name, commands=below, help=made.about, **settings)
    return ShownGroup(
        name, commands=below, invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...", help=made.about,
        params=_parameters(made.first), callback=_flat(made.first), **settings,
    )  # fmt: skip


def _help(function: Callable[..., Any]) -> str:
    return cleandoc(function.__doc__ or "")


def _groups(function: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(function)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Record)}


def _parameters(function: Callable[..., Any]) -> list[click.Parameter]:
    """Its own parameters and the fields of its groups, in the order of the signature."""
    groups, hints, found = _groups(function), get_type_hints(function, include_extras=True), []
    for name, parameter in signature(function).parameters.items():
        if name in groups:
            kinds = get_type_hints(groups[name], include_extras=True)
            found += [_parameter(one, kinds[one.name]) for one in signature(groups[name]).parameters.values()]
        elif hints[name] is not click.Context:
            found.append(_parameter(parameter, hints[name]))
    found.sort(key=lambda one: _LAST.index(one.name) + 1 if one.name in _LAST else 0)
    return found


def _flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as click calls it: with the fields of its groups one by one."""
    groups = _groups(function)
    takes_context = [name for name, hint in get_type_hints(function).items() if hint is click.Context]

    def flat(**values: Any) -> Any:
        made = {name: group(**{one: values.pop(one) for one in field_names(group)}) for name, group in groups.items()}
        return function(**dict.fromkeys(takes_context, click.get_current_context()), **values, **made)

    return flat


def _parameter(parameter: Parameter, hint: Any) -> click.Parameter:
    """What is typed for one parameter of a function or one field of a group."""
    (declared,) = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Option | Argument)]
    kind = next(one for one in _members(get_args(hint)[0]) if one is not NoneType)
    is_required, default = parameter.default is Parameter.empty, getattr(parameter.default, "value", parameter.default)
    given: dict[str, Any] = {"required": True} if is_required else {"default": default, "required": False}
    is_list = get_origin(kind) is list
    value = TypedWord(get_args(kind)[0] if is_list else kind, declared)
    offers = declared.complete or value.choices
    offered = Offered(offers) if offers else None
    if isinstance(declared, Argument):
        return ShownArgument(
            [parameter.name], type=value, metavar=declared.value, nargs=-1 if is_list else 1,
            shell_complete=offered, help=declared.about, **given,
        )  # fmt: skip
    names = [*declared.names.split(), parameter.name]
    if kind is bool:
        return ShownOption(names, rare=declared.rare, is_flag=True, default=bool(default), help=declared.about)
    about = declared.about or f"{', '.join(value.choices[:-1])} or {value.choices[-1]}"
    if kind is Format:
        about += " [default: text, or as FILE is named]."
    return ShownOption(
        names, rare=declared.rare, type=value, metavar=declared.value or "|".join(value.choices), multiple=is_list,
        show_default=default != "", shell_complete=offered, help=about, **given,
    )  # fmt: skip


def _members(kind: Any) -> Sequence[Any]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


class TypedWord(click.ParamType[Any]):
    """Turns a word into a text, a path, a number, a choice or a format; what it cannot be is said in plain words."""

    name = "value"

    def __init__(self, kind: Any, declared: Option | Argument) -> None:
        self.kind, self.least, self.most, self.must = kind, declared.least, declared.most, declared.must
        self.choices: tuple[str, ...] = ()
        if kind is Format:
            self.choices = tuple(map(str, formats_of(*declared.writes)))
        elif get_origin(kind) is Literal:
            self.choices = get_args(kind)
        elif isinstance(kind, type) and issubclass(kind, Enum):
            self.choices = tuple(str(one.value) for one in kind)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of a word; of what is no word, such as a default, itself."""
        try:
            made = self._value(value) if isinstance(value, str) else self._within(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)
        if self.must and value and isinstance(value, str):
            self.must(value)
        return made

    def _value(self, text: str) -> Any:
        if self.choices:
            if text not in self.choices:
                raise ValueError(f"{text!r} is not one of {', '.join(map(repr, self.choices))}.")
            return self.kind(text) if isinstance(self.kind, type) else text
        if self.kind is Path:
            if "://" in text:
                raise ValueError(f"{text!r} is an address; `timesink ranks` reads some (timesink[remote]).")
            if os.path.exists(text) and not os.access(text, os.R_OK):  # noqa: PTH110  # names that are no path are none
                raise ValueError(f"{text!r} is not readable.")
            return Path(text)
        return self._within(_number(text, self.kind)) if self.kind in (int, float) else text

    def _within(self, value: Any) -> Any:
        if self.least is not None and value is not None and value < self.least:
            raise ValueError(f"{value} is less than {self.least:g}.")
        if self.most is not None and value is not None and value > self.most:
            raise ValueError(f"{value} is more than {self.most:g}.")
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files, where it is a path."""
        return [CompletionItem(incomplete, type="file")] if self.kind is Path else []


def _number(text: str, kind: type[int] | type[float]) -> float:
    try:
        number = kind(text)
        if not math.isnan(number):
            return number
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a {'whole number' if kind is int else 'number'}.")


class Offered(Record):
    """What of the offers begins as the word does."""

    offers: Offers | tuple[str, ...]

    def __call__(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """As click asks for it."""
        rows = self.offers if isinstance(self.offers, tuple) else self.offers(ctx, incomplete)
        pairs = [(row, None) if isinstance(row, str) else row for row in rows]
        return [CompletionItem(value, help=about) for value, about in pairs if value.startswith(incomplete)]


class _Listing(click.Parameter):
    """A parameter whose many values are a list, and None where there are none."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """As click has it, a list in place of a tuple."""
        found = super().process_value(ctx, value)
        return (list(found) or None) if isinstance(found, tuple) else found


class ShownOption(_Listing, click.Option):
    """An option; a rare one is shown by --help-all only."""

    def __init__(self, *given: Any, rare: bool, **named: Any) -> None:
        super().__init__(*given, **named)
        self.is_rare = rare


def must_be_there(path: Path, views: Sequence[str] = ()) -> None:
    """`UnreadableTrace` for a path that leads nowhere: a word without a suffix may be meant as one of the views."""
    if (why := _why_not_there(path)) and not _has_ranks(path):
        is_word = views and path.name == str(path) and not path.suffix
        remedy = "check the path" + (f", or choose a view: {', '.join(views)}" if is_word else "")
        raise UnreadableTrace(path, why, remedy=remedy)


def _why_not_there(path: Path) -> str:
    """What the system says where a path leads nowhere; "" where something is there, and for what no file can be called,
    which its reader refuses."""
    try:
        path.stat()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        return ""
    return ""


def _has_ranks(path: Path) -> bool:
    """Whether files of single ranks are there, which this name stands for: run.rank0.jsonl for run.jsonl."""
    try:
        names = [beside.name for beside in path.parent.iterdir()]
    except OSError:
        return False
    return any(name.startswith(f"{path.stem}.rank") and name.endswith(path.suffix) for name in names)


class ShownArgument(_Listing, click.Argument):
    """A word told by its place. A file that is not there is said before anything that reads files is imported."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """As of any parameter. `UnreadableTrace` for a path that leads nowhere."""
        found = super().process_value(ctx, value)
        for one in () if ctx.resilient_parsing else found if isinstance(found, list) else [found]:
            if isinstance(one, Path) or (self.metavar == PLACE and not any(map(str(one).__contains__, _OF_SEVERAL))):
                views = [choice for choice, _ in getattr(ctx.command, "modes", ()) if choice[:1] != "-"]
                must_be_there(Path(one), views)
        return found
