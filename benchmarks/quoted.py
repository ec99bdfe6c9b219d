"""The figures that README and the page of accuracy quote: `make scoreboard` writes them to quoted.json, and its tables.

python -m benchmarks.quoted OWN    # what `benchmarks.faults.score --json OWN` wrote, beside the answers of other tools
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.faults import score as faults
from benchmarks.faults import scoring, suite
from benchmarks.kernels import score as kernels
from benchmarks.peers import score as peers

KEPT: Final = Path(__file__).with_suffix(".json")
PAGE: Final = KEPT.parents[1] / "docs" / "explanation" / "accuracy.md"
SPLITS: Final = ("tune", "evaluate", "fresh", "third_tune", "third_evaluate", "fourth_evaluate")
SHOWN: Final = {
    "faults": ("split", "tool", "costly", "top-1", "top-3", "healthy", "false", "MAE", "coverage"),
    "peers": ("tool", "its first answer", "costly", "first", "any", "healthy", "false", "MAE"),
}
HEADINGS: Final = {"faults": faults.HEADINGS, "peers": peers.HEADINGS}
_MARKED: Final = re.compile(r"(<!-- quoted (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Quoted = dict[str, Any]


def quoted(observed: Sequence[dict[str, Any]]) -> Quoted:
    """All quoted figures, as the tables print them; `observed` is what the score of the fault suite wrote."""
    items = [_observation(one) for one in observed]
    said, known = answers(), peers.cases()
    asked = {name for told in said.values() for name in told}
    pairs = kernels.scores()
    rows = [faults.row(split, tool, scoring.figures(part)) for split, tool, part in faults.groups(items)]
    others = [*peers.own_rows(observed, known, asked), *(peers.peer_row(of, said[of], known) for of in said)]
    return {
        "faults": [shown("faults", row) for row in rows if row[0] in SPLITS],
        "peers": [shown("peers", row) for row in others],
        "kernels": {
            "pairs": len(pairs),
            "limiter right": sum(one.is_right for one in pairs),
            "gain within bound": sum(one.is_within for one in pairs),
        },
    }


def answers() -> dict[str, dict[str, dict[str, Any]]]:
    """What the other tools said of each capture."""
    kept: dict[str, dict[str, dict[str, Any]]] = json.loads(lzma.decompress(peers.ANSWERS.read_bytes()))
    return kept


def _observation(one: dict[str, Any]) -> scoring.Observation:
    told = one["foretold"]
    return scoring.Observation(**{**one, "foretold": told and scoring.Foretold(**told)})


def keep(found: Quoted, kept: Quoted) -> Quoted:
    """What is found, beside the rows that are kept of splits that were not scored this time."""
    seen = {tuple(row[:2]) for row in found["faults"]}
    others = [row for row in kept.get("faults", []) if tuple(row[:2]) not in seen]
    return {**found, "faults": sorted([*found["faults"], *others], key=_order)}


def _order(row: Sequence[str]) -> tuple[int, int]:
    return [str(split) for split in suite.SPLITS].index(row[0]), faults.TOOLS.index(row[1])


def known() -> Quoted:
    """The figures that are kept."""
    found: Quoted = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return found


def shown(name: str, row: Sequence[str]) -> list[str]:
    """Of a row of the scoreboard what the page shows."""
    return [row[HEADINGS[name].index(column)] for column in SHOWN[name]]


def table(name: str) -> str:
    """One table of the page."""
    return faults.table(SHOWN[name], known()[name])


def with_tables(text: str) -> str:
    """The page with the tables that are kept."""
    return _MARKED.sub(lambda mark: f"{mark[1]}{table(mark[2])}\n{mark[3]}", text)


def main(own: str) -> int:
    observed = json.loads(Path(own).read_text(encoding="utf-8"))
    KEPT.write_text(json.dumps(keep(quoted(observed), known()), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
