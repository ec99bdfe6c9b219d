"""Objects that ranks exchange pickled: `all_gather_object`, `gather_object` and `broadcast_object_list` of PyTorch.

Each sends the length of the pickle, one whole number of 8 bytes, and then its bytes; either is read by the host, which
waits for the device both times.
"""

from __future__ import annotations

import polars as pl

from timesink.measures.steps.per_step import begun_per_step
from timesink.model.tables import COLLECTIVES
from timesink.model.trace import Trace

_LENGTH_BYTES = 8  # one int64: how long the pickled object is


def pickled_per_step(trace: Trace, rank: int) -> float:
    """Exchanges of pickled objects per steady step of a rank; over all of the trace where it has no steps."""
    frame = trace.get(COLLECTIVES).filter(pl.col("rank") == rank).sort("start_ns")
    dtype = frame["dtype"].cast(pl.String)
    length = (dtype == "Long") & (frame["in_bytes"] == _LENGTH_BYTES)
    sent = frame.filter(
        (dtype == "Byte") & length.shift(1, fill_value=False) & (frame["kind"] == frame["kind"].shift(1))
    )
    return begun_per_step(trace, rank, sent["start_ns"])
