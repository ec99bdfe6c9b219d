"""The program's own line that a Python frame was called from: the innermost frame around it outside of libraries."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.knowledge.source_files import is_own
from timesink.model.arrays import Int64Array
from timesink.model.names import of_each
from timesink.model.record import dataclass
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True, eq=False)
class OwnFrames:
    """For each row of `frames`: `row`, that of the program's own frame, which may be itself, and -1 where all around it
    is of libraries; `line`, that of the call that led from there to the frame, or -1 where it was not recorded.

    row        0         1                  2             3
    file       train.py  torch/__init__.py  threading.py  -
    caller     -1        0                  -1            1
    call_line  -         12                 -             90
    own row    0         0                  -1            0
    own line   -1        12                 -1            12
    """

    row: Int64Array
    line: Int64Array


@remembered
def own_frames(trace: Trace) -> OwnFrames:
    """Go up from each frame, whether of Python or of a built-in function, to the first of the program's own."""
    frames = trace.get(FRAMES)
    row, line = np.arange(frames.height), np.full(frames.height, -1)
    if not frames.height:
        return OwnFrames(row, line)
    is_known = of_each(frames["file"], is_own, pl.Boolean).fill_null(False).to_numpy()
    caller, called_at = callers(frames), frames["call_line"].fill_null(-1).cast(pl.Int64).to_numpy()
    while (open_ := ~is_known[row] & (caller[row] >= 0)).any():
        line = np.where(open_, called_at[row], line)
        row = np.where(open_, caller[row], row)
    return OwnFrames(np.where(is_known[row], row, -1), np.where(is_known[row], line, -1))


def callers(frames: pl.DataFrame) -> Int64Array:
    """The row of the calling frame, -1 where none was recorded. A call begins before what it calls."""
    numbered = frames.select("rank", "frame_id", "parent_id").with_row_index("row")
    ids = numbered.drop_nulls("frame_id").unique(["rank", "frame_id"], keep="first").select("rank", "frame_id", "row")
    ids = ids.rename({"frame_id": "parent_id", "row": "caller"})
    joined = numbered.join(ids, on=["rank", "parent_id"], how="left", maintain_order="left")
    caller = joined["caller"].cast(pl.Int64).fill_null(-1).to_numpy()
    begins = frames["start_ns"].to_numpy()
    earlier = (begins[caller] < begins) | ((begins[caller] == begins) & (caller < np.arange(caller.size)))
    return np.where((caller >= 0) & earlier, caller, -1)
