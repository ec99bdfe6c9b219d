"""The step of real pipelines without a profiler, whose measured one is known."""

import json
import statistics
from pathlib import Path

import pytest
from benchmarks.faults import pack, suite
from benchmarks.faults.adopt import MEASURED, archive

from timesink.measures.communication.pipelines import pipeline
from timesink.measures.ranks import paces
from timesink.readers import read
from timesink.units import NS_PER_MS

PIPELINES = [
    (name, tool)
    for fault in suite.FAULTS
    if fault.split in ("fifth_tune", "seventh_tune") and ("pieces" in fault.name or "stages" in fault.name)
    for name in (fault.name,)
    for tool in ("torch", "nsys")
    if archive(name, tool).exists()
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tool"), PIPELINES)
def test_the_step_of_a_pipeline_is_known_though_nobody_tells_it(name: str, tool: str, tmp_path: Path) -> None:
    """Recording makes that of two of them a fifth and a half longer, as their GPUs wait for each other's CPUs."""
    pack.unpacked(archive(name, tool), tmp_path)
    trace = read(sorted(tmp_path.glob(f"{name}.*.fault*")), cache=False)
    measured = next(of for case, of in json.loads(MEASURED.read_text()).items() if case.startswith(f"{name}/"))
    estimated = paces.estimated_step_ns(trace)
    assert pipeline(trace) is not None and estimated is not None
    assert estimated[1] / NS_PER_MS == pytest.approx(statistics.median(measured["fault_ms"]), rel=0.1)
