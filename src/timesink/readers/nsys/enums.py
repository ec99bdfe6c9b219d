"""Numbers of CUPTI enumerations as canonical words. An export's own `ENUM_*` table outranks what we know.

Known values: CUDA_MEMOPR_MEMORY_KIND (0 is pageable, 1 is pinned), CUDA_MEMCPY_KIND and
CUpti_ActivitySynchronizationType, as NVIDIA's exports of 2021 to 2026 list them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import polars as pl

from timesink.model.tables import CopyKind, MemoryKind, SyncKind
from timesink.readers.nsys.export import Export, enum_source

_MEMORY_WORDS = MappingProxyType(
    {
        "PAGEABLE": "pageable",
        "PINNED": "pinned",
        "DEVICE": "device",
        "ARRAY": "array",
        "MANAGED": "managed",
        "DEVICE_STATIC": "device",
        "MANAGED_STATIC": "managed",
        "UNKNOWN": "unknown",
    }
)
_COPY_WORDS = MappingProxyType(
    {
        "UNKNOWN": "unknown",
        "HTOD": "h2d",
        "DTOH": "d2h",
        "HTOA": "h2d",
        "ATOH": "d2h",
        "ATOA": "d2d",
        "ATOD": "d2d",
        "DTOA": "d2d",
        "DTOD": "d2d",
        "HTOH": "h2h",
        "PTOP": "p2p",
        "UVM_HTOD": "h2d",
        "UVM_DTOH": "d2h",
        "UVM_DTOD": "d2d",
    }
)
_SYNC_WORDS = MappingProxyType(
    {
        "UNKNOWN": "unknown",
        "EVENT_SYNCHRONIZE": "event",
        "STREAM_WAIT_EVENT": "stream_wait_event",
        "STREAM_SYNCHRONIZE": "stream",
        "CONTEXT_SYNCHRONIZE": "device",
    }
)


def memory_kinds(export: Export) -> dict[int, str]:
    """Memory kind of each number."""
    return _meanings(export, "ENUM_CUDA_MEM_KIND", "MEMORY_KIND_", _MEMORY_WORDS)


def copy_kinds(export: Export) -> dict[int, str]:
    """Direction of each number. Arrays live on the device; unified-memory migrations count as what they move."""
    return _meanings(export, "ENUM_CUDA_MEMCPY_OPER", "MEMCPY_KIND_", _COPY_WORDS)


def migrations(export: Export) -> frozenset[int]:
    """Numbers of copies that the driver made to migrate unified memory."""
    told = {number for number, symbol in symbols(export, "ENUM_CUDA_MEMCPY_OPER").items() if "_UVM_" in symbol}
    return frozenset(told or {number for number, word in enumerate(_COPY_WORDS) if word.startswith("UVM")})


def sync_kinds(export: Export) -> dict[int, str]:
    """What each number waits for."""
    return _meanings(export, "ENUM_CUPTI_SYNC_TYPE", "SYNCHRONIZATION_TYPE_", _SYNC_WORDS)


def labels(export: Export, table: str) -> dict[int, str]:
    """The labels of an enumeration, empty where the export has none."""
    return {number: label or name or "" for number, name, label in _members(export, table)}


def as_memory(numbers: pl.Series, kinds: Mapping[int, str]) -> pl.Series:
    """Numbers as `MemoryKind`; an unknown number is `unknown`, a missing one null."""
    return _worded(numbers, kinds, MemoryKind)


def as_copy(numbers: pl.Series, kinds: Mapping[int, str]) -> pl.Series:
    """Numbers as `CopyKind`."""
    return _worded(numbers, kinds, CopyKind)


def as_sync(numbers: pl.Series, kinds: Mapping[int, str]) -> pl.Series:
    """Numbers as `SyncKind`; a missing number is `unknown`."""
    return _worded(numbers, kinds, SyncKind).fill_null("unknown")


def _worded(numbers: pl.Series, kinds: Mapping[int, str], dtype: pl.Enum) -> pl.Series:
    words = numbers.replace_strict(kinds, default="unknown", return_dtype=dtype)
    missing = pl.Series([None], dtype=dtype).new_from_index(0, len(numbers))
    return words.zip_with(numbers.is_not_null(), missing)


def _meanings(export: Export, table: str, before: str, words: Mapping[str, str]) -> dict[int, str]:
    """The words as numbered by default, corrected by the export's own table where that is understood."""
    numbered = dict(enumerate(words.values()))
    for number, symbol in symbols(export, table).items():
        word = words.get(symbol.partition(before)[2])
        if word is not None:
            numbered[number] = word
    return numbered


def symbols(export: Export, table: str) -> dict[int, str]:
    """The symbols of an enumeration, empty where the export has none."""
    return {number: name for number, name, _ in _members(export, table) if name}


def _members(export: Export, table: str) -> Iterator[tuple[int, str | None, str | None]]:
    """Number, symbol and label of each member. The columns that refer to them hold 32 bits."""
    frame = export.read(enum_source(table))
    return frame.filter(frame[frame.columns[0]].is_between(-(1 << 31), (1 << 31) - 1)).iter_rows()
