"""`timesink capture --loop`: capture, diagnose, capture what is still open, and join it all in one folder.

Each stage is made once, and taken from its folder when the loop runs again. With `--plan` it goes on rung by rung: the
plan of the newest capture, its first rung opened in a ledger with what is foretold of it, and with `--made` a capture
of the program with that rung made.

    DIR/torch                    the program as it was
    DIR/rung-1/torch, rung-2 …   with one more rung made
    DIR/session.sh               the captures of all stages, as commands
    DIR/ledger.jsonl             one entry a rung, opened before it was made
    DIR/plan.md, DIR/plan.json   the plan of the newest capture
    DIR/try.md, DIR/try.json     what the plan's changes won in the running program, where there is a GPU
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.manifest import Capture, gpus
from timesink.capture.recorded_run import MANIFEST
from timesink.cli.capturing.captured import translated
from timesink.cli.capturing.rungs import Rungs, write_stage
from timesink.cli.options import (
    FACT,
    NO_COLOR,
    PROGRAM,
    QUIET,
    SETTLE,
    TIMED,
    TIMEOUT,
    UNPROFILED,
    facts_of,
    of_run,
    read_traces,
)
from timesink.cli.output import sink, tell
from timesink.cli.parameters import Option
from timesink.errors import UsageError
from timesink.model.presentable import Origin
from timesink.records import Record, State, field
from timesink.render import Format
from timesink.units import share_text
from timesink.untrusted.masking import stored_command
from timesink.untrusted.whole_file import write_whole

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.views import Page


_LAUNCHES = 9  # of the kernels that ncu looks at


class LoopStage(Record):
    """One capture of the loop, or why it was not made."""

    name: str
    capture: Capture | None
    why: str
    resumed: bool = False
    options: Sequence[str] = ()


class Stages(State):
    """The loop's folder. `make` captures unless the stage's manifest is there; a broken attempt is moved aside."""

    folder: Path
    quiet: bool = False
    done: list[LoopStage] = field(default_factory=list)

    def make(self, name: str, why: str, capture: Callable[[Path], Capture], options: Sequence[str] = ()) -> Capture:
        """The stage's capture: taken up if it exists, else made now; `options` are those of `timesink capture`."""
        folder = self.folder / name
        resumed = (folder / MANIFEST).is_file()
        tell(f"loop: {name}: {'taken from ' + str(folder) if resumed else why}", self.quiet)
        if not resumed and folder.exists():
            folder.rename(_free_name(folder))
        stored = Capture.load(folder) if resumed else capture(folder)
        self.done.append(LoopStage(name, stored, why, resumed, options))
        return stored

    def skip(self, name: str, why: str) -> None:
        """The stage is not needed, or cannot be made."""
        tell(f"loop: {name}: left out: {why}", self.quiet)
        self.done.append(LoopStage(name, None, why))


def stored_stages(stages: Stages) -> str:
    """What was made and why, as JSON, for `loop.json`."""
    rows = [
        {
            "stage": stage.name,
            "why": stage.why,
            "resumed": stage.resumed,
            "folder": None if stage.capture is None else stage.capture.folder.name,
            "overhead_ratio": None if stage.capture is None else stage.capture.overhead_ratio,
            "missing": [] if stage.capture is None else list(stage.capture.missing),
        }
        for stage in stages.done
    ]
    return json.dumps(rows, indent=1) + "\n"


def session_script(stages: Stages) -> str:
    """The stages that were made as a shell script, to read and to run again, each with what it was for."""
    lines = ["#!/bin/sh", "set -e"]
    made = [(stage, stage.capture) for stage in stages.done if stage.capture is not None]
    for stage, stored in made:
        words = shlex.join([stage.name, *stage.options, "-o", str(stored.folder)])
        lines += [f"# {' '.join(stage.why.split())}", f"timesink capture {words} -- {stored.manifest['program']}"]
    folders = shlex.join(str(stored.folder) for stage, stored in made if stage.name != "nsys")
    return "\n".join([*lines, f"timesink diagnose {folders}", ""])


def _free_name(place: Path) -> Path:
    number = 1
    while (aside := place.with_name(f"{place.name}.incomplete-{number}")).exists():
        number += 1
    return aside


