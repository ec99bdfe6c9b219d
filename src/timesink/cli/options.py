"""Options that several commands share, declared once so that they mean the same everywhere.

Options that belong together are the fields of a frozen dataclass, a group. A command takes a group as one keyword-only
parameter, and `ungrouped` shows its fields to typer one by one:

    def command(paths: Paths, top: Top = 10, *, reading: Reading, writing: PageOutput) -> int: ...
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from timesink.capture.recorded_run import parsed_facts
from timesink.cli import completion
from timesink.cli.help import ShownCommand, ShownGroup
from timesink.cli.output import Sink, sink
from timesink.cli.reading import of_run, read_traces
from timesink.errors import UsageError
from timesink.model.record import dataclass, fields, is_dataclass, replace
from timesink.render import Format, formats_of

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace

# The help lists these after all other options, in this order.
_LAST = ("verbose", "no_cache", "strict", "exit_zero", "no_color")


def ungrouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the fields of its groups as parameters of their own, which is what typer can read."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))
            continue
        inner = get_type_hints(groups[name], include_extras=True)
        parameters += [
            Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=inner[one.name])
            for one in fields(groups[name])
        ]
    parameters.sort(key=lambda parameter: _LAST.index(parameter.name) + 1 if parameter.name in _LAST else 0)

    @wraps(command)
    def flat(**values: Any) -> Any:
        made = {
            name: group(**{one.name: values.pop(one.name) for one in fields(group)}) for name, group in groups.items()
        }
        return command(**values, **made)

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


class Commands(typer.Typer):
    """A group of commands, each of which may take groups of options. What is decorated stays as it is."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=ShownGroup, add_completion=False, rich_markup_mode=None, **settings)

    def command(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register a command."""
        return _registering(super().command(*names, cls=ShownCommand, **settings))

    def callback(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register what the group does before a command of its, or without one."""
        return _registering(super().callback(*names, **settings))


def _registering(register: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorated(command: Any) -> Any:
        register(ungrouped(command))
        return command

    return decorated


def option(names: str, metavar: str | None, about: str, **more: Any) -> Any:
    """An option with a value. `names` stand between spaces; `metavar` is what help shows for the value, None the
    choices; `about` is what it says of the option."""
    return typer.Option(*names.split(), metavar=metavar, help=about, **more)


def flag(names: str, about: str) -> Any:
    """An option without a value."""
    return typer.Option(*names.split(), help=about)


def argument(metavar: str, about: str, **more: Any) -> Any:
    """What is told by its place, not by a name."""
    return typer.Argument(metavar=metavar, help=about, **more)


TRACES = (
    "Profiles of PyTorch (.json, .json.gz), Nsight Systems (.nsys-rep, .qdrep, .sqlite, folders of Parquet or Arrow), "
    "Nsight Compute (.ncu-rep, .ncu-repz, CSV), memory snapshots (.pickle), logs of torch.compile; or folders of them."
)
Paths = Annotated[list[Path], argument("PATH", TRACES)]
OutputFile = Annotated[Path | None, option("--output -o", "FILE|-", "Write to this file, all of it or nothing.")]
NoColor = Annotated[bool, flag("--no-color", "Write no colour (NO_COLOR and FORCE_COLOR count too).")]
Verbose = Annotated[bool, flag("--verbose -v", "Say all there is to say, with names in full.")]
NoCache = Annotated[bool, flag("--no-cache", "Read the files anew; keep nothing in the user's cache folder.")]
Ranks = Annotated[list[int] | None, option("--rank", "N", "Look at this rank only; may be repeated.")]
Window = Annotated[
    str | None,
    option(
        "--window",
        "START:END",
        "Read only this stretch, counted from the first event, as in 12.5s:13.5s, 800ms: or :3s.",
    ),
]
GraphsFrom = Annotated[
    list[Path] | None,
    option(
        "--capture",
        "TRACE",
        "The trace of the capture of the CUDA graphs, or of an eager run of the same step: its operators, shapes, "
        "modules and lines are those of replayed kernels; may be repeated.",
    ),
]
LinkedOnly = Annotated[
    bool, flag("--linked-only", "Leave out GPU work whose launch is not in the trace (TraceLens' convention).")
]
Quiet = Annotated[bool, flag("--quiet -q", "Show no progress, and nothing that the program prints.")]
ExitZero = Annotated[bool, flag("--exit-zero", "Exit with 0 also where the gate fails.")]
StepMs = Annotated[
    float | None,
    option(
        "--unprofiled-step-ms",
        "MS",
        "The step without a profiler, to price host work against [default: as `timesink capture` timed it].",
        min=0.0,
    ),
]


Facts = Annotated[
    list[str] | None,
    option("--fact", "NAME=VALUE", "What the run is (resolution=512), to be said with its figures; may be repeated."),
]


def facts_of(texts: Sequence[str] | None) -> dict[str, str]:
    """The facts of `--fact`, by name. `UsageError` for what is no fact."""
    try:
        return parsed_facts(texts or ())
    except ValueError as fault:
        raise UsageError(f"--fact: {fault}", remedy="write it as NAME=VALUE, such as resolution=512") from None


def format_option(*results: str) -> Any:
    """The option --format with the formats in which each of these classes of results can be written."""
    forms = formats_of(*results)

    def parsed(text: str) -> Format:
        if text not in forms:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(repr(str(form)) for form in forms)}.")
        return Format(text)

    text = f"{', '.join(forms[:-1])} or {forms[-1]} [default: text, or as FILE is named]."
    offered = completion.one_of(*forms)
    return option("--format -f", "FORMAT", text, parser=parsed, autocompletion=offered)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOutput:
    """Where a page of tables goes and what it is written as."""

    form: Annotated[Format | None, format_option("Page")] = None
    output: OutputFile = None
    verbose: Verbose = False
    no_color: NoColor = False

    def sink(self, inputs: Sequence[Path | str] = ()) -> Sink:
        """The place the options ask for. `UsageError` where it is one of the inputs."""
        return sink(self.form, self.output, self.no_color, inputs, verbose=self.verbose)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOutput(PageOutput):
    """Where a diagnosis goes and what it is written as."""

    form: Annotated[Format | None, format_option("Diagnosis")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What of the traces is read."""

    ranks: Ranks = None
    window: Window = None
    graphs_from: GraphsFrom = None
    no_cache: NoCache = False

    def trace(self, paths: Sequence[Path], *, linked_only: bool = False) -> Trace:
        """The files as one trace, cut down to the window and the ranks asked for, with what its graphs were made of."""
        cache, graphs_from = not self.no_cache, self.graphs_from or ()
        return read_traces(
            paths, ranks=self.ranks, cache=cache, linked_only=linked_only, window=self.window, graphs_from=graphs_from
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedReading(Reading):
    """What of the traces is read, and the step time against which host work is priced."""

    unprofiled: StepMs = None

    @property
    def facts(self) -> dict[str, str]:
        """What the user says of the run."""
        return {}

    def trace(self, paths: Sequence[Path], *, linked_only: bool = False) -> Trace:
        """As `Reading.trace`, with what is known of the run."""
        return of_run(Reading.trace(self, paths, linked_only=linked_only), self.unprofiled, paths, self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedReading(PricedReading):
    """As `PricedReading`, and what the run was, for the sentences that are written of it."""

    fact: Facts = None

    @property
    def facts(self) -> dict[str, str]:
        """What the user says of the run. `UsageError` for what is no fact."""
        return facts_of(self.fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepping:
    """How steps are told apart."""

    steps: Annotated[
        str | None,
        option(
            "--steps",
            "PATTERN|auto",
            "Steps begin at ranges, or else kernels, whose names match this regular expression; auto: find the "
            "outermost loop of the kernels [default: marks of the program, else auto].",
        ),
    ] = None
    step_count: Annotated[int | None, option("--step-count", "N", "So many steps: choose that loop.", min=2)] = None

    def applied(self, trace: Trace) -> Trace:
        """The trace with the steps that were asked for. `UsageError` for a pattern that is no regular expression."""
        if self.steps is None and self.step_count is None:
            return trace
        from timesink.model.names import pattern_fault
        from timesink.model.trace import StepChoice

        pattern = None if self.steps in (None, "auto") else self.steps
        if pattern is not None and (fault := pattern_fault(pattern)):
            raise UsageError(f"--steps: {pattern!r} is no regular expression: {fault}")
        return trace.with_steps(StepChoice(pattern, self.step_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChoice:
    """Which rules are applied, with which limits."""

    only: Annotated[
        list[str] | None,
        option(
            "--only",
            "CODE",
            "Apply only this rule, or those whose codes begin so (KRN, KRN1); may be repeated.",
            autocompletion=completion.rules,
        ),
    ] = None
    skip: Annotated[
        list[str] | None,
        option(
            "--skip",
            "CODE",
            "Leave this rule out, or those whose codes begin so; may be repeated.",
            autocompletion=completion.rules,
        ),
    ] = None
    limits: Annotated[
        list[str] | None,
        option("--limit", "CODE.NAME=VALUE", "Use this limit; may be repeated.", autocompletion=completion.limits),
    ] = None

    def rules(self) -> tuple[Rule, ...]:
        """Every rule, or those named, without those left out. `UsageError` for a code no rule has."""
        from timesink.diagnosis.registry import all_rules, find_all

        for name in (*(self.only or ()), *(self.skip or ())):
            note_former_name(name)
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


def note_former_name(name: str) -> None:
    """Say on stderr what a rule is called now that is asked for by the name it had before."""
    from timesink.diagnosis.registry import former_name_note

    if note := former_name_note(name):
        sys.stderr.write(f"timesink: {note}\n")


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
