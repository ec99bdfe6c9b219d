"""GPUs shared by programs that run at once."""

from __future__ import annotations

import threading


class Pool:
    """GPUs lent to programs; one that needs two waits until two are free."""

    def __init__(self, count: int) -> None:
        self.free, self.changed = set(range(count)), threading.Condition()

    def take(self, count: int) -> list[int]:
        with self.changed:
            self.changed.wait_for(lambda: len(self.free) >= count)
            taken = sorted(self.free)[:count]
            self.free -= set(taken)
            return taken

    def give(self, gpus: list[int]) -> None:
        with self.changed:
            self.free |= set(gpus)
            self.changed.notify_all()
