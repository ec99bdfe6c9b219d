"""What every capture does around its tool.

Before the run: settings, an empty folder on a disk with room, steps timed in a run of their own where that is wanted.
During it: the agent in the program, progress on stderr. After it: what counts as a failure and why, what is missing,
and the manifest.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean, median
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.agent.recording import RANKS
from timesink.capture.errors import A_STEP, CaptureError, failure, refused
from timesink.capture.manifest import Capture, Checked
from timesink.capture.processes import Ended, Setting, Watch, last_words, run
from timesink.capture.recorded_run import MANIFEST, fact_fault
from timesink.capture.schedule import VARIABLE, AgentPlan, Mode, StepSchedule
from timesink.knowledge import profiler_texts
from timesink.untrusted.plain_json import document
from timesink.untrusted.whole_file import write_whole

INJECT = Path(__file__).parent / "inject"
LEAST_FREE_BYTES = 1 << 30
_FULL_BYTES = 32 << 20
_LOOK_S = 0.2
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "ipython", "lightning", "pytest")
_SIGNS = {
    "ERR_NVGPUCTRPERM": (
        "the driver lets only root read GPU counters (ERR_NVGPUCTRPERM)",
        "run as root, add the capability SYS_ADMIN to the container, or have the administrator load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    "No space left on device": ("the disk is full", "free some space, or choose another --output or TMPDIR"),
    "importer binary and its dependencies were not found": (
        "this nsys has no importer, so its raw data cannot become a report",
        "see what `timesink doctor` says of nsys: Nsight Compute's lacks a link, and libdw1",
    ),
    "is not a supported device": ("the tool does not support this GPU", "use a newer version of the tool"),
    "Profiling is not supported on device": ("ncu cannot profile this GPU", "use a version of ncu made for it"),
}
# What nsys and ncu say in the end, after the program's own last words.


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What all three captures share.

    `unprofiled`: "inside" times steps in the captured process before recording begins, "separate" in a run of its own
    without the tool, "none" not at all. `whole`: record the whole program, for programs without steps. `keep_running`:
    let the program go on after its steps are recorded. `grace_s`: how long it may take to end. `facts`: what the
    run is, by name (resolution: 512), for the manifest and what is said of the capture.
    """

    out: Path
    steps: StepSchedule = field(default_factory=StepSchedule)
    whole: bool = False
    auto_ranges: bool = False
    keep_running: bool = False
    keep_report: bool = False
    unprofiled: str = "inside"
    timeout_s: float = 3600.0
    grace_s: float = 120.0
    quiet: bool = False
    config_files: tuple[Path, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if faults := [fault for pair in self.facts.items() if (fault := fact_fault(*pair))]:
            raise refused(faults[0], "give facts as NAME=VALUE, such as resolution=512")
        if self.unprofiled not in ("inside", "separate", "none"):
            raise refused(f"unprofiled steps cannot be timed {self.unprofiled!r}", "choose inside, separate or none")

    @property
    def stated(self) -> dict[str, Any]:
        """What the manifest says of them."""
        return {"steps": asdict(self.steps), "unprofiled": self.unprofiled}


def split_options(
    tool: str, kind: type, steps: int | StepSchedule, out: Path | None, options: dict[str, Any]
) -> tuple[dict[str, Any], CaptureSettings]:
    """Options of the tool (fields of `kind`), and the settings; `CaptureError` for a name that is neither's."""
    own = {field.name for field in fields(kind)}
    shared = {field.name for field in fields(CaptureSettings)}
    unknown = sorted(set(options) - own - shared)
    if unknown:
        raise refused(f"{tool} has no option {unknown[0]!r}", f"choose from: {', '.join(sorted(own | shared))}")
    tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    schedule = steps if isinstance(steps, StepSchedule) else StepSchedule(active=steps)
    common: dict[str, Any] = {name: value for name, value in tuples.items() if name in shared}
    settings = CaptureSettings(out if out is not None else default_folder(tool), schedule, **common)
    return {name: value for name, value in tuples.items() if name in own}, settings


def default_folder(tool: str) -> Path:
    """A folder that is not there yet, named by time and tool."""
    return Path("captures") / f"{time.strftime('%Y%m%d-%H%M%S')}-{tool}"


def ready_folder(out: Path) -> Path:
    """The capture's folder, made if need be, empty, on a disk with room. Nothing in its name means more to a tool."""
    if "%" in str(out.absolute()):
        what = f"the folder {str(out)!r} has a % in its path; nsys and ncu put variables in its place (%q{{NAME}})"
        raise refused(what, "choose a folder without %")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise refused(f"{out} already holds files", "choose another folder for --output")
        free = shutil.disk_usage(out).free
    except OSError as error:
        raise refused(f"cannot write to {out}: {error.strerror}", "choose another folder for --output") from error
    if free < LEAST_FREE_BYTES:
        what = f"{out} has {free >> 20} MiB free, and a capture may need {LEAST_FREE_BYTES >> 20}"
        raise refused(what, "free some space, or choose another folder for --output")
    return out


def is_python(program: Sequence[str]) -> bool:
    """Whether the program is Python as far as its command line tells, wrappers such as srun and env included."""
    if not program:
        raise refused("no program to run", "write it after --, such as: -- python train.py")
    names = [Path(word).name for word in program]
    if any(name.startswith("python") or name in _LAUNCHERS or name.endswith(".py") for name in names):
        return True
    first = shutil.which(program[0])
    if first is None:
        return False
    with Path(first).open("rb") as file:
        line = file.readline(200)
    return line.startswith(b"#!") and b"python" in line


def agent_environment(
    plan: AgentPlan | str, given: Mapping[str, str] = os.environ, variable: str = VARIABLE
) -> dict[str, str]:
    """The variables that wake the agent in the program and in all Python processes it starts.

    `given` are those that the program would have without it. `variable` wakes an agent of another kind by its plan.
    """
    places = [str(INJECT), *filter(None, [given.get("PYTHONPATH", "")])]
    text = plan if isinstance(plan, str) else plan.to_json()
    return {variable: text, "PYTHONPATH": os.pathsep.join(places)}


def read_statuses(folder: Path) -> list[dict[str, Any]]:
    """The status files that the ranks have written so far, by rank."""
    found = []
    for path in (folder / RANKS).glob("*.json"):
        try:
            found.append(document(path))
        except (OSError, ValueError):
            continue  # claimed this moment, and still empty
    return sorted(found, key=lambda status: status["rank"])


def wait_for_ranks(folder: Path, patience_s: float = 120.0) -> list[dict[str, Any]]:
    """The ranks' status files; where rank 0 is done, once the others have ended, one has failed, or patience ends."""
    until = time.monotonic() + patience_s
    while True:
        ranks = read_statuses(folder)
        phases = {rank["rank"]: rank["phase"] for rank in ranks}
        left = max((rank["world"] for rank in ranks), default=0) - list(phases.values()).count("done")
        if phases.get(0) != "done" or left <= 0 or "failed" in phases.values() or time.monotonic() > until:
            return ranks
        time.sleep(_LOOK_S)


class Progress:
    """Tells on a terminal when rank 0 changes phase; `is_done` once every rank has ended its recording."""

    def __init__(self, plan: AgentPlan, what: str, quiet: bool) -> None:
        self._folder = Path(plan.folder)
        self._plan = plan
        self._what = what
        self._quiet = quiet
        self._phase = ""

    def is_done(self) -> bool:
        """Look at the status files."""
        ranks = read_statuses(self._folder)
        if ranks and ranks[0]["phase"] != self._phase:
            self._phase = ranks[0]["phase"]
            self._tell(self._words(ranks[0]))
        ended = [rank for rank in ranks if rank["phase"] in ("done", "failed")]
        return self._plan.stop and bool(ended) and len(ended) >= max(rank["world"] for rank in ranks)

    def _words(self, rank: dict[str, Any]) -> str:
        steps = self._plan.steps
        step = f", step {rank['unprofiled']['step_ms']:.3g} ms" if rank.get("unprofiled") else ""
        words = {
            "settle": f"{steps.settle} steps to settle",
            "timed": f"{steps.timed} steps without a profiler",
            "warm_up": f"{rank.get('warm_up', 0)} steps of warm-up under the profiler{step}",
            "active": "recording the whole program" if self._plan.whole else f"recording {steps.active} steps",
            "done": f"done{step if self._plan.mode is Mode.TIME else ''}",
            "failed": f"failed: {rank.get('error', '')}",
        }
        return words[rank["phase"]]

    def _tell(self, words: str) -> None:
        if not self._quiet and sys.stderr.isatty():
            sys.stderr.write(f"timesink: {self._what}: {words}\n")
            sys.stderr.flush()


def run_watched(argv: Sequence[str], plan: AgentPlan | None, settings: CaptureSettings, what: str) -> Ended:
    """Run a command with the agent in it (where there is a plan), its words in `log.txt` of the plan's folder."""
    folder = settings.out if plan is None else Path(plan.folder)
    watch = Watch(Progress(plan, what, settings.quiet).is_done, settings.grace_s) if plan is not None else None
    extra = {} if plan is None else agent_environment(plan)
    return run(
        argv,
        folder / "log.txt",
        setting=Setting(extra),
        timeout_s=settings.timeout_s,
        quiet=settings.quiet,
        watch=watch,
    )


def explain_failure(ended: Ended, what: str, folder: Path) -> CaptureError:
    """Why a run failed, by the signs in what it said and by the disk; else its status and last words."""
    said, full = ended.said(), "No space left on device"
    seen = [sign for sign in _SIGNS if sign in said] + [full] * (shutil.disk_usage(folder).free < _FULL_BYTES)
    if seen:
        message, remedy = _SIGNS[seen[0]]
        return failure(f"{what} failed: {message}", remedy)
    own = [line for line in ended.tail(40) if not profiler_texts.TOOL_CHATTER.match(line)]
    remedy = f"make the program run alone first; all it said is in {ended.log}"
    return failure(f"{what} ended with status {ended.status}: {last_words(own, 3)[:400]}", remedy)


def run_unprofiled(program: Sequence[str], settings: CaptureSettings) -> list[dict[str, Any]]:
    """A run of its own without any tool, ended after its timed steps; the status of each rank."""
    folder = settings.out / "unprofiled"
    folder.mkdir()
    plan = AgentPlan(Mode.TIME, str(folder.absolute()), settings.steps)
    ended = run_watched(program, plan, settings, "unprofiled run")
    ranks = read_statuses(folder)
    if ended.status != 0 and not is_all_done(ranks):
        raise explain_failure(ended, "the program (without a profiler)", folder)
    return ranks


def is_all_done(ranks: Sequence[dict[str, Any]]) -> bool:
    """Whether every rank recorded its steps to the end."""
    return bool(ranks) and all(rank["phase"] == "done" for rank in ranks) and len(ranks) >= ranks[0]["world"]


# Recording makes steps longer; ten steps of a DataLoader's differ by a tenth from the next ten.
_LEAST_SHARE = 0.75
_STEPS_REMEDY = (
    "call timesink.step() at the end of each step, ask for fewer{options}, or record all of a program without steps "
    "with --whole"
)


def _fewer(made: int, steps: StepSchedule) -> str:
    """The options of a capture that a program of so many steps has room for."""
    timed = made - (steps.total - steps.timed)
    if timed >= 0:
        return f": --timed {timed}"
    active = made - steps.warm_up - 1
    return f": --settle 1 --timed 0 --steps {active}" if active > 0 else " (--steps, --settle, --timed)"


def refuse_failure(ended: Ended, ranks: Sequence[dict[str, Any]], settings: CaptureSettings) -> None:
    """A program that failed before its steps were recorded is an error; so is one whose steps nobody saw."""
    if any(rank["phase"] == "failed" for rank in ranks) or ended.status == 0:
        refuse_unrecorded(ranks, settings)
    elif not is_all_done(ranks):
        raise explain_failure(ended, "the program", settings.out)


def refuse_unrecorded(ranks: Sequence[dict[str, Any]], settings: CaptureSettings) -> None:
    """`CaptureError` unless every rank recorded its steps to the end."""
    failed = [rank for rank in ranks if rank["phase"] == "failed"]
    if failed:
        full = "No space left" in failed[0]["error"]
        remedy = "free some space, or choose another --output" if full else f"look at {settings.out / 'log.txt'}"
        raise failure(f"rank {failed[0]['rank']} could not record: {failed[0]['error']}", remedy)
    if not is_all_done(ranks):
        what, made = f"the program ended, and no step was seen in it (none of: {A_STEP})", 0
        if ranks:
            first = next(rank for rank in ranks if rank["phase"] != "done")
            made = first.get("steps_made", 0)
            ended = f"after {made} steps" if made else f"in its phase {first['phase']!r}"
            what = f"the program ended {ended} of rank {first['rank']}: a capture needs {settings.steps.total}"
        raise failure(what, _STEPS_REMEDY.format(options=_fewer(made, settings.steps)))


def list_missing(checked: Sequence[Checked], expected: Sequence[str], ranks: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence per thing that was expected of the artefacts, or of a rank, and is not there."""
    missing = [sentence for one in checked for sentence in one.missing(tuple(expected))]
    absent = sorted(set(range(ranks[0]["world"])) - {rank["rank"] for rank in ranks}) if ranks else []
    return missing + [f"rank {rank} recorded nothing" for rank in absent]


def find_doubts(ranks: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence per rank whose recorded steps are shorter than its unprofiled ones by mean and by median."""
    found = []
    for rank in ranks:
        if rank.get("unprofiled") and rank.get("profiled"):
            alone, recorded = rank["unprofiled"]["steps_ms"], rank["profiled"]["steps_ms"]
            if all(typical(recorded) < _LEAST_SHARE * typical(alone) for typical in (fmean, median)):
                found.append(
                    f"rank {rank['rank']}: recorded steps take {fmean(recorded):.3g} ms on average, unprofiled ones "
                    f"{fmean(alone):.3g} ms, so they are not like the others (input that lay ready?): raise --warm-up"
                )
    return found


def torch_records(ranks: Sequence[dict[str, Any]], *, steps: bool) -> list[str]:
    """What a trace of torch.profiler is to hold, as `manifest.check` counts it."""
    on_gpu = any("gpu" in rank.get("software", {}) for rank in ranks)
    return ["operators", *(["steps"] if steps else []), *(["CUDA API calls", "kernels"] if on_gpu else [])]


def write_manifest(
    folder: Path,
    known: dict[str, Any],
    checked: Sequence[Checked],
    expected: Sequence[str],
    ranks: Sequence[dict[str, Any]],
) -> Capture:
    """Write the manifest next to the artefacts: what is `known`, what each rank says of itself, and what is missing."""
    missing = list_missing(checked, expected, ranks)
    entry = {
        **known,
        "ranks": [{key: value for key, value in rank.items() if key != "pid"} for rank in ranks],
        "files": manifests.files_entry(checked),
        "missing": missing,
        "doubts": find_doubts(ranks),
    }
    write_whole(folder / MANIFEST, json.dumps(entry, indent=1))
    return Capture(folder, tuple(one.path for one in checked if one.size_bytes), entry, tuple(missing))
