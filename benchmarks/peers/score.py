"""Peers' verdicts on the captures of the fault suite and the kernel suite, held against the same truth as timesink's.

python -m benchmarks.peers.score                # from the answers that are kept in answers.json.xz
python -m benchmarks.peers.score --ask FOLDER   # ask those peers that are installed, about the captures in FOLDER
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults import score as faults
from benchmarks.faults import scoring, suite
from benchmarks.faults.adopt import MEASURED
from benchmarks.peers import interpreter, verdicts
from benchmarks.peers.kernels import rule_rows
from benchmarks.peers.verdicts import ORDERS, REFUSED, THRESHOLDS, Verdict, same_kind

HERE = Path(__file__).resolve().parent
ANSWERS = HERE / "answers.json.xz"
ASKED = {"nsys-ai": ".sqlite", "HTA": ".json", "TraceLens": ".json"}
Case = tuple[suite.Fault, float]
Judged = tuple[suite.Fault, float, Verdict]
HEADINGS = ("tool", "its first answer", "captures", "costly", "first", "any", "healthy", "false", "refused", "MAE")


def cases() -> dict[str, Case]:
    """The fault, or the healthy program, and the measured gain of each capture that peers are asked about."""
    measured = json.loads(MEASURED.read_text())
    found: dict[str, Case] = {}
    for fault in suite.FAULTS:
        for severity in fault.severities:
            known = faults.truth(measured.get(f"{fault.name}/{severity}"))
            if known and not fault.split.startswith(("third", "fourth")):
                found[f"{fault.name}.{severity}.fault"] = (fault, known[0])
    return found


def peer_row(peer: str, answers: dict[str, dict[str, Any]], known: dict[str, Case]) -> tuple[str, ...]:
    """A peer's figures, in the way that is best for it on these very captures: an order, or a threshold in percent."""
    asked = [(*known[name], answer) for name, answer in answers.items() if name in known]
    ways: Sequence[str | int] = ORDERS if peer == "nsys-ai" else THRESHOLDS
    way, best = max(((way, [_judged(*one, way) for one in asked]) for way in ways), key=lambda one: _merit(one[1]))
    return row(peer, way if isinstance(way, str) else f"a share from {way} %", best)


def own_rows(observations: Iterable[dict[str, Any]], known: dict[str, Case], asked: set[str]) -> list[tuple[str, ...]]:
    """timesink's figures on the captures that peers were asked about, tool by tool, judged by the same kinds."""
    judged: dict[str, list[Judged]] = {}
    exact: dict[str, list[bool]] = {}
    for one in observations:
        name = f"{one['fault']}.{one['severity']}.{one['variant']}"
        if name not in asked or name not in known:
            continue
        (fault, gain), owed = known[name], one["owed"]
        price = one["foretold"]["value"] if one["foretold"] else 0.0
        right = [same_kind(owed, named) for named in (one["verdict"], *(named for named, _ in one["findings"]))]
        found = Verdict(right[0], any(right), one["verdict"] != scoring.NONE, price if one["settled"] else None)
        judged.setdefault(one["tool"], []).append((fault, gain, found))
        if _is_costly(fault, gain):
            exact.setdefault(one["tool"], []).append(one["verdict"] == owed)
    return [
        row(f"timesink ({tool})", f"its verdict ({_share(exact[tool])} to the name)", found)
        for tool, found in sorted(judged.items())
    ]


def row(peer: str, first: str, judged: Sequence[Judged]) -> tuple[str, ...]:
    """One row of the table."""
    costly = [found for fault, gain, found in judged if _is_costly(fault, gain)]
    healthy = [found for fault, _, found in judged if fault.bottleneck == scoring.NONE]
    prices = [
        abs(found.price - gain) for fault, gain, found in judged
        if found.price is not None and fault.bottleneck not in (scoring.NONE, scoring.ARTEFACT)
    ]  # fmt: skip
    return (
        peer, first, str(len(judged)), str(len(costly)), _share(found.first for found in costly),
        _share(found.any for found in costly), str(len(healthy)), _share(found.alarm for found in healthy),
        str(sum(found.refused for *_, found in judged)), f"{100 * statistics.fmean(prices):.1f}" if prices else "–",
    )  # fmt: skip


def _is_costly(fault: suite.Fault, gain: float) -> bool:
    return fault.bottleneck != scoring.NONE and gain >= scoring.COSTLY


def _judged(fault: suite.Fault, gain: float, answer: dict[str, Any], way: str | int) -> Judged:
    if "refused" in answer:
        return fault, gain, REFUSED
    if isinstance(way, str):
        return fault, gain, verdicts.of_findings(answer, fault.bottleneck, way)
    return fault, gain, verdicts.of_shares(answer, fault.bottleneck, way)


def _merit(found: Sequence[Judged]) -> float:
    """Share of costly faults whose first answer is right, less the share of healthy programs with an alarm."""
    costly = [one.first for fault, gain, one in found if _is_costly(fault, gain)]
    healthy = [one.alarm for fault, _, one in found if fault.bottleneck == scoring.NONE]
    return statistics.fmean(costly or [0.0]) - statistics.fmean(healthy or [0.0])


def _share(flags: Iterable[bool]) -> str:
    return faults.figure(scoring.share(flags), ".0%")


def ask(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Answers by peer and capture, of the peers whose environments were made."""
    known, answers = cases(), {}
    for peer, suffix in ASKED.items():
        python = interpreter(peer)
        if python is None:
            print(f"{peer}: not installed, left out (python -m benchmarks.peers)")
            continue
        files = [folder / f"{name}{suffix}" for name in known if (folder / f"{name}{suffix}").exists()]
        said = subprocess.run([python, HERE / "ask.py", peer, *files], capture_output=True, text=True, check=True)
        answers[peer] = by_capture(said.stdout)
    return answers


def by_capture(lines: str) -> dict[str, dict[str, Any]]:
    """The answers of `ask.py`, one a line, by capture."""
    told = [json.loads(line) for line in lines.splitlines()]
    return {one.pop("capture"): one for one in told}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ask", type=Path, help="unpacked captures; their answers are kept in place of the old ones")
    parser.add_argument("--own", type=Path, help="what `benchmarks.faults.score --json` wrote: timesink's own rows")
    options = parser.parse_args()
    if options.ask:
        answers = ask(options.ask)
        ANSWERS.write_bytes(lzma.compress(json.dumps(answers).encode(), preset=9 | lzma.PRESET_EXTREME))
    else:
        answers = json.loads(lzma.decompress(ANSWERS.read_bytes()))
    known = cases()
    for peer in ASKED:
        if peer not in answers:
            print(f"{peer}: no answers are kept, left out")
    observations = json.loads(options.own.read_text()) if options.own else []
    asked = {name for told in answers.values() for name in told}
    rows = own_rows(observations, known, asked)
    print(faults.table(HEADINGS, [*rows, *(peer_row(peer, answers[peer], known) for peer in ASKED if peer in answers)]))
    headings, kernels, order = rule_rows()
    print(f"\nNsight Compute's own rules on kernels of known limiter; the first is: {order}\n")
    print(faults.table(headings, kernels))
    return os.EX_OK


if __name__ == "__main__":
    raise SystemExit(main())
