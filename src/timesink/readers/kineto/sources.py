"""What a Kineto file says of itself.

What the import of a Kineto file lost, assumed or left out, in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, SOURCES
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.kineto.decoded import Decoded

Columns = dict[str, Any]

_OPTIONS = {
    "record_shapes": "profiler records shapes",
    "with_stack": "profiler records stacks",
    "profile_memory": "profiler records memory",
    "with_flops": "profiler counts operations",
    "with_modules": "profiler records modules",
}
_LIBRARIES = {"backend": "communication backend", "nccl_version": "NCCL"}
_INT32_MAX = (1 << 31) - 1


def rank(decoded: Decoded) -> int:
    """The rank in `distributedInfo`; 0 where the file has none."""
    return _count(_distributed(decoded).get("rank")) or 0


def source(decoded: Decoded, reader_format: str) -> Columns:
    """The row of `sources`. The window is that of the profiler's own spans, which enclose what they recorded."""
    spans = decoded.tables["spans"]
    start, end = spans.take("start_ns"), spans.take("end_ns")
    return {
        "path": [str(decoded.path)],
        "format": [reader_format],
        "tool_version": pl.Series([_tool(decoded)], dtype=pl.String),
        "size_bytes": [decoded.path.stat().st_size],
        "clock_origin_ns": [decoded.base_ns],
        "start_ns": pl.Series([None if start is None else start.min()], dtype=pl.Int64),
        "end_ns": pl.Series([None if end is None else end.max()], dtype=pl.Int64),
        "host": pl.Series([_text(decoded.properties.get("host_name"))], dtype=pl.String),
        "world_size": pl.Series([_count(_distributed(decoded).get("world_size"))], dtype=pl.Int32),
    }


def settings(decoded: Decoded) -> Columns | None:
    """Versions and options that the file states; None where it states none."""
    found: dict[str, Any] = {name: decoded.properties.get(key) for key, name in _OPTIONS.items()}
    found |= {name: _distributed(decoded).get(key) for key, name in _LIBRARIES.items()}
    said = {name: str(value) for name, value in sorted(found.items()) if _plain(value)}
    return {"name": list(said), "value": list(said.values())} if said else None


def _distributed(decoded: Decoded) -> dict[str, Any]:
    found = decoded.properties.get("distributedInfo")
    return found if isinstance(found, dict) else {}


