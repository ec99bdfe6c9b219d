"""Commands that compare runs or captures: verify, calibrate, compare, gate, baseline, ledger.

Options of those that run programs become what the package `verify` takes: commands, a source of step times, a plan, a
session with a folder of its own and a watch on the GPU, and the reports of a gate.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from timesink.cli import asked
from timesink.cli.options import (
    ALLOW_WRITES,
    EXIT_ZERO,
    FACT,
    PROGRAM,
    QUIET,
    THRESHOLD,
    PageOutput,
    facts_of,
    read_traces,
)
from timesink.cli.output import Sink, tell
from timesink.cli.parameters import Option
from timesink.errors import UsageError
from timesink.records import Record
from timesink.render import Format
from timesink.verify import LONGEST_RUN_S

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.verify.counters import Counter
    from timesink.verify.environment import Command
    from timesink.verify.experiment import ExperimentPlan
    from timesink.verify.outcomes import GateResult
    from timesink.verify.runs import Launcher, Side, StepSource


class Sides(Record, kw_only=True):
    """The programs that are compared: two commands, or one with a variable toggled."""

    program: Annotated[list[str] | None, PROGRAM] = None
    before: Annotated[str | None, Option("--before", "CMD", "The unchanged program, as one quoted command.")] = None
    after: Annotated[str | None, Option("--after", "CMD", "The changed program, as one quoted command.")] = None
    toggle: Annotated[str | None, Option("--toggle", "NAME=A/B", "The change is this variable: A before, B after.")] = (
        None
    )

    @property
    def are_two(self) -> bool:
        """Whether two sides are asked for, rightly or wrongly."""
        return bool(self.before or self.after or self.toggle)

    def commands(self) -> Mapping[Side, Command]:
        """The two sides. `UsageError` where the options do not name two."""
        if self.toggle is None:
            if not (self.before and self.after) or self.program:
                raise UsageError(
                    "two sides are needed",
                    remedy="give --before 'CMD' and --after 'CMD', or --toggle NAME=A/B -- CMD...",
                )
            from timesink.verify.environment import Command

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
    words = tuple(asked.program(program, "run"))
    from timesink.verify.environment import Command

    return Command(words)


class StepTimeOptions(Record, kw_only=True):
    """Where the times of steps are read; without an option steps are handed over by timesink.step() or found."""

    whole: Annotated[
        bool, Option("--whole", "", "Compare whole runs, from start to end: for programs without steps.")
    ] = False
    most_steps: Annotated[
        int | None, Option("--steps", "N", "End each run after N steps [default: at its end].", least=2, rare=True)
    ] = None
    step_pattern: Annotated[
        str | None,
        Option(
            "--step-pattern",
            "REGEX",
            "Read step times from the output; a group (?P<ms>...) (or s, us, ns) holds value and unit.",
            rare=True,
            must=asked.expression_of("--step-pattern"),
        ),
    ] = None
    check_pattern: Annotated[
        str | None,
        Option(
            "--check-pattern",
            "REGEX",
            "What each run printed of its result (a loss, a checksum); the last match must agree.",
            rare=True,
            must=asked.expression_of("--check-pattern"),
        ),
    ] = None
    steps_json: Annotated[
        str | None,
        Option(
            "--steps-json",
            "FILE[:KEY]",
            "Read step times from a JSON file that every run writes; a key ending in _ms, _us, _ns says the unit.",
            rare=True,
        ),
    ] = None

    def source(self) -> StepSource:
        """The source of step times that the options describe."""
        given = {"--whole": self.whole, "--step-pattern": self.step_pattern, "--steps-json": self.steps_json}
        if len(chosen := [name for name, value in given.items() if value]) > 1:
            raise UsageError("step times come from one place", remedy=f"give {' or '.join(chosen)}, not both")
        if chosen and self.most_steps:
            raise UsageError(
                f"--steps ends no run with {chosen[0]}", remedy=f"leave one of --steps and {chosen[0]} out"
            )
        if self.steps_json and self.check_pattern:
            raise UsageError(
                "--check-pattern reads the output", remedy="write the key check into the file of --steps-json"
            )
        from timesink.verify.runs import FoundSteps, JsonFile, OutputPattern, WholeRuns, check_pattern

        if self.steps_json:
            path, _, key = self.steps_json.partition(":")
            return JsonFile(Path(path), key)
        if self.step_pattern:
            return OutputPattern.parse(self.step_pattern, self.check_pattern)
        check = check_pattern(self.check_pattern)
        return WholeRuns(check) if self.whole else FoundSteps(self.most_steps, check)

    @property
    def facts(self) -> Mapping[str, str]:
        """What makes another work of the same command: whole runs are not held against steps."""
        return {"times": "whole"} if self.whole else {}


class Looks(Record, kw_only=True):
    """When the pairs of runs are looked at, what of them, and which change matters."""

    threshold: Annotated[str, THRESHOLD] = "2%"
    statistic: Annotated[
        Literal["mean", "median"],
        Option(
            "--statistic", "", "What decides of each run's steps; the median is blind to rare slow ones.", rare=True
        ),
    ] = "mean"
    at_least: Annotated[
        str | None,
        Option(
            "--at-least",
            "RATIO",
            "Fail unless this speed-up is proven, such as 1.1 for 10 % more steps in the same time.",
            must=asked.speed_up,
        ),
    ] = None
    pairs: Annotated[
        str,
        Option("--pairs", "N,N,...", "Numbers of pairs after which to look [6,12,18,30].", rare=True, must=asked.pairs),
    ] = ""
    check_tolerance: Annotated[
        str,
        Option(
            "--check-tolerance", "SHARE", "Results that are numbers may differ by this.", rare=True, must=asked.share
        ),
    ] = "0"

    def plan(self, within_s: float = math.inf) -> ExperimentPlan:
        """The plan that the options describe: where they ask for no pairs, as many as fit in so many seconds."""
        from timesink.verify import limits
        from timesink.verify.experiment import ExperimentPlan

        return ExperimentPlan(
            threshold_ratio=asked.share(self.threshold),
            looks=asked.pairs(self.pairs) if self.pairs else limits.LOOKS,
            within_s=math.inf if self.pairs else within_s,
            check_tolerance_ratio=asked.share(self.check_tolerance),
            statistic=self.statistic,
            least_speed_up=None if self.at_least is None else asked.speed_up(self.at_least),
        )


class WorkFacts(Record, kw_only=True):
    """What the program does, so far as its command line does not say it."""

    config_file: Annotated[
        list[Path] | None,
        Option(
            "--config-file", "FILE", "A file that is part of the work; may be repeated.", rare=True, must=asked.there
        ),
    ] = None
    fact: Annotated[list[str] | None, FACT] = None

    def workload(self, command: Command, more: Mapping[str, str]) -> str:
        """The key under which runs of the same work are kept; `more` facts of it."""
        from timesink.verify.environment import workload

        return workload(command, self.config_file or (), {**facts_of(self.fact), **more})


class RunSession(Record, kw_only=True):
    """How long a run may take, and whether it tells how far it is."""

    timeout: Annotated[float, Option("--timeout", "S", "Longest a single run may take, in seconds.", rare=True)] = (
        LONGEST_RUN_S
    )
    allow_writes: Annotated[bool, ALLOW_WRITES] = False
    quiet: Annotated[bool, QUIET] = False

    def tell(self, line: str) -> None:
        """A line of progress."""
        tell(line, self.quiet)

    def launcher(self, commands: Mapping[Side, Command], source: StepSource) -> AbstractContextManager[Launcher]:
        """A launcher with a folder of its own, the GPU watched meanwhile. The folder goes."""
        from timesink.verify.gate import launching

        return launching(commands, source, self.timeout, self.allow_writes)


def captured(paths: Sequence[Path] | None) -> Trace | None:
    """The profile, compiler logs next to it included; None where there is none."""
    return read_traces(paths) if paths else None


def counters(metrics: Path | None, profile: Trace | None) -> dict[str, Counter]:
    """Counters from a file of the user's and from a profile."""
    from timesink.verify.counters import captured_metrics, read_counters

    found = captured_metrics(profile) if profile else {}
    return {**found, **(read_counters(metrics) if metrics else {})}


class GateOutput(PageOutput, kw_only=True):
    """Where the result of a gate goes, and what the exit code says of it."""

    form: Annotated[Format | None, Option("--format -f", "FORMAT", writes=("GateResult",))] = None
    junit_xml: Annotated[
        Path | None, Option("--junit-xml", "FILE", "Also as JUnit XML.", rare=True, must=asked.place)
    ] = None
    comment: Annotated[
        Path | None,
        Option("--comment", "FILE", "Also as a pull-request comment (Markdown).", rare=True, must=asked.place),
    ] = None
    strict: Annotated[bool, Option("--strict", "", "Exit with 3 if inconclusive.")] = False
    exit_zero: Annotated[bool, EXIT_ZERO] = False

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
