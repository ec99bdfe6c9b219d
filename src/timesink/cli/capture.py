"""`timesink capture`: run a program under the right profiler, with the right flags.

`torch`, `nsys` and `ncu` share the options of `CaptureRun`. What a capture shows is at the end: its files and figures,
or the command that it would run, or whether it could.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from timesink.capture import redaction
from timesink.capture.errors import CaptureError, Fault, refused
from timesink.capture.recorded_run import LINK_TIMES
from timesink.cli.options import (
    FACT,
    NO_COLOR,
    PROGRAM,
    QUIET,
    SETTLE,
    TIMED,
    TIMEOUT,
    PageOutput,
    facts_of,
    read_traces,
)
from timesink.cli.output import sink
from timesink.cli.parameters import Argument, Commands, Option
from timesink.errors import MissingTool, TimesinkError, ToolFailed, UsageError
from timesink.records import Record, as_plain, replace
from timesink.render import Format
from timesink.units import share_text
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.capture.manifest import Capture
    from timesink.capture.profilers import NcuOptions, NsysOptions, TorchOptions
    from timesink.capture.running import CaptureSettings
    from timesink.capture.tools import Tool
    from timesink.views import Page


class CaptureRun(Record, kw_only=True):
    """How a program is run under a profiler, whichever it is."""

    program: Annotated[list[str] | None, PROGRAM] = None
    out: Annotated[
        Path | None, Option("--output -o", "DIR", "Folder for the capture [default: captures/TIME-TOOL].")
    ] = None
    settle: Annotated[int, SETTLE] = 5
    timed: Annotated[int, TIMED] = 10
    whole: Annotated[bool, Option("--whole", "", "Record the whole program: for programs without steps.")] = False
    quiet: Annotated[bool, QUIET] = False
    keep_running: Annotated[
        bool, Option("--keep-running", "", "Let the program go on once its steps are recorded.", rare=True)
    ] = False
    timeout: Annotated[float, TIMEOUT] = 3600
    config_file: Annotated[
        list[Path] | None, Option("--config-file", "FILE", "Keep the hash of this file; may be repeated.", rare=True)
    ] = None
    fact: Annotated[list[str] | None, FACT] = None
    print_only: Annotated[bool, Option("--print", "", "Print the command that would run, and stop.")] = False
    dry_run: Annotated[bool, Option("--dry-run", "", "Check tool, options and disk, and stop.")] = False

    @property
    def words(self) -> Sequence[str]:
        """The program and its arguments."""
        return self.program or ()

    def settings(self, tool: str, active: int, warm_up: int, **others: Any) -> CaptureSettings:
        """These options as settings; `others` are further fields. `CaptureError` for numbers that make no sense."""
        from timesink.capture.running import CaptureSettings, default_folder, is_python
        from timesink.capture.schedule import StepSchedule

        is_python(self.words)
        if absent := [path for path in self.config_file or () if not path.is_file()]:
            raise refused(f"there is no file {absent[0]}", "check --config-file")
        return CaptureSettings(
            self.out if self.out is not None else default_folder(tool),
            StepSchedule(self.settle, self.timed, warm_up, active),
            whole=self.whole,
            keep_running=self.keep_running,
            quiet=self.quiet,
            timeout_s=self.timeout,
            config_files=tuple(self.config_file or ()),
            facts=facts_of(self.fact),
            **others,
        )

    def record(
        self, options: TorchOptions | NsysOptions | NcuOptions, settings: CaptureSettings, tool: Tool | None = None
    ) -> int:
        """Record; or print the command that would run, or check that it could."""
        from timesink.capture.profilers import Recording
        from timesink.capture.running import agent_environment

        recording = Recording(self.words, options, settings, tool)
        if not (self.print_only or self.dry_run):
            return finished(recording.make())
        argv = recording.argv(settings.out)
        if self.dry_run and not self.print_only:
            return show_check(settings, argv, tool)
        return show_command(argv, agent_environment(recording.plan) if recording.plan is not None else {})

    def tool(self, name: str, given: Path | None) -> Tool:
        """The installed tool, or the one whose command line is to be shown."""
        from timesink.capture.tools import find_installed, tool_to_show

        return tool_to_show(name, given) if self.print_only else find_installed(name, given)


def torch(
    steps: Annotated[int, Option("--steps", "N", "Steps to record.")] = 6,
    warm_up: Annotated[int, Option("--warm-up", "N", "Steps under the profiler that are dropped.", rare=True)] = 2,
    stacks: Annotated[bool, Option("--stacks", "", "Record Python stacks: slow, but names lines.")] = False,
    memory: Annotated[bool, Option("--memory", "", "Record allocations and memory use.")] = False,
    auto_ranges: Annotated[
        bool, Option("--auto-ranges", "", "Mark data, forward, backward, optimizer and checkpoint (PyTorch).")
    ] = False,
    *,
    run: CaptureRun,
) -> int:
    """Which operator, which line: PyTorch's own profiler, one trace per rank, no change to the script.

    torchrun, srun and mpirun work. A step ends at timesink.step(), else at the program's own profiler.step(), else at
    the first optimizer's step, else (inference) at a call of the outermost module.
    """
    with translated():
        from timesink.capture.profilers import TorchOptions

        settings = run.settings("torch", steps, warm_up, auto_ranges=auto_ranges)
        return run.record(TorchOptions(True, stacks, memory), settings)


class NsysRecord(Record, kw_only=True):
    """What Nsight Systems records, and when."""

    trace: Annotated[str, Option("--trace", "A,B", "What nsys traces.")] = "cuda,nvtx,osrt"
    gpu_metrics: Annotated[bool, Option("--gpu-metrics", "", "Sample GPU counters (needs permission).")] = False
    cpu_samples: Annotated[bool, Option("--cpu-samples", "", "Sample CPU stacks: large reports.", rare=True)] = False
    memory: Annotated[bool, Option("--memory", "", "Record allocations and memory use.")] = False
    delay_s: Annotated[float | None, Option("--delay", "S", "For servers: wait.", rare=True)] = None
    duration_s: Annotated[float | None, Option("--duration", "S", "For servers: record.", rare=True)] = None

    @property
    def options(self) -> NsysOptions:
        """The same as the profiler's options."""
        from timesink.capture.profilers import NsysOptions

        chosen = as_plain(self)
        traces = tuple(part.strip() for part in chosen.pop("trace").split(","))
        return NsysOptions(traces, **chosen)


