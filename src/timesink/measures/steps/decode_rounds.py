"""Steps of a server that nobody annotated: the launches of the graph that makes a token for every request.

Prompts come when they come, so that hardly any kernel but those of decoding is in every step. A server replays the
same graph again and again, that graph takes most of the device's time, and after it tokens leave the device.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import steps as assumed
from timesink.model.arrays import Int64Array, median

_TOKENS_MOST: Final = 1 << 16  # bytes: eight thousand requests' tokens of eight bytes


def decode_rounds(ops: pl.DataFrame, kinds: Int64Array) -> Int64Array | None:
    """Positions in `ops`, in launch order, of the first op of every decoding graph; None where there is no such loop.

    Only the graph that is launched most often counts; it is launched in most steps of its kind, and a small copy to the
    host follows nearly every launch before the next one. Rounds of a loop around them are no steps.
    """
    frame = pl.DataFrame({"call": ops["call"], "kind": kinds, "busy_ns": ops["end_ns"] - ops["start_ns"]})
    frame = frame.with_row_index("at").filter(pl.col("call") >= 0)
    replays = frame.group_by("call", maintain_order=True).agg(
        pl.col("at").min(), pl.len().alias("ops"), pl.col("kind").hash().sum().alias("what"), pl.col("busy_ns").sum()
    )
    replays = replays.filter(pl.col("ops") >= assumed.GRAPH_OPS.whole)
    if not replays.height:
        return None
    by_graph = replays.group_by("what").agg(pl.len().alias("count"), pl.col("busy_ns").sum())
    most = by_graph.sort("count", "busy_ns", "what", descending=[True, True, False]).row(0, named=True)
    if most["count"] < assumed.DECODE_ROUNDS.whole or most["count"] < assumed.DECODE_SHARE.value * replays.height:
        return None
    if most["busy_ns"] < assumed.DECODE_SHARE.value * float(frame["busy_ns"].sum()):
        return None
    starts = replays.filter(pl.col("what") == most["what"])["at"].to_numpy().astype(np.int64)
    tokens = np.flatnonzero(((ops["copy_kind"] == "d2h") & (ops["bytes"] <= _TOKENS_MOST)).fill_null(False).to_numpy())
    left = np.searchsorted(tokens, starts[1:]) > np.searchsorted(tokens, starts[:-1])
    return starts if left.mean() >= assumed.ROUNDS_AT_HOME.value and not _within_a_loop(np.diff(starts)) else None


def _within_a_loop(lengths: Int64Array) -> bool:
    """Whether each so many rounds have more to do, always as many: a loop around that of the tokens, whose turns are
    the steps. Prompts of a server come at no such pace."""
    longer = np.flatnonzero(lengths > median(lengths))
    return len(longer) > 2 and longer[1] - longer[0] > 1 and not np.diff(longer, 2).any()
