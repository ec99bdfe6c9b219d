"""`timesink kernels`: what limits each profiled kernel, and how much it could gain at most.

`--roofline`: how near each comes to each roof, as a table and as a picture. `--next`: the exact ncu command for the few
kernels of a timeline that are worth it. `--metrics`: names of metrics against a chip, before a run is spent on them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli import asked, completion
from timesink.cli.options import NO_CACHE, PATHS, PageOutput, read_traces
from timesink.cli.output import Sink, working
from timesink.cli.parameters import Argument, Option
from timesink.errors import UsageError
from timesink.records import Record
from timesink.render import Format
from timesink.render.tables import filled
from timesink.units import share_text, time_text
from timesink.untrusted import scrub
from timesink.views import Page, sheet_of

if TYPE_CHECKING:
    from timesink.knowledge.metric_names import NameVerdict
    from timesink.model.trace import Trace
    from timesink.views.kernels import NextKernel


_COMMAND_CHARACTERS = 2000


class KernelChoice(Record):
    """Which kernels, which figures of them, in which order."""

    numbers: Annotated[list[int] | None, Option("--id", "N", "The sheet of this launch; may be repeated.")] = None
    name: Annotated[
        str | None, Option("--name", "RE", "The sheets of kernels of such names.", must=asked.expression)
    ] = None
    columns: Annotated[
        str | None,
        Option(
            "--columns",
            "A,B",
            "A table of these figures, named as in kernel_sheets of `timesink query REPORT`.",
            must=asked.columns,
        ),
    ] = None
    sort: Annotated[str | None, Option("--sort", "A", "The largest of this figure first.", must=asked.columns)] = None
    limits: Annotated[
        list[str] | None,
        Option("--limit", "NAME=VALUE", "Use this limit in a sheet's check; may be repeated.", must=asked.sheet_limit),
    ] = None

    least_bytes: Annotated[
        float | None,
        Option(
            "--least-bytes",
            "BYTES",
            "What the kernel must read and write at least: its sheet compares what DRAM moved.",
            least=1,
        ),
    ] = None

    timeline: Annotated[
        Path | None,
        Option(
            "--timeline",
            "TRACE",
            "A torch.profiler trace of the program with its shapes: what its operators must move is told.",
            must=asked.there,
        ),
    ] = None
    pair: Annotated[
        list[str] | None,
        Option(
            "--pair",
            "OLD=NEW",
            "With --against: launches of these names or numbers are each other's; may be repeated.",
            must=asked.pair,
        ),
    ] = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Launches that are each other's, by name or number."""
        return list(map(asked.pair, self.pair or ()))

    @property
    def is_sheet(self) -> bool:
        """Whether whole sheets are asked for, not a table."""
        return bool(self.numbers or self.name is not None) and self.columns is None

    @property
    def column_names(self) -> list[str]:
        """The columns asked for."""
        return asked.names_of(self.columns or "")

    def overrides(self) -> dict[str, float]:
        """Limits of checks by name."""
        return dict(asked.number_named(text, asked.SHEET_LIMIT) for text in self.limits or ())


def kernels(
    report: Annotated[
        Path, Argument("REPORT", "A Nsight Compute report (.ncu-rep, .ncu-repz) or a page of ncu, as CSV or text.")
    ],
    against: Annotated[
        Path | None, Option("--against", "REPORT", "Compare with this later report.", must=asked.there)
    ] = None,
    no_cache: Annotated[bool, NO_CACHE] = False,
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

    both = ReportPair.of(before, after, choice.pairs)
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
            remedy=f"`timesink show {path}` lists the kernels of a timeline; `timesink kernels --next {path}` how to "
            "profile them",
        )
    return trace


def roofline(
    report: Annotated[
        Path | None,
        Argument("REPORT", "A Nsight Compute report (.ncu-rep, .ncu-repz) or a page of ncu, as CSV or text."),
    ] = None,
    against: Annotated[
        Path | None, Option("--against", "REPORT", "Draw where this later report has them.", must=asked.there)
    ] = None,
    points: Annotated[
        list[str] | None,
        Option(
            "--point",
            "FLOP,BYTES,TIME,GPU[,FORMAT]",
            "Instead of a report: operations, bytes of DRAM, time, GPU and format of the numbers (else fp16), such as "
            "'550e9,268MB,670us,H100 SXM5,bf16'; may be repeated.",
            must=asked.point,
        ),
    ] = None,
    no_cache: Annotated[bool, NO_CACHE] = False,
    *,
    writing: PageOutput,
) -> int:
    """Draw the roofline of profiled kernels.

    Peaks come from the report's own counters at the clock it was profiled at; a datasheet stands in where it has none,
    and the page says so. --against draws an arrow from each kernel to where it is in a later report. --point needs no
    report: operations, bytes and time are placed under the roofs of a datasheet.
    """
    target = writing.sink([path for path in (report, against) if path is not None])
    if (report is None) == (points is None) or (against is not None and report is None):
        raise UsageError("give either a report or --point", remedy="timesink kernels --roofline REPORT")
    is_picture = target.path is not None and target.path.suffix.lower() == ".svg"
    if against is not None and not is_picture and target.form is not Format.HTML:
        raise UsageError(
            "arrows need a picture", remedy="add -o roof.svg or -o roof.html; `timesink kernels` compares in a table"
        )
    with working("drawing the roofline"):
        page = _of_numbers(points or ()) if report is None else _under_roofs(report, against, not no_cache)
        if is_picture:
            from timesink.render.svg import chart_file

            target.write(chart_file(page.charts[0]))
        else:
            target.show(page)
    return 0