def nsys(
    steps: Annotated[int, Option("--steps", "N", "Steps to record.")] = 6,
    warm_up: Annotated[int, Option("--warm-up", "N", "Steps under the profiler that are dropped.", rare=True)] = 2,
    unprofiled: Annotated[
        Literal["inside", "separate", "none"],
        Option(
            "--unprofiled",
            "HOW",
            "Time steps without a profiler: inside (same run, before recording), separate (a run of its own), none.",
            rare=True,
        ),
    ] = "inside",
    auto_ranges: Annotated[
        bool, Option("--auto-ranges", "", "Mark data, forward, backward, optimizer and checkpoint (PyTorch).")
    ] = False,
    keep_report: Annotated[
        bool, Option("--keep-report", "", "Keep the .nsys-rep, which holds your whole environment.", rare=True)
    ] = False,
    tool: Annotated[Path | None, Option("--tool", "PATH", "This nsys, or ncu.", rare=True)] = None,
    *,
    run: CaptureRun,
    record: NsysRecord,
) -> int:
    """Where the gaps are: Nsight Systems, any program, all processes in one report.

    The report is exported to SQLite and redacted. Programs that are not Python are recorded whole, as are servers, with
    --delay and --duration.
    """
    with translated():
        kept = {"unprofiled": unprofiled, "auto_ranges": auto_ranges, "keep_report": keep_report}
        return run.record(record.options, run.settings("nsys", steps, warm_up, **kept), run.tool("nsys", tool))


