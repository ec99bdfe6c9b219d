"""The ledger: what was expected of a change before it was made, and what it brought. Append-only JSON lines.

Each line is an event; an entry is opened by ``add`` and closed once by ``close``. Nothing is ever rewritten, so a
prediction cannot be mended afterwards.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from timesink.errors import UsageError
from timesink.records import Record, replace
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.whole_file import whole_file
from timesink.verify import BrokenRecord
from timesink.verify.outcomes import Outcome


class Gain(Record):
    """Milliseconds won per step, with the interval it is expected or measured to lie in. `before_ms` is what the step
    took before, where it was measured."""

    value_ms: float
    low_ms: float
    high_ms: float
    before_ms: float | None = None


class Entry(Record):
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


class TrackRecord(Record):
    """How good predictions are here, over closed entries that have both gains; None where no entry has."""

    compared: int
    within: int
    median_error_ms: float | None
    median_ratio: float | None


def read(path: Path) -> list[Entry]:
    """All entries, by number. A missing file is an empty ledger; a damaged line is named.

    A last line that was cut off while it was written is no entry: its writer never said that it was.
    """
    entries: dict[int, Entry] = {}
    for place, line in enumerate(_whole_lines(path).decode("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            _apply(entries, parsed(line))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as broken:
            what, remedy = f"{path} line {place} is damaged: {broken!r}", "restore it from version control"
            raise BrokenRecord(what, remedy=remedy) from broken
    return [entries[number] for number in sorted(entries)]


def add(path: Path, hypothesis: str, finding: str = "", predicted: Gain | None = None, change: str = "") -> Entry:
    """Open an entry before the change is verified."""
    if not hypothesis.strip():
        raise UsageError("an entry needs a hypothesis", remedy="say what should get faster, and why")
    if predicted is not None and not predicted.low_ms <= predicted.value_ms <= predicted.high_ms:
        what = f"the predicted gain {predicted} does not lie in its own interval"
        raise UsageError(what, remedy="give low, value, high in order")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_entries(path) as entries:
        entry = Entry(
            max((old.number for old in entries), default=0) + 1, _now(), hypothesis, finding, predicted, change
        )
        opened = {"event": "add", "number": entry.number, "date": entry.opened, "hypothesis": hypothesis}
        _append(path, opened | {"finding": finding, "predicted_ms": _list_gain(predicted), "change": change})
    return entry


def close(
    path: Path, number: int, outcome: Outcome, measured: Gain | None = None, note: str = "", change: str = ""
) -> Entry:
    """Close an open entry. Invalid and inconclusive outcomes carry no gain, whatever was passed."""
    if outcome in (Outcome.INVALID, Outcome.INCONCLUSIVE):
        measured = None
    _check_ledger(path)
    with _lock_entries(path) as entries:
        _check_open(entries, number)
        closed = {"event": "close", "number": number, "date": _now(), "outcome": str(outcome)}
        _append(path, closed | {"measured_ms": _list_gain(measured), "note": note, "change": change})
    return next(entry for entry in read(path) if entry.number == number)


def check_open(path: Path, number: int) -> None:
    """`UsageError` where there is no open entry of that number: told before anything runs for it."""
    _check_ledger(path)
    _check_open(read(path), number)


def _check_ledger(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"there is no ledger at {path}", remedy="open an entry with timesink verify --ledger add")


def _check_open(entries: Sequence[Entry], number: int) -> None:
    is_open = {entry.number: not entry.closed for entry in entries}
    if not is_open.get(number):
        state = "is closed already" if number in is_open else "does not exist"
        numbers = ", ".join(str(entry) for entry, still in is_open.items() if still) or "none"
        raise UsageError(f"entry {number} {state}", remedy=f"choose an open one: {numbers}")


def track_record(entries: Sequence[Entry]) -> TrackRecord:
    """How predictions compare with measurements so far."""
    errors = [entry.error_ms for entry in entries if entry.error_ms is not None]
    both = [(entry.predicted, entry.measured) for entry in entries if entry.predicted and entry.measured]
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
                                    _parse_gain(event.get("predicted_ms")), str(event.get("change", "")))  # fmt: skip
        case "close":
            entry = entries[number]
            if entry.closed:
                raise ValueError(f"entry {number} is closed twice")
            entries[number] = replace(entry, closed=str(event["date"]), outcome=Outcome(event["outcome"]),
                                      measured=_parse_gain(event.get("measured_ms")), note=str(event.get("note", "")),
                                      change=str(event.get("change") or entry.change))  # fmt: skip
        case other:
            raise ValueError(f"unknown event {other!r}")


def _parse_gain(listed: Sequence[float] | None) -> Gain | None:
    if listed is None:
        return None
    low, value, high, *before = map(float, listed)
    if not all(map(math.isfinite, (low, value, high, *before))):
        raise ValueError("a gain that is not a finite number")
    return Gain(value, low, high, *before)


def _list_gain(gain: Gain | None) -> list[float] | None:
    if gain is None:
        return None
    before = [] if gain.before_ms is None else [gain.before_ms]
    return [gain.low_ms, gain.value_ms, gain.high_ms, *before]


@contextmanager
def _lock_entries(path: Path) -> Iterator[list[Entry]]:
    """The entries, which nobody else changes while the block lasts."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield read(path)
    finally:
        os.close(folder)


def _append(path: Path, event: dict[str, Any]) -> None:
    """One line, whole or not at all. What a killed writer left of a line gives way to it."""
    kept = _whole_lines(path)
    line = json.dumps(event, ensure_ascii=False, allow_nan=False).encode()
    try:
        with whole_file(path) as unfinished:
            unfinished.write_bytes(kept + (b"" if not kept or kept.endswith(b"\n") else b"\n") + line + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", remedy="make room on the disk") from error


def _whole_lines(path: Path) -> bytes:
    """The file without what was cut off of a last line: it has no end and is no JSON (an editor may leave the end
    away)."""
    data = path.read_bytes() if path.is_file() else b""
    last = data.rpartition(b"\n")[2]
    try:
        parsed(last or b"null")
    except ValueError:
        return data.removesuffix(last)
    return data


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
