"""What a diagnosis takes, counted and not timed: the same on a busy machine and on a quiet one.

    python -m benchmarks.counts

Counted are calls of our own Python functions and queries of Polars, for the bundled demo's trace and for the same trace
twice over, where work in Python for every event would double; and the modules that commands import.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.grow import grow
from benchmarks.runs import Row, at_most, run, show

import timesink
from timesink.diagnosis.engine import diagnose
from timesink.readers import read

NAME = "counts"
PACKAGE = Path(timesink.__file__).parent
DEMO = PACKAGE / "cli" / "demo" / "gpt_before.json.gz"
DEMO_MB = 14
# About a tenth above what was counted when they were set. A rule more may raise them; so may carelessness.
CALLS, QUERIES, GROWTH = 16_000, 1_550, 1.15
MODULES = {"--help": 190, "diagnose nothing.json": 900}
_IMPORTED = """
import json, sys
from timesink.cli.app import run
run(sys.argv[1:])
print(json.dumps([len(sys.modules), sorted({'polars', 'numpy', 'pydantic', 'rich', 'scipy'} & set(sys.modules))]))
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls of our own functions, by file and name, and queries of Polars."""

    calls: Counter[tuple[str, str]]
    queries: int


def counted(trace: Path) -> Counts:
    """Read and diagnose a trace, counting. One was to be diagnosed before, for what is kept between traces."""
    calls: Counter[tuple[str, str]] = Counter()
    queries, package = 0, str(PACKAGE)

    def count(frame: FrameType, event: str, what: Any) -> None:
        nonlocal queries
        if event == "call" and (file := frame.f_code.co_filename).startswith(package):
            calls[file.removeprefix(package), frame.f_code.co_name] += 1
        elif event == "c_call" and what.__name__ == "collect":
            queries += 1

    sys.setprofile(count)
    try:
        diagnose(read(trace, cache=False))
    finally:
        sys.setprofile(None)
    return Counts(calls, queries)


def once_and_twice(folder: Path) -> tuple[Counts, Counts]:
    """The counts of the demo's trace, and of the same trace twice over."""
    twice = folder / "twice.json"
    grow(DEMO, twice, DEMO_MB + 1)
    diagnose(read(DEMO, cache=False))
    return counted(DEMO), counted(twice)


def imported(*words: str) -> tuple[int, list[str]]:
    """How many modules a command imports, and which of the large libraries are among them."""
    number, large = json.loads(run([sys.executable, "-c", _IMPORTED, *words]).text.splitlines()[-1])
    return number, large


def rows() -> Iterator[Row]:
    """One row per count."""
    with tempfile.TemporaryDirectory() as folder:
        once, twice = once_and_twice(Path(folder))
    yield at_most(NAME, "calls of our functions", once.calls.total(), CALLS, "calls")
    yield at_most(NAME, "queries of Polars", once.queries, QUERIES, "queries")
    yield at_most(NAME, "calls, the trace twice / once", twice.calls.total() / once.calls.total(), GROWTH, "x")
    yield at_most(NAME, "queries, the trace twice / once", twice.queries / once.queries, GROWTH, "x")
    for words, bar in MODULES.items():
        yield at_most(NAME, f"modules that `timesink {words}` imports", imported(*words.split())[0], bar, "modules")
    more = twice.calls - once.calls
    for (file, name), extra in more.most_common(5):
        yield Row(NAME, f"called more often: {file[1:]} {name}", f"{extra:,} calls")


if __name__ == "__main__":
    show(rows())
