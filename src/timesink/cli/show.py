"""`timesink show`: what was recorded, as tables and without judgement, one view at a time.

`timesink plan`: what to change in which order, and what a change of yours would win, before it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli import asked, completion
from timesink.cli.options import PATHS, SEQUENCE, TOP, DescribedReading, PageOutput, PricedReading, Reading
from timesink.cli.output import Sink, working
from timesink.cli.parameters import Option
from timesink.errors import UsageError
from timesink.records import Record, replace
from timesink.render import Format
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.views import Page


def _show(
    paths: list[Path],
    page: Callable[[Trace], Page],
    doing: str,
    target: Sink,
    reading: Reading,
    *,
    times: str = "",
    gpu: str = "",
) -> int:
    """Read the traces, make the page of a view, and write it; the exit code.

    `doing` is shown meanwhile. Where the view needs a timeline, `times` is what a file without one is refused as
    lacking; where it needs work of a GPU, `gpu` is.
    """
    trace = reading.trace(paths)
    with working(doing):
        from timesink.diagnosis.undiagnosable import check_device_work, check_timeline

        if times:
            check_timeline(trace, times)
        if gpu:
            check_device_work(trace, gpu)
        shown = page(trace)
    target.show(shown)
    return 0


def _rows(page: Callable[[Trace, int], Page], top: int | None, usual: int) -> Callable[[Trace], Page]:
    """The page with so many rows of each table: the usual number, or as many as were asked for, which is then all that
    programs read too."""

    def made(trace: Trace) -> Page:
        found = page(trace, top or usual)
        return found if top is None else replace(found, sheets=tuple(replace(one, more=()) for one in found.sheets))

    return made


def steps(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    tree: Annotated[bool, Option("--tree", "", "Ranges by path: each under those around it.")] = False,
    by_thread: Annotated[bool, Option("--by-thread", "", "Ranges or calls per thread.")] = False,
    kernels_of: Annotated[
        str | None,
        Option(
            "--kernels-of",
            "PATTERN",
            "The kernels that operators launched whose names match, such as aten::linear; '.' for all.",
            must=asked.expression_of("--kernels-of"),
        ),
    ] = None,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show budget, steps, kernels, copies, waits and launches.

    And ranges, with the GPU work launched in them, and calls into CUDA and the operating system. Figures only:
    `timesink diagnose` says which of them matter.
    """
    target = writing.sink(paths)
    from timesink.model.patterns import pattern_fault
    from timesink.views.summary import calls_page, operator_kernels_page, ranges_page, summary_page

    if kernels_of is not None and (fault := pattern_fault(kernels_of)):
        raise UsageError(f"--kernels-of: {kernels_of!r} is not a regular expression: {fault}")

    def page(trace: Trace, rows: int) -> Page:
        if kernels_of is not None:
            return operator_kernels_page(trace, rows, kernels_of)
        if tree:
            return ranges_page(trace, rows, tree=tree, by_thread=by_thread)
        return calls_page(trace, rows, by_thread=by_thread) if by_thread else summary_page(trace, rows)

    return _show(paths, _rows(page, top, 10), "measuring", target, reading, times="times")


