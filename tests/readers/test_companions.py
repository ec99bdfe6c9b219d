"""A memory snapshot beside a profiler trace: one rank, one set of memory events, the same steps."""

import shutil
from pathlib import Path

import pytest
from tests.readers.test_ncu_hostile import WHOLE

from timesink.diagnosis.engine import diagnose
from timesink.errors import UsageError
from timesink.measures.counters import kernel_counters
from timesink.measures.steps import steps
from timesink.model.tables import (
    DEVICE_OPS,
    DEVICES,
    KERNEL_PROFILES,
    MEMORY_EVENTS,
    MEMORY_MARKS,
    MEMORY_SEGMENTS,
    RANGES,
    SOURCES,
)
from timesink.readers import read, trace_files

DATA = Path(__file__).resolve().parents[1] / "data"
SNAPSHOT = DATA / "memory" / "gpt_bf16_adamw.pickle.xz"
TRACE = DATA / "nsys" / "gpt_before_5_steps.sqlite"


def test_a_snapshot_beside_a_trace_speaks_of_its_rank() -> None:
    alone, both = read(TRACE, cache=False), read([TRACE, SNAPSHOT], cache=False)
    assert both.rank_numbers == alone.rank_numbers == (0,)
    assert both[SOURCES].height == 2
    assert both[DEVICE_OPS].equals(alone[DEVICE_OPS])
    assert both[MEMORY_EVENTS].height == read(SNAPSHOT, cache=False)[MEMORY_EVENTS].height
    assert not [note for note in both.notes if "rank" in note.message]


def test_a_kernel_report_beside_a_trace_is_of_the_same_rank_and_device(tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(WHOLE)
    alone, both = read(TRACE, cache=False), read([TRACE, report], cache=False)
    assert both.rank_numbers == alone.rank_numbers == (0,)
    assert both[DEVICES].equals(alone[DEVICES])
    assert both[DEVICE_OPS].equals(alone[DEVICE_OPS])
    assert both[KERNEL_PROFILES].height == read(report, cache=False)[KERNEL_PROFILES].height
    assert not [note for note in both.notes if "claim rank" in note.message]


def test_first_contact_defect_5_kernel_reports_alone_are_of_the_ranks_in_their_names(tmp_path: Path) -> None:
    named = [tmp_path / f"rank{rank}.ncu-rep" for rank in (0, 1)]
    for file in named:
        file.write_bytes(WHOLE)
    assert read(named, cache=False).rank_numbers == (0, 1)
    with pytest.raises(UsageError, match="a file is given twice"):
        read([named[0], named[0]], cache=False)


@pytest.mark.parametrize("beside", [(), (TRACE,)])
@pytest.mark.parametrize("count", [2, 3])
def test_launches_of_several_kernel_reports_are_numbered_on(
    tmp_path: Path, count: int, beside: tuple[Path, ...]
) -> None:
    """Each launch has its own counters, and nobody else's: with a trace or without."""
    files = [tmp_path / f"{name}.ncu-rep" for name in "abc"[:count]]
    for file in files:
        file.write_bytes(WHOLE)
    alone = kernel_counters(read(files[0], cache=False))
    every = read([*beside, *files], cache=False)
    launches = kernel_counters(every)
    assert every.rank_numbers == (0,)
    assert [one.profile for one in launches] == list(range(count * len(alone)))
    assert [(one.name, one.values) for one in launches] == [(one.name, one.values) for one in alone] * count
    told = [note.message for note in every.notes if "launches from" in note.message]
    assert told == [f"launches from {at * len(alone)} on are those of {files[at].name}" for at in range(1, count)]


def test_a_snapshot_adds_no_step() -> None:
    alone, both = read(TRACE, cache=False), read([TRACE, SNAPSHOT], cache=False)
    assert steps(both).kept.equals(steps(alone).kept)
    assert both[RANGES].equals(alone[RANGES])
    assert both[MEMORY_MARKS].height > 0


def test_rules_on_time_and_on_memory_are_both_answered() -> None:
    codes = {card.code for card, _ in diagnose(read([TRACE, SNAPSHOT], cache=False)).findings}
    alone = {card.code for card, _ in diagnose(read(TRACE, cache=False)).findings}
    assert codes - alone == {"MEM103"}
    assert alone <= codes


def test_snapshots_of_two_ranks_keep_the_ranks_in_their_names(tmp_path: Path) -> None:
    files = [tmp_path / f"snapshot_rank{rank}.pickle.xz" for rank in (0, 1)]
    for file in files:
        shutil.copy(SNAPSHOT, file)
    both = read(files, cache=False)
    assert both.rank_numbers == (0, 1)
    assert both[MEMORY_SEGMENTS]["rank"].n_unique() == 2


def test_what_a_captured_program_prints_is_not_taken_for_a_trace(tmp_path: Path) -> None:
    shutil.copy(TRACE, tmp_path / "report.sqlite")
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "log.txt").write_text('{"loss": 2.5}\n')
    assert trace_files(tmp_path) == [tmp_path / "report.sqlite"]