def _tool(decoded: Decoded) -> str | None:
    """Versions the file names; Kineto writes none of its own but that of its schema."""
    names = {
        "schemaVersion": "Kineto schema",
        "cupti_version": "CUPTI",
        "cuda_runtime_version": "CUDA runtime",
        "cuda_driver_version": "CUDA driver",
        "roctracer_version": "roctracer",
        "hip_runtime_version": "HIP runtime",
        "hip_driver_version": "HIP driver",
    }
    said = [f"{name} {decoded.properties[key]}" for key, name in names.items() if _plain(decoded.properties.get(key))]
    return ", ".join(said) or None


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and len(str(value)) <= 40


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    """A number that may be written as text; None where it is no 32-bit count."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:12])
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32_MAX else None


# Counts of the decoder, each with what it means; a count of zero is silent.
_COUNTED: tuple[tuple[str, NoteKind, str], ...] = (
    ("damaged_records", NoteKind.DATA_LOSS, "damaged records passed over; reading went on at the next event"),
    ("no_object", NoteKind.DATA_LOSS, "elements of traceEvents that are no events"),
    ("bad_time", NoteKind.DATA_LOSS, "events without a usable time"),
    ("negative_duration", NoteKind.DATA_LOSS, "events that end before they start"),
    ("too_many", NoteKind.DATA_LOSS, "events beyond the 2,147,483,648 one file may hold"),
    ("texts_not_kept", NoteKind.DATA_LOSS, "texts beyond the budget for distinct texts"),
    ("bad_utf8", NoteKind.DATA_LOSS, "distinct texts with bytes that are not UTF-8, replaced by U+FFFD"),
    ("cut_texts", NoteKind.DATA_LOSS, "distinct texts cut to 1 MiB"),
    ("bad_escapes", NoteKind.ASSUMED, "distinct texts with a backslash that escapes nothing, kept as written"),
    ("missing_duration", NoteKind.ASSUMED, "complete events without a duration, kept as instants"),
    ("guessed_category", NoteKind.ASSUMED, "events without a category, placed by what they carry"),
    (
        "no_device",
        NoteKind.ASSUMED,
        "device events without a usable GPU number, placed by process number, else on GPU 0",
    ),
    ("no_category", NoteKind.SKIPPED, "events without a category that nothing else places"),
    ("begin_end", NoteKind.SKIPPED, "begin and end events: the profiler writes complete events"),
    ("counters", NoteKind.SKIPPED, "counter samples"),
    ("instants", NoteKind.SKIPPED, "instants of no known kind"),
    ("other_phases", NoteKind.SKIPPED, "events of a phase that is not read"),
    ("device_ranges", NoteKind.SKIPPED, "GPU-side copies of user ranges: ranges are projected onto the device anew"),
)
_CATEGORIES_NAMED = 5


def import_notes(decoded: Decoded, tables: Mapping[Table, pl.DataFrame]) -> list[ImportNote]:
    """Every note, the gravest kind first."""
    notes = [*_endings(decoded), *_counted(decoded), *_unknown(decoded), *_device_work(decoded, tables)]
    order = {kind: place for place, kind in enumerate(NoteKind)}
    return sorted(notes, key=lambda note: order[note.kind])


def _endings(decoded: Decoded) -> Iterator[ImportNote]:
    if decoded.gzip_problem:
        yield ImportNote(NoteKind.DATA_LOSS, f"{decoded.gzip_problem}; what came before it was read", 1, SOURCES.name)
    at = f"byte {decoded.ending_byte:,} of the text"
    if decoded.ending == "truncated":
        yield ImportNote(NoteKind.DATA_LOSS, f"the text breaks off; what stands before {at} was read", 1, SOURCES.name)
    if decoded.ending == "damaged":
        yield ImportNote(
            NoteKind.DATA_LOSS, f"the text is no JSON from {at} on; what stands before was read", 1, SOURCES.name
        )
    if decoded.trailing_bytes:
        message = f"{decoded.trailing_bytes:,} bytes follow the end of the JSON"
        yield ImportNote(NoteKind.SKIPPED, message, decoded.trailing_bytes, SOURCES.name)
    if decoded.bad_base:
        message = "baseTimeNanoseconds is no integer; times are on the file's own clock"
        yield ImportNote(NoteKind.ASSUMED, message, 1, SOURCES.name)


def _counted(decoded: Decoded) -> Iterator[ImportNote]:
    for name, kind, message in _COUNTED:
        if count := decoded.counts[name]:
            yield ImportNote(kind, message, count)


def _unknown(decoded: Decoded) -> Iterator[ImportNote]:
    """Events of categories nobody knows, the commonest named."""
    total = decoded.counts["unknown_category"]
    if not total:
        return
    ordered = sorted(decoded.unknown_categories, key=lambda entry: (-entry[1], entry[0]))
    named = ", ".join(f"{name[:60]!r} {count:,}" for name, count in ordered[:_CATEGORIES_NAMED])
    more = f" and {len(ordered) - _CATEGORIES_NAMED} more" if len(ordered) > _CATEGORIES_NAMED else ""
    yield ImportNote(NoteKind.SKIPPED, f"events of categories that are not read: {named}{more}", total)


def _device_work(decoded: Decoded, tables: Mapping[Table, pl.DataFrame]) -> Iterator[ImportNote]:
    """Say so where nothing can be said of any GPU."""
    if not decoded.counts["events"]:
        yield ImportNote(NoteKind.DATA_LOSS, "the file holds no events", 0, DEVICE_OPS.name)
    elif DEVICE_OPS not in tables:
        calls = decoded.seen["api_calls"]
        seen = f", though {calls:,} CUDA calls" if calls else ""
        message = (
            f"no GPU work was recorded{seen}: nothing can be said of a GPU's time (profile with ProfilerActivity.CUDA)"
        )
        yield ImportNote(NoteKind.DATA_LOSS, message, calls, DEVICE_OPS.name)
    elif API_CALLS not in tables:
        message = "no CUDA calls were recorded: launches and GPU work cannot be linked"
        yield ImportNote(NoteKind.DATA_LOSS, message, decoded.seen["device_ops"], API_CALLS.name)
