"""Runs of a comparison: the order of the sides, how a program hands over its step times, and one row per run.

The program hands its step times over (``timesink.step()``, its output, a JSON file that it writes), or the agent in it
finds and times its steps as in a capture, and records nothing. Programs without steps are compared by whole runs. Two
functions of this process are timed in turns: what differs from one process to the next falls out.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from timesink.capture.agent.marks import StepMark
from timesink.capture.errors import A_STEP
from timesink.capture.in_program import VARIABLE, gpu_wait
from timesink.capture.running import agent_environment
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.errors import ToolFailed, UsageError
from timesink.model.arrays import median
from timesink.records import Record, as_plain, field, replace
from timesink.sandbox.runs import Sandbox
from timesink.untrusted.plain_json import parsed
from timesink.verify import LONGEST_RUN_S, limits
from timesink.verify.environment import Command, Finished, probe_host, run
from timesink.verify.gpu_watch import GpuWatch
from timesink.verify.hindrances import grain_of, told_in
from timesink.verify.outcomes import RunRow
from timesink.verify.statistics import steady_part

Side = Literal["before", "after"]
SIDES: tuple[Side, Side] = ("before", "after")


_ORDER: Final = (0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 0)  # who of `SIDES` goes first


def pair_order(pair: int) -> tuple[Side, Side]:
    """Who goes first in pair 0, 1, 2, ...: an order that keeps time with nothing, repeated after 18 pairs.

    What swings with the runs and has the period of the order would hit one side only, pair after pair, as a change
    does; ABBA repeated takes a swing of eight runs for one. Among all orders of 18 pairs this one was chosen: a swing
    of one period, whichever it is, or linear drift, leaves each look's interval on both sides of 0 where nothing else
    differs, and drift cancels over 12 and 18 pairs.
    """
    first = _ORDER[pair % len(_ORDER)]
    return SIDES[first], SIDES[1 - first]


class Launcher(Record):
    """What all runs of a comparison share: commands, step source, output folder, GPU watch, time limit per run."""

    commands: Mapping[Side, Command]
    source: StepSource
    folder: Path
    watch: GpuWatch
    timeout_s: float = LONGEST_RUN_S
    box: Sandbox | None = None

    def launch(self, side: Side, number: int) -> RunRow:
        """One run in a fresh process. Raises `ToolFailed` where it fails or hands over no steps."""
        folder = self.folder / f"run{number:03d}_{side}"
        folder.mkdir(mode=0o700)
        foreign = self.watch.foreign_processes()
        command = self.commands[side]
        extra = self.source.environment(folder, {**os.environ, **command.environment})
        probed_s = probe_host()
        finished = run(command, folder, extra=extra, timeout_s=self.timeout_s, box=self.box)
        try:
            probed_s = (probed_s + probe_host()) / 2
            row = summarise(self.source.collect(folder, finished), side, number)
        finally:
            finished.close()
        state = as_plain(self.watch.state(finished.started_s, finished.ended_s, foreign))
        row = replace(row, outside_s=finished.seconds, probe_s=probed_s)
        return replace(row, **{name: state[name] for name in state if name != "samples"})


_PERCENTILE = 95


def summarise(times: RunSteps, side: str, number: int) -> RunRow:
    """Condense a run to its steady part: mean (what throughput is made of), median, 95th percentile, seconds."""
    steady = steady_part(times.seconds)
    return RunRow(
        number=number,
        side=side,
        mean_s=float(steady.kept.mean()),
        median_s=median(steady.kept),
        p95_s=float(np.percentile(steady.kept, _PERCENTILE)),
        steps=len(times.seconds),
        dropped=steady.dropped,
        settled=steady.settled,
        drift_ratio=steady.drift_ratio,
        mark=times.mark,
        check=times.check,
        slope_ratio=steady.slope_ratio,
        steps_s=times.length_s or sum(times.seconds),
        grain_s=grain_of(times.seconds, times.told_in_s or 0.0) if times.told_in_s is not None else 0.0,
        told=times.told_in_s is not None,
    )


_SECONDS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MOST_BYTES = 256 * 1024 * 1024


class RunSteps(Record):
    """One run's step times in seconds, in order, and its last check where it gave one.

    `mark` is what ended a step where that was found and not handed over: optimizer, profiler, forward, loader. `WHOLE`:
    the only time is that of the whole run. `told_in_s` is the unit of the last digit where the program told its times;
    None where they were taken by a clock of ours. `length_s`: what they add up to on the rank that took longest.
    """

    seconds: tuple[float, ...]
    check: str | None = None
    mark: str = ""
    told_in_s: float | None = None
    length_s: float | None = None


class StepsSeen:
    """A source of step times that needs nothing in the environment of the run."""

    __slots__ = ()

    def environment(self, folder: Path, given: Mapping[str, str]) -> Mapping[str, str]:
        """What the run needs in its environment: nothing, as it is timed or read from outside."""
        return {}


class StepsFile(Record):
    """The program calls ``timesink.step()`` or writes the same lines itself to the path in TIMESINK_STEPS."""

    def environment(self, folder: Path, given: Mapping[str, str]) -> Mapping[str, str]:
        """What the run needs in its environment."""
        return {VARIABLE: str(folder / "steps.jsonl")}

    def collect(self, folder: Path, finished: Finished) -> RunSteps:
        """Steps of every rank; one value per step is the slowest rank's, since synchronous ranks wait for it."""
        handed = read_handed_over(folder)
        if handed is None:
            remedy = "call timesink.step() once per step, or state --step-pattern or --steps-json"
            raise ToolFailed("the program handed over no step times", remedy=remedy)
        return handed


