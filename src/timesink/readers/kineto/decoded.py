"""What the native decoder gives: columns, the texts their codes stand for, what the file says of itself, and in words
what its import lost, assumed or left out.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import polars as pl

from timesink import _native
from timesink.errors import UnreadableTrace, cannot_read
from timesink.knowledge.vendors import NO_GPU, vendor_of_calls
from timesink.model.names import mapped
from timesink.model.schema import ColumnValues, Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, noted
from timesink.records import Record, State
from timesink.untrusted.budget import ReadLimits, way_out
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import UnpackedFile

TEXT_BUDGET_BYTES = 1 << 30
_COUNTED_EACH = 16  # pieces of a megabyte


class DecodedRows(State):
    """The columns of one table as the file had them; a column that is null throughout is not there."""

    height: int
    columns: dict[str, _native.ArrowColumn]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def take(self, name: str) -> pl.Series | None:
        """A column, handed over without a copy; None where the file has nothing of it."""
        column = self.columns.pop(name, None)
        return None if column is None else pl.Series(name, column)


class DecodedTrace(State):
    """What one file held. `strings` and `texts` (Categorical) are the distinct texts in the order of their codes.
    `seen` counts the rows of each table in the file, of which a window may have left none.
    """

    path: Path
    limits: ReadLimits
    tables: dict[str, DecodedRows]
    strings: pl.Series
    texts: pl.Series
    counts: Mapping[str, int]
    seen: Mapping[str, int]
    unknown_categories: list[tuple[str, int]]
    properties: Mapping[str, Any]
    base_ns: int
    bad_base: bool
    ending: str
    ending_byte: int
    trailing_bytes: int
    gzip_problem: str
    unpacked_bytes: int

    def named(self, codes: pl.Series | None) -> pl.Series | None:
        """Codes as the texts they stand for."""
        return None if codes is None else self.texts[codes]

    def classified(self, codes: pl.Series, classify: Callable[[str], str | None], dtype: pl.Enum) -> pl.Series:
        """Codes as classes, asked once per distinct text."""
        return mapped(self.texts[codes], lambda texts: pl.Series(map(classify, texts.to_list()), dtype=dtype), dtype)


class Stretches(Record):
    """What to keep of a file, on its own clock: half-open stretches that the rows of the host, of GPU work and of
    synchronisations must touch.
    """

    host: tuple[int, int]
    device: tuple[int, int]
    syncs: tuple[int, int]


def feed(file: UnpackedFile, decoder: _native.KinetoDecoder) -> dict[str, Any]:
    """Feed the file to the decoder and finish it; its top-level members. `UnreadableTrace` where it is no trace."""
    path, limits, head = file.path, file.limits, b""
    try:
        for number, piece in enumerate(file, 1):
            head = head or bytes(piece[:_HEAD_BYTES])
            if not decoder.feed(piece):
                break
            if number % _COUNTED_EACH == 0:
                _refuse_too_many(path, decoder, limits)
    except OSError as error:
        raise cannot_read(path, error) from error
    decoder.finish()
    _refuse_too_many(path, decoder, limits)
    properties = _parsed(decoder.properties())
    _refuse(path, decoder, properties, file.problem, head)
    return properties


def _refuse_too_many(path: Path, decoder: _native.KinetoDecoder, limits: ReadLimits) -> None:
    """`UnreadableTrace` where the decoder found more events than a file of that size may hold."""
    events, most = decoder.counts()["events"], limits.most_events(path.stat().st_size)
    if events > most:
        what = f"it holds more than {events:,} events in {path.stat().st_size:,} bytes, and {most:,} may be"
        raise UnreadableTrace(path, what, remedy=way_out(events, most))


def decode(file: UnpackedFile, stretches: Stretches | None = None) -> DecodedTrace:
    """The events of a file, or of some stretches of it. `UnreadableTrace` where it is no trace at all."""
    decoder = _native.KinetoDecoder(TEXT_BUDGET_BYTES)
    if stretches is not None:
        decoder.cut_to(stretches.host, stretches.device, stretches.syncs)
    properties = feed(file, decoder)
    strings = pl.Series("", decoder.strings())
    tables = {
        name: DecodedRows(max(map(len, columns.values()), default=0), columns)
        for name, columns in decoder.tables().items()
    }
    return DecodedTrace(
        path=file.path,
        limits=file.limits,
        tables=tables,
        strings=strings,
        texts=strings.cast(pl.Categorical()),
        counts=decoder.counts(),
        seen={name: rows.height for name, rows in tables.items()} if stretches is None else decoder.seen(),
        unknown_categories=[(strings[code], count) for code, count in decoder.unknown_categories()],
        properties=properties,
        base_ns=decoder.base_ns,
        bad_base=decoder.bad_base,
        ending=decoder.ending,
        ending_byte=decoder.ending_byte,
        trailing_bytes=decoder.trailing_bytes,
        gzip_problem=file.problem,
        unpacked_bytes=file.unpacked_bytes,
    )


def _parsed(properties: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The top-level members that are JSON; one that is not is left out."""
    members = {}
    for name, text in properties.items():
        try:
            members[name.decode("utf-8", "replace")] = parsed(text.decode("utf-8", "replace"), strict=False)
        except ValueError:
            continue
    return members


