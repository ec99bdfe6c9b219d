"""Floors under the figures of the scoreboard: an edit that costs accuracy is red.

`python -m benchmarks.faults.score --floors` scores every capture of the splits that have floors and holds each split
and tool against `floors.json`. A split set aside that nobody has scored yet has none, so that it is not looked at.
`--split NAME --set-floors` writes the figures of a split there, in the same commit as the change that explains them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.faults.scoring import Figures

FLOORS = Path(__file__).with_name("floors.json")
AT_LEAST = ("top1", "top3", "coverage", "costly", "healthy", "priced")
"""A share that may not fall; counts too, since a capture left out could hide a miss."""
AT_MOST = ("false_verdicts", "undecided_verdicts", "mean_error_points")
SLACK = {"mean_error_points": 0.05}
"""What another version of a library may move, in points of the step. A case more or less is never slack."""
ROUNDING = 1e-4
ALL = "all"

Row = dict[str, float]
Found = Iterable[tuple[str, str, Figures]]


def rows(found: Found) -> dict[str, Row]:
    """Figures that have a floor by "split tool"; one without cases is left out."""
    return {
        f"{split} {tool}": {
            name: round(value, 4) for name in (*AT_LEAST, *AT_MOST) if (value := getattr(figures, name)) is not None
        }
        for split, tool, figures in found
        if split != ALL
    }


def breaches(found: Found, floors: dict[str, Row]) -> list[str]:
    """One line per figure that is worse than its floor."""
    seen = rows(found)
    lines = []
    for row, least in floors.items():
        for name, floor in least.items():
            value = seen.get(row, {}).get(name)
            slack = SLACK.get(name, ROUNDING)
            if value is None:
                lines.append(f"{row}: {name} was not scored, its floor is {floor}")
            elif (floor - value if name in AT_LEAST else value - floor) > slack:
                lines.append(f"{row}: {name} is {value}, its floor {floor}")
    return lines


def known() -> dict[str, Row]:
    """The floors that are kept."""
    kept: dict[str, Row] = json.loads(FLOORS.read_text(encoding="utf-8")) if FLOORS.exists() else {}
    return kept


def splits() -> set[str]:
    """The splits that have floors."""
    return {row.split()[0] for row in known()}


def keep(found: Found) -> None:
    """Write the figures found as the floors of their rows; other rows stay."""
    FLOORS.write_text(json.dumps({**known(), **rows(found)}, indent=1) + "\n", encoding="utf-8")