class LoopOptions(Record, kw_only=True):
    """How the stages run the program, and what is known of it."""

    steps: Annotated[int, Option("--steps", "N", "Steps to record.")] = 6
    settle: Annotated[int, SETTLE] = 5
    timed: Annotated[int, TIMED] = 10
    kernel_bench: Annotated[
        str | None,
        Option(
            "--kernel-bench",
            "CMD",
            "ncu runs on this program, one quoted command, that launches the same kernels and little else.",
        ),
    ] = None
    made: Annotated[
        bool,
        Option(
            "--made",
            "",
            "The change that --plan opened is made: capture anew, hold it against what was predicted, plan anew.",
        ),
    ] = False
    fact: Annotated[list[str] | None, FACT] = None
    timeout: Annotated[float, TIMEOUT] = 3600
    unprofiled: Annotated[float | None, UNPROFILED] = None
    quiet: Annotated[bool, QUIET] = False

    @property
    def shared(self) -> dict[str, Any]:
        """What every capture is told."""
        return {"timeout_s": self.timeout, "quiet": self.quiet, "facts": facts_of(self.fact)}

    @property
    def bench(self) -> tuple[str, ...]:
        """The words of the kernel bench; none where there is none. `UsageError` where they are no command."""
        try:
            words = tuple(shlex.split(self.kernel_bench or ""))
        except ValueError as fault:
            words, why = (), f": {fault}"
        else:
            why = ""
        if self.kernel_bench is not None and (not words or shutil.which(words[0]) is None):
            raise UsageError(
                f"--kernel-bench: {self.kernel_bench!r} starts no program{why}", remedy="write it as 'python bench.py'"
            )
        return words

    @property
    def words(self) -> list[str]:
        """What the timelines are recorded with, as options of `timesink capture`."""
        counts = {"--steps": self.steps, "--settle": self.settle, "--timed": self.timed}
        return ["--auto-ranges", *(word for name, count in counts.items() for word in (name, str(count)))]

    def schedule(self) -> Any:
        """Steps to settle, to time and to record."""
        from timesink.capture.schedule import StepSchedule

        return StepSchedule(self.settle, self.timed, active=self.steps)


def loop(
    program: Annotated[list[str] | None, PROGRAM] = None,
    out: Annotated[Path, Option("--output -o", "DIR", "Folder of all stages.")] = Path("loop"),
    form: Annotated[Format | None, Option("--format -f", "FORMAT", "", writes=("Diagnosis",))] = None,
    no_color: Annotated[bool, NO_COLOR] = False,
    with_plan: Annotated[
        bool,
        Option(
            "--plan",
            "",
            "Show what to change in which order too, keep it as plan.md and plan.json, open its first change.",
        ),
    ] = False,
    *,
    chosen: LoopOptions,
) -> int:
    """Capture, diagnose, capture what is still open, and join it all.

    With torch.profiler first; where idle time stays unexplained, with nsys; the kernels that take most, with
    ncu. Stages that are there already are not made again, so an interrupted loop goes on where it was.
    """
    target = sink(form, None, no_color)
    with translated():
        from timesink.capture.running import is_python
        from timesink.capture.tools import check_torch

        is_python(program or ())
        made = Loop(tuple(program or ()), chosen.bench, chosen, chosen.shared, Stages(out, chosen.quiet))
        rungs, first = Rungs(out, made.timeline), None
        if chosen.made:
            folder = rungs.next_folder()
            check_torch(made.program)
            Stages(folder.parent, chosen.quiet).make(folder.name, f"{folder.parent.name} is made", made.torch)
        else:
            _check_tools(program or (), out)
            first = made.run()
            write_stage(out / "diagnosis", first, target.origin)
            write_whole(out / "loop.json", stored_stages(made.stages))
            write_whole(out / "session.sh", session_script(made.stages))
    if first is not None and not with_plan:
        target.show(first)
        return 0
    trace, diagnosis = rungs.newest(first)
    if rungs.made:
        write_stage(rungs.folder(rungs.made).with_name("diagnosis"), diagnosis, target.origin)
    words = ["timesink", "capture", "--loop", "--made", *(() if out == Path("loop") else ("-o", str(out))), "--"]
    target.show(diagnosis)
    target.show(rungs.page(trace, diagnosis, target.origin, shlex.join(words) + " CMD"))
    if tried := _try_changes(made, out, target.origin):
        target.show(tried)
    return 0


def _try_changes(made: Loop, out: Path, origin: Origin) -> Page | None:
    """The page of a trial of the program as it is now, which is kept; None where there is no GPU to measure on."""
    from timesink.trials.course import try_changes
    from timesink.views.trial import trial_page

    if not gpus():
        return None
    tell("loop: try: to measure in the running program what the plan predicts", made.stages.quiet)
    try:
        answer = try_changes(made.program)
    except CaptureError as error:
        tell(f"loop: try: left out: {error}", made.stages.quiet)
        return None
    page = trial_page(answer, stored_command(made.program))
    write_stage(out / "try", page, origin)
    return page


