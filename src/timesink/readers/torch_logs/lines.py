"""Records of a log: a line with the loggers' prefix and, for structured ones, the payload indented below it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from timesink.untrusted.plain_json import parsed

PREFIX: Final = re.compile(
    r"(?:\[[\w.]+\]:)*?(?:\[rank(?P<rank>\d{1,9})\]:)?(?P<level>[VIWEC])(?P<month>\d\d)(?P<day>\d\d) "
    r"(?P<clock>\d\d:\d\d:\d\d)\.(?P<micros>\d{6}) (?P<thread>\d+) (?P<where>[^\]\s]+:\d+)\] ?(?P<rest>.*)"
)
_YEAR: Final = 1972  # lines carry none; a leap year, so that every day exists


@dataclass(slots=True)
class Losses:
    """What could not be kept, counted: records whose JSON is broken, payloads that are not what was written (their
    digest differs), and lines of others."""

    records: int = 0
    payloads: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One line. `time_ns` counts from the beginning of an unknown year in an unknown time zone. `envelope` is None for
    text; `payload` None where there is none, or where it is damaged."""

    time_ns: int
    rank: int | None
    where: str
    text: str
    envelope: dict[str, Any] | None = None
    payload: str | None = None


@dataclass(slots=True)
class _Open:
    record: Record
    digest: str | None
    lines: list[str] = field(default_factory=list)


def records(lines: Iterable[str], losses: Losses) -> Iterator[Record]:
    """Every record in order of the file."""
    opened: _Open | None = None
    for line in lines:
        found = PREFIX.match(line)
        if found is None:
            if line.startswith("\t") and opened is not None and opened.digest:
                opened.lines.append(line[1:])
            elif line.strip():
                losses.foreign += 1
            continue
        if opened is not None:
            yield _closed(opened, losses)
        opened = _opened(found, losses)
    if opened is not None:
        yield _closed(opened, losses)


def _opened(found: re.Match[str], losses: Losses) -> _Open | None:
    rest = found["rest"]
    rank = int(found["rank"]) if found["rank"] else None
    time_ns = _time_ns(found)
    if time_ns is None:
        losses.records += 1
        return None
    if not rest.startswith('{"'):
        return _Open(Record(time_ns, rank, found["where"], rest), None)
    try:
        envelope = parsed(rest)
    except ValueError:
        envelope = None
    if not isinstance(envelope, dict):
        losses.records += 1
        return None
    digest = envelope.get("has_payload")
    told = envelope.get("rank")
    rank = told if isinstance(told, int) and 0 <= told < 1 << 31 else rank
    record = Record(time_ns, rank, found["where"], "", envelope)
    return _Open(record, digest if isinstance(digest, str) else None)


def _time_ns(found: re.Match[str]) -> int | None:
    text = f"{_YEAR}-{found['month']}-{found['day']} {found['clock']}"
    try:
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000 + int(found["micros"]) * 1_000


def _closed(opened: _Open, losses: Losses) -> Record:
    if opened.digest is None:
        return opened.record
    payload = "\n".join(opened.lines)
    if hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest() != opened.digest:
        losses.payloads += 1
        return opened.record
    record = opened.record
    return Record(record.time_ns, record.rank, record.where, "", record.envelope, payload)
