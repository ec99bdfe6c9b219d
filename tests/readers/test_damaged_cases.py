"""Minimal inputs of damage that people met: what is said of each is what is right."""

import pytest
from tests.profiles import ABSENT, PROFILES

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis
from timesink.errors import UnreadableTrace
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.readers import read

CASES = PROFILES / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=ABSENT)


def diagnosed(name: str) -> tuple[Trace, Diagnosis]:
    trace = read(CASES / name, cache=False)
    return trace, diagnose(trace)


def lost(trace: Trace) -> list[int]:
    return [note.count for note in trace.notes if note.kind.is_loss and note.table == "device_ops"]


def test_durations_beyond_the_next_start_are_clipped() -> None:
    clean, diagnosis = diagnosed("06_clean.json")
    assert (lost(clean), diagnosis.findings) == ([], ())
    damaged, diagnosis = diagnosed("06b_overflowing_durations.json")
    assert (lost(damaged), diagnosis.findings) == ([5], ())
    assert damaged[DEVICE_OPS].height == clean[DEVICE_OPS].height


def test_rows_at_time_zero_are_counted_and_no_clean_bill_is_given() -> None:
    trace, diagnosis = diagnosed("07_device_times_zero.json")
    assert lost(trace) == [100]
    assert any("before their launch" in note.message for note in diagnosis.notes)
    assert diagnosis.bottleneck is not Bottleneck.NONE


def test_ranks_that_were_merged_are_two() -> None:
    trace, diagnosis = diagnosed("05_two_ranks_merged.json")
    assert trace.rank_numbers == (0, 1)
    assert not any(finding.bottleneck is Bottleneck.COMPUTE_BOUND_KERNEL for finding in diagnosis.findings)


def test_hundreds_of_devices_are_refused() -> None:
    with pytest.raises(UnreadableTrace, match="no machine has as many"):
        read(CASES / "many_devices.sqlite", cache=False)
