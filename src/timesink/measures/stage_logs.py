"""Stage timestamps that a program logged itself: one file a rank, JSON lines or CSV, one line an item.

`tA0` and `tA1` are the begin and end of stage A, `tB0` and `tB1` those of stage B, and so on; `tSend`, `tRecv` and
other columns may stand beside. Every line is on its own rank's clock: only times of one file are subtracted.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from timesink.errors import UnreadableTrace
from timesink.measures.overlap_score import OverlapScore, Stage
from timesink.plain_json import parsed

UNITS_NS: Final[Mapping[str, float]] = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_BOUNDARY: Final = re.compile(r"^t([A-Za-z]\w*?)([01])$")
_LEAST_ITEMS: Final = 3


@dataclass(frozen=True, slots=True)
class StageLog:
    """What the files say together.

    The period is the median over stages of the median time between begins of items that follow each other; begins that
    a step boundary separates (the `step` column changes) do not follow each other.
    """

    overlap: OverlapScore
    items: int
    files: tuple[str, ...]


def read_stage_logs(paths: Sequence[Path], unit: str = "s") -> StageLog:
    """The stages of all files. Raises `UnreadableTrace` for a line that is no record, naming the line."""
    begins: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {}
    lengths: dict[str, list[float]] = {}
    items = 0
    for path in paths:
        records = list(_records(path))
        names = sorted({found[1] for record in records for key in record if (found := _BOUNDARY.match(key))})
        if not names:
            raise UnreadableTrace(
                path, "no column is named like tA0 and tA1", remedy="log a begin and an end per stage"
            )
        for name in names:
            rows = [r for r in records if f"t{name}0" in r and f"t{name}1" in r]
            if not rows:
                continue
            items = max(items, len(rows))
            lengths.setdefault(name, []).extend(_lengths(path, rows, name))
            begins.setdefault(name, []).extend(_runs(rows, name))
    factor = UNITS_NS[unit]
    stages = tuple(Stage(name, float(np.median(lengths[name])) * factor) for name in sorted(lengths))
    apart = {name: np.concatenate([np.diff(run) for run in runs]) for name, runs in begins.items()}
    periods = [float(np.median(values)) for _, values in sorted(apart.items()) if values.size]
    if items < _LEAST_ITEMS or not periods:
        raise UnreadableTrace(paths[0], f"{items} items are too few for a period", remedy="log at least three items")
    period_ns = float(np.median(periods)) * factor
    return StageLog(OverlapScore(stages, period_ns), items, tuple(str(path) for path in paths))


def _lengths(path: Path, rows: list[dict[str, float]], name: str) -> list[float]:
    lengths = [row[f"t{name}1"] - row[f"t{name}0"] for row in rows]
    if any(length < 0 for length in lengths):
        raise UnreadableTrace(path, f"stage {name} ends before it begins", remedy="check the columns and their unit")
    return lengths


def _runs(rows: list[dict[str, float]], name: str) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Begins of items that follow each other, one array per step."""
    by_step: dict[float, list[float]] = {}
    for row in rows:
        by_step.setdefault(row.get("step", 0.0), []).append(row[f"t{name}0"])
    return [np.sort(np.array(values)) for _, values in sorted(by_step.items())]


def _records(path: Path) -> Iterator[dict[str, float]]:
    """Numbers of each line by column; other values are left out."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableTrace(path, f"cannot be read as text: {error}", remedy="give JSON lines or CSV") from error
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _numbers(_parsed(path, number, line))
    else:
        for record in csv.DictReader(text.splitlines()):
            yield _numbers({key: value for key, value in record.items() if isinstance(key, str)})


def _parsed(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        record = parsed(line)
    except ValueError as error:
        raise UnreadableTrace(
            path, f"no JSON object: {error}", place=f"line {number}", remedy="mend or remove it"
        ) from error
    if not isinstance(record, dict):
        raise UnreadableTrace(path, "no JSON object", place=f"line {number}", remedy="mend or remove it")
    return record


def _numbers(record: Mapping[str, object]) -> dict[str, float]:
    found = {}
    for key, value in record.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number):
            found[key] = number
    return found
