"""`timesink capture`: run a program under the right profiler, with the right flags.

`torch`, `nsys` and `ncu` share the options of `CaptureRun`. What a capture shows is at the end: its files and figures,
or the command that it would run, or whether it could.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from timesink.capture import redaction
from timesink.capture.errors import CaptureError, refused
from timesink.capture.recorded_run import LINK_TIMES
from timesink.cli import asked
from timesink.cli.capturing.captured import finished, show_check, show_command, translated
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
from timesink.cli.output import sink, working
from timesink.cli.parameters import Argument, Commands, Option
from timesink.errors import TimesinkError, UsageError
from timesink.records import Record, as_plain, replace
from timesink.render import Format
from timesink.units import share_text
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.capture.profilers import NcuOptions, NsysOptions, TorchOptions
    from timesink.capture.running import CaptureSettings
    from timesink.capture.tools import Tool


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
            must=asked.there,
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
    from timesink.capture.nccl_bench import check_launcher, run_bench

    with translated():
        check_launcher(launcher or ())
    from timesink.views.capture import link_times_page, sizes_of

    traces = sizes_from or []
    calls = sizes_of(read_traces(traces) if traces else None)
    used = set(calls) - set(sizes_of(None)) if traces else set()
    place = Path() if not traces else traces[0] if traces[0].is_dir() else traces[0].parent
    with translated():
        measured = run_bench(launcher or (), calls, place / LINK_TIMES, timeout)
    writing.sink().show(link_times_page(measured, calls, sorted(used)))
    return 0


def redact(
    file: Annotated[Path, Argument("FILE", "A capture or a report.")],
    output: Annotated[
        Path | None, Option("--output -o", "FILE", "The new file [default: NAME.redacted.*].", must=asked.place)
    ] = None,
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
    exports (.sqlite), PyTorch profiler traces (.json, .json.gz, .json.xz), memory snapshots (.pickle), logs of
    torch.compile, Nsight Compute reports (.ncu-rep) and pages (.csv), reports (.html), settings (YAML, TOML), text,
    JSON, and folders of these.
    """
    from timesink.untrusted.unpack import plain_files
    from timesink.views import Page, listed

    if proof and output is not None:
        raise UsageError("--proof writes no copy", remedy="leave --output out")
    for _ in plain_files(file):  # each allows what it may cost
        pass
    with translated(), working(f"reading every text of {file.name}"):
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
