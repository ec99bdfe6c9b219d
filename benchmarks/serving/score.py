"""Hold what timesink says of every server against what was measured.

python -m benchmarks.serving.score FOLDER [--split tune|aside|healthy] [--only a,b] [--said]

FOLDER holds `measured.json` and captures in `torch/NAME.json` and `nsys/NAME.sqlite`, as `run_on_gpu.sh` made them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving import suite

TOOLS = {"torch": "json", "nsys": "sqlite"}
UNASSIGNED = ("unexplained",)


def middle(blocks: Any, what: str) -> float:
    """The median of a figure over blocks, as they were measured or as `adopt` keeps them."""
    return statistics.median(blocks[what] if isinstance(blocks, dict) else [block[what] for block in blocks])


def gain(one: suite.Program, found: dict[str, Any]) -> float:
    """What the fix wins of the program's figure: of the time of a token, or of the longest waits for one."""
    what = f"{one.figure}_ms"
    return 1 - middle(found["fixed"], what) / middle(found["fault"], what) if "fixed" in found else 0.0


@dataclass(frozen=True, slots=True)
class Scored:
    """One capture: the first cause, its foretold and measured gain as shares, and idle time that has no cause."""

    program: suite.Program
    tool: str
    first: str
    told: float
    measured: float
    unassigned: float
    said: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.first in self.program.causes if self.program.causes else self.first == "none"

    @property
    def points(self) -> float:
        return 100 * abs(self.told - self.measured)


def foretold(finding: Any, figure: str = "token") -> float:
    """A finding's gain as a share: of the step, or of the longest wait for a token, which its evidence has last."""
    if figure == "late":
        return float(finding.evidence[-1].measured.value)
    return finding.recoverable.value / finding.of_ms if finding.recoverable and finding.of_ms else 0.0


def scored(one: suite.Program, tool: str, capture: Path, found: dict[str, Any]) -> Scored:
    import timesink
    from timesink.measures.idle.blame import idle_shares

    trace = timesink.read(capture).with_unprofiled_step(middle(found["fault"], "step_ms") * 1e6)
    diagnosis = timesink.diagnose(trace)
    findings = [finding for _, finding in diagnosis.findings]
    first = diagnosis.bottleneck.value
    if one.figure == "late" and first in ("none", "undecided") and findings:  # it lengthens no mean step
        first = findings[0].bottleneck.value
    told = next((foretold(finding, one.figure) for finding in findings if finding.bottleneck.value in one.causes), 0.0)
    shares = idle_shares(trace)
    idle = sum(part.idle_ns for part in shares)
    nobody = sum(part.idle_ns for part in shares if part.cause in UNASSIGNED)
    said = tuple(
        f"{card.code} {100 * foretold(finding):.1f} % {finding.message}" for card, finding in diagnosis.findings
    )
    return Scored(one, tool, first, min(told, 1.0), gain(one, found), nobody / idle if idle else 0.0, said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", choices=("tune", "aside", "healthy"))
    parser.add_argument("--only", default="")
    parser.add_argument("--said", action="store_true", help="every finding's sentence, too")
    given = parser.parse_args()
    measured = json.loads((given.folder / "measured.json").read_text())
    results = []
    for one in suite.PROGRAMS:
        split = "healthy" if one.healthy else "aside" if one.aside else "tune"
        if (given.split and split != given.split) or (given.only and one.name not in given.only.split(",")):
            continue
        for tool, suffix in TOOLS.items():
            capture = given.folder / tool / f"{one.name}.{suffix}"
            if capture.exists():
                result = scored(one, tool, capture, measured[one.name])
                results.append(result)
                print(
                    f"{one.name:22} {tool:5} {split:7} {'right' if result.right else 'WRONG':5} {result.first:20} "
                    f"told {100 * result.told:5.1f} measured {100 * result.measured:5.1f}  "
                    f"unassigned {result.unassigned:.1%}"
                )
                if given.said:
                    print(*(f"      {text}" for text in result.said), sep="\n")
    faults = [result for result in results if not result.program.healthy]
    if faults:
        print(
            f"cause first {sum(result.right for result in faults)} of {len(faults)}, "
            f"gains off by {statistics.fmean(result.points for result in faults):.1f} points"
        )
    print(f"healthy with a finding: {sum(not r.right for r in results if r.program.healthy)}")


if __name__ == "__main__":
    main()
