"""Hold each pair before and after its change, as `timesink compare` does, and score what comes first.

    python -m benchmarks.pairs.score [--side tune] [--only NAME,NAME]

A pair counts where the captured step is 3 % slower with the change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.faults.pack import unpacked
from benchmarks.faults.slower import SHOWN

import timesink
from timesink.measures.steps.work import step_work
from timesink.model.trace import Trace
from timesink.render.gate import explained
from timesink.verify.compare import compare_captures
from timesink.verify.environment import capture_facts
from timesink.verify.outcomes import GateResult

CAPTURES: Final = Path(__file__).parent / "captures"
OWED: Final = json.loads((CAPTURES.parent / "owed.json").read_text(encoding="utf-8"))
SIDES: Final = ("before", "after")
SEED: Final = "timesink pairs 1"


def side_of(name: str) -> str:
    """`tune`, or `aside`: what nothing may be tuned on. By turns in the order of a hash, so that both are as many."""
    order = sorted(OWED, key=lambda one: hashlib.sha256(f"{SEED}:{one}".encode()).hexdigest())
    return ("tune", "aside")[order.index(name) % 2]


class Scored(NamedTuple):
    """One pair by one tool: the mean steps of both sides, and what `compare` says."""

    name: str
    tool: str
    steps_ns: tuple[float, ...]
    result: GateResult

    @property
    def is_shown(self) -> bool:
        """Whether the capture shows the change at all."""
        return self.steps_ns[1] >= (1 + SHOWN) * self.steps_ns[0]

    @property
    def lead(self) -> str:
        return explained.lead(self.result)

    @property
    def is_right(self) -> bool:
        """Whether a kind that is owed comes first, and its sentence names what it can name."""
        owed = OWED[self.name]
        kinds = owed["kinds"] + owed["of_kernels"] * (self.tool == "nsys")
        named = owed["kernel" if self.tool == "nsys" else "operator"]
        first = self.result.changes[0].kind.name if self.result.changes else ""
        return first in kinds and bool(re.search(named, self.lead))

    @property
    def is_suspected(self) -> bool | None:
        """Whether the setting that was changed could do it, says the list; None where none was."""
        setting = OWED[self.name]["setting"]
        return any(one.can_cause and setting in one.name for one in self.result.suspects) if setting else None

    @property
    def apart_ratio(self) -> float:
        """How far the parts are off the difference."""
        change_ns = self.steps_ns[1] - self.steps_ns[0]
        return abs(sum(one.delta_ns for one in self.result.changes) - change_ns) / max(abs(change_ns), 1.0)


def scored(archive: Path) -> Scored | None:
    """The pair in an archive; None where it holds one side alone."""
    name, tool = archive.name.split(".")[:2]
    with tempfile.TemporaryDirectory() as scratch:
        unpacked(archive, folder := Path(scratch))
        files = [next(folder.glob(f"{name}.{side}.[js]*"), None) for side in SIDES]
        if None in files:
            return None
        kept = tuple(file for file in files if file)
        for file in kept:
            if (manifest := file.with_suffix(".manifest")).exists():
                manifest.rename(file.with_suffix(".manifest.json"))
        traces: tuple[Trace, ...] = tuple(_told(file) for file in kept)
        facts = capture_facts((kept[0], kept[1]), (traces[0], traces[1]))
        steps = tuple(side.span_ns / max(side.step_count, 1) for side in map(step_work, traces))
        return Scored(name, tool, steps, compare_captures((traces[0], traces[1]), facts=facts))


def _told(file: Path) -> Trace:
    """The trace, which knows what its run was set to."""
    trace, manifest = timesink.read(file), file.with_suffix(".manifest.json")
    if not manifest.exists():
        return trace
    rank = json.loads(manifest.read_text())["ranks"][0]
    return trace.with_settings(rank["settings"]).with_unprofiled_step(rank["unprofiled"]["step_ms"] * 1e6)


def all_scored(side: str = "", only: Sequence[str] = ()) -> Iterator[Scored]:
    """Every pair that was captured, of one side of the split or of both."""
    for archive in sorted(CAPTURES.glob("*.tar.xz")):
        name = archive.name.partition(".")[0]
        if side in ("", side_of(name)) and (not only or name in only) and (found := scored(archive)):
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=("tune", "aside"), default="")
    parser.add_argument("--only", default="", help="pairs, separated by commas")
    given = parser.parse_args()
    counts = Counter[tuple[str, str, str]]()
    for one in all_scored(given.side, [name for name in given.only.split(",") if name]):
        side = side_of(one.name)
        told = ("right" if one.is_right else "WRONG") if one.is_shown else "hidden"
        counts[side, one.tool, told] += 1
        joined = one.result.joined_ratio
        before, after = (time_ns / 1e6 for time_ns in one.steps_ns)
        print(
            f"{told} {side} {one.tool} {one.name}: {before:.2f} -> {after:.2f} ms, {one.lead}; parts off by "
            f"{100 * one.apart_ratio:.2g} %, joined {100 * (joined or 0):.1f} %, suspected {one.is_suspected}",
            flush=True,
        )
    for key in sorted(counts):
        print(*key, counts[key])


if __name__ == "__main__":
    main()
