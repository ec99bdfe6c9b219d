"""From options to what experiments take: commands, step source, plan, and a session with a folder and a GPU watch."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.errors import UsageError
from timesink.scrub import scrub_sentence

if TYPE_CHECKING:
    from timesink.experiments.judge import Plan
    from timesink.experiments.processes import Command
    from timesink.experiments.runs import Session, Side
    from timesink.experiments.step_source import StepSource


def two_commands(
    before: str | None, after: str | None, toggle: str | None, program: Sequence[str]
) -> Mapping[Side, Command]:
    """The two sides: --before and --after, or one program with a variable toggled."""
    from timesink.experiments.processes import Command

    if toggle is None:
        if not (before and after) or program:
            raise UsageError(
                "two sides are needed", remedy="give --before 'CMD' and --after 'CMD', or --toggle NAME=A/B -- CMD..."
            )
        return {"before": Command.parse(before), "after": Command.parse(after)}
    name, equals, values = toggle.partition("=")
    old, slash, new = values.partition("/")
    if not (name and equals and slash) or before or after:
        raise UsageError(
            f"{toggle!r} toggles nothing", remedy="write --toggle NAME=A/B -- CMD..., without --before and --after"
        )
    both = one_command(program)
    return {"before": both.with_environment(**{name: old}), "after": both.with_environment(**{name: new})}


def one_command(program: Sequence[str]) -> Command:
    """The program after `--`."""
    from timesink.experiments.processes import Command

    if not program:
        raise UsageError("no program to run", remedy="write it after --, such as: -- python train.py")
    return Command(tuple(program))


def step_source(pattern: str | None, receipt: str | None, json_file: str | None) -> StepSource:
    """How steps are read; without an option the program calls timesink.step()."""
    from timesink.experiments.step_source import JsonFile, OutputPattern, StepsFile

    if pattern and json_file:
        raise UsageError("step times come from one place", remedy="give --step-pattern or --steps-json, not both")
    if receipt and not pattern:
        raise UsageError(
            "--receipt-pattern goes with --step-pattern", remedy="pass receipt= to timesink.step() instead"
        )
    if pattern:
        return OutputPattern.parse(pattern, receipt)
    if json_file:
        path, _, key = json_file.partition(":")
        return JsonFile(Path(path), key)
    return StepsFile()


def plan(threshold: str, looks: str, tolerance: str) -> Plan:
    """The plan the options describe."""
    from timesink.experiments.judge import Plan

    try:
        pairs = tuple(int(part) for part in looks.split(","))
    except ValueError:
        raise UsageError(f"{looks!r} are no numbers of pairs", remedy="write them as 6,12,18") from None
    return Plan(threshold_ratio=share(threshold), looks=pairs, receipt_tolerance_ratio=share(tolerance))


def share(text: str) -> float:
    """``2%`` or ``0.02``."""
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{text!r} is no share", remedy="write it as 2% or 0.02")
    return value


def facts(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE texts."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, equals, _) in zip(texts, pairs, strict=True) if not (name and equals)]:
        raise UsageError(f"{wrong[0]!r} is no fact", remedy="write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}


@contextmanager
def session(
    commands: Mapping[Side, Command], source: StepSource, timeout_s: float, keep: Path | None
) -> Iterator[Session]:
    """A session in a folder of its own, the GPU watched meanwhile. The folder goes unless it is to be kept."""
    from timesink.experiments.gpu_watch import GpuWatch, visible_devices
    from timesink.experiments.runs import Session

    with ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timesink-")))
        else:
            keep.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="session-", dir=keep))
        watch = stack.enter_context(GpuWatch(folder, visible_devices(commands.values())))
        yield Session(commands, source, folder, watch, timeout_s)


def tell(line: str) -> None:
    """Progress on stderr; reports go to stdout."""
    sys.stderr.write(f"{scrub_sentence(line)}\n")
    sys.stderr.flush()
