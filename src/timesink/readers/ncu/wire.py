"""The wire format of Nsight Compute reports: just enough of protocol buffers, with every length checked.

A report is its magic number, a header, then blocks, each a header message and a counted list of payloads. It holds
thousands of metrics per kernel, so those are decoded as arrays. A metric is a message {1: number of its name, 2: value
message, 3: instances ...}; the value message holds one of {1: text, 2: float, 3: double, 4: uint32, 5: uint64}. The
walk over a result collects where its metrics are; the common shapes (a name of at most two bytes, then a double or an
integer) are then decoded for all of them at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from timesink.model.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from timesink.records import Record, State, field
from timesink.untrusted.protobuf import BYTES, FIXED32, FIXED64, DamagedMessage, WireField, fields, varint


def text(data: bytes, field: WireField) -> str:
    """The bytes of a field as text; bytes that are no UTF-8 become replacement characters."""
    return data[field.start : field.end].decode("utf-8", errors="replace")


def real(data: bytes, field: WireField) -> float:
    """A fixed-width field as the float it encodes."""
    return float(struct.unpack_from("<d" if field.wire == FIXED64 else "<f", data, field.start)[0])


def count(field: WireField, most: int = 2**31 - 1) -> int:
    """A field that counts or numbers something; `DamagedMessage` where it is beyond what that may be."""
    if field.value > most:
        raise DamagedMessage(f"{field.value} at byte {field.start} is no count")
    return field.value


MAGIC = b"NVR\0"


class Block(State):
    """One block: the offsets of its session details and its results in the file."""

    session: WireField | None = None
    strings: list[str] = field(default_factory=list)
    results: list[tuple[int, int]] = field(default_factory=list)
    ranges: int = 0


class Ending(State):
    """How the walk over the blocks ended: `cut_at` is the byte of the first block that could not be read whole."""

    cut_at: int | None = None
    why: str = ""


def blocks(data: bytes, ending: Ending) -> Iterator[Block]:
    """The whole blocks of a report, in order. A block that does not fit ends the walk, and `ending` says so."""
    at = len(MAGIC)
    try:
        at = _after_sized(data, at)  # file header
        while at < len(data):
            block, following = _block(data, at)
            yield block
            at = following
    except DamagedMessage as damage:
        ending.cut_at, ending.why = at, str(damage)


def _block(data: bytes, at: int) -> tuple[Block, int]:
    header_end = _after_sized(data, at)
    block = Block()
    sources = results = size = 0
    for part in fields(data, at + 4, header_end):
        match part.number:
            case 1:
                sources = part.value
            case 2:
                results = part.value
            case 3 if part.wire == BYTES:
                block.session = part
            case 4 if part.wire == BYTES:
                names = fields(data, part.start, part.end)
                block.strings = [text(data, name) for name in names if name.number == 1]
            case 5:
                size = part.value
            case 7:
                block.ranges = part.value
    end = header_end + size
    if end > len(data):
        raise DamagedMessage(f"a payload of {size} bytes is promised, {len(data) - header_end} are left")
    payloads = list(_payloads(data, header_end, end))
    block.results = payloads[sources : sources + results]
    return block, end


def _payloads(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    while at < end:
        following = _after_sized(data, at, end)
        yield at + 4, following
        at = following


def _after_sized(data: bytes, at: int, end: int | None = None) -> int:
    """Where a message ends that is preceded by its size as four bytes."""
    last = len(data) if end is None else end
    if at + 4 > last:
        raise DamagedMessage(f"{last - at} bytes left where a size of 4 bytes should stand")
    following: int = at + 4 + struct.unpack_from("<I", data, at)[0]
    if following > last:
        raise DamagedMessage(f"a message of {following - at - 4} bytes is promised, {last - at - 4} are left")
    return following


_INSTANCE = 3
_TAG_NAME, _TAG_VALUE, _TAG_DOUBLE, _TAG_U64 = 0x08, 0x12, 0x19, 0x28
_WINDOW = 24  # bytes of a metric that the common shapes need
DAMAGED = -1  # the name of a metric that could not be decoded


class MetricSpans(State):
    """Offsets of the bytes of each metric, and how many metrics each profile has."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # metrics of each profile, in order


class MetricColumns(Record):
    """One entry per metric: profile, number of the name, value (NaN where failed), whether a number, text by entry."""

    profile: Int32Array
    name: Int64Array
    value: Float64Array
    is_number: BoolArray
    texts: dict[int, str]

    def only(self, kept: BoolArray) -> MetricColumns:
        """The metrics for which `kept` holds."""
        if kept.all():
            return self
        place = np.cumsum(kept) - 1
        texts = {int(place[index]): words for index, words in self.texts.items() if kept[index]}
        return MetricColumns(self.profile[kept], self.name[kept], self.value[kept], self.is_number[kept], texts)


def decode(data: bytes, spans: MetricSpans) -> MetricColumns:
    """The metrics at those spans, in their order."""
    starts = np.asarray(spans.starts, dtype=np.int64)
    ends = np.asarray(spans.ends, dtype=np.int64)
    profile = np.repeat(np.arange(len(spans.counts), dtype=np.int32), np.asarray(spans.counts, dtype=np.int64))
    name = np.zeros(len(starts), dtype=np.int64)
    value = np.full(len(starts), np.nan)
    is_number = np.zeros(len(starts), dtype=np.bool_)
    texts: dict[int, str] = {}
    common = _decode_common(data, starts, ends, (name, value, is_number))
    for index in np.flatnonzero(~common).tolist():
        try:
            name[index], number, words = _decode_one(data, spans.starts[index], spans.ends[index])
        except DamagedMessage:
            name[index] = DAMAGED
            continue
        if number is not None:
            value[index], is_number[index] = number, True
        if words is not None:
            texts[index] = words
    return MetricColumns(profile, name, value, is_number, texts)


