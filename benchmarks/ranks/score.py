"""What timesink says of the captures of several ranks, beside what was measured without a profiler.

    python -m benchmarks.ranks.score [two|four] [--only straggler_device]

`CAUSES` is what was planted. A diagnosis is right where a finding of that cause is among the first two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults import pack
from benchmarks.faults.score import kind_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Diagnosis
from timesink.readers import read

CAPTURES = Path(__file__).parent / "captures"
# Rules that name the planted fault; none for a control. The first two findings are looked at.
CAUSES = {
    "straggler_host": ("COM103", "IDL101"),
    "straggler_device": ("COM103",),
    "no_overlap": ("COM101",),
    "tiny_buckets": ("COM102",),
    "pipeline": ("COM105",),
    "serving": ("COM105",),
    "gathered_tensors": ("COM101",),
    "synchronised_exchange": ("COM108",),
    "redundant_exchange": ("COM107", "COM101"),
    "healthy_ddp": (),
    "healthy_fsdp": (),
}
# A healthy program may have small findings of other kinds: none of its communication, and none worth this share.
CONTROL_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Score:
    """`predicted_ms` is the price of the finding that names the cause, `measured_ms` what the fix won."""

    capture: str
    named: bool
    verdict: str
    predicted_ms: float | None
    high_ms: float | None
    measured_ms: float


def captures(folder: Path) -> Iterator[Path]:
    """Faults and controls; fixes are what the faults are compared with."""
    yield from sorted(folder.glob("*.fault.*.tar.xz"))


def unpacked(archive: Path, into: Path) -> list[Path]:
    """The traces of an archive, by name."""
    pack.unpacked(archive, into)
    return sorted(path for path in into.iterdir() if path.suffix in (".json", ".sqlite"))


def diagnosed(archive: Path) -> Diagnosis:
    """The diagnosis of all ranks of a capture."""
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(read(unpacked(archive, Path(folder)), cache=False))


def score(archive: Path) -> Score:
    program = archive.name.split(".")[0]
    measured = json.loads((archive.parent / "measured.json").read_text())["programs"][program]
    diagnosis = diagnosed(archive)
    causes = CAUSES[program]
    found = [finding for card, finding in diagnosis.findings[:2] if card.code in causes]
    worth = found[0].recoverable if found else None
    return Score(
        capture=archive.name.removesuffix(".tar.xz"),
        named=bool(found) if causes else _is_control(diagnosis),
        verdict=kind_of(diagnosis),
        predicted_ms=worth.value if worth else None,
        high_ms=worth.high if worth else None,
        measured_ms=measured["fault_ms"] - measured.get("fix_ms", measured["fault_ms"]),
    )


def _is_control(diagnosis: Diagnosis) -> bool:
    step_ms = diagnosis.steps.p50_ms or 0.0
    worth = [finding.recoverable.value for _, finding in diagnosis.findings if finding.recoverable]
    return max(worth, default=0.0) <= CONTROL_SHARE * step_ms and "communication" not in diagnosis.bottleneck.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=["two", "four"])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'capture':40} {'named':6} {'verdict':24} {'predicted':>10} {'at most':>8} {'measured':>9}  ms per step")
    for folder in options.folders:
        for archive in captures(CAPTURES / folder):
            if options.only not in archive.name:
                continue
            got = score(archive)
            figures = (f"{x:.2f}" if x is not None else "-" for x in (got.predicted_ms, got.high_ms, got.measured_ms))
            named = "yes" if got.named else "NO"
            print("{:40} {:6} {:24} {:>10} {:>8} {:>9}".format(f"{folder}/{got.capture}", named, got.verdict, *figures))


if __name__ == "__main__":
    main()
