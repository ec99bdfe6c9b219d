"""Damaged reports: whatever the bytes, a trace with notes or `UnreadableTrace`, nothing else."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.readers import ncu_reports as made

from timesink.errors import UnreadableTrace
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.readers import ReadLimits
from timesink.readers.ncu import READERS

RULES = made.rule("A", "a text", 4, 1.5)
NVTX = made.message(21, made.message(2, made.message(2, made.message(3, made.message(1, "step")))))
WHOLE = made.report(
    made.block(details=made.session(), sources=1),
    made.block(
        [made.kernel("a", [made.metric(0, 1.0), made.metric(1, 7, 2), made.metric(2, "t")], RULES + NVTX)],
        ["x", "y", "z"],
        sources=1,
    ),
    made.block([made.kernel("b", [made.metric(0, 2.0), made.metric(200, 3.0)], RULES)]),
)


def survives(folder: Path, data: bytes) -> None:
    path = folder / "a.ncu-rep"
    path.write_bytes(data)
    try:
        trace = READERS[0].read(path, ReadLimits())
    except UnreadableTrace as error:
        assert error.remedy
        return
    profiles = trace[KERNEL_PROFILES]["profile"].to_list()
    assert profiles
    assert set(trace[KERNEL_METRICS]["profile"].to_list()) <= set(profiles)


def test_every_truncation_is_survived(tmp_path: Path) -> None:
    for size in range(4, len(WHOLE)):
        survives(tmp_path, WHOLE[:size])


@pytest.mark.slow
def test_every_single_byte_may_lie(tmp_path: Path) -> None:
    for at in range(4, len(WHOLE)):
        for lie in (0x00, 0x7F, 0xFF):
            survives(tmp_path, WHOLE[:at] + bytes([lie]) + WHOLE[at + 1 :])


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_bytes_in_place_of_any_others_are_survived(tmp_path: Path, data: st.DataObject) -> None:
    start = data.draw(st.integers(4, len(WHOLE)))
    end = data.draw(st.integers(start, len(WHOLE)))
    survives(tmp_path, WHOLE[:start] + data.draw(st.binary(max_size=64)) + WHOLE[end:])


def test_a_metric_whose_name_is_missing_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(WHOLE)
    trace = READERS[0].read(path, ReadLimits())
    assert [(note.message, note.count) for note in trace.notes] == [("damaged metrics were left out", 1)]
    assert trace[KERNEL_METRICS]["metric"].to_list() == ["x", "y", "z", "x"]


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 1 << 20])
def test_a_size_that_passes_the_end_is_no_allocation(tmp_path: Path, size: int) -> None:
    survives(tmp_path, WHOLE + size.to_bytes(4, "little") + b"abc")
