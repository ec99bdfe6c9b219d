"""`timesink kernels`: what limits each profiled kernel, and how much it could gain at most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timesink.cli import options
from timesink.cli.output import sink
from timesink.cli.progress import working
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.reporters.formats import Format

if TYPE_CHECKING:
    from timesink.model.trace import Trace

Report = Annotated[
    Path,
    typer.Argument(
        metavar="REPORT",
        help="A Nsight Compute report (.ncu-rep, .ncu-repz) or its CSV page (raw or details).",
        show_default=False,
    ),
]


def command(
    report: Report,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="REPORT", help="Compare with this earlier report.", show_default=False),
    ] = None,
    form: options.Form = None,
    output: options.Output = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Show what limits each profiled kernel and the most it could gain.

    With --format json the result is a list with one entry per launch, in report order.
    """
    target = sink(form, output, no_color, [report] if against is None else [report, against])
    trace = profiled(report, not no_cache)
    with working("explaining the kernels"):
        if against is not None:
            from timesink.cli.kernel_comparison_sheet import comparison_page

            page = comparison_page(profiled(against, not no_cache), trace)
            target.page(page)
            return 0
        if target.form is Format.JSON:
            from timesink.reporters.json import dumped

            target.write(dumped(entries(trace)))
            return 0
        from timesink.cli.kernel_sheet import kernels_page

        target.page(kernels_page(trace))
    return 0


def profiled(path: Path, cache: bool) -> Trace:
    """The file as a trace that holds kernel profiles, else `UsageError`."""
    from timesink.model.tables import KERNEL_PROFILES

    trace = read_traces([path], cache=cache)
    if KERNEL_PROFILES not in trace:
        raise UsageError(
            f"{path} holds no kernel profiles",
            remedy="give a Nsight Compute report; `timesink next` prints the command",
        )
    return trace


def entries(trace: Trace) -> list[dict[str, Any]]:
    """One entry per launch. A launch whose counters failed has no limiter: null, not "none"."""
    from timesink.measures.kernel_counters import kernel_counters
    from timesink.measures.kernel_limiter import kernel_limits
    from timesink.rules.kernel import bottleneck_of, explained

    listed = []
    for kernel, limits in zip(kernel_counters(trace), kernel_limits(trace), strict=True):
        nearest = limits.roofline.nearest if limits is not None and limits.roofline is not None else None
        bound = None if limits is None else limits.bounds[limits.limiter]
        listed.append(
            {
                "kernel": kernel.name,
                "id": kernel.profile,
                "time_us": None if kernel.duration_ns is None else kernel.duration_ns / 1e3,
                "limiter": None if limits is None else bottleneck_of(limits).value,
                "roof": None if nearest is None else nearest[0],
                "roof_share": None if nearest is None else nearest[1],
                "bound_speedup": bound,
                "action": "Profile it again: its counters failed or were not collected."
                if limits is None
                else explained(limits).advice,
            }
        )
    return listed
