"""Files that users and their programs hand over: counters to gate, and a history of run means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timesink.errors import UsageError
from timesink.experiments.baseline import Counter
from timesink.outcomes import Better, How
from timesink.plain_json import parsed

_KEYS = {"value", "unit", "how", "better"}


def read_counters(path: Path) -> dict[str, Counter]:
    """``{"graph breaks": 3, "tokens/s": {"value": 812, "better": "higher", "how": "exact", "unit": "tokens/s"}}``."""
    content = _json(path, path.read_text("utf-8", "replace") if path.is_file() else None)
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no object", remedy='write {"name": {"value": 1, "unit": "launches"}}')
    return {str(name): _counter(path, str(name), entry) for name, entry in content.items()}


def read_history(path: Path) -> list[float]:
    """Run means, oldest first, from JSON lines with a number at ``mean``."""
    if not path.is_file():
        raise UsageError(f"there is no history at {path}", remedy='let the trunk job append {"mean": seconds} lines')
    means = []
    for place, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        entry = _json(f"{path} line {place}", line)
        mean = entry.get("mean") if isinstance(entry, dict) else None
        if not isinstance(mean, (int, float)) or isinstance(mean, bool):
            raise UsageError(f"{path} line {place} has no number at 'mean'", remedy="remove or mend that line")
        means.append(_finite(mean, f"{path} line {place}"))
    return means


def _counter(path: Path, name: str, entry: Any) -> Counter:
    fields = entry if isinstance(entry, dict) else {"value": entry}
    if unknown := sorted(set(fields) - _KEYS):
        raise UsageError(
            f"{path}: {name!r} has an unknown key {unknown[0]!r}", remedy=f"use {', '.join(sorted(_KEYS))}"
        )
    value = fields.get("value")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{path}: {name!r} has no number: {value!r}", remedy="give a number or an object with 'value'")
    try:
        how, better = How(fields.get("how", "exact")), Better(fields.get("better", "lower"))
    except ValueError as unknown_word:
        raise UsageError(
            f"{path}: {name!r}: {unknown_word}", remedy="how: exact or share; better: lower or higher"
        ) from None
    if how is How.RUNS:
        raise UsageError(f"{path}: {name!r} cannot be compared by runs from a file", remedy="time it with a command")
    return Counter(_finite(value, f"{path}: {name!r}"), str(fields.get("unit", "")), how, better)


def _finite(value: float, place: str) -> float:
    """The number as a float. A NaN or an infinity stays: what it means is the comparison's to say."""
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{place} holds a number of more than 308 digits", remedy="remove or mend it") from None


def _json(place: Path | str, text: str | None) -> Any:
    if text is None:
        raise UsageError(f"there is no file {place}", remedy="check the path")
    try:
        return parsed(text)
    except ValueError as broken:
        raise UsageError(f"{place} is no JSON: {broken}", remedy="mend it") from broken
