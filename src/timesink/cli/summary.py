"""`timesink summary`: the figures, without judgement. `timesink lines`: the same by line of the program.

`timesink statement`: the sentences that a team writes down. `timesink tables`: what a file holds, as timesink sees it.
`timesink compile`: what torch.compile did, by its log, by a trace, or by both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli.options import LinkedOnly, NoCache, PageOutput, Paths, Ranks, Reading, Stepping, flag, option
from timesink.cli.output import working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.model.record import dataclass
from timesink.render import Format
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.views.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryParts:
    """Which tables are shown: all of them, or some in more detail."""

    ranges: Annotated[bool, flag("--ranges", "The table of ranges alone.")] = False
    tree: Annotated[bool, flag("--tree", "Ranges by path: each under those around it.")] = False
    calls: Annotated[bool, flag("--calls", "The tables of CUDA and operating-system calls alone.")] = False
    by_thread: Annotated[bool, flag("--by-thread", "Calls per thread.")] = False
    kernels_of: Annotated[
        str | None,
        option(
            "--kernels-of",
            "PATTERN",
            "The kernels that operators launched whose names match, such as aten::linear; '.' for all.",
        ),
    ] = None

    def page(self, trace: Trace, top: int) -> Page:
        """The tables that were asked for."""
        from timesink.model.names import pattern_fault
        from timesink.views.summary import calls_page, operator_kernels_page, ranges_page, summary_page

        if self.kernels_of is not None:
            if fault := pattern_fault(self.kernels_of):
                raise UsageError(f"--kernels-of: {self.kernels_of!r} is no regular expression: {fault}")
            return operator_kernels_page(trace, top, self.kernels_of)
        if self.ranges or self.tree:
            return ranges_page(trace, top, tree=self.tree)
        if self.calls or self.by_thread:
            return calls_page(trace, top, by_thread=self.by_thread)
        return summary_page(trace, top)


def command(
    paths: Paths,
    top: Annotated[int, option("--top", "N", "Rows per table.", min=1)] = 10,
    linked_only: LinkedOnly = False,
    *,
    parts: SummaryParts,
    writing: PageOutput,
    reading: Reading,
    stepping: Stepping,
) -> int:
    """Show budget, steps, kernels, copies, waits and launches.

    And ranges, with the GPU work launched in them, and calls into CUDA and the operating system. Figures only:
    `timesink diagnose` says which of them matter.
    """
    target = writing.sink(paths)
    trace = stepping.applied(reading.trace(paths, linked_only=linked_only))
    with working("measuring"):
        from timesink.diagnosis.undiagnosable import check_timeline

        check_timeline(trace, "times")
        page = parts.page(trace, top)
    target.show(page)
    return 0


def lines(
    paths: Paths,
    top: Annotated[int, option("--top", "N", "Rows of each table.", min=1)] = 15,
    source: Annotated[Path, option("--code", "DIR", "Where the program's files lie.", file_okay=False)] = Path(),
    *,
    writing: PageOutput,
    reading: Reading,
    stepping: Stepping,
) -> int:
    """Show GPU time, idle time and host time by line of the program.

    A kernel belongs to the innermost line outside of libraries that launched it, a kernel of the backward pass to the
    line of its forward operator. Without stacks and samples, ranges stand for lines.
    """
    target = writing.sink(paths)
    trace = stepping.applied(reading.trace(paths))
    with working("following stacks"):
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.lines import lines_page

        check_device_work(trace, "time by line")
        page = lines_page(trace, top, source)
    target.show(page)
    return 0


def statement(
    paths: Paths,
    against: Annotated[
        list[Path] | None,
        option(
            "--against", "TRACE", "The same program before a change: say what became of the step and of graph breaks."
        ),
    ] = None,
    *,
    writing: PageOutput,
    reading: Reading,
    stepping: Stepping,
) -> int:
    """Print the sentences that a team writes down of a run.

    Where the time goes, how long a step takes, what overlaps and what the compiler made of it, each with its scope:
    steps, facts of the run (--fact of capture), as profiled or not. What a trace does not show is left out.
    """
    target = writing.sink([*paths, *(against or [])])
    trace = stepping.applied(reading.trace(paths))
    before = stepping.applied(reading.trace(against)) if against else None
    with working("writing the statement"):
        from timesink.views.statement import statement_page

        page = statement_page(trace, before)
    if target.form is Format.TEXT:
        lines = (": ".join(str(cell) for cell in row) for row in page.sheets[0].rows)
        target.write("".join(f"{scrub(line)}\n" for line in lines))
    else:
        target.show(page)
    return 0


def tables(paths: Paths, *, writing: PageOutput, reading: Reading) -> int:
    """List what a trace holds and what was lost on the way."""
    from timesink.views.summary import tables_page

    target = writing.sink(paths)
    target.show(tables_page(reading.trace(paths)))
    return 0


def compilation(
    paths: Paths,
    top: Annotated[int, option("--top", "N", "Rows of each table.", min=1)] = 20,
    ranks: Ranks = None,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Show graph breaks, recompilations and compile times.

    With a trace, also how many compiled regions a step runs. PATHs are logs (TORCH_TRACE, TORCH_LOGS), traces, or both
    of one run.
    """
    target = writing.sink(paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache)
    with working("summing up compilation"):
        from timesink.views.summary import compile_page

        page = compile_page(trace, top)
    target.show(page)
    return 0
