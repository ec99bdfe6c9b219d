"""A rank late by its CPU: its idle time and what the others wait for it are one loss, told as the straggler."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults import pack, suite
from benchmarks.faults.adopt import archive

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.idle.blamed_time import launching_time, python_time
from timesink.readers import read

OF_CPU = (Bottleneck.HOST_PYTHON, Bottleneck.LAUNCH_BOUND)
LATE = [
    (fault.name, tool)
    for fault in suite.FAULTS
    if fault.bottleneck == "straggler" and fault.split in ("fifth_tune", "seventh_tune")
    for tool in ("torch", "nsys")
    if archive(fault.name, tool).exists()
]


@pytest.mark.parametrize(("name", "tool"), LATE)
def test_the_lateness_of_a_rank_is_promised_once(name: str, tool: str, tmp_path: Path) -> None:
    pack.unpacked(archive(name, tool), tmp_path)
    trace = read(sorted(tmp_path.glob(f"{name}.*.fault*")), cache=False)
    found = [finding for _, finding in diagnose(trace).findings]
    for late in (finding for finding in found if finding.bottleneck is Bottleneck.STRAGGLER):
        if "because of its CPU" not in late.message or late.recoverable is None:
            continue
        place = (late.where.rank, late.where.device)
        own = [part.per_step_ns / 1e6 for part in (*python_time(trace), *launching_time(trace)) if part.device == place]
        promised = sum(
            finding.recoverable.value
            for finding in found
            if finding.bottleneck in OF_CPU and finding.where.rank == place[0] and finding.recoverable
        )
        assert promised <= max(sum(own) - late.recoverable.value, 0.05 * sum(own))
