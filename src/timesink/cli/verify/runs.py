"""Options of the commands that run programs and compare the runs, and what they become.

Each group of options makes what the package `verify` takes: commands, a source of step times, a plan, a session with a
folder of its own and a watch on the GPU, and the reports of a gate.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from timesink.cli import completion
from timesink.cli.options import ExitZero, Facts, PageOutput, Quiet, argument, facts_of, flag, format_option, option
from timesink.cli.output import Sink, tell
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.model.record import dataclass
from timesink.render import Format

if TYPE_CHECKING:
    from timesink.verify.counters import Counter
    from timesink.verify.environment import Command
    from timesink.verify.experiment import ExperimentPlan
    from timesink.verify.outcomes import GateResult
    from timesink.verify.runs import Launcher, Side, StepSource

Program = Annotated[list[str] | None, argument("-- CMD...", "The program and its arguments; no shell runs.")]
Threshold = Annotated[str, option("--threshold", "SHARE", "Changes of step time under this do not matter.")]
Suite = Annotated[
    str, option("--suite", "NAME", "Name of what is compared, in reports and files.", autocompletion=completion.suites)
]
Root = Annotated[Path, option("--root", "DIR", "Where baselines, calibrations and the ledger lie.")]
OpenMetrics = Annotated[Path | None, option("--openmetrics", "FILE", "Also as OpenMetrics text.")]
CodeQuality = Annotated[Path | None, option("--gitlab-codequality", "FILE", "Also as GitLab Code Quality.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The programs that are compared: two commands, or one with a variable toggled."""

    program: Program = None
    before: Annotated[str | None, option("--before", "CMD", "The unchanged program, as one quoted command.")] = None
    after: Annotated[str | None, option("--after", "CMD", "The changed program, as one quoted command.")] = None
    toggle: Annotated[str | None, option("--toggle", "NAME=A/B", "The change is this variable: A before, B after.")] = (
        None
    )

    @property
    def are_two(self) -> bool:
        """Whether two sides are asked for, rightly or wrongly."""
        return bool(self.before or self.after or self.toggle)

    def commands(self) -> Mapping[Side, Command]:
        """The two sides. `UsageError` where the options do not name two."""
        from timesink.verify.environment import Command

        if self.toggle is None:
            if not (self.before and self.after) or self.program:
                raise UsageError(
                    "two sides are needed",
                    remedy="give --before 'CMD' and --after 'CMD', or --toggle NAME=A/B -- CMD...",
                )
            return {"before": Command.parse(self.before), "after": Command.parse(self.after)}
        name, equals, values = self.toggle.partition("=")
        old, slash, new = values.partition("/")
        if not (name and equals and slash) or self.before or self.after:
            raise UsageError(
                f"{self.toggle!r} toggles nothing",
                remedy="write --toggle NAME=A/B -- CMD..., without --before and --after",
            )
        both = one_command(self.program)
        return {"before": both.with_environment(**{name: old}), "after": both.with_environment(**{name: new})}


def one_command(program: Sequence[str] | None) -> Command:
    """The program after `--`."""
    from timesink.verify.environment import Command

    if not program:
        raise UsageError("no program to run", remedy="write it after --, such as: -- python train.py")
    return Command(tuple(program))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeOptions:
    """Where the times of steps are read; without an option steps are handed over by timesink.step() or found."""

    whole: Annotated[bool, flag("--whole", "Compare whole runs, from start to end: for programs without steps.")] = (
        False
    )
    most_steps: Annotated[
        int | None, option("--steps", "N", "End each run after N steps [default: at its end].", min=2)
    ] = None
    step_pattern: Annotated[
        str | None,
        option(
            "--step-pattern",
            "REGEX",
            "Read step times from the output; a group (?P<ms>...) (or s, us, ns) holds value and unit.",
        ),
    ] = None
    receipt_pattern: Annotated[
        str | None,
        option(
            "--receipt-pattern",
            "REGEX",
            "What each run printed of its result (a loss, a checksum); the last match must agree.",
        ),
    ] = None
    steps_json: Annotated[
        str | None,
        option(
            "--steps-json",
            "FILE[:KEY]",
            "Read step times from a JSON file that every run writes; a key ending in _ms, _us, _ns says the unit.",
        ),
    ] = None

    def source(self) -> StepSource:
        """The source of step times that the options describe."""
        from timesink.verify.runs import FoundSteps, JsonFile, OutputPattern, WholeRuns, receipt_pattern

        given = {"--whole": self.whole, "--step-pattern": self.step_pattern, "--steps-json": self.steps_json}
        if len(chosen := [name for name, value in given.items() if value]) > 1:
            raise UsageError("step times come from one place", remedy=f"give {' or '.join(chosen)}, not both")
        if chosen and self.most_steps:
            raise UsageError(
                f"--steps ends no run with {chosen[0]}", remedy=f"leave one of --steps and {chosen[0]} out"
            )
        if self.steps_json:
            if self.receipt_pattern:
                raise UsageError(
                    "--receipt-pattern reads the output", remedy="write the key receipt into the file of --steps-json"
                )
            path, _, key = self.steps_json.partition(":")
            return JsonFile(Path(path), key)
        if self.step_pattern:
            return OutputPattern.parse(self.step_pattern, self.receipt_pattern)
        receipt = receipt_pattern(self.receipt_pattern)
        return WholeRuns(receipt) if self.whole else FoundSteps(self.most_steps, receipt)

    @property
    def facts(self) -> Mapping[str, str]:
        """What makes another work of the same command: whole runs are not held against steps."""
        return {"times": "whole"} if self.whole else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """When the pairs of runs are looked at, what of them, and which change matters."""

    threshold: Threshold = "2%"
    statistic: Annotated[
        Literal["mean", "median"],
        option("--statistic", None, "What decides of each run's steps; the median is blind to rare slow ones."),
    ] = "mean"
    at_least: Annotated[
        str | None,
        option(
            "--at-least",
            "RATIO",
            "Fail unless this speed-up is proven, such as 1.1 for 10 % more steps in the same time.",
        ),
    ] = None
    pairs: Annotated[str, option("--pairs", "N,N,...", "Numbers of pairs after which to look.")] = "6,12,18"
    receipt_tolerance: Annotated[
        str, option("--receipt-tolerance", "SHARE", "Receipts that are numbers may differ by this.")
    ] = "0"

    def plan(self) -> ExperimentPlan:
        """The plan that the options describe."""
        from timesink.verify.experiment import ExperimentPlan

        try:
            pairs = tuple(int(part) for part in self.pairs.split(","))
        except ValueError:
            raise UsageError(f"{self.pairs!r} are no numbers of pairs", remedy="write them as 6,12,18") from None
        return ExperimentPlan(
            threshold_ratio=share(self.threshold),
            looks=pairs,
            receipt_tolerance_ratio=share(self.receipt_tolerance),
            statistic=self.statistic,
            least_speed_up=None if self.at_least is None else speed_up(self.at_least),
        )