class Loop(Record):
    """One run of the loop. `bench` is what ncu runs on, the program itself where it is empty; `shared` goes to every
    capture."""

    program: Sequence[str]
    bench: Sequence[str]
    chosen: LoopOptions
    shared: dict[str, Any]
    stages: Stages

    def run(self) -> Diagnosis:
        """Torch, then nsys and ncu where they are worth it; the joined diagnosis."""
        first = self.stages.make("torch", "to name operators, gaps and kernels", self.torch, self.chosen.words)
        from timesink.diagnosis.engine import diagnose
        from timesink.diagnosis.undiagnosable import joined, with_kernels

        timeline = read_traces([first.folder])
        second = self._system(timeline)
        third = self._kernels(timeline)
        trace = timeline if third is None else with_kernels(timeline, self._profiled(third))
        known, facts = self.chosen.unprofiled, self.shared["facts"]
        main = diagnose(of_run(trace, known, [first.folder], facts))
        if second is None:
            return main
        beside = of_run(read_traces(second.files), known, [second.folder], facts)
        return joined(main, diagnose(beside))

    def timeline(self, folder: Path) -> Trace:
        """A capture of this program with torch.profiler, with what is known of the run."""
        return of_run(read_traces([folder]), self.chosen.unprofiled, [folder], self.shared["facts"])

    def _profiled(self, stage: Capture) -> Trace:
        """The kernels that ncu profiled; a note where that was in another program, by what the stage says of itself."""
        trace = read_traces(stage.files)
        profiled = stage.manifest.get("program")
        if not isinstance(profiled, str) or profiled == stored_command(self.program):
            return trace
        from timesink.model.trace import ImportNote, NoteKind

        told = f"the kernels were profiled in {profiled}: its shapes are taken for those of the steps"
        return trace.with_notes(ImportNote(NoteKind.ASSUMED, told))

    def _system(self, timeline: Trace) -> Capture | None:
        from timesink.diagnosis.undiagnosable import UNEXPLAINED, unexplained_share

        share = unexplained_share(timeline)
        if share < UNEXPLAINED.default:
            self.stages.skip("nsys", f"{share_text(share)} of the step is idle without a cause (limit 5 %)")
            return None
        why = f"{share_text(share)} of the step is idle without a cause"
        return self._unless_missing("nsys", why, self._nsys, self.chosen.words)

    def _kernels(self, timeline: Trace) -> Capture | None:
        from timesink.diagnosis.undiagnosable import kernels_worth_it

        patterns = kernels_worth_it(timeline)
        if not patterns:
            self.stages.skip("ncu", "no kernel takes 5 % of a step")
            return None
        why = f"kernels that take most of the step: {', '.join(patterns)}"
        why += f", in {stored_command(self.bench)}" if self.bench else ""
        pattern = "|".join(f"({pattern})" for pattern in patterns)
        words = ["--kernels", pattern, "--set", "full", "--launch-count", str(_LAUNCHES)]
        words += ["--whole"] if self.bench else ["--settle", str(self.chosen.settle + self.chosen.timed)]
        made = self._unless_missing("ncu", why, lambda out: self._ncu(out, pattern), words)
        if made is not None and not made.files:
            tell(f"loop: ncu: {'; '.join(made.missing) or 'it profiled no kernel'}", self.chosen.quiet)
            return None
        return made

    def _unless_missing(self, name: str, why: str, capture: Any, words: Sequence[str]) -> Capture | None:
        """The stage, or a note where its tool is not on this machine or not permitted: the loop says so and goes on."""

        try:
            return self.stages.make(name, why, capture, words)
        except CaptureError as error:
            if error.fault is Fault.REQUEST:
                raise
            self.stages.skip(name, str(error))
            return None

    def torch(self, out: Path) -> Capture:
        """A capture with torch.profiler."""
        from timesink import capture

        return capture.torch(self.program, steps=self.chosen.schedule(), out=out, auto_ranges=True, **self.shared)

    def _nsys(self, out: Path) -> Capture:
        from timesink import capture

        return capture.nsys(self.program, steps=self.chosen.schedule(), out=out, auto_ranges=True, **self.shared)

    def _ncu(self, out: Path, pattern: str) -> Capture:
        from timesink import capture
        from timesink.capture.schedule import StepSchedule

        steps = StepSchedule(self.chosen.settle + self.chosen.timed, 0, 0, 1)
        chosen: dict[str, Any] = {
            "kernels": pattern,
            "set_name": "full",
            "launch_count": _LAUNCHES,
            "unprofiled": "none",
            "whole": bool(self.bench),
        }
        return capture.ncu(self.bench or self.program, steps=steps, out=out, **chosen, **self.shared)


def _check_tools(program: Sequence[str], out: Path) -> None:
    """`CaptureError` where the first stage cannot be made; a word on tools that later stages would miss."""
    from timesink.capture.tools import check_torch, find_installed

    absent = [name for name in ("torch", "nsys", "ncu") if not (out / name / MANIFEST).is_file()]
    if "torch" in absent:
        check_torch(program)
    for name in {"nsys", "ncu"}.intersection(absent):
        try:
            find_installed(name)
        except CaptureError as error:
            tell(f"loop: a stage with {name} would be left out: {error}")