_HEAD_BYTES = 4096
_EXPECTED = "give the JSON that torch.profiler's export_chrome_trace writes"


def _refuse(
    path: Path, decoder: _native.KinetoDecoder, properties: Mapping[str, Any], gzip_problem: str, head: bytes
) -> None:
    """`UnreadableTrace` where the file holds no events. Members that are too long to be kept are named by its head."""
    place = f"byte {decoder.ending_byte:,}"
    after = f" ({gzip_problem})" if gzip_problem else ""
    match decoder.ending:
        case "empty":
            raise UnreadableTrace(path, gzip_problem or "the file holds no text", remedy=_EXPECTED)
        case "no_json":
            raise UnreadableTrace(path, f"this is no JSON object or array{after}", place=place, remedy=_EXPECTED)
        case "no_array":
            raise UnreadableTrace(path, "traceEvents is not an array", place=place, remedy=_EXPECTED)
    if not decoder.saw_events:
        if decoder.ending == "complete":
            first = [name.decode("utf-8", "replace")[:60] for name in head.split(b'"', 2)[1:2]]
            known = ", ".join(repr(name) for name in (sorted(properties) or first)[:8]) or "none"
            message = f"JSON without traceEvents is not a profiler trace (its members: {known})"
            raise UnreadableTrace(path, message, remedy=_EXPECTED)
        how = "is damaged" if decoder.ending == "damaged" else "breaks off"
        message = f"the JSON {how} before its traceEvents{after}"
        raise UnreadableTrace(path, message, place=place, remedy="copy or capture the file again")
    counts = decoder.counts()
    elements = counts["events"] + counts["no_object"] + counts["damaged_records"]
    if elements and counts["events"] == counts["other_phases"]:
        message = f"its array of {elements:,} holds no event with a duration (phase X, or B and E)"
        raise UnreadableTrace(path, message, remedy=_EXPECTED)


_OPTIONS = {
    "record_shapes": "profiler records shapes",
    "with_stack": "profiler records stacks",
    "profile_memory": "profiler records memory",
    "with_flops": "profiler counts operations",
    "with_modules": "profiler records modules",
}
_VERSIONS = {
    "schemaVersion": "Kineto schema", "cupti_version": "CUPTI", "cuda_runtime_version": "CUDA runtime",
    "cuda_driver_version": "CUDA driver", "roctracer_version": "roctracer", "hip_runtime_version": "HIP runtime",
    "hip_driver_version": "HIP driver",
}  # fmt: skip
_LIBRARIES = {"backend": "communication backend", "nccl_version": "NCCL"}
_INT32_MAX = (1 << 31) - 1


def stated_rank(decoded: DecodedTrace) -> int:
    """The rank in `distributedInfo`; 0 where the file has none."""
    return _count(_distributed(decoded).get("rank")) or 0


def source_row(decoded: DecodedTrace, reader_format: str) -> ColumnValues:
    """The row of `sources`. The window is that of the profiler's own spans, which enclose what they recorded."""
    spans = decoded.tables["spans"]
    start, end, host = spans.take("start_ns"), spans.take("end_ns"), decoded.properties.get("host_name")
    return {
        "path": [str(decoded.path)],
        "format": reader_format,
        "tool_version": _tool(decoded),
        "size_bytes": decoded.path.stat().st_size,
        "clock_origin_ns": decoded.base_ns,
        "start_ns": None if start is None else start.min(),
        "end_ns": None if end is None else end.max(),
        "host": host if isinstance(host, str) and host else None,
        "world_size": _count(_distributed(decoded).get("world_size")),
    }


def settings(decoded: DecodedTrace) -> ColumnValues | None:
    """Versions and options that the file states; None where it states none."""
    stated_values: dict[str, Any] = {name: decoded.properties.get(key) for key, name in _OPTIONS.items()}
    stated_values |= {name: _distributed(decoded).get(key) for key, name in _LIBRARIES.items()}
    stated = {name: str(value) for name, value in sorted(stated_values.items()) if _plain(value)}
    return {"name": list(stated), "value": list(stated.values())} if stated else None


def _distributed(decoded: DecodedTrace) -> dict[str, Any]:
    members = decoded.properties.get("distributedInfo")
    return members if isinstance(members, dict) else {}


