"""`timesink.handler`: what `torch.profiler.profile(on_trace_ready=...)` calls at the end of every recorded window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timesink.capture.agent.recording import Status, free_folder, rank_and_world, software
from timesink.capture.trainer.logs import opened
from timesink.capture.trainer.verdict import Order, Verdicts, checked_facts, warn

_FAILURES = (OSError, RuntimeError, ValueError)


def handler(
    folder: str | Path,
    *,
    verdict: bool = True,
    log: str | Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
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
    return TraceHandler(place, verdict, opened(log, place), checked_facts(facts))


class TraceHandler:
    """See `handler`. `wait` blocks until what was started for the windows so far has ended."""

    def __init__(self, folder: Path, verdict: bool, logs: Sequence[Any], facts: Mapping[str, str]) -> None:
        self.folder = folder
        self.facts = facts
        self._verdicts = Verdicts(folder, verdict, logs)

    def __call__(self, profiler: Any) -> None:
        """Write the trace of the window that has ended."""
        try:
            self._keep(profiler)
        except _FAILURES as error:
            warn(f"the window was not kept: {type(error).__name__}: {error}")

    def wait(self, timeout_s: float | None = None) -> None:
        """Until verdicts are printed, or that many seconds have passed."""
        self._verdicts.wait(timeout_s)

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
            self._verdicts.follow(Order(str(window), step, dict(self.facts), {"name": "torch"}))
