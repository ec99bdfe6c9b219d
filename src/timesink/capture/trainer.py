"""Captures that a training program makes of itself: one line in its profiler, its trainer or its own loop.

`timesink.handler` is what `torch.profiler.profile(on_trace_ready=...)` calls at the end of every recorded window;
`timesink.recorder` counts the steps of a loop, or of a trainer that calls back at the end of every step. Nothing here
raises into the training: what cannot be recorded is said in one line on stderr. What takes time (manifest, diagnosis,
report) is the work of another process of low priority, which waits for
the ranks, writes the manifest and becomes `timesink.cli.verdict`: ``python -m timesink.capture.trainer ORDER``,
where ORDER is an `Order` as JSON. A thread of the training waits for it, blocked in a read, so that the training holds
its interpreter lock; it then prints what the process said and hands figures to the logs. The interpreter waits for the
thread before it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

from timesink.capture.agent.recording import Agent, Status, free_folder, rank_and_world, software
from timesink.capture.errors import refused
from timesink.capture.figure_logs import open_logs
from timesink.capture.recorded_run import fact_fault
from timesink.capture.schedule import VARIABLE, AgentPlan, Mode, StepSchedule

_FAILURES = (OSError, RuntimeError, ValueError)


def handler(
    folder: str | Path, *, verdict: bool = True, log: str | Sequence[str] = (), facts: Mapping[str, str] | None = None
) -> TraceHandler:
    """A handler for ``torch.profiler.profile(..., on_trace_ready=timesink.handler("runs/x"))``.

    Every window becomes a folder ``runs/x/step<N>``, `N` being the profiler's step at which it ended, with one trace
    per rank, ``rank<R>.json``, as ``export_chrome_trace`` writes it. Rank 0 then starts a process of low priority that
    writes the manifest and, with `verdict`, the report and ``runs/x/timesink/index.html``, and prints the verdict.

    Parameters
    ----------
    log
        ``"wandb"``, ``"mlflow"``, ``"tensorboard"``, or several of them: figures and the link go to the run that is
        active when the window ends.
    facts
        What the run is (``{"resolution": "512"}``), to be said with its figures.

    Raises
    ------
    CaptureError
        A library of `log` is not installed, or a fact is none. The handler itself raises nothing.
    """
    place = Path(folder).absolute()  # programs change the current folder
    return TraceHandler(Verdicts(place, verdict, log, facts))


class TraceHandler:
    """See `handler`. `wait` blocks until what was started for the windows so far has ended."""

    def __init__(self, verdicts: Verdicts) -> None:
        self.folder = verdicts.root
        self._verdicts = verdicts
        self.wait = verdicts.wait  # until verdicts are printed, or so many seconds have passed

    def __call__(self, profiler: Any) -> None:
        """Write the trace of the window that has ended."""
        try:
            self._keep(profiler)
        except _FAILURES as error:
            warn(f"the window was not kept: {type(error).__name__}: {error}")

    def _keep(self, profiler: Any) -> None:
        rank, world = rank_and_world()
        step = int(getattr(profiler, "step_num", 0))
        window = free_folder(self.folder / f"step{step}", rank)
        status = Status(window, rank, world)
        if not status.claim():
            raise RuntimeError(f"another process of rank {rank} has taken {window.name}")
        name = f"rank{rank}.json"
        partial = window / f".partial-{name}"
        profiler.export_chrome_trace(str(partial))
        partial.replace(window / name)
        status.tell(phase="done", file=name, software=software())
        if rank == 0:
            self._verdicts.follow(Order(str(window), step, {"name": "torch"}))


def recorder(
    folder: str | Path,
    steps: int | StepSchedule = 6,
    *,
    verdict: bool = True,
    log: str | Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    **recorded: bool,
) -> StepRecorder:
    """Records once, early in a loop: call ``.step()`` at the end of every step, and ``.close()`` after the last.

    Of the first steps 5 settle, 10 are timed without a profiler, 2 warm it up and `steps` are recorded into `folder`
    (a `StepSchedule` says otherwise), one file per rank. After that a call of ``step()`` returns at once. `verdict`,
    `log` and `facts` are those of `timesink.handler`; `recorded` takes ``shapes=True``, ``stacks=False`` and
    ``memory=False``, as torch.profiler knows them.

    Raises
    ------
    CaptureError
        A library of `log` is not installed, or a fact is none. ``step()`` and ``close()`` raise nothing.
    """
    schedule = steps if isinstance(steps, StepSchedule) else StepSchedule(active=steps)
    place = Path(folder).absolute()  # programs change the current folder
    return StepRecorder(schedule, Verdicts(place, verdict, log, facts), recorded)


class StepRecorder:
    """See `recorder`. `folder` is where this rank records: the one asked for, or one beside it that is not taken."""

    def __init__(self, schedule: StepSchedule, verdicts: Verdicts, recorded: Mapping[str, bool]) -> None:
        self.folder = verdicts.root
        self.is_done = VARIABLE in os.environ  # `timesink capture` or `verify` runs this program, and has its own agent
        self._schedule, self._verdicts, self._recorded = schedule, verdicts, recorded
        self._agent: Agent | None = None
        self._steps = 0
        self.wait = verdicts.wait  # until verdicts are printed, or so many seconds have passed

    def step(self) -> None:
        """A step has ended."""
        if self.is_done:
            return
        if self._agent is None:
            self.folder = free_folder(self._verdicts.root / "window", rank_and_world()[0])
            plan = AgentPlan(Mode.TORCH, str(self.folder), self._schedule, stop=False, **self._recorded)
            self._agent = Agent(plan)
        self._steps += 1
        self._agent.explicit_step()
        if self._agent.finished:
            self._end(self._agent)

    def close(self) -> None:
        """The loop is over. Waits for nothing; the verdict may be printed after it."""
        was_done, self.is_done = self.is_done, True
        if was_done or self._agent is None:
            return
        self._agent.leave()
        warn(f"nothing was recorded: the loop ended after {self._steps} of {self._schedule.total} steps")

    def _end(self, agent: Agent) -> None:
        """Recorded, or failed: either way the training goes on."""
        self.is_done = True
        status: dict[str, Any] = agent.facts
        if status.get("phase") != "done":
            warn(f"nothing was recorded: {status.get('error', 'another process of this rank records')}")
        elif status["rank"] == 0:
            tool = {"name": "torch", "recorded": dict(self._recorded)}
            self._verdicts.follow(Order(str(self.folder), self._steps, tool, asdict(self._schedule)))


LONGEST_S = 900.0
_LONGEST_NAME = 150
_PACKAGES = Path(__file__).resolve().parents[2]
_THREADS = "2"  # of Polars: the training needs the cores
_OURS = ("TIMESINK_CAPTURE", "TIMESINK_STEPS")


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is told: the window's folder, the step it ended at, and what the manifest is to say besides.

    `steps` is the schedule where there was one of ours; `root` is the folder that has the index page, or empty where no
    verdict is wanted; `patience_s` is how long it waits for the other ranks.
    """

    window: str
    step: int
    tool: dict[str, Any]
    steps: dict[str, int] | None = None
    facts: dict[str, str] = field(default_factory=dict)
    root: str = ""
    program: list[str] = field(default_factory=list)
    patience_s: float = 120.0