def speed_up(text: str) -> float:
    """The ratio before / after that a text such as ``1.1`` or ``1.1x`` means. `UsageError` unless it is above 1."""
    try:
        value = float(text.strip().removesuffix("x"))
    except ValueError:
        value = 0.0
    if not 1 < value < math.inf:
        raise UsageError(f"{text!r} is no speed-up", remedy="write it as 1.1: ten per cent more steps in the same time")
    return value


def share(text: str) -> float:
    """The ratio that a text such as ``2%`` or ``0.02`` means. `UsageError` unless it is at least 0 and below 1."""
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{text!r} is no share", remedy="write it as 2% or 0.02")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFacts:
    """What the program does, so far as its command line does not say it."""

    config_file: Annotated[
        list[Path] | None, option("--config-file", "FILE", "A file that is part of the work; may be repeated.")
    ] = None
    fact: Facts = None

    def workload(self, command: Command, more: Mapping[str, str]) -> str:
        """The key under which runs of the same work are kept; `more` facts of it."""
        from timesink.verify.environment import workload

        return workload(command, self.config_file or (), {**facts_of(self.fact), **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSession:
    """How long a run may take, and where its output is kept."""

    timeout: Annotated[float, option("--timeout", "S", "Longest a single run may take, in seconds.")] = 1800
    keep: Annotated[Path | None, option("--keep", "DIR", "Keep every run's output and steps in this folder.")] = None
    quiet: Quiet = False

    def tell(self, line: str) -> None:
        """A line of progress."""
        tell(line, self.quiet)

    @contextmanager
    def launcher(self, commands: Mapping[Side, Command], source: StepSource) -> Iterator[Launcher]:
        """A launcher with a folder of its own, the GPU watched meanwhile. The folder goes unless it is to be kept."""
        from timesink.verify.gpu_watch import GpuWatch, visible_devices
        from timesink.verify.runs import Launcher

        with ExitStack() as stack:
            if self.keep is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timesink-")))
            else:
                self.keep.mkdir(parents=True, exist_ok=True)
                folder = Path(tempfile.mkdtemp(prefix="session-", dir=self.keep))
            watch = stack.enter_context(GpuWatch(folder, visible_devices(commands.values())))
            yield Launcher(commands, source, folder, watch, self.timeout)


def counters(metrics: Path | None, captures: Sequence[Path] | None) -> dict[str, Counter]:
    """Counters from a file of the user's and from a profile, compiler logs next to it included."""
    from timesink.verify.counters import captured_metrics, read_counters

    captured = captured_metrics(read_traces(captures)) if captures else {}
    return {**captured, **(read_counters(metrics) if metrics else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutput(PageOutput):
    """Where the result of a gate goes, and what the exit code says of it."""

    form: Annotated[Format | None, format_option("GateResult")] = None
    junit_xml: Annotated[Path | None, option("--junit-xml", "FILE", "Also as JUnit XML.")] = None
    comment: Annotated[Path | None, option("--comment", "FILE", "Also as a pull-request comment (Markdown).")] = None
    strict: Annotated[bool, flag("--strict", "Exit with 3 where nothing can be said.")] = False
    exit_zero: ExitZero = False

    def write(
        self, result: GateResult, sink: Sink, *, open_metrics: Path | None = None, code_quality: Path | None = None
    ) -> int:
        """Write every report; return the exit code. GitHub Actions gets its annotations and summary unasked."""
        from timesink.render.gate import ci

        sink.show(result, strict=self.strict)
        reports: tuple[tuple[Path | None, Callable[[GateResult], str]], ...] = (
            (self.junit_xml, lambda result: ci.junit_xml(result, strict=self.strict)),
            (open_metrics, ci.open_metrics),
            (code_quality, ci.code_quality),
            (self.comment, ci.render_markdown),
        )
        for path, render in reports:
            if path is not None:
                Sink(Format.TEXT, path, sink.width, False).write(render(result))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            _github(result)
        return 0 if self.exit_zero else result.exit_code(strict=self.strict)


def _github(result: GateResult) -> None:
    """Commands are read from either stream: stderr keeps stdout clean for the report."""
    from timesink.render.gate import ci

    sys.stderr.write(ci.workflow_commands(result))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(ci.summary(result))
