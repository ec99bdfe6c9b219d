"""The native decoder's result: columns, the texts their codes stand for, and what it counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from timesink import _native
from timesink.errors import UnreadableTrace
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import Windows

if TYPE_CHECKING:
    from timesink.readers import ReadLimits

TEXT_BUDGET_BYTES = 1 << 30


@dataclass(slots=True)
class Rows:
    """The columns of one table as the file had them; a column that is null throughout is not there."""

    height: int
    columns: dict[str, _native.ArrowColumn]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def take(self, name: str) -> pl.Series | None:
        """A column, handed over without a copy; None where the file has nothing of it."""
        column = self.columns.pop(name, None)
        return None if column is None else pl.Series(name, column)


@dataclass(slots=True)
class Decoded:
    """What one file held. `strings` and `texts` (Categorical) are the distinct texts in the order of their codes.
    `seen` counts the rows of each table in the file, of which a window may have left none.
    """

    path: Path
    tables: dict[str, Rows]
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
        return None if codes is None else self.texts.gather(codes)

    def classified(self, codes: pl.Series, classify: Callable[[str], str | None], dtype: pl.Enum) -> pl.Series:
        """Codes as classes, asked once per distinct text."""
        distinct = codes.unique().drop_nulls()
        classes = pl.Series([classify(text) for text in self.strings.gather(distinct)], dtype=dtype)
        return codes.replace_strict(distinct, classes, default=None, return_dtype=dtype)


@dataclass(frozen=True, slots=True)
class Stretches:
    """What to keep of a file, on its own clock: half-open stretches that the rows of the host, of GPU work and of
    synchronisations must touch.
    """

    host: tuple[int, int]
    device: tuple[int, int]
    syncs: tuple[int, int]


def fed(path: Path, limits: ReadLimits, decoder: _native.KinetoDecoder) -> tuple[Windows, dict[str, Any]]:
    """Feed the file to the decoder and finish it; how it was read, and its top-level members. `UnreadableTrace` where
    it is no trace at all.
    """
    windows = Windows(path, limits)
    try:
        for window in windows:
            if not decoder.feed(window):
                break
    except OSError as error:
        raise UnreadableTrace(path, error.strerror or str(error), remedy="check the file") from error
    decoder.finish()
    properties = _parsed(decoder.properties())
    _refuse(path, decoder, properties, decoder.counts(), windows.problem)
    return windows, properties


def decode(path: Path, limits: ReadLimits, stretches: Stretches | None = None) -> Decoded:
    """The events of a file, or of some stretches of it. `UnreadableTrace` where it is no trace at all."""
    decoder = _native.KinetoDecoder(TEXT_BUDGET_BYTES)
    if stretches is not None:
        decoder.cut_to(stretches.host, stretches.device, stretches.syncs)
    windows, properties = fed(path, limits, decoder)
    strings = pl.Series("", decoder.strings())
    tables = {name: _rows(columns) for name, columns in decoder.tables().items()}
    return Decoded(
        path=path,
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
        gzip_problem=windows.problem,
        unpacked_bytes=windows.unpacked_bytes,
    )


def _rows(columns: dict[str, _native.ArrowColumn]) -> Rows:
    return Rows(max((len(column) for column in columns.values()), default=0), columns)


def _parsed(properties: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The top-level members that are JSON; one that is not is left out."""
    members = {}
    for name, text in properties.items():
        try:
            members[name.decode("utf-8", "replace")] = parsed(text.decode("utf-8", "replace"), strict=False)
        except ValueError:
            continue
    return members


_EXPECTED = "give the JSON that torch.profiler's export_chrome_trace writes"


def _refuse(
    path: Path,
    decoder: _native.KinetoDecoder,
    properties: Mapping[str, Any],
    counts: Mapping[str, int],
    gzip_problem: str,
) -> None:
    """Raise where the file holds no events to speak of."""
    place = f"byte {decoder.ending_byte:,}"
    after = f" ({gzip_problem})" if gzip_problem else ""
    match decoder.ending:
        case "empty":
            raise UnreadableTrace(path, gzip_problem or "the file holds no text", remedy=_EXPECTED)
        case "no_json":
            raise UnreadableTrace(path, f"this is no JSON object or array{after}", place=place, remedy=_EXPECTED)
        case "no_array":
            raise UnreadableTrace(path, "traceEvents is no array", place=place, remedy=_EXPECTED)
    if not decoder.saw_events:
        if decoder.ending == "complete":
            known = ", ".join(repr(name) for name in sorted(properties)[:8]) or "none"
            message = f"JSON without traceEvents is no profiler trace (its members: {known})"
            raise UnreadableTrace(path, message, remedy=_EXPECTED)
        how = "is damaged" if decoder.ending == "damaged" else "breaks off"
        message = f"the JSON {how} before its traceEvents{after}"
        raise UnreadableTrace(path, message, place=place, remedy="copy or capture the file again")
    elements = counts["events"] + counts["no_object"] + counts["damaged_records"]
    if elements and counts["events"] == counts["other_phases"]:
        message = f"none of its {elements:,} array elements is a trace event"
        raise UnreadableTrace(path, message, remedy=_EXPECTED)
