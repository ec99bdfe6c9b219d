"""Programs with two planted faults: what each fix wins, and where a plan of both ends against what both win together.

python -m benchmarks.faults.doubles [--split twelfth_tune] [--blind]
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.faults import suite
from benchmarks.faults.adopt import HALVES, MEASURED, archive
from benchmarks.faults.pack import unpacked

NEAR = 8
"""Points of the step that the end of a plan may be off."""


def medians(measured: dict[str, Any]) -> dict[str, float]:
    """The median over processes of the step with the faults, with none, and with the first or second mended."""
    return {key: statistics.median(measured[key]) for key in ("fault_ms", "fix_ms", *HALVES) if key in measured}


def changes(fault: suite.Fault, measured: dict[str, Any]) -> list[tuple[str, float]]:
    """What each fix wins of the step, the first fault's first: alone or, if that is more, after the other's."""
    whole, fixed, *halves = medians(measured).values()
    if not halves:
        return [(fault.bottleneck, 1 - fixed / whole)]
    first, second = halves
    wins = max(whole - first, second - fixed), max(whole - second, first - fixed)
    return [(kind, ms / whole) for kind, ms in zip((fault.bottleneck, fault.second), wins, strict=True)]


def planned(path: Path, unprofiled_ms: float | None) -> tuple[float, list[str]]:
    """The share of the step that is won at the end of its plan, and the rungs."""
    import timesink
    from timesink.diagnosis.plan.ladder import plan

    trace = timesink.read(path)
    if unprofiled_ms is not None:
        trace = trace.with_unprofiled_step(unprofiled_ms * 1e6)
    made = plan(trace)
    if not made.rungs:
        return 0.0, [made.refused or "no rung"]
    last = made.rungs[-1]
    return last.cumulative_ms / last.of_ms, [
        f"{rung.id} {100 * rung.gain.value / rung.of_ms:.0f}" for rung in made.rungs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", default="", help="one only; those that are not to be tuned on are looked at once")
    parser.add_argument("--blind", action="store_true", help="withhold the unprofiled step")
    options = parser.parse_args()
    measured, near, count = json.loads(MEASURED.read_text(encoding="utf-8")), 0, 0
    for fault in suite.FAULTS:
        if not fault.second or options.split not in ("", fault.split):
            continue
        truth = medians(measured[f"{fault.name}/high"])
        whole = truth["fault_ms"]
        won = [round(100 * (1 - truth[key] / whole)) for key in (*HALVES, "fix_ms")]
        for tool in ("torch", "nsys"):
            with tempfile.TemporaryDirectory() as folder:
                unpacked(archive(fault.name, tool), Path(folder))
                (path,) = Path(folder).glob("*.high.fault.*")
                end, rungs = planned(path, None if options.blind else whole)
            off = 100 * (end - (1 - truth["fix_ms"] / whole))
            near, count = near + (abs(off) <= NEAR), count + 1
            print(
                f"{fault.name} {tool}: won by the first, the second, both {won} %, off {off:+.1f}: {', '.join(rungs)}"
            )
    print(f"{near} of {count} plans end within {NEAR} points")


if __name__ == "__main__":
    main()
