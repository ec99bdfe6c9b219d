"""`timesink loop`: capture, diagnose, capture what is still open, and join it all in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timesink.cli import capture_options as given
from timesink.cli import options
from timesink.cli.capture_errors import translated
from timesink.cli.loop_stages import (
    UNEXPLAINED,
    Stages,
    joined,
    kernels_worth_it,
    stored_stages,
    unexplained_share,
    with_kernels,
)
from timesink.cli.output import sink
from timesink.cli.reading import read_traces
from timesink.cli.unprofiled import unprofiled_step_ms
from timesink.units import share_text
from timesink.whole_file import write_whole

if TYPE_CHECKING:
    from timesink.capture.captured import Capture
    from timesink.findings import Diagnosis
    from timesink.model.trace import Trace


def command(
    program: given.Program = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of all stages.")] = Path("loop"),
    steps: given.Active = 6,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    always: Annotated[
        bool, typer.Option("--all", help="Make every stage, also where nothing is left unexplained.")
    ] = False,
    timeout: given.Timeout = 3600,
    form: options.Form = None,
    no_color: options.NoColor = False,
) -> int:
    """Capture, diagnose, capture what is still open, and join it all.

    With torch.profiler first; where idle time stays unexplained, with nsys; the kernels that take most, with
    ncu. Stages that are there already are not made again, so an interrupted loop goes on where it was.
    """
    target = sink(form, None, no_color)
    with translated():
        from timesink.capture.running import is_python

        is_python(program or ())
        stages = Stages(out)
        shared: dict[str, Any] = {"timeout_s": timeout, "auto_ranges": True}
        made = Loop(tuple(program or ()), (settle, timed, steps), shared, stages, always)
        diagnosis = made.run()
    _write(out, diagnosis, stages)
    target.diagnosis(diagnosis)
    return 0


class Loop:
    """One run of the loop."""

    def __init__(
        self,
        program: Sequence[str],
        counts: tuple[int, int, int],
        shared: dict[str, Any],
        stages: Stages,
        always: bool,
    ) -> None:
        self._program = program
        self._counts = counts
        self._shared = shared
        self._stages = stages
        self._always = always

    def run(self) -> Diagnosis:
        """Torch, then nsys and ncu where they are worth it; the joined diagnosis."""
        from timesink.engine import diagnose

        first = self._stages.make("torch", "to name operators, gaps and kernels", self._torch)
        timeline = read_traces([first.folder])
        second = self._system(timeline)
        third = self._kernels(timeline)
        whole = timeline if third is None else with_kernels(timeline, read_traces(third.files))
        main = diagnose(whole, unprofiled_step_ms=unprofiled_step_ms(None, [first.folder]))
        if second is None:
            return main
        beside = diagnose(read_traces(second.files), unprofiled_step_ms=unprofiled_step_ms(None, [second.folder]))
        return joined(main, beside)

    def _system(self, timeline: Trace) -> Capture | None:
        share = unexplained_share(timeline)
        if share < UNEXPLAINED.default and not self._always:
            self._stages.skip("nsys", f"{share_text(share)} of the step is idle without a cause (limit 5 %)")
            return None
        return self._unless_missing("nsys", f"{share_text(share)} of the step is idle without a cause", self._nsys)

    def _kernels(self, timeline: Trace) -> Capture | None:
        patterns = kernels_worth_it(timeline)
        if not patterns:
            self._stages.skip("ncu", "no kernel takes 5 % of a step")
            return None
        why = f"kernels that take most of the step: {', '.join(patterns)}"
        return self._unless_missing("ncu", why, lambda out: self._ncu(out, patterns))

    def _unless_missing(self, name: str, why: str, capture: Any) -> Capture | None:
        """The stage, or a note where its tool is not on this machine or not permitted: the loop says so and goes on."""
        from timesink.capture.errors import CaptureError, Fault

        try:
            return self._stages.make(name, why, capture)
        except CaptureError as error:
            if error.fault is Fault.REQUEST:
                raise
            self._stages.skip(name, str(error))
            return None

    def _torch(self, out: Path) -> Capture:
        from timesink import capture

        return capture.torch(self._program, steps=self._steps(), out=out, **self._shared)

    def _nsys(self, out: Path) -> Capture:
        from timesink import capture

        return capture.nsys(self._program, steps=self._steps(), out=out, **self._shared)

    def _ncu(self, out: Path, patterns: Sequence[str]) -> Capture:
        from timesink import capture
        from timesink.capture.schedule import Steps

        settle, timed, _ = self._counts
        steps = Steps(settle + timed, 0, 0, 1)
        chosen: dict[str, Any] = {
            "kernels": "|".join(f"({pattern})" for pattern in patterns),
            "set_name": "full",
            "launch_count": 9,
        }
        common: dict[str, Any] = {**self._shared, "auto_ranges": False, "unprofiled": "none"}
        return capture.ncu(self._program, steps=steps, out=out, **chosen, **common)

    def _steps(self) -> Any:
        from timesink.capture.schedule import Steps

        settle, timed, active = self._counts
        return Steps(settle, timed, active=active)


def _write(out: Path, diagnosis: Diagnosis, stages: Stages) -> None:
    """The joined diagnosis for people and for programs, and what was made for it."""
    from timesink.reporters import render
    from timesink.reporters.formats import Format

    for name, form in (("diagnosis.md", Format.MD), ("diagnosis.json", Format.JSON)):
        write_whole(out / name, render(diagnosis, form))
    write_whole(out / "loop.json", stored_stages(stages))
