"""`timesink kernels`: what limits each profiled kernel, and how much it could gain at most.

`timesink roofline`: how near each profiled kernel comes to each roof, as a table and as a picture.

`timesink next`: the exact ncu command for the few kernels of a timeline that are worth it. `timesink classify`: every
operator beside its roofline, from a trace, a report, or the configuration of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from timesink.cli import completion
from timesink.cli.options import TRACES, NoCache, PageOutput, Paths, Reading, argument, flag, number_named, option
from timesink.cli.output import Sink, working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.model.record import dataclass
from timesink.render import Format
from timesink.render.tables import filled
from timesink.units import share_text, time_text
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.knowledge.gpus import GpuPeaks
    from timesink.model.trace import Trace
    from timesink.views.kernels import NextKernel
    from timesink.views.page import Page

_COMMAND_CHARACTERS = 2000

ReportFile = Annotated[
    Path, argument("REPORT", "A Nsight Compute report (.ncu-rep, .ncu-repz) or its CSV page (raw or details).")
]


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Which kernels, which figures of them, in which order."""

    numbers: Annotated[list[int] | None, option("--id", "N", "The sheet of this launch; may be repeated.")] = None
    name: Annotated[str | None, option("--name", "RE", "The sheets of kernels of such names.")] = None
    columns: Annotated[
        str | None,
        option("--columns", "A,B", "A table of these figures, named as in kernel_sheets of `timesink query --list`."),
    ] = None
    sort: Annotated[str | None, option("--sort", "A", "The largest of this figure first.")] = None
    limits: Annotated[
        list[str] | None, option("--limit", "NAME=VALUE", "Use this limit in a sheet's check; may be repeated.")
    ] = None

    least_bytes: Annotated[
        float | None,
        option(
            "--least-bytes",
            "BYTES",
            "What the kernel must read and write at least: its sheet compares what DRAM moved.",
            min=1,
        ),
    ] = None

    timeline: Annotated[
        Path | None,
        option(
            "--timeline",
            "TRACE",
            "A torch.profiler trace of the program with its shapes: what its operators must move is told.",
        ),
    ] = None

    @property
    def is_sheet(self) -> bool:
        """Whether whole sheets are asked for, not a table."""
        return bool(self.numbers or self.name is not None) and self.columns is None

    @property
    def column_names(self) -> list[str]:
        """The columns asked for."""
        return [name.strip() for name in (self.columns or "").split(",") if name.strip()]

    def overrides(self) -> dict[str, float]:
        """Limits of checks by name."""
        return dict(number_named(text, "NAME=VALUE, such as registers=96") for text in self.limits or ())


def command(
    report: ReportFile,
    against: Annotated[Path | None, option("--against", "REPORT", "Compare with this later report.")] = None,
    no_cache: NoCache = False,
    *,
    choice: KernelChoice,
    writing: PageOutput,
) -> int:
    """Show what limits each profiled kernel and the most it could gain.

    --id and --name print all that the report says of a kernel, with --timeline what its operator must move at least;
    --columns makes a table of chosen figures; --against puts a report made after a change beside it. With --format json
    `kernels` has one entry per launch, in report order.
    """
    target = writing.sink([path for path in (report, choice.timeline, against) if path is not None])
    trace = read_profiles(report, not no_cache, choice.timeline)
    with working("explaining the kernels"):
        if against is not None:
            _show_comparison(target, trace, read_profiles(against, not no_cache), choice)
        elif choice.columns is not None or choice.is_sheet:
            _show_sheets(target, trace, choice)
        elif target.form is Format.JSON:
            from timesink.views.kernels import kernel_entries

            target.show_entries({"kernels": kernel_entries(trace)})
        else:
            from timesink.views.kernel_sheet import chosen, sorted_by
            from timesink.views.kernels import kernels_page

            order = [sheet.kernel.profile for sheet in sorted_by(chosen(trace, [], None), choice.sort)]
            target.show(kernels_page(trace, order if choice.sort else None))
    return 0


