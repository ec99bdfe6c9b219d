"""From options to what experiments take: commands, step source, plan, and a session with a folder and a GPU watch.

Options of the commands that run programs, declared once so that they mean the same everywhere.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli.options import format_option
from timesink.errors import UsageError
from timesink.render.formats import Format

if TYPE_CHECKING:
    from timesink.verify.experiment import ExperimentPlan
    from timesink.verify.processes import Command
    from timesink.verify.runs import Launcher, Side, StepSource


def two_commands(
    before: str | None, after: str | None, toggle: str | None, program: Sequence[str]
) -> Mapping[Side, Command]:
    """The two sides: --before and --after, or one program with a variable toggled."""
    from timesink.verify.processes import Command

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
    from timesink.verify.processes import Command

    if not program:
        raise UsageError("no program to run", remedy="write it after --, such as: -- python train.py")
    return Command(tuple(program))


def step_source(pattern: str | None, receipt: str | None, json_file: str | None) -> StepSource:
    """How steps are read; without an option the program calls timesink.step()."""
    from timesink.verify.runs import JsonFile, OutputPattern, StepsFile

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


def plan(threshold: str, looks: str, tolerance: str) -> ExperimentPlan:
    """The plan the options describe."""
    from timesink.verify.experiment import ExperimentPlan

    try:
        pairs = tuple(int(part) for part in looks.split(","))
    except ValueError:
        raise UsageError(f"{looks!r} are no numbers of pairs", remedy="write them as 6,12,18") from None
    return ExperimentPlan(threshold_ratio=share(threshold), looks=pairs, receipt_tolerance_ratio=share(tolerance))


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
) -> Iterator[Launcher]:
    """A session in a folder of its own, the GPU watched meanwhile. The folder goes unless it is to be kept."""
    from timesink.verify.gpu_watch import GpuWatch, visible_devices
    from timesink.verify.runs import Launcher

    with ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timesink-")))
        else:
            keep.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="session-", dir=keep))
        watch = stack.enter_context(GpuWatch(folder, visible_devices(commands.values())))
        yield Launcher(commands, source, folder, watch, timeout_s)


Form = Annotated[Format | None, format_option("Page", "GateResult")]
Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- CMD...", help="The program and its arguments; no shell runs.", show_default=False),
]
Before = Annotated[
    str | None,
    typer.Option("--before", metavar="CMD", help="The unchanged program, as one quoted command.", show_default=False),
]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="CMD", help="The changed program, as one quoted command.", show_default=False),
]
Toggle = Annotated[
    str | None,
    typer.Option(
        "--toggle", metavar="NAME=A/B", help="The change is this variable: A before, B after.", show_default=False
    ),
]
StepPattern = Annotated[
    str | None,
    typer.Option(
        "--step-pattern",
        metavar="REGEX",
        help="Read step times from the output; a group (?P<ms>...) (or s, us, ns) holds value and unit.",
        show_default=False,
    ),
]
ReceiptPattern = Annotated[
    str | None,
    typer.Option(
        "--receipt-pattern",
        metavar="REGEX",
        help="With --step-pattern: what each run computed (a loss, a checksum); its last match must agree.",
        show_default=False,
    ),
]
StepsJson = Annotated[
    str | None,
    typer.Option(
        "--steps-json",
        metavar="FILE[:KEY]",
        help="Read step times from a JSON file that every run writes; a key ending in _ms, _us, _ns says the unit.",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="S", help="Longest a single run may take, in seconds.")]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Keep every run's output and steps in this folder.", show_default=False),
]
Threshold = Annotated[
    str, typer.Option("--threshold", metavar="SHARE", help="Changes of step time under this do not matter.")
]
Looks = Annotated[str, typer.Option("--pairs", metavar="N,N,...", help="Numbers of pairs after which to look.")]
WarmUpPairs = Annotated[
    int,
    typer.Option(
        "--warm-up-pairs", min=0, metavar="N", help="Pairs run first and not counted; 0 where caches are already warm."
    ),
]
Tolerance = Annotated[
    str, typer.Option("--receipt-tolerance", metavar="SHARE", help="Receipts that are numbers may differ by this.")
]
Suite = Annotated[str, typer.Option("--suite", metavar="NAME", help="Name of what is compared, in reports and files.")]
Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="Where baselines, calibrations and the ledger lie.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 where nothing can be said.")]
LedgerEntry = Annotated[
    int | None,
    typer.Option("--ledger", metavar="N", help="Close this entry of the ledger with the outcome.", show_default=False),
]
Junit = Annotated[
    Path | None, typer.Option("--junit-xml", metavar="FILE", help="Also as JUnit XML.", show_default=False)
]
OpenMetrics = Annotated[
    Path | None, typer.Option("--openmetrics", metavar="FILE", help="Also as OpenMetrics text.", show_default=False)
]
CodeQuality = Annotated[
    Path | None,
    typer.Option("--gitlab-codequality", metavar="FILE", help="Also as GitLab Code Quality.", show_default=False),
]
Comment = Annotated[
    Path | None,
    typer.Option("--comment", metavar="FILE", help="Also as a pull-request comment (Markdown).", show_default=False),
]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-file", metavar="FILE", help="A file that is part of the work; may be repeated.", show_default=False
    ),
]
Facts = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="NAME=VALUE",
        help="A fact of the work (shape, world size); may be repeated.",
        show_default=False,
    ),
]
