"""A rank late by its CPU: what its GPU stands still and what the others wait for it are one loss, promised once."""

from pathlib import Path

import pytest
from benchmarks.faults import pack, suite
from benchmarks.faults.adopt import archive

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.verdicts import Bottleneck
from timesink.fixes.table import BY_NAME
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.readers import read

LATE = [
    (fault.name, tool)
    for fault in suite.FAULTS
    if fault.bottleneck == "straggler" and fault.split in ("fifth_tune", "seventh_tune")
    for tool in ("torch", "nsys")
    if archive(fault.name, tool).exists()
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tool"), LATE)
def test_the_lateness_of_a_rank_is_promised_once(name: str, tool: str, tmp_path: Path) -> None:
    pack.unpacked(archive(name, tool), tmp_path)
    trace = read(sorted(tmp_path.glob(f"{name}.*.fault*")), cache=False)
    found = [finding for _, finding in diagnose(trace).findings]
    for late in (finding for finding in found if finding.bottleneck is Bottleneck.STRAGGLER):
        if "because of its CPU" not in late.message or late.recoverable is None:
            continue
        place = (late.where.rank or 0, late.where.device or 0)
        line = device_timeline(trace)[place]
        works = line.compute | line.exposed_communication
        own_ms = period_ns(trace, place) / 1e6 - per_step_ns(trace, place, works) / 1e6
        promised_ms = sum(
            finding.recoverable.value
            for finding in found
            if finding is not late and finding.recoverable and finding.where.rank == place[0]
            if (part := finding.claim.intervals.get(place)) and 10 * (part & works).total_ns < part.total_ns
        )
        assert promised_ms <= max(own_ms - late.recoverable.value, 0.05 * own_ms)


@pytest.mark.slow
@pytest.mark.parametrize("times", [None, 0.8, 1.0, 1.3, 1.8])
@pytest.mark.parametrize(("name", "tool"), LATE)
def test_a_plan_for_a_late_rank_leaves_its_gpu_what_it_has_to_do(
    name: str, tool: str, times: float | None, tmp_path: Path
) -> None:
    """All that it computes and no late rank would not, whatever the step without a profiler is told to be."""
    pack.unpacked(archive(name, tool), tmp_path)
    trace = read(sorted(tmp_path.glob(f"{name}.*.fault*")), cache=False)
    found = diagnose(trace)
    late = next((one for _, one in found.findings if one.bottleneck is Bottleneck.STRAGGLER), None)
    if late is None:
        return
    place = (late.where.rank or 0, late.where.device or 0)
    needed = device_timeline(trace)[place].compute - late.claim.intervals.get(place, Intervals.none())
    needed_ms = per_step_ns(trace, place, needed) / 1e6
    told = trace if times is None else trace.with_unprofiled_step(times * period_ns(trace, place))
    rungs = plan(told).rungs
    others = (at for at, rung in enumerate(rungs) if rung.id in BY_NAME and not rung.fix.same_kernels)
    same = next(others, len(rungs))  # before changes of kernels
    assert all(rung.after.value >= 0.95 * needed_ms for rung in rungs[:same]), rungs
