"""`timesink ranks`: the questions that need every rank."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from timesink.cli.options import NoCache, PageOutput
from timesink.cli.output import answer_is_partial, working
from timesink.errors import TimesinkError
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.cluster.map import Summarised
    from timesink.cluster.run import Run

Places = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE",
        help="Traces of the ranks of one job: files, folders, globs, URLs, or a .ranks file that lists them.",
        show_default=False,
    ),
]
EngineName = Annotated[
    Literal["threads", "serial", "processes", "dask"],
    typer.Option("--engine", metavar="NAME", help="Where files are read: threads, serial, processes or dask."),
]
Workers = Annotated[int, typer.Option("--workers", min=0, metavar="N", help="How many at a time; 0: one per core.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_default=False,
        help="Read on the workers of this Dask scheduler: tcp://, tls:// or a scheduler file.",
    ),
]  # fmt: skip
Top = Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows of the tables that name ranks.")]


def command(
    places: Places,
    engine: EngineName = "threads",
    workers: Workers = 0,
    scheduler: Scheduler = None,
    top: Top = 16,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Say which rank is late, and what is waiting and what is transfer.

    Clocks are aligned on the collectives; how well they are known is shown. Each file is summed up by itself, so a
    thousand ranks need no more memory than a few. Files that cannot be read are set aside and named.
    """
    target = writing.sink()
    run = _run(places, engine, workers, scheduler, not no_cache)
    for path, reason in (*run.quarantined, *run.damaged):
        message = reason if path in reason else f"{path}: {reason}"
        answer_is_partial(TimesinkError(message, remedy="record or copy the file again"))
    with working("comparing the ranks"):
        from timesink.views.ranks import ranks_page

        page = ranks_page(run, top)
    target.show(page)
    return 0


def _run(places: list[str], engine: str, workers: int, scheduler: str | None, keep: bool) -> Run:
    from timesink.cluster.engines import engine_of
    from timesink.cluster.files import find_files
    from timesink.cluster.run import run_of

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with working("looking for traces"):
            files = find_files(places)
        chosen = engine_of(engine, workers, scheduler)
        with working(f"reading {len(files)} files") as show:
            run = run_of(files, chosen, keep=keep, watch=_Progress(show))
    from timesink.cluster.engines import PlaintextScheduler

    for warning in caught:
        if issubclass(warning.category, PlaintextScheduler):
            sys.stderr.write(f"timesink: warning: {scrub(str(warning.message))}\n")
    return run


@dataclass(slots=True)
class _Progress:
    """Says how far the reading is, and how many files are set aside so far; the page says which and why."""

    show: Callable[[str], None]
    aside: int = 0

    def __call__(self, done: int, of: int, result: Summarised) -> None:
        self.aside += bool(result.failure)
        self.show(f"{done} of {of} files read" + (f", {self.aside} set aside" if self.aside else ""))
