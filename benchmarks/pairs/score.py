"""Hold each pair before and after its change, as `timesink compare` does, and score what comes first.

    python -m benchmarks.pairs.score [--side tune] [--only NAME,NAME]

A pair counts where the captured step is 3 % slower with the change. Beside the pairs of this folder are the programs of
the eleventh set of faults, the fix before and the fault after, whose kinds were written down and split by the hash
before `compare` saw the first.
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
from typing import Any, Final, NamedTuple

from benchmarks.faults.pack import unpacked
from benchmarks.faults.slower import SHOWN

import timesink
from timesink.measures.steps.work import step_work
from timesink.model.trace import Trace
from timesink.render.gate import explained
from timesink.verify.compare import compare_captures
from timesink.verify.environment import capture_facts
from timesink.verify.outcomes import GateResult

HERE: Final = Path(__file__).parent
SEED: Final = "timesink pairs 1"


class PairSet(NamedTuple):
    """Pairs of one kind: their archives, what is owed of each, and what stands in a file's name on both sides."""

    folder: Path
    owed: dict[str, Any]
    sides: tuple[str, str]

    def split(self) -> dict[str, str]:
        """`tune`, or `aside`: what nothing may be tuned on. By turns in the order of a hash: both are as many."""
        order = sorted(self.owed, key=lambda one: hashlib.sha256(f"{SEED}:{one}".encode()).hexdigest())
        return {name: ("tune", "aside")[at % 2] for at, name in enumerate(order)}


SETS: Final = tuple(
    PairSet(folder, json.loads((HERE / owed).read_text(encoding="utf-8")), sides)
    for folder, owed, sides in (
        (HERE / "captures", "owed.json", ("before", "after")),
        (HERE.parent / "faults" / "captures" / "eleventh", "owed_eleventh.json", ("high.fix", "high.fault")),
    )
)
OWED: Final = {name: owed for of_set in SETS for name, owed in of_set.owed.items()}
SIDE_OF: Final = {name: side for of_set in SETS for name, side in of_set.split().items()}
ONE_MODEL: Final = {"SLOWER", "OTHER_KERNELS", "WAITING", "WAITS", "COPIES"}
"""Changes that leave a model's operators and their shapes as they were."""


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
    def is_one_model(self) -> bool:
        """Whether the change left operators and shapes alone."""
        return ONE_MODEL.issuperset(OWED[self.name]["kinds"])

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


def scored(archive: Path, sides: tuple[str, str]) -> Scored | None:
    """The pair in an archive; None where it holds one side alone."""
    name, tool = archive.name.split(".")[:2]
    with tempfile.TemporaryDirectory() as scratch:
        unpacked(archive, folder := Path(scratch))
        files = [next(folder.glob(f"{name}.{side}.[js]*"), None) for side in sides]
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
    for of_set in SETS:
        for archive in sorted(of_set.folder.glob("*.tar.xz")):
            name = archive.name.partition(".")[0]
            is_asked = name in of_set.owed and side in ("", SIDE_OF[name]) and (not only or name in only)
            if is_asked and (found := scored(archive, of_set.sides)):
                yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=("tune", "aside"), default="")
    parser.add_argument("--only", default="", help="pairs, separated by commas")
    given = parser.parse_args()
    counts = Counter[tuple[str, str, str]]()
    for one in all_scored(given.side, [name for name in given.only.split(",") if name]):
        side = SIDE_OF[one.name]
        told = ("right" if one.is_right else "WRONG") if one.is_shown else "hidden"
        counts[side, one.tool, told] += 1
        joined = one.result.joined_ratio
        before, after = (time_ns / 1e6 for time_ns in one.steps_ns)
        print(
            f"{told} {side} {one.tool} {one.name}: {before:.2f} -> {after:.2f} ms, {one.lead}; parts off by "
            f"{100 * one.apart_ratio:.2g} %, joined {100 * (joined or 0):.1f} %"
            f"{' of one model' * one.is_one_model}, suspected {one.is_suspected}",
            flush=True,
        )
    for key in sorted(counts):
        print(*key, counts[key])


if __name__ == "__main__":
    main()