def _tool(decoded: DecodedTrace) -> str | None:
    """Versions the file names; Kineto writes none of its own but that of its schema."""
    stated = {said: decoded.properties.get(name) for name, said in _VERSIONS.items()}
    return ", ".join(f"{said} {value}" for said, value in stated.items() if _plain(value)) or None


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and len(str(value)) <= 40


def _count(value: Any) -> int | None:
    """A number that may be written as text; None where it is no 32-bit count."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:12])
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32_MAX else None


# Counts of the decoder, each with what it means; a count of zero is silent.
_COUNTED: Final = (
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
    ("no_category", NoteKind.SKIPPED, "events without a category"),
    ("begin_end", NoteKind.SKIPPED, "begin and end events: the profiler writes complete events"),
    ("counters", NoteKind.SKIPPED, "counter samples"),
    ("instants", NoteKind.SKIPPED, "instants of no known kind"),
    ("other_phases", NoteKind.SKIPPED, "events of a phase that is not read"),
    ("device_ranges", NoteKind.SKIPPED, "GPU-side copies of user ranges: ranges are projected onto the GPU anew"),
)  # fmt: skip
_CATEGORIES_NAMED = 5


def import_notes(decoded: DecodedTrace, tables: Mapping[Table, pl.DataFrame]) -> list[ImportNote]:
    """Every note, the gravest kind first."""
    counted = (noted(kind, message, decoded.counts[name]) for name, kind, message in _COUNTED)
    notes = [*_endings(decoded), *chain.from_iterable(counted), *_unknown(decoded), *_device_work(decoded, tables)]
    order = {kind: place for place, kind in enumerate(NoteKind)}
    return sorted(notes, key=lambda note: order[note.kind])


def _endings(decoded: DecodedTrace) -> tuple[ImportNote, ...]:
    at = f"byte {decoded.ending_byte:,} of the text"
    endings = {
        "truncated": f"the text breaks off; what stands before {at} was read",
        "damaged": f"the text is no JSON from {at} on; what stands before was read",
    }
    ending = endings.get(decoded.ending, "")
    if decoded.gzip_problem:
        ending = f"{decoded.gzip_problem}; {ending.partition('; ')[2] or 'what came before it was read'}"
    more = f"{decoded.trailing_bytes:,} bytes follow the end of the JSON"
    base = "baseTimeNanoseconds is no integer; times are on the file's own clock"
    return (
        *noted(NoteKind.DAMAGE, ending, int(bool(ending)), SOURCES),
        *noted(NoteKind.SKIPPED, more, decoded.trailing_bytes, SOURCES, whole=True),
        *noted(NoteKind.ASSUMED, base, int(decoded.bad_base), SOURCES),
    )


def _unknown(decoded: DecodedTrace) -> Iterator[ImportNote]:
    """Events of categories nobody knows, the commonest named; those of an accelerator are device work."""
    total = decoded.counts["unknown_category"]
    if not total:
        return
    ordered = sorted(decoded.unknown_categories, key=lambda entry: (-entry[1], entry[0]))
    named = ", ".join(f"{name[:60]!r} ({count:,})" for name, count in ordered[:_CATEGORIES_NAMED])
    more = f" and {len(ordered) - _CATEGORIES_NAMED} more" if len(ordered) > _CATEGORIES_NAMED else ""
    table = DEVICE_OPS.name if any(NO_GPU.search(name) for name, _ in ordered) else ""
    yield ImportNote(NoteKind.SKIPPED, f"events of categories that are not read: {named}{more}", total, table)


def _device_work(decoded: DecodedTrace, tables: Mapping[Table, pl.DataFrame]) -> Iterator[ImportNote]:
    """Say so where nothing can be said of any GPU."""
    if not decoded.counts["events"]:
        yield ImportNote(NoteKind.DATA_LOSS, "the file holds no events", 0, DEVICE_OPS.name)
    elif DEVICE_OPS not in tables:
        calls = decoded.seen["api_calls"]
        vendor = vendor_of_calls(tables[API_CALLS]["name"].unique().to_list() if API_CALLS in tables else ())
        seen = f", though {calls:,} {vendor.runtime} calls" if calls else ""
        message = (
            f"no GPU work was recorded{seen}: nothing can be said of a GPU's time (profile with {vendor.records_by})"
        )
        yield ImportNote(NoteKind.DATA_LOSS, message, calls, DEVICE_OPS.name, whole=True)
    elif API_CALLS not in tables:
        message = "no calls of the GPU's runtime were recorded: launches and GPU work cannot be linked"
        yield ImportNote(NoteKind.DATA_LOSS, message, decoded.seen["device_ops"], API_CALLS.name, whole=True)
