"""What commands take: options, declared in a table so that they mean the same everywhere, and the traces they name.

A command is a function with plain parameters. What each is called on the command line, what stands for its value and
what help says of it is in `options.json`: under the function (`kernels.roofline`), the class or the file that has the
parameter, else under `shared`.

    "top": ["--top", "N", "Rows of each table.", {"min": 1}]     an option; a value of "" makes it a switch
    "paths": ["", "PATH", "Profiles of PyTorch (.json, ...)"]    an argument, told by its place

The fourth may have: `min`, `max`, `envvar`, `file_okay`; `complete`, a function of `completion` or the words to offer;
`writes`, the classes of results whose formats are to choose from; `rare`, shown by --help-all only.
Options that belong together are the fields of a frozen dataclass, a group. A command takes a group as one
keyword-only parameter, and `ungrouped` shows its fields to typer one by one:

    def command(paths: list[Path], top: int = 10, *, reading: Reading, writing: PageOutput) -> int: ...
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from timesink.capture.recorded_run import link_times, parse_facts, recorded_run
from timesink.cli import completion
from timesink.cli.help import RARE, ShownCommand, ShownGroup
from timesink.cli.output import Sink, answer_is_partial, sink, working
from timesink.errors import UnreadableTrace, UsageError
from timesink.records import Record, field_names, replace
from timesink.render import Format, formats_of
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace

# The help lists these after all other options, in this order.
_LAST = ("verbose", "no_cache", "strict", "exit_zero", "no_color")


@cache
def _table() -> Mapping[str, Mapping[str, list[Any]]]:
    """The options of `options.json`: by class, file or `shared`, and by the name of the parameter."""
    table: dict[str, dict[str, list[Any]]] = json.loads(Path(__file__).with_name("options.json").read_text("utf-8"))
    return table


def _as_typed(name: str, hint: Any, *places: str) -> Any:
    """The annotation that tells typer how this parameter is typed, from the first of the places that has it."""
    table = _table()
    section = next(table[place] for place in (*places, "shared") if name in table.get(place, ()))
    spelled, metavar, about, *more = section[name]
    rest: dict[str, Any] = {"metavar": metavar or None, "help": about, **(more[0] if more else {})}
    if offered := rest.pop("complete", None):
        is_list = isinstance(offered, list)
        rest["autocompletion"] = completion.one_of(*offered) if is_list else getattr(completion, offered)
    if results := rest.pop("writes", None):
        rest |= _formats(*results)
    if rest.pop("rare", False):
        rest["rich_help_panel"] = RARE
    if spelled:
        return Annotated[hint, typer.Option(*spelled.split(), **rest)]
    return Annotated[hint, typer.Argument(**rest)]


def _formats(*results: str) -> dict[str, Any]:
    """What the option --format takes: the formats in which each of these classes of results can be written."""
    forms = formats_of(*results)

    def parsed(text: str) -> Format:
        if text not in forms:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(repr(str(form)) for form in forms)}.")
        return Format(text)

    text = f"{', '.join(forms[:-1])} or {forms[-1]} [default: text, or as FILE is named]."
    return {"help": text, "parser": parsed, "autocompletion": completion.one_of(*forms)}


def ungrouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the fields of its groups as parameters of their own, which is what typer can read."""
    hints = get_type_hints(command)
    groups: dict[str, Any] = {
        name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Record)
    }
    own = f"{_file(command)}.{command.__name__}"
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            group, kinds = groups[name], get_type_hints(groups[name])
            places = [own, *(place for one in group.__mro__ for place in (one.__name__, _file(one)))]
            for one in signature(group).parameters.values():
                typed = _as_typed(one.name, kinds[one.name], *places)
                parameters.append(Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=typed))
            continue
        hint = hints[name]
        typed = hint if hint is typer.Context else _as_typed(name, hint, own, _file(command))
        parameters.append(parameter.replace(annotation=typed, kind=Parameter.KEYWORD_ONLY))
    parameters.sort(key=lambda parameter: _LAST.index(parameter.name) + 1 if parameter.name in _LAST else 0)

    @wraps(command)
    def flat(**values: Any) -> Any:
        made = {name: group(**{one: values.pop(one) for one in field_names(group)}) for name, group in groups.items()}
        return command(**values, **made)

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _file(thing: Any) -> str:
    return str(thing.__module__).rpartition(".")[2]


