"""Reading through a window gives what cutting the whole trace gives, whatever the format."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from tests.profiles import ABSENT, PROFILES

from timesink.measures.steps.per_step import step_budgets
from timesink.model.trace import Trace
from timesink.model.window import Window
from timesink.readers import ReadLimits, WindowReader, read, reader_of

HERE = Path(__file__).parents[1]
DATA = HERE / "data"
LIMITS = ReadLimits()


def same(read: Trace, cut: Trace) -> None:
    assert set(read.tables) == set(cut.tables)
    for table in cut:
        left, right = (t[table].with_columns(pl.col(pl.Categorical).cast(pl.String)) for t in (read, cut))
        assert left.equals(right), f"{table}: {left.height} rows read, {right.height} cut"
    assert read.cut_to == cut.cut_to


def obeys_the_law(path: Path, parts: int) -> None:
    """Stretches of the file, read through a window and cut from the whole."""
    reader = reader_of(path)
    assert isinstance(reader, WindowReader)
    whole = reader.read(path, LIMITS)
    opened = reader.open(path, LIMITS)
    assert opened.extent_ns == whole.extent_ns
    if whole.extent_ns is None:
        return
    first, last = whole.extent_ns
    cuts = [first + (last - first) * at // parts for at in range(parts + 1)]
    spans = [*pairwise(cuts), (first, last + 1), (cuts[2], cuts[2] + 1), (cuts[3], last + 1)]
    for start, end in spans:
        window = Window(start, end, first, last)
        same(opened.within(window), whole.within(window))


DEMO = HERE.parent / "src" / "timesink" / "cli" / "demo"
OURS = [DATA / "nsys" / "gpt_before_5_steps.sqlite", DEMO / "gpt_after.json.gz"]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_steps_of_a_window_are_timed_as_in_the_whole_trace(path: Path) -> None:
    whole = read(path, cache=False)
    first, last = whole.extent_ns or (0, 0)
    said = {row["start_ns"]: row for row in step_budgets(whole).drop("step").iter_rows(named=True)}
    seen = set()
    for at in range(6):
        cut = whole.between(first + (last - first) * at // 10, first + (last - first) * (at + 4) // 10)
        for row in step_budgets(cut).drop("step").iter_rows(named=True):
            assert row == said.get(row["start_ns"], row)
            seen.add(row["start_ns"])
    assert len(seen & said.keys()) > len(said) // 2


THEIRS = sorted(
    path
    for pattern in ("own/nsys/*.sqlite", "public/nsys/*.sqlite", "own/kineto/*.gz", "public/kineto/*.json*")
    for path in PROFILES.glob(pattern)
) or [pytest.param(Path(), marks=pytest.mark.skip(ABSENT))]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_window_read_is_the_window_cut(path: Path) -> None:
    obeys_the_law(path, parts=5)


@pytest.mark.slow
@pytest.mark.parametrize("path", THEIRS, ids=lambda path: path.name)
def test_a_window_read_of_what_others_recorded_is_the_window_cut(path: Path) -> None:
    obeys_the_law(path, parts=3)
