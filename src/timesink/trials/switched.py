"""A running program and the changes that are on in it, in all ranks of its job or in none."""

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter  # the program may set `time.perf_counter`; this one is from before
from typing import Any, Final

from timesink.capture.agent.recording import Agent
from timesink.capture.schedule import AgentPlan, Mode
from timesink.recipes import Undo
from timesink.recipes.program import RunningProgram
from timesink.recipes.switching import Refusal
from timesink.recipes.table import SWITCHES
from timesink.trials.records import TrialPlan

_FAILURES: Final = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError, OSError)

_PACKAGE: Final = str(Path(__file__).parents[1])
_UNFORESEEN: Final = (AttributeError, TypeError, KeyError, IndexError)
_OTHERWISE: Final = "the program is built otherwise than this change knows"


class SwitchedProgram(Agent):
    """An agent that switches changes on and off between steps, and takes the blame for what they break."""

    def __init__(self, plan: TrialPlan) -> None:
        super().__init__(AgentPlan(Mode.STEPS, str(Path(plan.file).parent)))
        self.program = RunningProgram(self._take_blame, plan.check)
        for name in plan.fixed:
            self.program.loader_options |= SWITCHES[name].loader
        self._on: dict[str, Undo] = {}
        self._broken = ""
        self._shared = 0

    def _take_blame(self, error: BaseException) -> bool:
        """Whether the error is that of the change that was switched on last, which then is off; anything else is the
        program's own."""
        if not self._on or self._broken:
            return False
        name = next(reversed(self._on))
        self._broken = f"{type(error).__name__}: {error}"
        self._off(name)
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return True

    def _turn_on(self, name: str) -> None:
        self._broken = ""
        self._on[name] = SWITCHES[name].turn_on(self.program)

    def _off(self, name: str) -> None:
        if undo := self._on.pop(name, None):
            undo()

    def _share(self, value: Any) -> list[Any]:
        """What each rank of the job gives here, by rank. All ranks call it in one order, between the same steps."""
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return [value]
        store = dist.distributed_c10d._get_default_store()
        key, self._shared = f"timesink-try/{self._shared}", self._shared + 1
        store.set(f"{key}/{dist.get_rank()}", json.dumps(value))
        return [json.loads(store.get(f"{key}/{rank}")) for rank in range(dist.get_world_size())]

    def _is_late(self, until: float) -> bool:
        return any(self._share(perf_counter() > until))

    def _switch_on(self, names: Sequence[str]) -> tuple[str, str]:
        """All of them, in all ranks, or none: why one does not apply, and what one broke as it was made."""
        refused = failed = ""
        try:
            for name in names:
                if name not in self._on:
                    self._turn_on(name)
        except Refusal as why:
            refused = str(why)
        except _FAILURES as error:
            failed = f"{type(error).__name__}: {error}"[:300]
            if isinstance(error, _UNFORESEEN) and _is_ours(error):
                refused, failed = _OTHERWISE, ""
        for other_refused, other_failed in self._share([refused, failed]):
            refused, failed = refused or other_refused, failed or other_failed
        if refused or failed:
            self._switch_off(names)
        return refused, failed

    def _switch_off(self, names: Sequence[str]) -> None:
        for name in reversed(names):
            self._off(name)


def _is_ours(error: BaseException) -> bool:
    """Whether the line that failed is one of this package's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def reset_memory() -> None:
    """Count the most memory anew."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def most_memory() -> int:
    """The most bytes that PyTorch had allocated on the GPU since."""
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_initialized() else 0
