"""`timesink next`: the exact ncu command for the few kernels of a timeline that are worth it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink
from timesink.cli.progress import working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.reporters.formats import Format
from timesink.scrub import scrub
from timesink.units import share_text, time_text

if TYPE_CHECKING:
    from timesink.measures.kernel_targets import KernelTarget
    from timesink.reporters.sheets import Page

# Replays of `--set full` on Hopper, from 34 reports of ncu 2025.3; the profiler adds its own overhead to each.
FULL_PASSES = 42
_MOST_LAUNCHES = 4
_COMMAND_CHARACTERS = 2000
_NOTES = (
    f"about {FULL_PASSES} replays per launch, each with the profiler's own overhead and with memory saved and restored",
    "launches are counted from the start of the trace: add those that the program makes before it",
    "then: timesink kernels report_*.ncu-rep, or timesink diagnose TRACE report_*.ncu-rep for the gain per step",
)


def command(
    paths: options.Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Kernels to look at.")] = 3,
    program: Annotated[
        str, typer.Option("--program", metavar="COMMAND", help="The program to profile.")
    ] = "python train.py",
    form: options.Form = None,
    output: options.Output = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Print the ncu command for the kernels worth a closer look.

    Chosen by their time in the steady steps. Each command skips the launches before the first steady step and profiles
    as many as the kernel has shapes, at most four.
    """
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, cache=not no_cache)
    with working("choosing kernels"):
        from timesink.measures.kernel_targets import kernel_targets

        chosen = kernel_targets(trace)[:top]
        if not chosen:
            raise UsageError("no kernel runs in the steady steps of this trace", remedy="give a trace with GPU kernels")
    if target.form is Format.TEXT:
        target.write(_text(chosen, program))
    else:
        target.page(_page(chosen, program))
    return 0


def ncu_command(target: KernelTarget, program: str) -> str:
    """The command that profiles a few steady launches of the kernel."""
    count = min(max(target.grids, 1), max(target.per_step, 1), _MOST_LAUNCHES)
    words = [
        "ncu",
        "--set",
        "full",
        "--import-source",
        "off",
        "--clock-control",
        "none",
        "--kernel-name-base",
        "function",
        "-k",
        target.pattern,
        "--launch-skip",
        str(target.skip),
        "--launch-count",
        str(count),
        "-o",
        f"report_{''.join(c if c.isalnum() else '_' for c in target.function)[:40]}",
    ]
    return f"{shlex.join(words)} {program}"


def _text(chosen: tuple[KernelTarget, ...], program: str) -> str:
    """Commands stand on lines of their own, whole, so that they can be copied."""
    blocks = []
    for one in chosen:
        shapes = f"{one.per_step} launches of {one.grids} shapes" if one.grids > 1 else f"{one.per_step} launches"
        blocks.append(
            f"{scrub(one.function)}: {time_text(one.step_ns)} of a step ({share_text(one.step_ratio)}), {shapes}, mean "
            f"{time_text(one.mean_ns)}; replays alone {time_text(one.mean_ns * FULL_PASSES)} per launch\n"
            f"  {scrub(ncu_command(one, program), _COMMAND_CHARACTERS)}\n"
        )
    return "\n".join(blocks) + "".join(f"\nnote: {note}" for note in _NOTES) + "\n"


def _page(chosen: tuple[KernelTarget, ...], program: str) -> Page:
    from timesink.reporters.sheets import Column, Page, Sheet

    columns = (
        Column("kernel", "kernel", is_name=True),
        Column("step_ns", "per step", "ns"),
        Column("step_ratio", "of step", "ratio"),
        Column("mean_ns", "mean", "ns"),
        Column("launches_per_step", "launches", "1"),
        Column("replay_ns", "replays alone", "ns"),
        Column("command", "command"),
    )
    rows = tuple(
        (
            one.function,
            one.step_ns,
            one.step_ratio,
            one.mean_ns,
            one.per_step,
            one.mean_ns * FULL_PASSES,
            ncu_command(one, program),
        )
        for one in chosen
    )
    return Page("kernels worth a closer look", (Sheet("next", "by time per steady step", columns, rows),), _NOTES)
