"""Options that several commands share: constants, groups of them as records, and the traces that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from timesink.capture.recorded_run import link_times, parse_facts, recorded_run
from timesink.cli import asked, completion
from timesink.cli.output import Sink, answer_is_partial, sink, working
from timesink.cli.parameters import Argument, Option
from timesink.errors import UnreadableTrace, UsageError
from timesink.records import Record, replace
from timesink.render import Format
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace

EXIT_ZERO: Final = Option("--exit-zero", "", "Exit with 0 also where the gate fails.", rare=True)
FACT: Final = Option(
    "--fact",
    "NAME=VALUE",
    "What the run is (resolution=512), to be said with its figures; may be repeated.",
    rare=True,
    must=asked.fact,
)
CODE_QUALITY: Final = Option(
    "--gitlab-codequality", "FILE", "Also as GitLab Code Quality.", rare=True, must=asked.place
)
NO_BROWSER: Final = Option("--no-browser", "", "Print the link; start no browser.")
NO_CACHE: Final = Option("--no-cache", "", "Read the files anew; keep nothing in the user's cache folder.")
NO_COLOR: Final = Option("--no-color", "", "Write no colour (NO_COLOR and FORCE_COLOR count too).")
OPEN_METRICS: Final = Option("--openmetrics", "FILE", "Also as OpenMetrics text.", rare=True, must=asked.place)
OUTPUT: Final = Option("--output -o", "FILE|-", "Write to this file, atomically.", must=asked.place)
PATHS: Final = Argument(
    "PATH",
    "Profiles of PyTorch (.json, also packed with gzip, xz or zstd), Nsight Systems (.nsys-rep, .qdrep, .sqlite, "
    "folders of Parquet or Arrow), Nsight Compute (.ncu-rep, .ncu-repz, CSV), memory snapshots (.pickle), logs of "
    "torch.compile; or folders of them.",
)
PROGRAM: Final = Argument("-- CMD...", "The program and its arguments; no shell runs.")
ALLOW_WRITES: Final = Option(
    "--allow-writes", "", "Let the program write where it does by itself, into its own files too.", rare=True
)
QUIET: Final = Option("--quiet -q", "", "Show no progress, and nothing that the program prints.")
ROOT: Final = Option("--root", "DIR", "Where baselines, calibrations and the ledger lie.", rare=True)
SEQUENCE: Final = Option("--sequence --seq", "N", "Tokens per sequence.", least=1)
SETTLE: Final = Option("--settle", "N", "Steps to warm the program up.")
SUITE: Final = Option(
    "--suite", "NAME", "Name of what is compared, in reports and files.", complete=completion.suites, must=asked.suite
)
THRESHOLD: Final = Option("--threshold", "SHARE", "Changes of step time under this do not matter.", must=asked.share)
TIMED: Final = Option("--timed", "N", "Steps to time without a profiler.")
TIMEOUT: Final = Option("--timeout", "S", "Longest a run may take, in seconds.", rare=True)
TOP: Final = Option("--top", "N", "Rows of each table; else people read some, and JSON and CSV hold all.", least=1)
UNPROFILED: Final = Option(
    "--unprofiled-step-ms",
    "MS",
    "The step without a profiler, to price CPU work against [default: as `timesink capture` timed it].",
    least=0.0,
)
WINDOW: Final = Option(
    "--window",
    "START:END",
    "Read only this stretch, counted from the first event, as in 12.5s:13.5s, 800ms: or :3s.",
    must=asked.window,
)


def facts_of(texts: Sequence[str] | None) -> dict[str, str]:
    """The facts of `--fact`, by name. `UsageError` for what is no fact."""
    try:
        return parse_facts(texts or ())
    except ValueError as fault:
        raise UsageError(f"--fact: {fault}", remedy="write it as NAME=VALUE, such as resolution=512") from None


def read_traces(  # what of files is read: the options of every command that reads any
    paths: Sequence[Path],
    *,
    ranks: Sequence[int] | None = None,
    cache: bool = True,
    window: str | None = None,
    graphs_from: Sequence[Path] = (),
) -> Trace:
    """The files as one trace, cut down to the window and the ranks asked for, with what the files of
    `graphs_from` say of the kernels that its graphs replay.

    Of a damaged file what could be read is returned, and the command's answer is marked as partial.
    """
    from timesink._native import keep_freed
    from timesink.model.span import Span

    keep_freed(one_heap=True)  # to have pages cleared anew takes up to a tenth of a command's time
    span = None if window is None else Span.parse(window)
    names = scrub(paths[0].name) if len(paths) == 1 else f"{len(paths)} files"
    with working(f"reading {names}") as show:
        from timesink.readers import read

        trace = read(
            paths, ranks=ranks, cache=cache, window=span,
            watch=lambda done, of: show(f"{done} of {of} files read"),
        )  # fmt: skip
        if graphs_from:
            from timesink.readers.ranks import with_capture

            trace = with_capture(trace, read(graphs_from, ranks=ranks, cache=cache))
    for damage in trace.damage:
        answer_is_partial(UnreadableTrace(trace.source, damage, remedy="record or copy the file again"))
    return trace


def of_run(
    trace: Trace, given_ms: float | None, paths: Sequence[Path], facts: Mapping[str, str] | None = None
) -> Trace:
    """The trace with what is known of its run: its step time without a profiler, its facts, what collectives take.

    Each is as given, else as its capture has it, else unknown; a step of 0 ms is not known, whatever was measured.
    """
    run = recorded_run(paths)
    if given_ms is not None:
        run = replace(run, step_ms=given_ms or None, steps_ms=())
    trace = run.told_to(trace)
    if given_ms:
        from timesink.diagnosis.undiagnosable import check_unprofiled_step

        check_unprofiled_step(trace)
    if times := link_times(paths):
        from timesink.model.trace import LinkTime

        trace = trace.with_link_times(tuple(LinkTime(*time) for time in times))
    return trace.with_facts(facts) if facts else trace


class PageOutput(Record, kw_only=True):
    """Where a page of tables goes and what it is written as."""

    form: Annotated[Format | None, Option("--format -f", "FORMAT", "", writes=("Page",))] = None
    output: Annotated[Path | None, OUTPUT] = None
    verbose: Annotated[bool, Option("--verbose -v", "", "Show everything, with names in full.")] = False
    no_color: Annotated[bool, NO_COLOR] = False

    def sink(self, inputs: Sequence[Path | str] = ()) -> Sink:
        """The place the options ask for. `UsageError` where it is one of the inputs."""
        return sink(self.form, self.output, self.no_color, inputs, verbose=self.verbose)


class DiagnosisOutput(PageOutput, kw_only=True):
    """Where a diagnosis goes and what it is written as."""

    form: Annotated[Format | None, Option("--format -f", "FORMAT", writes=("Diagnosis",))] = None


class Stepping(Record, kw_only=True):
    """How steps are told apart."""

    steps: Annotated[
        str | None,
        Option(
            "--steps",
            "PATTERN|N|auto",
            "Steps begin at ranges, or else kernels, whose names match this regular expression; N: that many "
            "steps, of the loop that runs as often; auto: find the outermost loop of the kernels [default: marks "
            "of the program, else auto].",
            must=asked.steps,
        ),
    ] = None

    def applied(self, trace: Trace) -> Trace:
        """The trace with the steps that were asked for. `UsageError` for a pattern that is no regular expression."""
        if self.steps is None:
            return trace
        from timesink.model.patterns import pattern_fault
        from timesink.model.trace import StepChoice

        if self.steps.isdecimal():
            return trace.with_steps(StepChoice(None, int(self.steps)))
        pattern = None if self.steps == "auto" else self.steps
        if pattern is not None and (fault := pattern_fault(pattern)):
            raise UsageError(f"--steps: {pattern!r} is not a regular expression: {fault}")
        return trace.with_steps(StepChoice(pattern, None))


GRAPHS_FROM = Option(
    "--capture",
    "TRACE",
    "The trace of the capture of the CUDA graphs, or of an eager run of the same step: its operators, "
    "shapes, modules and lines are those of replayed kernels; may be repeated.",
    must=asked.there,
)


class Reading(Stepping, kw_only=True):
    """What of the traces is read, and how their steps are told apart."""

    ranks: Annotated[list[int] | None, Option("--rank", "N", "Look at this rank only; may be repeated.")] = None
    window: Annotated[str | None, WINDOW] = None
    graphs_from: Annotated[list[Path] | None, GRAPHS_FROM] = None
    no_cache: Annotated[bool, NO_CACHE] = False

    def trace(self, paths: Sequence[Path]) -> Trace:
        """The files as one trace, cut down to what was asked for, with what is known of its graphs and of its run."""
        return of_run(self.recorded(paths), None, paths)

    def recorded(self, paths: Sequence[Path]) -> Trace:
        """The same without what only the run beside the files knows."""
        read = read_traces(
            paths,
            ranks=self.ranks,
            cache=not self.no_cache,
            window=self.window,
            graphs_from=self.graphs_from or (),
        )
        return self.applied(read)


class PricedReading(Reading, kw_only=True):
    """What of the traces is read, and the step time against which host work is priced."""

    unprofiled: Annotated[float | None, UNPROFILED] = None

    def trace(self, paths: Sequence[Path]) -> Trace:
        """As `Reading.trace`, with what is known of the run."""
        return of_run(self.recorded(paths), self.unprofiled, paths)


class DescribedReading(PricedReading, kw_only=True):
    """As `PricedReading`, and what the run was, for the sentences that are written of it."""

    fact: Annotated[list[str] | None, FACT] = None

    def trace(self, paths: Sequence[Path]) -> Trace:
        """As `PricedReading.trace`, with these facts. `UsageError` for what is no fact."""
        return of_run(self.recorded(paths), self.unprofiled, paths, facts_of(self.fact))


class RuleChoice(Record, kw_only=True):
    """Which rules are applied, with which limits."""

    only: Annotated[
        list[str] | None,
        Option(
            "--only",
            "CODE",
            "Apply only this rule, or those whose codes begin so (KRN, KRN1); may be repeated.",
            complete=completion.rules,
            must=asked.rules,
        ),
    ] = None
    skip: Annotated[
        list[str] | None,
        Option(
            "--skip",
            "CODE",
            "Leave this rule out, or those whose codes begin so; may be repeated.",
            complete=completion.rules,
            must=asked.rules,
        ),
    ] = None
    limits: Annotated[
        list[str] | None,
        Option(
            "--limit",
            "CODE.NAME=VALUE",
            "Use this limit; may be repeated.",
            complete=completion.limits,
            must=asked.rule_limit,
        ),
    ] = None

    def rules(self) -> tuple[Rule, ...]:
        """Every rule, or those named, without those left out. `UsageError` for a code no rule has."""
        from timesink.diagnosis.registry import all_rules, find_all

        wanted, unwanted = find_all(self.only or ()), find_all(self.skip or ())
        return tuple(rule for rule in wanted or all_rules() if rule not in unwanted)

    def diagnosis(self, trace: Trace) -> Diagnosis:
        """The diagnosis by these rules, which says what the project's pyproject.toml chose of them."""
        from timesink.diagnosis.engine import diagnose
        from timesink.diagnosis.undiagnosable import check_diagnosis
        from timesink.diagnosis.verdicts import Note

        made = diagnose(trace, self.rules(), self.overrides())
        check_diagnosis(trace, made)
        return replace(made, notes=(*made.notes, *(Note(text) for text in self._configured())))

    def _configured(self) -> Iterator[str]:
        from timesink.untrusted.configuration import configuration

        found = configuration()
        if found and found.skip and list(found.skip) == self.skip:
            yield f"left out by {found.path.name}: {', '.join(found.skip)}"
        if found and found.limits and found.limits == self.overrides():
            listed = ", ".join(f"{name}={value:g}" for name, value in found.limits.items())
            yield f"limits of {found.path.name}: {listed}"

    def overrides(self) -> dict[str, float]:
        """`CODE.name=value` texts as limits by name; the engine refuses names that no rule has."""
        return dict(map(asked.limit_of, self.limits or ()))