def warn(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"timesink: {text}\n")
    sys.stderr.flush()


class Verdicts:
    """Follows windows below one folder, an absolute path, each with a process and a thread of its own.

    `CaptureError` where a fact is none, or the library of a log is not installed.
    """

    def __init__(self, root: Path, wanted: bool, logs: str | Sequence[str], facts: Mapping[str, str] | None) -> None:
        self.root, self._wanted, self._facts = root, wanted, dict(facts or {})
        self._logs = open_logs(logs, root)
        self._threads: list[Thread] = []
        if fault := next(filter(None, (fact_fault(*fact) for fact in self._facts.items())), ""):
            raise refused(fault, 'give facts as {"resolution": "512"}')

    def follow(self, order: Order) -> None:
        """Start what looks at the window. Costs the caller the start of a process."""
        root = str(self.root) if self._wanted else ""
        told = json.dumps({**asdict(order), "facts": self._facts, "root": root, "program": sys.argv})
        for log in self._logs:
            log.attach()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "timesink.capture.trainer", told],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(),
            )  # fmt: skip
        except OSError as error:
            warn(f"no verdict: {error}")
            return
        thread = Thread(target=self._tell, args=(process, order), name="timesink-verdict")
        thread.start()
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def wait(self, timeout_s: float | None = None) -> None:
        """Until verdicts are printed, or that many seconds have passed."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _tell(self, process: subprocess.Popen[bytes], order: Order) -> None:
        try:
            said = process.communicate(timeout=LONGEST_S)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            warn(f"no verdict of {order.window} after {LONGEST_S:.0f} s")
            return
        sys.stdout.write(said)
        sys.stdout.flush()
        if self._wanted and self._logs:
            self._log(order)

    def _log(self, order: Order) -> None:
        """Figures and the link, from what the process stored of the window."""
        row = read_stored_row(self.root, Path(order.window).relative_to(self.root).as_posix())
        if row is None:
            return
        for log in self._logs:
            try:
                log.write(row["figures"], {"verdict": row["statement"], "report": row["report"]}, order.step)
            except Exception as error:  # noqa: BLE001 - whatever a logging library raises, the training goes on
                warn(f"{log.name}: {type(error).__name__}: {error}")


PAGES = "timesink"
"""The folder, below that of the windows, that holds the index page, reports and what was stored of each capture."""


def slug(name: str) -> str:
    """The name of a capture, which may be a path, as the name of a file: another name, another file."""
    plain = name.replace("/", "--")[-_LONGEST_NAME:]
    if plain == name and "--" not in name:
        return name
    return f"{plain}-{sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def read_stored_row(root: Path, name: str) -> dict[str, Any] | None:
    """What `timesink.cli.verdict` stored of a window, its report as a path; None where it has no diagnosis."""
    try:
        row = json.loads((root / PAGES / f"{slug(name)}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {**row, "report": str(root / PAGES / row["report"])} if row.get("report") else None


def _environment() -> dict[str, str]:
    """The program's, without what wakes our agent in it; the package first, wherever the program found it."""
    kept = {name: value for name, value in os.environ.items() if name not in _OURS}
    places = [str(_PACKAGES), *filter(None, [kept.get("PYTHONPATH", "")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(places), "POLARS_MAX_THREADS": _THREADS, "COLUMNS": "100"}


def main(text: str) -> int:
    """Write the manifest; then become `timesink.cli.verdict`, if a verdict is wanted."""
    # here, as the training imports this file too
    from timesink.capture import manifest as manifests
    from timesink.capture.running import torch_records, wait_for_ranks, write_manifest

    order = Order(**json.loads(text))
    os.nice(19)
    window = Path(order.window)
    ranks = wait_for_ranks(window, order.patience_s)
    try:
        with ThreadPoolExecutor(1) as pool:  # nvidia-smi and git take as long as looking through the traces
            surroundings = pool.submit(manifests.surroundings, order.program, (), order.facts)
            checked = [manifests.check(window / rank["file"]) for rank in ranks if rank.get("file")]
        known = {**surroundings.result(), "tool": order.tool, **({"steps": order.steps} if order.steps else {})}
        done = write_manifest(window, known, checked, torch_records(ranks, steps=False), ranks)
    except OSError as error:
        warn(f"no manifest of {window}: {error}")
        return 1
    for sentence in done.missing:
        warn(sentence)
    if order.root:
        words = ["timesink.cli.verdict", order.root, window.relative_to(order.root).as_posix()]
        os.execv(sys.executable, [sys.executable, "-P", "-m", *words])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
