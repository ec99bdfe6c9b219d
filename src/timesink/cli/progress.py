"""A sign of life on stderr for whatever takes longer than a second; nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE_S = 1.0


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show `what` with a spinner and the seconds gone by, from the second second on, while the block runs.

    The block is handed a function that changes what is shown.
    """
    if not sys.stderr.isatty():
        yield _unheard
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(what, total=None)
    timer = Timer(PATIENCE_S, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda shown: progress.update(task, description=shown)
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


def _unheard(shown: str) -> None:
    """Where nobody watches."""
