"""`timesink ranks`: the questions that need every rank. `--pipeline`: what the stages of a program say."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from timesink.cli import asked
from timesink.cli.options import EXIT_ZERO, NO_CACHE, PageOutput, of_run, read_traces
from timesink.cli.output import answer_is_partial, working
from timesink.cli.parameters import PLACE, Argument, Option
from timesink.errors import TimesinkError, UsageError
from timesink.records import Record, State
from timesink.render import Format
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.cluster import RankFile
    from timesink.cluster.map import Summarised
    from timesink.cluster.run import Run
    from timesink.verify.calibration import RunDeviation
    from timesink.views.pipeline import PipelineGate, Staged


def ranks(
    places: Annotated[
        list[str],
        Argument(
            PLACE, "Traces of the ranks of one job: files, folders, globs, URLs, or a .ranks file that lists them."
        ),
    ],
    engine: Annotated[
        str,
        Option(
            "--engine",
            "NAME",
            "Where files are read: threads, serial, processes, dask, or a Dask scheduler: tcp://, tls:// or its file.",
            complete=("threads", "serial", "processes", "dask"),
            must=asked.engine,
        ),
    ] = "threads",
    top: Annotated[int, Option("--top", "N", "Rows of the tables that name ranks.", least=1)] = 16,
    no_cache: Annotated[bool, NO_CACHE] = False,
    *,
    writing: PageOutput,
) -> int:
    """Find the late rank, and split communication into waiting and transfer.

    Clocks are aligned on the collectives; how well they are known is shown. Each file is summed up by itself, so a
    thousand ranks need no more memory than a few. Files that cannot be read are set aside and named.
    """
    from timesink.cluster import without_credentials

    target = writing.sink([without_credentials(place) for place in places])
    run, files = _run(places, engine)
    for path, reason in run.quarantined:
        answer_is_partial(TimesinkError(f"{path}: {reason}"))
    for path, reason in run.damaged:
        answer_is_partial(TimesinkError(f"{path}: {reason}", remedy="record or copy the file again"))
    if not (run.job.members.height and (run.job.members["end_ns"] > run.job.members["start_ns"]).any()):
        raise UsageError("there is no timeline of a rank", remedy="timesink kernels shows a report of Nsight Compute")
    if len(run.job.ranks) == 1 and target.form is Format.TEXT:
        target.say("1 rank: nothing to compare it with; `timesink diagnose` looks at one")
        return 0
    with working("comparing the ranks"):
        from timesink.views.ranks import ranks_page

        page = ranks_page(run, top, partial(_look, run, files, not no_cache))
    target.show(page)
    return 0


def _run(places: list[str], engine: str) -> tuple[Run, Sequence[RankFile]]:
    from timesink.cluster import find_files
    from timesink.cluster.engines import engine_of
    from timesink.cluster.run import run_of

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with working("looking for traces"):
            files = find_files(places)
        chosen = engine_of(engine)
        with working(f"reading {len(files)} files") as show:
            run = run_of(files, chosen, watch=_Progress(show))
    from timesink.cluster.engines import PlaintextScheduler

    for warning in caught:
        if issubclass(warning.category, PlaintextScheduler):
            sys.stderr.write(f"timesink: warning: {scrub(str(warning.message))}\n")
    return run, files


_READ_AGAIN: Final = 8  # ranks: those of a host


def _look(run: Run, files: Sequence[RankFile], cache: bool, rank: int) -> str | None:
    """What a diagnosis says of the late rank, from its file and those of some peers, where they are within reach."""
    from timesink.cluster import access_errors
    from timesink.cluster.map import within_reach
    from timesink.readers import read
    from timesink.views.ranks import late_in

    file_of = {file.shown: file for file in files}
    source_of = dict(run.job.members.drop_nulls("device").select("rank", "source").iter_rows())
    own, peers = source_of.pop(rank, ""), sorted(source_of)
    peers = peers[:: -(-len(peers) // (_READ_AGAIN - 1)) or 1]
    wanted = sorted({own, *map(source_of.__getitem__, peers)})
    if not peers or not file_of.keys() >= set(wanted):
        return None
    chosen = [file_of[shown] for shown in wanted]
    try:
        with within_reach(chosen) as paths:
            return late_in(read(paths, cache=cache and not any(file.is_remote for file in chosen)))
    except access_errors(TimesinkError):  # which says it for the file already, or it lies on a worker's machine
        return None


class _Progress(State):
    """Says how far the reading is, and how many files are set aside so far; the page says which and why."""

    show: Callable[[str], None]
    aside: int = 0

    def __call__(self, done: int, of: int, result: Summarised) -> None:
        self.aside += bool(result.failure)
        self.show(f"{done} of {of} files read" + (f", {self.aside} set aside" if self.aside else ""))


class LogReading(Record, kw_only=True):
    """How logs are read."""

    columns: Annotated[
        str,
        Option(
            "--columns",
            "PARTS",
            "Columns of each part: encode=t_in..t_out,send=t_out..t_sent. Parts send, recv, transfer move data.",
            must=asked.parts,
        ),
    ] = ""
    no_cache: Annotated[bool, NO_CACHE] = False

    def stages(self, paths: list[Path]) -> Staged:
        """The stages of logs, or of the traces of all ranks."""
        from timesink.views.pipeline import Staged, are_logs

        if are_logs(paths):
            return Staged.logged(paths, columns=self.columns)
        trace = of_run(read_traces(paths, cache=not self.no_cache), None, paths)
        with working("looking for stages"):
            return Staged.traced(trace)


class PipelineLimits(Record, kw_only=True):
    """What fails, and what a difference is judged by."""

    min_overlap: Annotated[
        float, Option("--min-overlap", "SCORE", "Fail below this OverlapScore.", least=0.0, most=1.0)
    ] = 0.30
    max_period_ms: Annotated[
        float | None, Option("--max-period-ms", "MS", "Fail above this median period.", least=0.0)
    ] = None
    calibration: Annotated[
        Path | None, Option("--calibration", "FILE", "Judge by the deviation that `calibrate` found.", must=asked.there)
    ] = None

    def gate(self) -> PipelineGate:
        """The limits as a gate."""
        from timesink.units import NS_PER_MS
        from timesink.views.pipeline import PipelineGate

        most = None if self.max_period_ms is None else self.max_period_ms * NS_PER_MS
        return PipelineGate(self.min_overlap, most)


def pipeline(
    logs: Annotated[
        list[Path],
        Argument(
            "LOG",
            "Stage times of each rank, JSON lines or CSV: columns tA0, tA1 of part A, tB0, tB1 of part B, ...; "
            "or the traces of all ranks.",
        ),
    ],
    against: Annotated[
        list[Path] | None,
        Option(
            "--against",
            "LOG",
            "Logs of the run after a change, one for each rank: say what it bought.",
            must=asked.there,
        ),
    ] = None,
    exit_zero: Annotated[bool, EXIT_ZERO] = False,
    *,
    reading: LogReading,
    limits: PipelineLimits,
    writing: PageOutput,
) -> int:
    """Tell whether a pipeline's period is its longest stage or their sum.

    OverlapScore = hidden time / (sum of stages - longest stage), item by item. All that a rank works on an item is one
    stage; the clocks of ranks are not compared. timesink.stages() writes such logs; in traces of all ranks, ranges name
    the stages (pp:stage0:A), else sends and receives show them. -o FILE.svg draws the items.
    """
    from timesink.views.pipeline import compared_page, in_text, pipeline_page

    target = writing.sink([*logs, *(against or [])])
    stages = reading.stages(logs)
    if against:
        sides = (stages, reading.stages(against))
        page, passed = compared_page(sides, limits.gate(), _deviation(limits.calibration))
    else:
        page, passed = pipeline_page(stages, limits.gate())
    if not against and target.path is not None and target.path.suffix.lower() == ".svg":
        from timesink.render.svg import chart_file

        target.write(chart_file(page.charts[0]))
    else:
        target.show(in_text(page) if target.form is Format.TEXT else page)
    return 0 if passed or exit_zero else 1


def _deviation(calibration: Path | None) -> RunDeviation | None:
    if calibration is None:
        return None
    from timesink.verify.calibration import RunDeviation, read

    return RunDeviation.measured(read(calibration))