def read_handed_over(folder: Path) -> RunSteps | None:
    """What the program's ranks wrote by ``timesink.step()``; None where they wrote nothing."""
    ranks = [rank for path in sorted(folder.glob("steps.jsonl*")) if (rank := _read_lines(path))]
    if not ranks:
        return None
    checks = [str(line["check"]) for line in ranks[0] if line.get("check") is not None]
    told = [[line.get("seconds") for line in rank] for rank in ranks]
    seconds, length_s = slowest(told), max(sum(slowest([rank])) for rank in told)
    unit_s = told_in([value for rank in told for value in rank], 1.0)
    return RunSteps(seconds, checks[-1] if checks else None, told_in_s=unit_s, length_s=length_s)


def slowest(ranks: Sequence[Sequence[object]]) -> tuple[float, ...]:
    """Each step's time on the rank that takes longest, up to the last step that all ranks made."""
    return tuple(max(_seconds(value, at) for value in step) for at, step in enumerate(zip(*ranks, strict=False)))


class FoundSteps(Record):
    """Steps of a program that runs as it is, found as a capture finds them and timed by the agent in it.

    What the program hands over itself comes first. `most`: end the program after so many steps. `check` is looked for
    in its output.
    """

    most: int | None = None
    check: re.Pattern[str] | None = None

    def environment(self, folder: Path, given: Mapping[str, str]) -> Mapping[str, str]:
        """The file for handed-over steps, and what wakes the agent."""
        schedule = StepSchedule(settle=1, timed=0, warm_up=0, active=self.most or 1)
        plan = AgentPlan(Mode.STEPS, str(folder.absolute()), schedule, stop=self.most is not None)
        return {VARIABLE: str(folder / "steps.jsonl"), **agent_environment(plan, given)}

    def collect(self, folder: Path, finished: Finished) -> RunSteps:
        """Handed-over steps, else those of the best mark that any process saw. `UsageError` where there are none."""
        handed, found = read_handed_over(folder), self._found(folder)
        printed = last_check(self.check, output_of(finished)) if self.check else None
        if handed is not None:
            timed = found is not None and found.mark == "explicit" and len(found.seconds) == len(handed.seconds)
            steps = found if found is not None and timed else handed
            return replace(steps, check=handed.check or printed, mark="")
        if found is None:
            raise UsageError(
                f"no step was seen in the program (none of: {A_STEP})",
                remedy="compare whole runs with --whole, call timesink.step() once per step, "
                "or state --step-pattern or --steps-json",
            )
        return replace(found, check=printed)

    def _found(self, folder: Path) -> RunSteps | None:
        """Of each rank the process with the best mark, and of those the one with most steps."""
        seen = [
            facts for path in sorted(folder.glob("found-*.json")) for facts in _read_lines(path) if facts["steps_ms"]
        ]
        if not seen:
            return None
        best = max(_MARKS.index(facts["mark"]) for facts in seen)
        ranks: dict[int, list[float]] = {}
        for facts in seen:
            times_ms = facts["steps_ms"]
            if _MARKS.index(facts["mark"]) == best and len(times_ms) > len(ranks.get(facts["rank"], ())):
                ranks[facts["rank"]] = times_ms
        seconds = tuple(ms / 1e3 for ms in slowest(list(ranks.values())))
        return RunSteps(seconds, mark=_MARKS[best], length_s=max(map(sum, ranks.values())) / 1e3)


