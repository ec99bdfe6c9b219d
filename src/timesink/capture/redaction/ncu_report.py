"""An ncu report without command line, host, process names and folders. Every text keeps its length, so that the
length-delimited messages around it stay as they are; nothing is decoded that is not text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.redaction.cleaner import Cleaner
from timesink.knowledge import private_texts
from timesink.untrusted.protobuf import BYTES, DamagedMessage, fields

_MAGIC = b"NVR\0"
_SESSION, _PROCESS, _PAYLOAD_BYTES = 3, 6, 5
_COMMAND = 11
_HOSTS = (3, 4)
_FOLDERS = re.compile(private_texts.FOLDER_IN_REPORT.encode())
_USERS = re.compile(private_texts.HOME.encode())


def redact_ncu(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    """Copy with those texts overwritten by `x`."""
    data = bytearray(source.read_bytes())
    if data[:4] != _MAGIC:
        raise CaptureError(
            Fault.REQUEST, f"{source} does not begin as an ncu report", remedy="export a .ncu-repz as .ncu-rep first"
        )
    counts = {"command lines": 0, "host and process names": 0, "folders": 0}
    try:
        _overwrite_messages(data, counts, cleaner)
    except DamagedMessage as damage:
        raise CaptureError(Fault.REQUEST, f"the report is damaged: {damage}", remedy="capture it again") from damage
    cleaner.learn(found.decode() for found in _USERS.findall(data))
    for found in list(_FOLDERS.finditer(data)):
        counts["folders"] += _overwrite(data, found.start(), found.end())
    target.write_bytes(data)
    return [f"{kind}: {count}" for kind, count in counts.items() if count]


def _overwrite_messages(data: bytearray, counts: dict[str, int], cleaner: Cleaner) -> None:
    for header, end in _headers(data):
        for number, start, stop in _texts(data, header, end):
            if number == _SESSION:
                _overwrite_session(data, start, stop, counts, cleaner)
            elif number == _PROCESS:
                for _, first, last in _texts(data, start, stop):
                    counts["host and process names"] += _overwrite(data, first, last)


def _overwrite_session(data: bytearray, start: int, stop: int, counts: dict[str, int], cleaner: Cleaner) -> None:
    for number, first, last in _texts(data, start, stop):
        if number == _COMMAND:
            counts["command lines"] += _overwrite(data, first, last)
        elif number in _HOSTS:
            for _, begin, end in _texts(data, first, last):
                cleaner.learn([data[begin:end].decode("utf-8", "replace")])
                counts["host and process names"] += _overwrite(data, begin, end)


def _overwrite(data: bytearray, start: int, stop: int) -> int:
    data[start:stop] = b"x" * (stop - start)
    return 1 if stop > start else 0


def _headers(data: bytearray) -> Iterator[tuple[int, int]]:
    """First byte, and one past the last, of each block's header; the block's payload follows it."""
    at = 8 + int.from_bytes(data[4:8], "little")
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        header = at + 4
        if header + size > len(data):
            raise CaptureError(Fault.REQUEST, f"the report is cut at byte {at}", remedy="capture it again")
        yield header, header + size
        sizes = (field.value for field in fields(data, header, header + size) if field.number == _PAYLOAD_BYTES)
        payload = next(sizes, 0)
        at = header + size + payload


def _texts(data: bytearray, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field, first byte, past the last) of the length-delimited fields of a message."""
    yield from ((field.number, field.start, field.end) for field in fields(data, start, end) if field.wire == BYTES)
