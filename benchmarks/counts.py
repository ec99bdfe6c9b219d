"""What a diagnosis takes, counted and not timed: the same on a busy machine and on a quiet one.

    python -m benchmarks.counts

Counted are calls of our own Python functions and queries of Polars: of the diagnosis of the bundled demo's trace and
of an export of Nsight Systems, each once and twice over, where work in Python for every event would double; of what a
rank of a job, a plan and a report take; and the modules that commands import.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.grow import grow
from benchmarks.runs import ROOT, Row, at_most, run, show

import timesink
from benchmarks import sqlite
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import plan
from timesink.measures.ranks.job import job
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.render.html import html_report

NAME = "counts"
PACKAGE = Path(timesink.__file__).parent
DEMO = PACKAGE / "cli" / "demo" / "gpt_before.json.xz"
DEMO_MB = 14
EXPORT = ROOT / "tests" / "data" / "nsys" / "gpt_before_5_steps.sqlite"
TWICE = (2_210, 4_060)  # kernels and calls of the export, twice what it has
# About a tenth above what was counted when they were set. A rule more may raise them; so may carelessness. The
# first was 13,100 until sentences came out of the files of rules, filled in by a judge: 500 calls more. Then came five
# rules and what repeats within a step: 1,380 calls and 115 queries more, of which search and kinds of the units, lag by
# lag and operator by operator, are 820 calls; then work of which a part is used, 240.
# A rank's estimate also asks what is left of its recorded step: a query.
MOST = {
    "diagnosis": (14_900, 985), "diagnosis of an export": (14_500, 1_035), "a rank": (1_400, 130),
    "plan": (82_000, 1_090), "report": (185_000, 1_365),
}  # fmt: skip
"""Calls of our functions, and queries."""
GROWTH = 1.15
MODULES = {"--help": 90, "diagnose nothing.json": 200, "diagnose README.md": 790}
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


def counted(trace: Path | Sequence[Path], work: Callable[[Trace], object] = diagnose) -> Counts:
    """Read a trace, or the ranks of one, and work on it, counting. One was to be worked on before, for what is kept
    between traces."""
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
        work(read(trace, cache=False))
    finally:
        sys.setprofile(None)
    return Counts(calls, queries)


def every_count(folder: Path) -> dict[str, tuple[Counts, Counts | None]]:
    """The counts of each kind of work, and those of the same trace twice over where that is counted too."""
    grow(DEMO, twice := folder / "twice.json", DEMO_MB + 1)
    sqlite.grow(EXPORT, exported := folder / "twice.sqlite", *TWICE)
    for trace in (DEMO, EXPORT):
        diagnose(read(trace, cache=False))
    job(read(DEMO, cache=False))
    traces = ((DEMO, twice), (EXPORT, exported))
    diagnosed = [(counted(once), counted(both)) for once, both in traces]
    once = [(counted(DEMO, work), None) for work in (job, plan, lambda trace: html_report(trace, diagnose(trace)))]
    return dict(zip(MOST, [*diagnosed, *once], strict=True))


def imported(*words: str) -> tuple[int, list[str]]:
    """How many modules a command imports, and which of the large libraries are among them."""
    number, large = json.loads(run([sys.executable, "-c", _IMPORTED, *words]).text.splitlines()[-1])
    return number, large


def rows() -> Iterator[Row]:
    """One row per count."""
    with tempfile.TemporaryDirectory() as folder:
        counts = every_count(Path(folder))
    for what, (once, twice) in counts.items():
        calls, queries = MOST[what]
        yield at_most(NAME, f"{what}: calls of our functions", once.calls.total(), calls, "calls")
        yield at_most(NAME, f"{what}: queries of Polars", once.queries, queries, "queries")
        if twice:
            grown = twice.calls.total() / once.calls.total()
            yield at_most(NAME, f"{what}: calls, the trace twice / once", grown, GROWTH, "x")
            yield at_most(NAME, f"{what}: queries, the trace twice / once", twice.queries / once.queries, GROWTH, "x")
            for (file, name), extra in (twice.calls - once.calls).most_common(3):
                yield Row(NAME, f"{what}: called more often: {file[1:]} {name}", f"{extra:,} calls")
    for words, bar in MODULES.items():
        yield at_most(NAME, f"modules that `timesink {words}` imports", imported(*words.split())[0], bar, "modules")


if __name__ == "__main__":
    show(rows())
