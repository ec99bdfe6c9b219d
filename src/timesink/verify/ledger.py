"""The ledger: what was expected of a change before it was made, and what it brought. Append-only JSON lines.

Each line is an event; an entry is opened by ``add`` and closed once by ``close``. Nothing is ever rewritten, so a
prediction cannot be mended afterwards.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

from timesink.errors import UsageError
from timesink.model.record import dataclass, replace
from timesink.untrusted.plain_json import parsed
from timesink.verify.outcomes import Outcome
from timesink.verify.records import BrokenRecord


@dataclass(frozen=True, slots=True)
class Gain:
    """Milliseconds won per step, with the interval it is expected or measured to lie in. `before_ms` is what the step
    took before, where it was measured."""

    value_ms: float
    low_ms: float
    high_ms: float
    before_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One hypothesis: the finding it rests on, what was predicted, and once closed what was measured."""

    number: int
    opened: str
    hypothesis: str
    finding: str
    predicted: Gain | None
    change: str
    closed: str = ""
    outcome: Outcome | None = None
    measured: Gain | None = None
    note: str = ""

    @property
    def error_ms(self) -> float | None:
        """Measured minus predicted gain."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured.value_ms - self.predicted.value_ms

    @property
    def within(self) -> bool | None:
        """Whether the measured gain is in the predicted interval."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted.low_ms <= self.measured.value_ms <= self.predicted.high_ms


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How good predictions are here, over closed entries that have both gains; None where no entry has."""

    compared: int
    within: int
    median_error_ms: float | None
    median_ratio: float | None


def read(path: Path) -> list[Entry]:
    """All entries, by number. A missing file is an empty ledger; a damaged line is named.

    A last line that was cut off while it was written is no entry: its writer never said that it was.
    """
    if not path.is_file():
        return []
    entries: dict[int, Entry] = {}
    data = path.read_bytes()
    text = data[: len(data) - _torn(data)].decode("utf-8", "replace")
    for place, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            _apply(entries, parsed(line))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as broken:
            raise BrokenRecord(
                f"{path} line {place} is damaged: {broken!r}", remedy="restore it from version control"
            ) from broken
    return [entries[number] for number in sorted(entries)]


def add(path: Path, hypothesis: str, finding: str = "", predicted: Gain | None = None, change: str = "") -> Entry:
    """Open an entry before the change is verified."""
    if not hypothesis.strip():
        raise UsageError("an entry needs a hypothesis", remedy="say what should get faster, and why")
    if predicted is not None and not predicted.low_ms <= predicted.value_ms <= predicted.high_ms:
        raise UsageError(
            f"the predicted gain {predicted} does not lie in its own interval", remedy="give low, value, high in order"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = max((entry.number for entry in read(path)), default=0) + 1
        entry = Entry(number, _now(), hypothesis, finding, predicted, change)
        event = {"event": "add", "number": number, "date": entry.opened, "hypothesis": hypothesis}
        _append(path, file, {**event, "finding": finding, "predicted_ms": _listed(predicted), "change": change})
    return entry


def close(
    path: Path, number: int, outcome: Outcome, measured: Gain | None = None, note: str = "", change: str = ""
) -> Entry:
    """Close an open entry. Invalid and inconclusive outcomes carry no gain, whatever was passed."""
    if outcome in (Outcome.INVALID, Outcome.INCONCLUSIVE):
        measured = None
    if not path.is_file():
        raise UsageError(f"there is no ledger at {path}", remedy="open an entry with timesink verify --ledger add")
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        is_open = {entry.number: not entry.closed for entry in read(path)}
        if not is_open.get(number):
            state = "is closed already" if number in is_open else "does not exist"
            numbers = ", ".join(str(entry) for entry, still in is_open.items() if still) or "none"
            raise UsageError(f"entry {number} {state}", remedy=f"choose an open one: {numbers}")
        event = {"event": "close", "number": number, "date": _now(), "outcome": str(outcome)}
        _append(path, file, {**event, "measured_ms": _listed(measured), "note": note, "change": change})
    return next(entry for entry in read(path) if entry.number == number)


def track_record(entries: Sequence[Entry]) -> TrackRecord:
    """How predictions compare with measurements so far."""
    errors = [entry.error_ms for entry in entries if entry.error_ms is not None]
    both = [
        (entry.predicted, entry.measured)
        for entry in entries
        if entry.predicted is not None and entry.measured is not None
    ]
    ratios = [measured.value_ms / predicted.value_ms for predicted, measured in both if predicted.value_ms > 0]
    within = sum(entry.within is True for entry in entries)
    return TrackRecord(len(errors), within, median(errors) if errors else None, median(ratios) if ratios else None)


def _apply(entries: dict[int, Entry], event: dict[str, Any]) -> None:
    number = int(event["number"])
    match event["event"]:
        case "add":
            if number in entries:
                raise ValueError(f"entry {number} is opened twice")
            entries[number] = Entry(number, str(event["date"]), str(event["hypothesis"]), str(event.get("finding", "")),
                                    _gain(event.get("predicted_ms")), str(event.get("change", "")))  # fmt: skip
        case "close":
            entry = entries[number]
            if entry.closed:
                raise ValueError(f"entry {number} is closed twice")
            entries[number] = replace(entry, closed=str(event["date"]), outcome=Outcome(event["outcome"]),
                                      measured=_gain(event.get("measured_ms")), note=str(event.get("note", "")),
                                      change=str(event.get("change") or entry.change))  # fmt: skip
        case other:
            raise ValueError(f"unknown event {other!r}")


def _gain(listed: Sequence[float] | None) -> Gain | None:
    if listed is None:
        return None
    low, value, high, *before = (float(part) for part in listed)
    if not all(math.isfinite(part) for part in (low, value, high, *before)):
        raise ValueError("a gain that is no finite number")
    return Gain(value, low, high, *before)


def _listed(gain: Gain | None) -> list[float] | None:
    if gain is None:
        return None
    before = [] if gain.before_ms is None else [gain.before_ms]
    return [gain.low_ms, gain.value_ms, gain.high_ms, *before]


def _append(path: Path, file: BinaryIO, event: dict[str, Any]) -> None:
    """One line, whole or not at all. What a killed writer left of a line gives way to it."""
    data = path.read_bytes()
    size = len(data) - _torn(data)
    line = json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n"
    os.ftruncate(file.fileno(), size)
    try:
        rest = (line if data[:size].endswith(b"\n") or not size else f"\n{line}").encode()
        while rest:  # a disk that fills up takes the first part without a word
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError as error:
        os.ftruncate(file.fileno(), size)
        raise UsageError(f"{path} cannot be written: {error.strerror}", remedy="make room on the disk") from error


def _torn(data: bytes) -> int:
    """Bytes at the end that are part of a line: it has no end and is no JSON (an editor may leave the end away)."""
    last = data.rpartition(b"\n")[2]
    try:
        parsed(last or b"null")
    except ValueError:
        return len(last)
    return 0


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
