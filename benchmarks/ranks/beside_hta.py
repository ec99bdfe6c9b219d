"""Eight ranks of 100 MB: `timesink ranks` beside Holistic Trace Analysis, on the same files and cores.

    python -m benchmarks.ranks.beside_hta --hta /path/to/python/with/HolisticTraceAnalysis

Ours is the whole command, imports, clocks, waits and lateness included; of the rival, which parses with a pool of its
own, the imports are not counted. The files are real ranks of one job, each repeated to that size.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ranks.generated import bodies, folder, write_ranks
from benchmarks.ranks.scale import SEEDS
from benchmarks.runs import TIMESINK, Row, at_least, median, noted, run, show

NAME = "eight ranks"
RANKS = 8
EVENTS = 363_000  # about 100 MB of text
BAR = 15.0
RIVAL = Path(__file__).resolve().parent.parent / "rival_hta.py"


def rows(seeds: list[Path], hta: str, runs: int, events: int = EVENTS) -> Iterator[Row]:
    """Ours before and after the rival, so that a machine that grows busy slows both."""
    made = bodies(seeds, events)
    with folder() as traces:
        write_ranks(made, RANKS, traces)
        files = [str(file) for file in sorted(traces.iterdir())]
        size = sum(body.text_bytes for body in made) / len(made) / 1e6
        ours = [*TIMESINK, "ranks", "--no-cache", "--output", "-", "--format", "json", str(traces)]
        taken = [run(ours) for _ in range(runs)]
        theirs = run([hta, str(RIVAL), *files]) if hta else None
        taken += [run(ours) for _ in range(runs)]
        mine = median(taken)
    yield noted(NAME, f"timesink ranks, {RANKS} x {size:.0f} MB, median of {len(taken)}", mine)
    if theirs is not None:
        rival_s = json.loads(theirs.text.splitlines()[-1])["seconds"]
        yield noted(NAME, f"HTA, {RANKS} x {size:.0f} MB, imports included", theirs)
        yield Row(NAME, "CPU time: HTA / timesink", f"{theirs.cpu_s / mine.cpu_s:.1f} x")
        yield at_least(NAME, f"wall clock: HTA ({rival_s:.1f} s) / timesink", rival_s / mine.seconds, BAR)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=Path, default=SEEDS, help="a folder of real ranks of one job")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hta", default="", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    options = parser.parse_args()
    return 0 if show(rows(sorted(options.seeds.glob("*.json*")), options.hta, options.runs)) else 1


if __name__ == "__main__":
    sys.exit(main())