class Commands(typer.Typer):
    """A group of commands, each of which may take groups of options. What is decorated stays as it is."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=ShownGroup, add_completion=False, rich_markup_mode=None, **settings)

    def command(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register a command."""
        return _registering(super().command(*names, cls=ShownCommand, **settings))

    def callback(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register what the group does before any of its commands runs, or when none is named."""
        return _registering(super().callback(*names, **settings))


def _registering(register: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorated(command: Any) -> Any:
        register(ungrouped(command))
        return command

    return decorated


def facts_of(texts: Sequence[str] | None) -> dict[str, str]:
    """The facts of `--fact`, by name. `UsageError` for what is no fact."""
    try:
        return parse_facts(texts or ())
    except ValueError as fault:
        raise UsageError(f"--fact: {fault}", remedy="write it as NAME=VALUE, such as resolution=512") from None


def read_traces(  # what of files is read: the options of every command that reads any
    paths: Sequence[Path],
    *,
    ranks: Sequence[int] | None = None,
    cache: bool = True,
    linked_only: bool = False,
    window: str | None = None,
    graphs_from: Sequence[Path] = (),
) -> Trace:
    """The files as one trace, cut down to the window, the ranks and the GPU work asked for, with what the files of
    `graphs_from` say of the kernels that its graphs replay.

    Of a damaged file what could be read is returned, and the command's answer is marked as partial.
    """
    from timesink._native import keep_freed
    from timesink.model.window import Span

    keep_freed(one_heap=True)  # to have pages cleared anew takes up to a tenth of a command's time
    span = None if window is None else Span.parse(window)
    names = scrub(paths[0].name) if len(paths) == 1 else f"{len(paths)} files"
    with working(f"reading {names}") as show:
        from timesink.readers import read

        trace = read(
            paths, ranks=ranks, linked_only=linked_only, cache=cache, window=span,
            watch=lambda done, of: show(f"{done} of {of} files read"),
        )  # fmt: skip
        if graphs_from:
            from timesink.readers.ranks import with_capture

            trace = with_capture(trace, read(graphs_from, ranks=ranks, cache=cache))
    for damage in trace.damage:
        answer_is_partial(UnreadableTrace(trace.source, damage, remedy="record or copy the file again"))
    return trace


def of_run(
    trace: Trace, given_ms: float | None, paths: Sequence[Path], facts: Mapping[str, str] | None = None
) -> Trace:
    """The trace with what is known of its run: its step time without a profiler, its facts, what collectives take.

    Each is as given, else as its capture has it, else unknown; a step of 0 ms is not known, whatever was measured.
    """
    run = recorded_run(paths)
    if given_ms is not None:
        run = replace(run, step_ms=given_ms or None, steps_ms=())
    trace = run.told_to(trace)
    if times := link_times(paths):
        from timesink.model.trace import LinkTime

        trace = trace.with_link_times(tuple(LinkTime(*time) for time in times))
    return trace.with_facts(facts) if facts else trace


class PageOutput(Record, kw_only=True):
    """Where a page of tables goes and what it is written as."""

    form: Format | None = None
    output: Path | None = None
    verbose: bool = False
    no_color: bool = False

    def sink(self, inputs: Sequence[Path | str] = ()) -> Sink:
        """The place the options ask for. `UsageError` where it is one of the inputs."""
        return sink(self.form, self.output, self.no_color, inputs, verbose=self.verbose)


class Stepping(Record, kw_only=True):
    """How steps are told apart."""

    steps: str | None = None

    def applied(self, trace: Trace) -> Trace:
        """The trace with the steps that were asked for. `UsageError` for a pattern that is no regular expression."""
        if self.steps is None:
            return trace
        from timesink.model.names import pattern_fault
        from timesink.model.trace import StepChoice

        if self.steps.isdecimal():
            if int(self.steps) < 2:
                raise UsageError(f"--steps: a loop runs at least twice, not {self.steps} times")
            return trace.with_steps(StepChoice(None, int(self.steps)))
        pattern = None if self.steps == "auto" else self.steps
        if pattern is not None and (fault := pattern_fault(pattern)):
            raise UsageError(f"--steps: {pattern!r} is not a regular expression: {fault}")
        return trace.with_steps(StepChoice(pattern, None))


class Reading(Stepping, kw_only=True):
    """What of the traces is read, and how their steps are told apart."""

    linked_only: bool = False
    ranks: list[int] | None = None
    window: str | None = None
    graphs_from: list[Path] | None = None
    no_cache: bool = False

    def trace(self, paths: Sequence[Path]) -> Trace:
        """The files as one trace, cut down to what was asked for, with what is known of its graphs and of its run."""
        return of_run(self.recorded(paths), None, paths)

    def recorded(self, paths: Sequence[Path]) -> Trace:
        """The same without what only the run beside the files knows."""
        read = read_traces(
            paths,
            ranks=self.ranks,
            cache=not self.no_cache,
            linked_only=self.linked_only,
            window=self.window,
            graphs_from=self.graphs_from or (),
        )
        return self.applied(read)


class PricedReading(Reading, kw_only=True):
    """What of the traces is read, and the step time against which host work is priced."""

    unprofiled: float | None = None

    def trace(self, paths: Sequence[Path]) -> Trace:
        """As `Reading.trace`, with what is known of the run."""
        return of_run(self.recorded(paths), self.unprofiled, paths)


class DescribedReading(PricedReading, kw_only=True):
    """As `PricedReading`, and what the run was, for the sentences that are written of it."""

    fact: list[str] | None = None

    def trace(self, paths: Sequence[Path]) -> Trace:
        """As `PricedReading.trace`, with these facts. `UsageError` for what is no fact."""
        return of_run(self.recorded(paths), self.unprofiled, paths, facts_of(self.fact))


class RuleChoice(Record, kw_only=True):
    """Which rules are applied, with which limits."""

    only: list[str] | None = None
    skip: list[str] | None = None
    limits: list[str] | None = None

    def rules(self) -> tuple[Rule, ...]:
        """Every rule, or those named, without those left out. `UsageError` for a code no rule has."""
        from timesink.diagnosis.registry import all_rules, find_all

        wanted, unwanted = find_all(self.only or ()), find_all(self.skip or ())
        return tuple(rule for rule in wanted or all_rules() if rule not in unwanted)

    def check(self) -> None:
        """`UsageError` for a rule or a limit that cannot be read, before any file is."""
        self.rules()
        self.overrides()

    def diagnosis(self, trace: Trace) -> Diagnosis:
        """The diagnosis by these rules, which says what the project's pyproject.toml chose of them."""
        from timesink.diagnosis.engine import diagnose
        from timesink.diagnosis.undiagnosable import check_diagnosis
        from timesink.diagnosis.verdicts import Note

        made = diagnose(trace, self.rules(), self.overrides())
        check_diagnosis(trace, made)
        return replace(made, notes=(*made.notes, *(Note(text) for text in self._configured())))

    def _configured(self) -> Iterator[str]:
        from timesink.untrusted.configuration import configuration

        found = configuration()
        if found and found.skip and list(found.skip) == self.skip:
            yield f"left out by {found.path.name}: {', '.join(found.skip)}"
        if found and found.limits and found.limits == self.overrides():
            listed = ", ".join(f"{name}={value:g}" for name, value in found.limits.items())
            yield f"limits of {found.path.name}: {listed}"

    def overrides(self) -> dict[str, float]:
        """`CODE.name=value` texts as limits by name; the engine refuses names that no rule has."""
        return dict(_limit(text) for text in self.limits or ())


def _limit(text: str) -> tuple[str, float]:
    form = "CODE.name=value, such as IDL101.idle_ratio=0.2"
    name, number = number_named(text, form)
    code, dot, limit = name.partition(".")
    if not (dot and limit):
        raise _no_limit(text, form)
    return f"{code.upper()}.{limit}", number


def number_named(text: str, form: str) -> tuple[str, float]:
    """``registers=96`` as a name and its number; `UsageError` shows the `form` of a limit where it is none."""
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _no_limit(text, form)
    return name.strip(), number


def _no_limit(text: str, form: str) -> UsageError:
    return UsageError(f"{text!r} is not a limit", remedy=f"write it as {form}")
