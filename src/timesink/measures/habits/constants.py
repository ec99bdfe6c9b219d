"""Tensors that follow from their sizes alone and are built again and again within a step: masks, positions."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge import kernel_traits
from timesink.measures.habits.extra_work import ExtraWork, extra_work
from timesink.measures.habits.sequences import launched
from timesink.measures.kernels.facts import all_rows, kernel_facts
from timesink.measures.kernels.fusion import unfused_attention
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.record import dataclass
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

_LEAST: Final = 3  # times a step: once for a mask and once for its twin in a loss is no habit


@dataclass(frozen=True, slots=True, eq=False)
class RebuiltConstants:
    """`work` per device: all but the first building of each constant in a step; `most`: how often the one that is built
    most often is built in a step."""

    work: tuple[ExtraWork, ...]
    most: int


@remembered
def rebuilt_constants(trace: Trace) -> RebuiltConstants | None:
    """Triangles cut from memory just filled, with their cast, and numbers counted up; None where there are none. What
    stands between the products of attention written out goes with it, and is not counted here."""
    frame = launched(trace).frame
    names = trace.get(DEVICE_OPS)["name"][frame["row"]]
    triangle, counted, filled = (
        matches(names, pattern).to_numpy()
        for pattern in (kernel_traits.TRIANGLE, kernel_traits.COUNTED, kernel_traits.FILLS)
    )
    masks = triangle & np.concatenate(([False], filled[:-1]))
    built = np.flatnonzero(masks | counted)
    if not built.size:
        return None
    cast = kernel_facts(trace).at(frame["row"], "casts")["casts"].fill_null(False).to_numpy()
    repeated, most = _repeated(trace, frame, built)
    chosen = np.zeros(frame.height + 1, np.bool_)
    chosen[repeated] = True
    of_mask = repeated[masks[repeated]]
    chosen[of_mask - 1] = True
    chosen[of_mask + 1] |= np.append(cast, False)[of_mask + 1]
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    flags[frame["row"].to_numpy()[chosen[:-1]]] = True
    flags[all_rows(unfused_attention(trace))] = False
    return RebuiltConstants(extra_work(trace, flags), most)


def _repeated(trace: Trace, frame: pl.DataFrame, built: Int64Array) -> tuple[Int64Array, int]:
    """Of these places of `frame`, those that were built before in their step, where that is often; and how often."""
    ops = trace.get(DEVICE_OPS)
    where = ops.select("rank", "device", "start_ns")[frame["row"].to_numpy()[built]]
    step = np.full(built.size, -1, np.int64)
    for device in device_timeline(trace).by_device:
        mine = ((where["rank"] == device[0]) & (where["device"] == device[1])).to_numpy()
        borders = np.unique(np.concatenate(step_windows(trace, device)))
        step[mine] = np.searchsorted(borders, where["start_ns"].to_numpy()[mine], side="right")
    turns = where.select("rank", "device", at=pl.Series(built), code=frame["code"][built], step=pl.Series(step))
    group = ["rank", "device", "step", "code"]
    counted = turns.with_columns(pl.len().over(group).alias("times"), pl.int_range(pl.len()).over(group).alias("turn"))
    again = counted.filter(pl.col("times") >= _LEAST, pl.col("turn") > 0)
    return again["at"].to_numpy(), int(again["times"].max() or 0)  # type: ignore[arg-type]