def ranges(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    tree: Annotated[bool, Option("--tree", "", "Ranges by path: each under those around it.")] = False,
    by_thread: Annotated[bool, Option("--by-thread", "", "Ranges or calls per thread.")] = False,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show the ranges of the program, with the GPU work launched in them."""
    target = writing.sink(paths)
    from timesink.views.summary import ranges_page

    page = _rows(partial(ranges_page, tree=tree, by_thread=by_thread), top, 10)
    return _show(paths, page, "measuring", target, reading, times="times")


def calls(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    by_thread: Annotated[bool, Option("--by-thread", "", "Ranges or calls per thread.")] = False,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show calls into CUDA and the operating system."""
    target = writing.sink(paths)
    from timesink.views.summary import calls_page

    page = _rows(partial(calls_page, by_thread=by_thread), top, 10)
    return _show(paths, page, "measuring", target, reading, times="times")


def idle(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show what each GPU waited for while it was idle.

    Every gap is blamed whole and once; what nothing explains is called unexplained.
    """
    target = writing.sink(paths)
    from timesink.views.summary import idle_page

    return _show(paths, _rows(idle_page, top, 15), "blaming idle time", target, reading, gpu="idle time")


def start_up(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show where the time before the first steady step went.

    From the process's begin, where `timesink capture` looked at the program; else from the first thing recorded.
    """
    target = writing.sink(paths)
    from timesink.views.summary import start_up_page

    return _show(paths, _rows(start_up_page, top, 20), "measuring", target, reading, times="times")


def lines(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    source: Annotated[
        Path | None,
        Option("--code", "DIR", "Where the program's files lie; else beside the capture.", must=asked.there),
    ] = None,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show GPU time, idle time and host time by line of the program.

    A kernel belongs to the innermost line outside of libraries that launched it, a kernel of the backward pass to the
    line of its forward operator. Without stacks and samples, ranges stand for lines.
    """
    target = writing.sink(paths)
    from timesink.views.lines import folder_of, lines_page

    page = _rows(lambda trace, rows: lines_page(trace, rows, source or folder_of(paths[0])), top, 15)
    return _show(paths, page, "following stacks", target, reading, gpu="time by line")


def compilation(
    paths: Annotated[list[Path], PATHS],
    top: Annotated[int | None, TOP] = None,
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show graph breaks, recompilations and compile times.

    With a trace, also how many compiled regions a step runs. PATHs are logs (TORCH_TRACE, TORCH_LOGS), traces, or both
    of one run.
    """
    target = writing.sink(paths)
    from timesink.views.summary import compile_page

    return _show(paths, _rows(compile_page, top, 20), "summing up compilation", target, reading)


def checks(
    paths: Annotated[list[Path], PATHS],
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """Show the five checks of a timeline: gaps, serialization, small kernels, copies, collectives.

    Each is found, clear or undecided, with its figure, and what to do or to capture next.
    """
    target = writing.sink(paths)
    from timesink.views.statement import checks_page

    return _show(paths, checks_page, "checking", target, reading, gpu="timeline to check")


def tables(
    paths: Annotated[list[Path], PATHS],
    *,
    writing: PageOutput,
    reading: Reading,
) -> int:
    """List what a trace holds and what was lost on the way."""
    target = writing.sink(paths)
    from timesink.views.summary import tables_page

    return _show(paths, tables_page, "listing tables", target, reading)


def statement(
    paths: Annotated[list[Path], PATHS],
    before: Annotated[
        list[Path] | None,
        Option(
            "--against",
            "TRACE",
            "The same program before a change: say what became of the step and of graph breaks.",
            must=asked.there,
        ),
    ] = None,
    *,
    writing: PageOutput,
    reading: DescribedReading,
) -> int:
    """Print one-line results to quote.

    Where the time goes, how long a step takes, what overlaps and what the compiler made of it, each with its scope:
    steps, facts of the run (--fact, here or of capture), as profiled or not. What a trace does not show is left out.
    """
    target = writing.sink([*paths, *(before or [])])
    page = _stated(paths, before, reading)
    if target.form is Format.TEXT:
        said = (": ".join(str(cell) for cell in row) for row in page.sheets[0].rows)
        target.write("".join(f"{scrub(line)}\n" for line in said))
    else:
        target.show(page)
    return 0


def _stated(paths: list[Path], before: list[Path] | None, reading: DescribedReading) -> Page:
    """The statement of traces, or of logs of stages."""
    from timesink.views.pipeline import Staged, are_records
    from timesink.views.statement import logged_statement_page, statement_page

    if are_records([*paths, *(before or [])]):
        if reading.fact or reading.unprofiled:
            raise UsageError("logs of stages hold what is known of their run", remedy="leave the option out")
        return logged_statement_page(Staged.logged(paths), Staged.logged(before) if before else None)
    trace, unchanged = reading.trace(paths), reading.trace(before) if before else None
    with working("writing the statement"):
        return statement_page(trace, unchanged)


class PlannedModel(Record, kw_only=True):
    """A model that is not running."""

    model: Annotated[
        Path | None,
        Option(
            "--model-config",
            "FILE",
            "Instead of a trace: a Hugging Face config.json, or a configuration of `memory plan`.",
            must=asked.there,
        ),
    ] = None
    gpu: Annotated[
        str | None,
        Option(
            "--gpu",
            "NAME",
            "The GPU it would run on, such as H200; of a trace, the GPU it ran on where that is not known.",
            complete=completion.gpus,
            must=asked.gpu,
        ),
    ] = None
    batch: Annotated[int, Option("--batch", "N", "Sequences at once.", least=1)] = 1
    sequence: Annotated[int, SEQUENCE] = 2048

    def page(self) -> Page:
        """Its operators."""
        from timesink.memory_plan import model_in

        assert self.model is not None
        if self.gpu is None:
            raise UsageError("which GPU the model would run on is not said", remedy="add --gpu H200, for one")
        model = model_in(self.model)
        from timesink.views.classify import planned_page

        return planned_page(model, asked.gpu(self.gpu), self.batch, self.sequence)


def ops(
    paths: Annotated[list[Path] | None, PATHS] = None,
    top: Annotated[int | None, TOP] = None,
    *,
    planned: PlannedModel,
    reading: Reading,
    writing: PageOutput,
) -> int:
    """Show the roofline of each operator, and what to do about it.

    Operations and bytes are those of the recorded shapes (record_shapes=True), of the counters of a Nsight Compute
    report, or of a model's configuration: with --model-config and --gpu no trace is needed. Without shapes, kernels by
    the counters sampled meanwhile.
    """
    if (planned.model is None) == (not paths):
        raise UsageError(
            "give either a trace or --model-config",
            remedy="timesink show TRACE ops, or timesink show ops --model-config FILE --gpu H200",
        )
    if planned.model is not None:
        writing.sink([planned.model]).show(planned.page())
        return 0
    given, named = paths or [], None if planned.gpu is None else asked.gpu(planned.gpu)
    target = writing.sink(given)
    trace = reading.trace(given)
    with working("classifying"):
        from timesink.model.tables import DEVICE_OPS, KERNEL_PROFILES
        from timesink.views.classify import classification_page, counters_page

        is_report = KERNEL_PROFILES in trace and not trace.get(DEVICE_OPS).height
        page = counters_page if is_report else partial(classification_page, named=named)
        target.show(_rows(page, top, 30)(trace))
    return 0


def plan(
    paths: Annotated[list[Path] | None, PATHS] = None,
    changes: Annotated[
        list[str] | None,
        Option(
            "--change",
            "CHANGE",
            "What to change, such as 'scale kernel:.*gemm.* 0.5'; may be repeated [without PATH: what can be "
            "changed is listed].",
            must=asked.change,
        ),
    ] = None,
    measure: Annotated[
        bool,
        Option(
            "--measure",
            "",
            "Run the kernels that changes alter, as recorded and changed, on this machine's GPU (a minute; "
            "again: nothing).",
        ),
    ] = False,
    *,
    writing: PageOutput,
    reading: PricedReading,
) -> int:
    """Rank the changes to make, each with its price; price one change.

    Changes that people make, one after another, each replayed in the program that those before it leave: the step
    before and after, low and high, and what the step is bound by then. With --change: the price of changes that you
    name, before they are made. The trace's dependency graph is replayed with each and with all of them: old step, new
    step, what limits it next. A gain is a range: p10 and p90 over steps and over what is not known of the change.
    Without a trace, the changes that can be priced are listed. What `timesink plan machine` or --measure found of a GPU
    counts in every plan of its traces.
    """
    target = writing.sink(paths or ())
    if not (paths or changes or measure):
        from timesink.views.plan import grammar_page

        target.show(grammar_page())
        return 0
    if not paths:
        raise UsageError("there is no trace to plan for", remedy="give its path")
    if changes and measure:
        raise UsageError("--measure prices all changes of a plan, not those of --change", remedy="leave one out")
    trace = reading.trace(paths)
    with working("replaying" if changes else "planning"):
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.fixes.table import parse_change
        from timesink.trials.prices import measured_prices
        from timesink.views.plan import plan_page, what_if_page

        check_device_work(trace, "step to replay" if changes else "step to plan for")
        named = tuple(parse_change(text) for text in changes or ())
        measured = measured_prices(trace) if measure else None
        target.show(what_if_page(trace, named) if named else plan_page(trace, measured=measured))
    return 0