Outputs = tuple[Int64Array, Float64Array, BoolArray]


def _decode_common(data: bytes, starts: Int64Array, ends: Int64Array, into: Outputs) -> BoolArray:
    """Fill in the metrics of the two common shapes, and say which those are."""
    name, value, is_number = into
    if not len(starts):
        return np.zeros(0, dtype=np.bool_)
    bytes_ = np.frombuffer(data, dtype=np.uint8)
    if len(bytes_) < _WINDOW:
        return np.zeros(len(starts), dtype=np.bool_)
    is_inside = starts <= len(bytes_) - _WINDOW  # the last few metrics of a file are decoded one by one
    window = np.lib.stride_tricks.sliding_window_view(bytes_, _WINDOW)[np.where(is_inside, starts, 0)]
    wide = (window[:, 1] & 0x80).astype(np.int64)
    number = (window[:, 1] & 0x7F).astype(np.int64)
    number = np.where(wide > 0, number | (window[:, 2].astype(np.int64) << 7), number)
    at = np.where(wide > 0, 3, 2)  # the tag of the value message
    rows = np.arange(len(starts))
    size = window[rows, at + 1].astype(np.int64)
    known = (window[:, 0] == _TAG_NAME) & ((wide == 0) | (window[:, 2] < 0x80)) & (window[rows, at] == _TAG_VALUE)
    fits = is_inside & (starts + at + 2 + size <= ends)
    tag = window[rows, at + 2]
    doubles = known & fits & (size == 9) & (tag == _TAG_DOUBLE)
    integers = known & fits & (size >= 2) & (size <= 11) & (tag == _TAG_U64)
    picked = np.flatnonzero(doubles)
    raw = window[picked[:, None], at[picked][:, None] + 3 + np.arange(8)]
    value[picked] = np.ascontiguousarray(raw).view("<f8")[:, 0]
    picked = np.flatnonzero(integers)
    value[picked], whole = _varints(window[picked], at[picked] + 3, size[picked] - 1)
    integers[picked[~whole]] = False
    common: BoolArray = doubles | integers
    name[common] = number[common]
    is_number[common] = True
    return common


def _varints(window: NDArray[np.uint8], at: Int64Array, size: Int64Array) -> tuple[Float64Array, BoolArray]:
    """Numbers of `size` bytes at `at` of each row, and whether each ends exactly there."""
    total = np.zeros(len(window), dtype=np.uint64)
    whole = np.zeros(len(window), dtype=np.bool_)
    rows = np.arange(len(window))
    going = np.ones(len(window), dtype=np.bool_)
    for index in range(10):
        byte = window[rows, at + index]
        part = (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        total = np.where(going, total | part, total)
        last = going & (byte < 0x80)
        whole |= last & (size == index + 1)
        going &= ~last
    return total.astype(np.float64), whole


def _decode_one(data: bytes, start: int, end: int) -> tuple[int, float | None, str | None]:
    name, number, words = 0, None, None
    for part in fields(data, start, end):
        if part.number == 1:
            name = count(part)
        elif part.number == 2 and part.wire == BYTES:
            for choice in fields(data, part.start, part.end):
                if choice.number == 1 and choice.wire == BYTES:
                    words = text(data, choice)
                elif choice.wire in (FIXED32, FIXED64):
                    number = real(data, choice)
                elif choice.number in (4, 5):
                    number = float(choice.value)
    return name, number, words


def instances(data: bytes, start: int, end: int) -> dict[str, float]:
    """The values of a metric's instances that are called by a text: instance {1: value message, 2: value message}."""
    found: dict[str, float] = {}
    for part in fields(data, start, end):
        if part.number != _INSTANCE or part.wire != BYTES:
            continue
        name, value = None, None
        for side in fields(data, part.start, part.end):
            for choice in fields(data, side.start, side.end) if side.wire == BYTES else ():
                if side.number == 1 and choice.wire == BYTES:
                    name = text(data, choice)
                elif side.number == 2 and choice.wire != BYTES:
                    value = real(data, choice) if choice.wire in (FIXED32, FIXED64) else float(choice.value)
        if name and value is not None:
            found[name] = value
    return found


def collect(data: bytes, start: int, end: int, tag: int, spans: MetricSpans) -> list[tuple[int, int]]:
    """Note the metrics of one result (its fields with `tag`) in `spans`; the spans of its other fields are returned.

    A loop over bytes with nothing called in the common case: a report of a thousand kernels runs it two million times.
    """
    starts, ends, others = spans.starts, spans.ends, []
    at = start
    while at < end:
        if data[at] != tag:
            last = next(fields(data, at, end)).end
            others.append((at, last))
            at = last
            continue
        if at + 1 < end and data[at + 1] < 0x80:
            first = at + 2
            last = first + data[at + 1]
        else:
            size, first = varint(data, at + 1, end)
            last = first + size
        if last > end:
            raise DamagedMessage(f"a metric at byte {at} passes the end of its kernel")
        starts.append(first)
        ends.append(last)
        at = last
    return others