def _show_comparison(target: Sink, before: Trace, after: Trace, choice: KernelChoice) -> None:
    """Two reports, with every figure of the kernels chosen; as JSON of all where none is."""
    from timesink.views.kernel_comparison import ReportPair, columns_page, comparison_entries, comparison_page
    from timesink.views.kernel_sheet import chosen, sorted_by

    both = ReportPair.of(before, after)
    pairs = both.only(sorted_by(chosen(before, choice.numbers or [], choice.name), choice.sort))
    if choice.columns is not None:
        target.show(columns_page(both, pairs, choice.column_names))
    elif target.form is Format.JSON:
        target.show_entries(comparison_entries(both, pairs))
    else:
        target.show(comparison_page(both, pairs if choice.is_sheet else ()))


def _show_sheets(target: Sink, trace: Trace, choice: KernelChoice) -> None:
    """The sheets, or one table of them."""
    from timesink.views import kernel_sheet as view

    sheets = view.sorted_by(
        view.chosen(trace, choice.numbers or [], choice.name), choice.sort if choice.is_sheet else None
    )
    least = view.least_of(sheets, choice.least_bytes, trace)
    if choice.columns is not None:
        target.show(view.table_page(sheets, choice.column_names, choice.sort))
    elif target.form is Format.JSON:
        target.show_entries({"kernels": view.sheet_entries(sheets, choice.overrides(), least)})
    elif target.form is Format.CSV:
        target.show(view.table_page(sheets, view.ALL_COLUMNS, choice.sort))
    else:
        target.show(view.sheets_page(sheets, choice.overrides(), least))


def read_profiles(path: Path, cache: bool, timeline: Path | None = None) -> Trace:
    """The file, and the timeline with it, as a trace that holds kernel profiles, else `UsageError`."""
    from timesink.model.tables import KERNEL_PROFILES

    trace = read_traces([path] if timeline is None else [path, timeline], cache=cache)
    if KERNEL_PROFILES not in trace:
        raise UsageError(
            f"{path} holds no kernel profiles",
            remedy="`timesink summary` lists the kernels of a timeline; for a kernel report see `timesink next`",
        )
    return trace