_MARKS = [mark.name.lower() for mark in StepMark]
WHOLE = "whole"


class WholeRuns(StepsSeen, Record):
    """The program is not looked into: a run counts as one step, from its start to its end."""

    check: re.Pattern[str] | None = None

    def collect(self, folder: Path, finished: Finished) -> RunSteps:
        """One time."""
        return RunSteps((finished.seconds,), last_check(self.check, output_of(finished)), WHOLE)


class OutputPattern(StepsSeen, Record):
    """A regular expression whose named group says value and unit: ``step time (?P<ms>[0-9.]+)`` (s, ms, us or ns)."""

    expression: re.Pattern[str]
    check: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, expression: str, check: str | None = None) -> OutputPattern:
        """`UsageError` where the expression is broken or names no unit."""
        compiled = _compile(expression)
        if len(set(compiled.groupindex) & set(_SECONDS)) != 1:
            raise UsageError(
                f"the step pattern {expression!r} has no group that names a unit",
                remedy="write one of (?P<s>...), (?P<ms>...), (?P<us>...), (?P<ns>...)",
            )
        return cls(compiled, check_pattern(check))

    def collect(self, folder: Path, finished: Finished) -> RunSteps:
        """Every match on standard output, then on standard error, in order."""
        text = output_of(finished)
        unit = next(name for name in self.expression.groupindex if name in _SECONDS)
        found = [match.group(unit) for match in self.expression.finditer(text)]
        if not found:
            what = f"the step pattern {self.expression.pattern!r} matches nothing in the program's output"
            raise ToolFailed(what, remedy="run the program once and try the pattern on one line of it")
        seconds = tuple(_seconds(value, index) * _SECONDS[unit] for index, value in enumerate(found))
        return RunSteps(seconds, last_check(self.check, text), told_in_s=told_in(found, _SECONDS[unit]))


class JsonFile(StepsSeen, Record):
    """A JSON file that the program writes in every run: a list of numbers, or an object with one at `key`.

    The unit is the key's ending (``step_times_ms``); a bare list is seconds.
    """

    path: Path
    key: str = ""
    check_key: str = "check"

    def collect(self, folder: Path, finished: Finished) -> RunSteps:
        """`ToolFailed` where the file is missing, older than the run, or holds no such list."""
        path = finished.found(self.path)
        if not path.is_file() or path.stat().st_mtime < finished.started_s - 1:
            remedy = "check --steps-json against what the program writes"
            raise ToolFailed(f"the run did not write {self.path}", remedy=remedy)
        try:
            content: Any = parsed(_read_text(path))
        except ValueError as broken:
            raise ToolFailed(f"{self.path} is no JSON: {broken}") from broken
        values = content.get(self.key) if self.key and isinstance(content, dict) else content
        if not isinstance(values, list) or not values:
            what = f"{self.path} holds no list of step times at {self.key or 'its top'!r}"
            raise ToolFailed(what, remedy="state --steps-json PATH:KEY")
        scale = next((size for name, size in _SECONDS.items() if self.key.endswith(f"_{name}")), 1.0)
        check = content.get(self.check_key) if isinstance(content, dict) else None
        seconds = tuple(_seconds(value, index) * scale for index, value in enumerate(values))
        return RunSteps(seconds, None if check is None else str(check), told_in_s=told_in(values, scale))


