"""Steps found with the marks of a real capture taken away: the same ones, or none."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from timesink.measures.steps.steps import steps
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read

CAPTURES = Path(__file__).resolve().parents[3] / "benchmarks" / "faults" / "captures"
SAMPLE = sorted(CAPTURES.glob("*.tar.xz"))[::15]


def without_marks(trace: Trace) -> Trace:
    tables = {**trace.tables, RANGES: trace.get(RANGES).clear()}
    if HOST_OPS in trace:
        host = trace[HOST_OPS]
        tables[HOST_OPS] = host.filter(~matches(host["name"], r"^ProfilerStep#|^Optimizer|enumerate\(DataLoader"))
    return replace(trace, tables=tables)


@pytest.mark.parametrize("archive", SAMPLE, ids=[path.name.removesuffix(".tar.xz") for path in SAMPLE])
def test_a_capture_without_its_marks_has_the_same_steps_or_none(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    for path in sorted(tmp_path.iterdir()):
        if ".rank" in path.name:
            continue
        trace = read(path, cache=False)
        marked, found = steps(trace), steps(without_marks(trace))
        if found.marker is None or not marked.count:
            continue
        # A capture may hold steps before its first mark.
        first_ns, last_ns = marked.frame["host_start_ns"].min(), marked.frame["host_end_ns"].max()
        within = found.frame.filter(pl.col("host_start_ns").is_between(first_ns, last_ns))
        assert abs(within.height - marked.frame.height) <= 1, path.name
        assert found.times.p50_ns == pytest.approx(marked.times.p50_ns, rel=0.03), path.name
