"""A first look through a file that is to be cut: its first and last moment, and when all GPU work was launched and ran.

JSON has to be read from its beginning, and no event says when the first one was; so the file is gone through twice. The
first time keeps 24 bytes a launch and 24 a GPU operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from timesink import _native
from timesink.model.cut import touching
from timesink.model.window import Window
from timesink.readers.kineto.decoded import TEXT_BUDGET_BYTES, Stretches, decode, fed

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits

_TIMES = {"start_ns": pl.Int64, "end_ns": pl.Int64, "correlation": pl.Int64}


@dataclass(frozen=True, slots=True)
class Survey:
    """What has to be known of the whole file. `processes` counts the rows of each process by table, `devices` are those
    that did any work, `longest_comm_ns` is the longest operator that names a collective.
    """

    base_ns: int
    extent_ns: tuple[int, int] | None
    launches: pl.DataFrame
    device_times: pl.DataFrame
    longest_comm_ns: int
    devices: frozenset[int]
    processes: Mapping[str, list[tuple[int, int]]]

    def stretches(self, window: Window) -> Stretches:
        """What to read for a window, on the file's own clock: at least what `Trace.within` keeps.

        Of GPU work, also what was launched in the host's stretch: a collective that the host calls there is then known
        to run, though outside of the window. Of synchronisations, all up to the end of the last call.
        """
        start_ns, end_ns = window.start_ns, window.end_ns
        inside = self.device_times.filter(pl.col("start_ns").is_between(start_ns, end_ns, closed="left"))
        launched = self.launches.join(inside, on="correlation", how="semi")
        lead_ns = _least(launched["start_ns"], start_ns)
        calls = self.launches.filter(touching(lead_ns, end_ns))
        until_ns = end_ns + self.longest_comm_ns
        theirs = self.launches.filter(pl.col("start_ns").is_between(lead_ns, until_ns, closed="left"))
        ran = self.device_times.join(theirs, on="correlation", how="semi")
        late_ns = _most(ran["end_ns"], end_ns)
        return Stretches(
            host=self._own(lead_ns, end_ns),
            device=self._own(_least(ran["start_ns"], start_ns), late_ns + 1),
            syncs=self._own(lead_ns, _most(calls["end_ns"], end_ns)),
        )

    def _own(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        return start_ns - self.base_ns, end_ns - self.base_ns


@dataclass(frozen=True, slots=True)
class OpenedKineto:
    """A file that was looked through once."""

    path: Path
    format: str
    limits: ReadLimits
    seen: Survey

    @property
    def extent_ns(self) -> tuple[int, int] | None:
        """First and last moment."""
        return self.seen.extent_ns

    def within(self, window: Window) -> Trace:
        """The trace of the window; the file is decoded again, and events outside of it are dropped on the way."""
        from timesink.readers.kineto.tables import to_trace

        decoded = decode(self.path, self.limits, self.seen.stretches(window))
        return to_trace(decoded, self.format, self.seen).within(window)


def survey(path: Path, limits: ReadLimits) -> Survey:
    """Go through the file once. `UnreadableTrace` where it is no trace."""
    decoder = _native.KinetoDecoder(TEXT_BUDGET_BYTES)
    decoder.look_through()
    fed(path, limits, decoder)
    said = decoder.survey()
    extent = said["work"] or said["ranges"]
    return Survey(
        base_ns=decoder.base_ns,
        extent_ns=None if extent is None else (extent[0] + decoder.base_ns, extent[1] + decoder.base_ns),
        launches=_frame(said["launches"]),
        device_times=_frame(said["device_times"]),
        longest_comm_ns=said["longest_comm_ns"],
        devices=frozenset(said["devices"]),
        processes=said["processes"],
    )


def _frame(columns: dict[str, _native.ArrowColumn]) -> pl.DataFrame:
    height = max((len(column) for column in columns.values()), default=0)
    return pl.DataFrame(
        {
            name: pl.Series(columns[name]) if name in columns else pl.repeat(None, height, dtype=dtype, eager=True)
            for name, dtype in _TIMES.items()
        }
    )


def _least(values: pl.Series, other: int) -> int:
    least = values.min()
    return min(least, other) if isinstance(least, int) else other


def _most(values: pl.Series, other: int) -> int:
    most = values.max()
    return max(most, other) if isinstance(most, int) else other