StepSource = StepsFile | FoundSteps | WholeRuns | OutputPattern | JsonFile


def check_pattern(expression: str | None) -> re.Pattern[str] | None:
    """What finds the check in a program's output, if it is to be looked for. `UsageError` where it is broken."""
    return _compile(expression) if expression else None


def output_of(finished: Finished) -> str:
    """Standard output, then standard error."""
    return _read_text(finished.stdout) + "\n" + _read_text(finished.stderr)


def last_check(pattern: re.Pattern[str] | None, text: str) -> str | None:
    """The last match's first group (or the whole match) in the program's output."""
    matches = list(pattern.finditer(text)) if pattern else []
    return (matches[-1].group(1) if matches[-1].re.groups else matches[-1].group()) if matches else None


def same_check(one: str, other: str, tolerance_ratio: float) -> bool:
    """Equal as text, or finite numbers within the relative tolerance. NaN equals nothing: it is a wrong result."""
    try:
        left, right = float(one), float(other)
    except ValueError:
        return one == other
    return math.isfinite(left) and math.isclose(left, right, rel_tol=tolerance_ratio)


def _compile(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression, re.MULTILINE)
    except re.error as broken:
        raise UsageError(f"the pattern {expression!r} is not a regular expression: {broken}") from broken


def _read_text(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise ToolFailed(f"{path} is larger than {_MOST_BYTES} bytes", remedy="print less in the timed runs")
    return path.read_text("utf-8", "replace")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        try:
            row = parsed(line)
        except ValueError as broken:
            raise ToolFailed(f"{path.name} line {number} is no JSON: {line[:80]!r}") from broken
        if not isinstance(row, dict):
            raise ToolFailed(f"{path.name} line {number} is not an object: {line[:80]!r}")
        rows.append(row)
    return rows


def _seconds(value: object, index: int) -> float:
    """A positive finite number, or `ToolFailed` naming the step."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ToolFailed(f"step {index + 1} has no time: {value!r}") from None
    if not math.isfinite(seconds) or seconds <= 0:
        raise ToolFailed(f"step {index + 1} took {value!r}", remedy="check the pattern or the clock that was read")
    return seconds


_STEP_S, _RUN_S, _LEAST_STEPS = 1e-3, 1.0, 8


class CallsInTurns(Record):
    """Times both sides, as `experiment.verify` asks for it. A step is as many calls as take a millisecond, and ends
    once the GPU is idle; a run is `WANTED_STEPS` steps, or those of a second."""

    bodies: Mapping[Side, Callable[[], object]]
    _calls: dict[Side, int] = field(default_factory=dict)

    def launch(self, side: Side, number: int) -> RunRow:
        """One run; its times are those of a call, in seconds."""
        body, seconds = self.bodies[side], list[float]()
        if side not in self._calls:
            _time(body, 1)  # what only a first call does
            self._calls[side] = math.ceil(_STEP_S / max(_time(body, 1), 1e-9))
        calls = self._calls[side]
        while len(seconds) < limits.WANTED_STEPS and (len(seconds) < _LEAST_STEPS or sum(seconds) * calls < _RUN_S):
            seconds.append(_time(body, calls) / calls)
        return summarise(RunSteps(tuple(seconds)), side, number)


def _time(body: Callable[[], object], calls: int) -> float:
    wait = gpu_wait() or int
    wait()
    started = time.perf_counter()
    for _ in range(calls):
        body()
    wait()
    return time.perf_counter() - started
