"""The program's own line that a Python frame was called from: the innermost frame around it outside of libraries."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.knowledge.source_files import is_own
from timesink.model.arrays import Int64Array
from timesink.model.names import mapped
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace, remembered


@remembered
def own_frames(trace: Trace) -> Int64Array:
    """For each row of `frames`, the row of that frame, which may be itself; -1 where all around it is of libraries.

    row    0         1                  2
    file   train.py  torch/__init__.py  threading.py
    caller -1        0                  -1
    own    0         0                  -1
    """
    frames = trace.get(FRAMES)
    row = np.arange(frames.height)
    own = mapped(frames["file"], lambda files: files.map_elements(is_own, pl.Boolean, skip_nulls=True), pl.Boolean)
    is_known = own.fill_null(False).to_numpy()
    caller = _callers(frames)
    while (open_ := ~is_known[row] & (caller[row] >= 0)).any():
        row = np.where(open_, caller[row], row)
    return np.where(is_known[row], row, -1) if frames.height else row


def _callers(frames: pl.DataFrame) -> Int64Array:
    """The row of the calling frame, -1 where none was recorded. A call begins before what it calls."""
    numbered = frames.select("rank", "frame_id", "parent_id").with_row_index("row")
    ids = numbered.drop_nulls("frame_id").unique(["rank", "frame_id"], keep="first").select("rank", "frame_id", "row")
    ids = ids.rename({"frame_id": "parent_id", "row": "caller"})
    joined = numbered.join(ids, on=["rank", "parent_id"], how="left", maintain_order="left")
    caller = joined["caller"].cast(pl.Int64).fill_null(-1).to_numpy()
    begins = frames["start_ns"].to_numpy()
    earlier = (begins[caller] < begins) | ((begins[caller] == begins) & (caller < np.arange(caller.size)))
    return np.where((caller >= 0) & earlier, caller, -1)