class NcuRecord(Record, kw_only=True):
    """Which kernels Nsight Compute replays, how, and what it reads of them."""

    kernels: Annotated[str | None, Option("--kernels", "REGEX", "Only kernels like this.")] = None
    launch_skip: Annotated[
        int,
        Option("--launch-skip", "N", "Kernels to leave out first, counted from the start of the program.", rare=True),
    ] = 0
    launch_count: Annotated[int, Option("--launch-count", "N", "Most kernels to profile.")] = 30
    set_name: Annotated[
        str,
        Option(
            "--set",
            "NAME",
            "basic, detailed, full, roofline; rules: what timesink's rules need.",
            complete=("basic", "detailed", "full", "roofline", "rules"),
        ),
    ] = "detailed"
    metrics: Annotated[str | None, Option("--metrics", "A,B", "These metrics instead of a set.")] = None
    replay: Annotated[
        Literal["kernel", "application", "range", "app-range"],
        Option("--replay", "MODE", "kernel, application, range or app-range.", rare=True),
    ] = "kernel"
    clock_control: Annotated[
        Literal["none", "base"],
        Option("--clocks", "HOW", "none: as the program runs; base: locked, and slower.", rare=True),
    ] = "none"


def ncu(
    steps: Annotated[int, Option("--steps", "N", "Steps to record.")] = 1,
    unprofiled: Annotated[
        Literal["inside", "separate", "none"],
        Option(
            "--unprofiled",
            "HOW",
            "Time steps without a profiler: inside (same run, before recording), separate (a run of its own), none.",
            rare=True,
        ),
    ] = "none",
    tool: Annotated[Path | None, Option("--tool", "PATH", "This nsys, or ncu.", rare=True)] = None,
    *,
    run: CaptureRun,
    record: NcuRecord,
) -> int:
    """Why one kernel is slow: Nsight Compute replays the kernels of a step of rank 0 and reads their counters.

    Without --kernels a quick pass of torch.profiler finds those that take most of a step, and one launch of each of
    their shapes is replayed, --launch-count in all. NCCL's are left out: replayed, they hang. Clocks are left alone, so
    that times are those of the program.
    """
    with translated():
        from timesink.capture.profilers import NcuOptions
        from timesink.cli.kernels import refuse_wrong_names

        metrics = tuple(name.strip() for name in (record.metrics or "").split(",") if name.strip())
        refuse_wrong_names(metrics)
        settings = run.settings("ncu", steps, 0, unprofiled=unprofiled)
        found_tool = run.tool("ncu", tool)
        chosen: dict[str, Any] = {"metrics": metrics}
        if not (record.kernels or run.whole or run.print_only or run.dry_run):
            hottest = find_hottest(run, settings.out, record.launch_count)
            chosen |= hottest if found_tool.knows("--filter-mode") else {"kernels": hottest.get("kernels")}
        return run.record(NcuOptions(**{**as_plain(record), **chosen}), settings, found_tool)


def find_hottest(run: CaptureRun, out: Path, most: int) -> dict[str, Any]:
    """What ncu is to replay: one launch of each shape of the kernels that take most of a step, `most` in all, by a
    quick pass of torch.profiler beside `out`. Empty where that pass finds none, as of a program that is not Python or
    has no PyTorch."""
    from timesink.capture.profilers import Recording, TorchOptions
    from timesink.views.kernels import hottest

    first = replace(run, out=out.with_name(f"{out.name}-steps"), timed=0)
    try:
        steps = Recording(run.words, TorchOptions(shapes=False), first.settings("torch", 2, 1)).make()
        targets, share = hottest(read_traces([steps.folder]), most)
    except (CaptureError, TimesinkError):
        return {}
    if not targets:
        return {}
    if not run.quiet:
        functions = scrub(", ".join(target.function for target in targets))
        sys.stderr.write(f"{share_text(share)} of the kernels' time is in {functions}\n")
    names = "|".join(re.escape(target.function) for target in targets)
    return {"kernels": f"^({names})$", "launch_count": 1, "each_shape": True}