def _of_numbers(points: Sequence[str]) -> Page:
    """Where work of which only numbers are known stands under the roofs of the datasheet."""
    from timesink.knowledge.gpus import Precision
    from timesink.views.timed_work import TimedWork

    works = [TimedWork.parse(text) for text in points]
    (gpu, form), *others = dict.fromkeys((work.gpu, work.form) for work in works)
    if others:
        raise UsageError("points of one picture are under the roofs of one GPU and one format")
    from timesink.views.roofline import points_page

    return points_page(works, asked.gpu(gpu), Precision(form))


def _under_roofs(report: Path, against: Path | None, cache: bool) -> Page:
    """The page of one report, or of what moved between two."""
    trace = read_profiles(report, cache)
    if against is None:
        from timesink.views.roofline import roofline_page

        return roofline_page(report.name, trace)
    from timesink.views.kernel_comparison import moves_page

    return moves_page(f"{report.name} and {against.name}", trace, read_profiles(against, cache))


def next_command(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int, Option("--top", "N", "Kernels to look at.", least=1)] = 3,
    program: Annotated[str, Option("--program", "CMD", "The program to profile.")] = "python train.py",
    no_cache: Annotated[bool, NO_CACHE] = False,
    *,
    writing: PageOutput,
) -> int:
    """Print the ncu command for the kernels worth a closer look.

    Chosen by their time in the steady steps. Each command profiles the kernel's first launches of a
    step, as many as it has shapes, at most four.
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


def metrics(
    names: Annotated[list[str], Argument("NAME", "Metric names; commas separate too.")],
    chip: Annotated[
        str, Option("--chip", "SM", "Compute capability, such as sm_90.", complete=completion.chips, must=asked.chip)
    ] = "sm_90",
    *,
    writing: PageOutput,
) -> int:
    """Show which names exist on the chip, which do not, and what to use instead.

    Exits with 2 where a name is wrong or absent. Of names in no table nothing is claimed.
    """
    from timesink.knowledge.metric_names import Standing, check_name

    wanted = [name for part in names for name in part.split(",") if name]
    verdicts = [check_name(name, chip) for name in wanted]
    is_wrong = any(verdict.standing in (Standing.WRONG, Standing.ABSENT) for verdict in verdicts)
    target = writing.sink()
    if target.form is Format.TEXT:
        target.write("".join(_line(verdict, chip) for verdict in verdicts))
        return 2 if is_wrong else 0
    columns = f"name [name], standing: on {chip} [text], why [text], known_on: known on [text], instead [name]"
    rows = ((one.name, one.standing.value, one.why, " ".join(one.known_on), one.instead) for one in verdicts)
    target.show(Page("metric names", (sheet_of("metrics", f"metrics on {chip}", rows, columns),)))
    return 2 if is_wrong else 0


def _line(verdict: NameVerdict, chip: str) -> str:
    why = f": {verdict.why}" if verdict.why else ""
    known = (
        f" (known on {', '.join(verdict.known_on)})" if verdict.known_on and verdict.standing.value != "exists" else ""
    )
    instead = f"; use {scrub(verdict.instead)}" if verdict.instead else ""
    return f"{scrub(verdict.name)}  {verdict.standing.value} on {chip}{why}{known}{instead}\n"


def refuse_wrong_names(metrics: Sequence[str]) -> None:
    """`UsageError` for a metric that exists on no chip: ncu would drop it without a word, after all its replays. Names
    that may be meant otherwise are said on stderr; groups and expressions are ncu's to resolve."""
    from timesink.knowledge.metric_names import CHIPS, Standing, check_name

    for name in metrics:
        if ":" in name and not name.startswith("breakdown:"):
            continue
        verdict = check_name(name, next(iter(CHIPS)))  # what is wrong is so on every chip
        if verdict.standing is Standing.WRONG:
            remedy = f"use {verdict.instead}" if verdict.instead else f"`timesink kernels --metrics {name}`"
            raise UsageError(f"there is no metric {name!r}: {verdict.why}", remedy=remedy)
        if verdict.instead and not verdict.known_on:
            sys.stderr.write(f"timesink: {name!r} is {verdict.why}; {verdict.instead} is\n")
