"""What "one run a side, changed where it is 3 % off" says of recordings in which nothing differs; and what ours says.

usage: python -m benchmarks.one_run_a_side      # the figures of docs/how-to/verify.md

Each pair are two processes, or two rounds, of one unchanged program. Ours is the verdict of `compare` with the
deviation between runs that the other programs of the row show, as `gate calibrate` would have measured it before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from statistics import median

from benchmarks.recorded_verdicts import neighbours, recorded

from timesink.verify.calibration import RunDeviation, judge_captures
from timesink.verify.limits import STEP_THRESHOLD
from timesink.verify.outcomes import Outcome

_HERE = Path(__file__).parent
_RULE = 0.03
_STEPS = 16  # as many as a capture needs for a verdict: only runs differ here, not their steps
Programs = list[list[float]]


def rows() -> Iterator[tuple[str, Programs]]:
    """The runs of each program, by what was recorded."""
    before, after = neighbours(recorded(), 120)
    quiet = [[float(one.mean()), float(other.mean())] for one, other in zip(before, after, strict=True)]
    yield "a GPU-bound program, quiet H200, neighbouring runs", quiet
    faults = json.loads((_HERE / "faults/captures/measured.json").read_text()).values()
    for name, key in (("programs without a fault", "fix_ms"), ("programs slowed by the host", "fault_ms")):
        yield f"{name}, process against process", [one[key] for one in faults if len(one.get(key) or ()) > 1]
    ladders = json.loads((_HERE / "ladders/captures/measured.json").read_text()).values()
    rounds = [[median(blocks) for blocks in one["base"]["blocks_ms"]] for one in ladders if "base" in one]
    yield "unchanged programs, hours apart", rounds


def _variance(programs: Iterable[list[float]]) -> tuple[float, int]:
    """Sum of squares of the log times within programs, and its degrees of freedom."""
    squares, df = 0.0, 0
    for times in programs:
        logs = [math.log(time) for time in times]
        squares += sum((log - sum(logs) / len(logs)) ** 2 for log in logs)
        df += len(logs) - 1
    return squares, df


def said(programs: Programs) -> tuple[int, int, int]:
    """How many pairs there are, how many the rule calls changed, and how many ours."""
    squares, df = _variance(programs)
    pairs = rule = ours = 0
    for times in programs:
        own, own_df = _variance([times])
        deviation = RunDeviation(math.sqrt(max(squares - own, 0.0) / (df - own_df)), df - own_df, False)
        for one, other in combinations(times, 2):
            pairs += 1
            rule += abs(other / one - 1) > _RULE
            verdict = judge_captures([one] * _STEPS, [other] * _STEPS, STEP_THRESHOLD, deviation)
            ours += verdict.outcome in (Outcome.SLOWER, Outcome.FASTER)
    return pairs, rule, ours


def main() -> None:
    print("| what was compared (nothing differs) | pairs | one run a side, 3 % | `compare`, calibrated |")
    print("|---|---:|---:|---:|")
    for name, programs in rows():
        pairs, rule, ours = said(programs)
        print(f"| {name} | {pairs:,} | {100 * rule / pairs:.1f} % | {100 * ours / pairs:.1f} % |")


if __name__ == "__main__":
    main()
