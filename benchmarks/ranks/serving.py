"""Items pass through a stage a rank; the fault starts an item when the one before has left. Stages log their times.

The log has a line an item and rank, in seconds of that rank's own clock: `tA0`, `tA1` begin and end of the work of the
first stage (B the second, and so on), `tRecv` and `tSend` when its input had come and its output was handed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from benchmarks.ranks.pipeline import received, sending
from benchmarks.ranks.world import World
from torch import Tensor

ITEMS, LAYERS = 8, 6


class Served:
    """A step is `ITEMS` items through all stages; the receipt is the mean of the last stage's outputs."""

    def __init__(self, world: World, one_at_a_time: bool) -> None:
        self.world, self.one_at_a_time = world, one_at_a_time
        width = world.pick(4096)
        self.stage = world.stack(LAYERS, width, seed=60 + world.rank).requires_grad_(False)
        self.items = [world.random(world.pick(4096), width, seed=70 + at) for at in range(ITEMS)]
        self.token = torch.zeros(1, device=world.device)
        self.log: list[list[dict[str, torch.cuda.Event]]] | None = None

    def __call__(self) -> Tensor:
        world, total, sent = self.world, torch.zeros((), device=self.world.device), []
        lines: list[dict[str, torch.cuda.Event]] = []
        for item in self.items:
            line: dict[str, torch.cuda.Event] = {}
            x = item if world.rank == 0 else received(world, item, world.rank - 1)
            self._mark(line, "tRecv", world.rank > 0)
            self._mark(line, f"t{self._letter}0")
            with world.phase(f"stage {world.rank}"):
                y = self.stage(x)
            self._mark(line, f"t{self._letter}1")
            if not world.last:
                sent.append(sending(y, world.rank + 1))
                self._mark(line, "tSend")
            else:
                total += y.float().mean()
            if self.one_at_a_time:
                self._return_token()
            lines.append(line)
        for work, _ in sent:
            work.wait()
        if self.log is not None:
            self.log.append(lines)
        return total

    @property
    def _letter(self) -> str:
        return chr(ord("A") + self.world.rank)

    def _return_token(self) -> None:
        """The first stage goes on when the last stage says that the item has left."""
        if self.world.last:
            dist.send(self.token, 0)
        elif self.world.rank == 0:
            dist.recv(self.token, self.world.size - 1)

    def _mark(self, line: dict[str, torch.cuda.Event], name: str, wanted: bool = True) -> None:
        if self.log is not None and wanted:
            line[name] = torch.cuda.Event(enable_timing=True)
            line[name].record()

    def logged(self, steps: int, target: Path) -> None:
        """Run some steps and write their log."""
        if not self.world.cuda:
            return
        self.log = []
        origin = torch.cuda.Event(enable_timing=True)
        origin.record()
        for _ in range(steps):
            self()
        self.world.synchronize()
        with target.open("w") as out:
            for number, lines in enumerate(self.log):
                for item, line in enumerate(lines):
                    times = {name: round(origin.elapsed_time(event) / 1e3, 9) for name, event in line.items()}
                    out.write(json.dumps({"step": number, "item": item, **times}) + "\n")
        self.log = None


def served(world: World, one_at_a_time: bool) -> Callable[[], Tensor]:
    """The step of a serving pipeline."""
    return Served(world, one_at_a_time)