def roofline(
    report: ReportFile,
    svg: Annotated[bool, flag("--svg", "Write an SVG picture [default: where FILE ends in .svg].")] = False,
    against: Annotated[Path | None, option("--against", "REPORT", "Draw where this later report has them.")] = None,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Draw the roofline of profiled kernels.

    Peaks come from the report's own counters at the clock it was profiled at; a datasheet stands in where it has none,
    and the page says so. --against draws an arrow from each kernel to where it is in a later report.
    """
    target = writing.sink([report] if against is None else [report, against])
    trace = read_profiles(report, not no_cache)
    is_picture = svg or (target.path is not None and target.path.suffix.lower() == ".svg")
    if against is not None and not is_picture and target.form is not Format.HTML:
        raise UsageError(
            "arrows need a picture", remedy="add -o roof.svg or -o roof.html; `timesink kernels` compares in a table"
        )
    with working("drawing the roofline"):
        page = _under_roofs(report, trace, against, not no_cache)
        if is_picture:
            from timesink.render.svg import chart_file

            target.write(chart_file(page.charts[0]))
        else:
            target.show(page)
    return 0


def _under_roofs(report: Path, trace: Trace, against: Path | None, cache: bool) -> Page:
    """The page of one report, or of what moved between two."""
    if against is None:
        from timesink.views.roofline import roofline_page

        return roofline_page(report.name, trace)
    from timesink.views.kernel_comparison import moves_page

    return moves_page(f"{report.name} and {against.name}", trace, read_profiles(against, cache))


def next_command(
    paths: Paths,
    top: Annotated[int, option("--top", "N", "Kernels to look at.", min=1)] = 3,
    program: Annotated[str, option("--program", "CMD", "The program to profile.")] = "python train.py",
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Print the ncu command for the kernels worth a closer look.

    Chosen by their time in the steady steps. Each command skips the launches before the first steady step and profiles
    as many as the kernel has shapes, at most four.
    """
    target = writing.sink(paths)
    trace = read_traces(paths, cache=not no_cache)
    from timesink.views.kernels import next_kernels, next_page

    with working("choosing kernels"):
        chosen = next_kernels(trace, program, top)
    target.show(next_page(chosen)) if target.form is not Format.TEXT else target.write(_text(chosen, target.width))
    return 0


def _text(chosen: Sequence[NextKernel], width: int) -> str:
    """Each command on a line of its own, whole, so that it can be copied."""
    from timesink.views.kernels import NEXT_NOTES

    blocks = []
    for kernel in chosen:
        target = kernel.target
        shapes = f" of {target.grids} shapes" if target.grids > 1 else ""
        why = (
            f"{scrub(target.function)}: {time_text(target.step_ns)} of a step ({share_text(target.step_ratio)}), "
            f"{target.per_step} launches{shapes}, mean {time_text(target.mean_ns)}; "
            f"replays alone {time_text(kernel.replays_ns)} per launch"
        )
        blocks.append(f"{filled(why, width)}\n  {scrub(kernel.command, _COMMAND_CHARACTERS)}\n")
    return "\n".join(blocks) + "".join(f"\n{filled(f'note: {note}', width)}" for note in NEXT_NOTES) + "\n"


Format16 = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """A model that is not running."""

    model: Annotated[
        Path | None,
        option(
            "--model-config",
            "FILE",
            "Instead of a trace: a Hugging Face config.json, or a configuration of `memory plan`.",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        option(
            "--gpu",
            "NAME",
            "The GPU it would run on, such as H200; of a trace, the GPU it ran on where that is not known.",
            autocompletion=completion.gpus,
        ),
    ] = None
    batch: Annotated[int, option("--batch", "N", "Sequences at once.", min=1)] = 1
    sequence: Annotated[int, option("--sequence --seq", "N", "Tokens per sequence.", min=1)] = 2048
    dtype: Annotated[Format16, option("--dtype", "NAME", "Number format: bf16, fp16 or fp32.")] = "bf16"

    def page(self) -> Page:
        """Its operators."""
        from timesink.memory_plan.config import model_in
        from timesink.views.classify import planned_page

        assert self.model is not None
        if self.gpu is None:
            raise UsageError("which GPU the model would run on is not said", remedy="add --gpu H200, for one")
        return planned_page(model_in(self.model), _gpu(self.gpu), self.batch, self.sequence, self.dtype)


def classify(
    paths: Annotated[list[Path] | None, argument("PATH", TRACES)] = None,
    top: Annotated[int, option("--top", "N", "Rows per table.", min=1)] = 30,
    *,
    planned: PlannedModel,
    reading: Reading,
    writing: PageOutput,
) -> int:
    """Say of every operator what bounds it, how near it comes, and what to do.

    Operations and bytes are those of the recorded shapes (record_shapes=True), of the counters of a Nsight Compute
    report, or of a model's configuration: with --model-config and --gpu no trace is needed.
    """
    if (planned.model is None) == (not paths):
        raise UsageError(
            "give either a trace or --model-config", remedy="timesink classify TRACE, or --model-config FILE --gpu H200"
        )
    if planned.model is not None:
        writing.sink([planned.model]).show(planned.page())
        return 0
    given, named = paths or [], None if planned.gpu is None else _gpu(planned.gpu)
    target = writing.sink(given)
    trace = reading.trace(given)
    with working("classifying"):
        from timesink.model.tables import DEVICE_OPS, KERNEL_PROFILES
        from timesink.views.classify import classification_page, counters_page

        is_report = KERNEL_PROFILES in trace and not trace.get(DEVICE_OPS).height
        target.show(counters_page(trace, top) if is_report else classification_page(trace, top, named))
    return 0


def _gpu(name: str) -> GpuPeaks:
    """The GPU of that name; `UsageError` where none or several are meant."""
    from timesink.knowledge.gpus import ENTRIES, candidates

    found = candidates(name)
    if len(found) == 1:
        return found[0]
    products = ", ".join(entry.product for entry in found) or ", ".join(entry.product for _, entry in ENTRIES)
    raise UsageError(
        f"{name!r} may be several GPUs" if found else f"the peaks of {name!r} are not known",
        remedy=f"choose from: {products}",
    )
