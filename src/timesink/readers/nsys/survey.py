"""A first look through an export that is to be cut: how long it lasts, and what has to be known of all of it.

The export has no index on times, so the tables of GPU work and calls are gone through once, in a few columns; of their
rows nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from timesink.readers.nsys.calls import CUDA_CALL_CLASSES, OS_CALL_CLASSES
from timesink.readers.nsys.capture import timed
from timesink.readers.nsys.device_ops import Rows
from timesink.readers.nsys.export import CALLS, DEVICE_WORK, OS_RUNTIME, Export, Kind, Source
from timesink.readers.nsys.keep import Keep

_TIMES: dict[str, Kind] = {"start": "int64", "end": "int64"}
_OF_WORK: dict[str, Kind] = {**_TIMES, "globalPid": "int64", "deviceId": "int32"}
_OF_CALLS: dict[str, Kind] = {**_TIMES, "eventClass": "int32"}


@dataclass(frozen=True, slots=True)
class Survey:
    """`extent` is the first and last moment on the export's own clock, None where it holds neither GPU work nor calls.
    `users` are the distinct owners and devices of each table of GPU work, `worked` those of rows with sound times.
    """

    extent: tuple[int, int] | None
    users: Rows
    worked: Rows


@dataclass(slots=True)
class _Seen:
    """What batches said. Several threads add to it, and a table that is read twice may say the same again."""

    bounds: list[tuple[int, int]] = field(default_factory=list)
    users: list[pl.DataFrame] = field(default_factory=list)
    worked: list[pl.DataFrame] = field(default_factory=list)

    def time(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The rows with sound times; remembers how far they reach."""
        sound = timed(batch.drop_nulls(("start", "end")), 0, [], "")
        if sound.height:
            self.bounds.append(sound.select(pl.col("start").min(), pl.col("end").max()).row(0))
        return sound

    def work(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Nothing of a batch of GPU work; remembers whose it is."""
        whose = ("globalPid", "deviceId")
        self.users.append(batch.drop_nulls(("start", "end")).select(whose).unique())
        self.worked.append(self.time(batch).select(whose).unique())
        return batch.clear()

    def calls(self, classes: tuple[int, ...]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """Nothing of a batch of calls; a row of another class is no call."""

        def rows(batch: pl.DataFrame) -> pl.DataFrame:
            self.time(batch.filter(pl.col("eventClass").is_in(classes).fill_null(True)))
            return batch.clear()

        return rows


def survey(export: Export) -> Survey:
    """Go through the export once. What the tables have lost is not noted here: they are read again."""
    all_seen, users, worked = [], {}, {}
    for source in DEVICE_WORK:
        seen = _Seen()
        export.read(Source(source.name, _OF_WORK), Keep(seen.work))
        nothing = pl.DataFrame(schema={"globalPid": pl.Int64, "deviceId": pl.Int32})
        users[source.name] = pl.concat([nothing, *seen.users]).unique().sort("globalPid", "deviceId")
        worked[source.name] = pl.concat([nothing, *seen.worked]).unique().sort("globalPid", "deviceId")
        all_seen += seen.bounds
    for source, classes in ((CALLS, CUDA_CALL_CLASSES), (OS_RUNTIME, OS_CALL_CLASSES)):
        seen = _Seen()
        export.read(Source(source.name, _OF_CALLS), Keep(seen.calls(classes)))
        all_seen += seen.bounds
    extent = (min(start for start, _ in all_seen), max(end for _, end in all_seen)) if all_seen else None
    return Survey(extent, users, worked)