def nccl_bench(
    launcher: Annotated[
        list[str] | None, Argument("-- LAUNCHER...", "What starts a process a GPU: torchrun --nproc-per-node=2.")
    ] = None,
    sizes_from: Annotated[
        list[Path] | None,
        Option(
            "--sizes-of",
            "TRACE",
            "Measure what this trace's ranks use; repeat for each rank. The file lies beside it then.",
        ),
    ] = None,
    timeout: Annotated[float, TIMEOUT] = 600,
    *,
    writing: PageOutput,
) -> int:
    """How fast these GPUs exchange: NCCL's collectives alone, in the sizes of a job, in a minute.

    Times and bandwidths are those of nccl-tests. nccl-bench.json is left beside the trace, else here; `diagnose` then
    judges the job's collectives by it, and says so.
    """
    from timesink.capture.nccl_bench import run_bench
    from timesink.views.capture import link_times_page, sizes_of

    traces = sizes_from or []
    calls = sizes_of(read_traces(traces) if traces else None)
    used = set(calls) - set(sizes_of(None)) if traces else set()
    place = Path() if not traces else traces[0] if traces[0].is_dir() else traces[0].parent
    with translated():
        measured = run_bench(launcher or (), calls, place / LINK_TIMES, timeout)
    writing.sink().show(link_times_page(measured, calls, sorted(used)))
    return 0


_KINDS: dict[Fault, type[TimesinkError]] = {
    Fault.REQUEST: UsageError,
    Fault.MISSING: MissingTool,
    Fault.FAILED: ToolFailed,
}


@contextmanager
def translated() -> Iterator[None]:
    """A `CaptureError` in the block leaves it as the error of that kind."""
    try:
        yield
    except CaptureError as error:
        raise _KINDS[error.fault](error.message, remedy=error.remedy) from error


