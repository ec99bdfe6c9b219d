"""What ranges are called in every step alike: names whose numbers run on lose them, names told apart by numbers do not.

"batch 17" occurs once and the next step has "batch 18", so both are "batch #". "stage0" and "stage1" occur in each step
and stay what they are.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from timesink.knowledge.ranges import NUMBER, NUMBERED_STEP
from timesink.measures.steps.marks import step_marks
from timesink.measures.timeline.attribution import push_pop_ranges
from timesink.model.trace import Trace, remembered

_IN_STEPS: Final = 0.5  # a name that occurs in fewer of the steps is numbered


@remembered
def range_labels(trace: Trace) -> pl.Series:
    """A name for each row of `push_pop_ranges`; empty for marks of single steps and for ranges without a name."""
    names = push_pop_ranges(trace).select("rank", pl.col("name").cast(pl.String).fill_null(""))
    marks = step_marks(trace).frame.group_by("rank").agg(pl.len().alias("steps"))
    counts = names.group_by("rank", "name").agg(pl.len().alias("count")).join(marks, on="rank", how="left")
    steps = pl.col("steps").fill_null(0)
    recurs = pl.when(steps == 1).then(True).otherwise(pl.col("count") >= pl.max_horizontal(2, _IN_STEPS * steps))
    distinct = counts.group_by("name").agg(recurs.any().alias("recurs"))
    label = (
        pl.when(pl.col("name").str.contains(NUMBERED_STEP))
        .then(pl.lit(""))
        .when("recurs")
        .then("name")
        .otherwise(pl.col("name").str.replace_all(NUMBER, "#"))
    )
    labelled = distinct.select("name", label.alias("label"))
    return names.join(labelled, on="name", how="left", maintain_order="left")["label"]
