"""Steps of real captures whose marks are gone and whose libraries leave ranges of their own: the same ones, or none."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.measures.steps.library_ranges import WAYS
from tests.profiles import EACH

from timesink.measures.steps import Steps, steps
from timesink.measures.steps.proof import StepOrigin
from timesink.model.arrays import Int64Array
from timesink.readers import read

CAPTURES = Path(__file__).resolve().parents[3] / "benchmarks" / "faults" / "captures"
ARCHIVES = sorted(CAPTURES.glob("*.tar.xz"))
EACH_ARCHIVE = 1 if EACH == 1 else 15
SAMPLE = [pytest.param(path, marks=pytest.mark.slow if EACH == 1 else ()) for path in ARCHIVES[::EACH_ARCHIVE]]


def windows_of(found: Steps, rank: int) -> tuple[Int64Array, Int64Array]:
    """When the kept steps of a rank begin on its first device, and how long they last."""
    of_rank = found.windows.filter(pl.col("rank") == rank)
    of_device = of_rank.filter(pl.col("device") == pl.col("device").first())
    return of_device["start_ns"].to_numpy(), of_device["period_ns"].to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize("archive", SAMPLE, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_capture_without_its_marks_has_the_same_steps_or_none(archive: Path, tmp_path: Path) -> None:
    """As many within one, and as long as the marked ones next to them: where every third step is ten times longer, one
    more or less moves the median of them all. Whatever ranges libraries put into the capture, none is a step."""
    unpacked(archive, tmp_path)
    for name, paths in captures_in(tmp_path).items():
        trace = read(paths[0] if len(paths) == 1 else paths, cache=False)
        marked = steps(trace)
        assert marked.origin is StepOrigin.MARKED, name
        for way, changed in WAYS.items() if marked.count else ():
            found = steps(changed(trace))
            if found.marker is not None:
                assert found.origin in (StepOrigin.FOUND, StepOrigin.GUESSED), f"{name}, {way}"
                compare(marked, found, f"{name}, {way}")


def compare(marked: Steps, found: Steps, what: str) -> None:
    # A capture may hold steps before its first mark.
    first_ns, last_ns = marked.frame["host_start_ns"].min(), marked.frame["host_end_ns"].max()
    within = found.frame.filter(pl.col("host_start_ns").is_between(first_ns, last_ns))
    assert abs(within.height - marked.frame.height) <= 1, what
    for rank in sorted(marked.by_rank):
        (marks_ns, marked_ns), (begun_ns, found_ns) = windows_of(marked, rank), windows_of(found, rank)
        nearest = np.abs(marks_ns[:, None] - begun_ns).argmin(axis=1)
        assert np.median(found_ns[nearest]) == pytest.approx(np.median(marked_ns), rel=0.03), what