def show_command(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command line, fit to paste into a shell."""
    if not argv:
        raise UsageError("no program to run", remedy="write it after --, such as: -- python train.py")
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    sys.stdout.write(" ".join([*words, shlex.join(argv)]) + "\n")
    return 0


def show_check(settings: CaptureSettings, argv: Sequence[str], tool: Tool | None = None) -> int:
    """That nothing stands in the way: the program exists, the tool takes its options, the folder is free."""
    from timesink.capture.running import is_python, ready_folder

    is_python(argv)
    if shutil.which(argv[0]) is None:
        raise UsageError(f"there is no program {argv[0]!r}", remedy="check the path and the spelling")
    existed = settings.out.exists()
    ready_folder(settings.out)
    if not existed:
        settings.out.rmdir()
    named = f"{tool.title} at {tool.path}" if tool is not None else _profiler_of(argv)
    marked = _marked(argv)
    sys.stdout.write(f"ready: {named}, into {settings.out}, {settings.steps.total} steps{marked}\n")
    return 0


def _marked(argv: Sequence[str]) -> str:
    """Which ranges the script among the words opens by name, or how they would be marked; "" without a script."""
    from timesink.knowledge.ranges import MARKS

    script = next((path for path in map(Path, argv) if path.suffix == ".py" and path.is_file()), None)
    if script is None:
        return ""
    found = MARKS.findall(script.read_text(encoding="utf-8", errors="replace"))
    if not found:
        return f"; {script.name} itself marks no ranges: --auto-ranges marks data, forward, backward and optimizer"
    names = list(dict.fromkeys(filter(None, found))) or ["named as it runs"]
    return f"; ranges of {script.name}: {scrub(', '.join(names[:8]))}{' and more' if len(names) > 8 else ''}"


def _profiler_of(argv: Sequence[str]) -> str:
    """torch.profiler, with what is known of the PyTorch that it belongs to. `CaptureError` where that is not there."""
    from timesink.capture.tools import check_torch

    known = check_torch(argv, load=True) or "not looked at: the command line does not tell which Python runs"
    return f"torch.profiler ({known})"


def finished(done: Capture) -> int:
    """Show the capture; the exit code is 5 where something is missing from it."""
    sink(None, None, False).show(_page(done))
    return 0 if done.is_complete else 5


def _page(done: Capture) -> Page:
    """Files, step times with and without the profiler, what is missing, and what to do with it."""
    from timesink.views import Page, listed
    from timesink.views.capture import steps_sheet

    files = ((one["file"], one["bytes"], _counted(one["counts"])) for one in done.manifest["files"])
    sheets = [listed("capture.files", files)]
    if done.unprofiled_step_ms is not None or done.profiled_step_ms is not None:
        sheets.append(steps_sheet(done.unprofiled_steps_ms, done.unprofiled_step_ms, done.profiled_step_ms))
    what = "kernels" if done.manifest["tool"]["name"] == "ncu" else "diagnose"
    target = done.files[0] if what == "kernels" and done.files else done.folder
    following = [] if done.missing else [f"next: timesink {what} {shlex.quote(str(target))}"]
    title = f"Captured into {done.folder}" if done.is_complete else f"Incomplete capture in {done.folder}"
    return Page(title, tuple(sheets), (*done.missing, *done.doubts, *following))


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def redact(
    file: Annotated[Path, Argument("FILE", "A capture or a report.")],
    output: Annotated[Path | None, Option("--output -o", "FILE", "The new file [default: NAME.redacted.*].")] = None,
    names: Annotated[
        list[str] | None, Option("--name", "NAME", "Another host or user to look for; may be repeated.")
    ] = None,
    proof: Annotated[
        bool,
        Option(
            "--proof", "", "Write no copy: list what would go and what would stay, and why; exit 1 if anything goes."
        ),
    ] = False,
    form: Annotated[Format | None, Option("--format -f", "FORMAT", "", writes=("Page",))] = None,
    no_color: Annotated[bool, NO_COLOR] = False,
) -> int:
    """Take what names people, machines and secrets out of a capture.

    Known keys, tables and columns are kept, and in them figures, and words and names of kernels, operators, metrics and
    instructions that closed lists hold; all else becomes a placeholder in marks that no source holds (⟦3⟧), the same
    one for the same text. The diagnosis stays the same. Every text of the copy is read back: one that no list lets
    stay, a name given or a token, and none is written; --proof lists what would stay and why. Takes Nsight Systems
    exports (.sqlite), PyTorch profiler traces (.json, .json.gz), memory snapshots (.pickle), logs of torch.compile,
    Nsight Compute reports (.ncu-rep) and pages (.csv), reports (.html), settings (YAML, TOML), text, JSON, and folders
    of these.
    """
    from timesink.untrusted.unpack import plain_files
    from timesink.views import Page, listed

    if proof and output is not None:
        raise UsageError("--proof writes no copy", remedy="leave --output out")
    for _ in plain_files(file):  # each allows what it may cost
        pass
    with translated():
        done = redaction.proof(file, names or ()) if proof else redaction.redact(file, output, names or ())
    title = f"To remove from {file}, and what stays" if proof else f"Redacted copy: {done.path}"
    rows = tuple((text,) for text in done.removed) or (("nothing was found",),)
    sheets = [listed("capture.removed", rows)]
    if proof:
        stayed = ((means, text, count) for (means, text), count in sorted(done.stayed.items()))
        sheets.append(listed("capture.stayed", stayed))
    sink(form, None, no_color, [file]).show(Page(title, tuple(sheets)))
    return 1 if proof and done.removed else 0


app = Commands(
    "Record a program with torch.profiler, nsys or ncu.",
    {"torch": torch, "nsys": nsys, "ncu": ncu, "nccl-bench": nccl_bench},
)
