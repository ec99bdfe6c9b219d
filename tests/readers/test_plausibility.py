"""Records that cannot be true are clipped, moved or left out, and said; what only looks odd is left as it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS
from timesink.model.trace import NoteKind, Trace
from timesink.readers.plausibility import make_plausible
from timesink.records import replace

US, MS, S = 10**3, 10**6, 10**9
HOUR = 3600 * S
AT = 1_700_000_000 * S
DEVICES_OF = {
    "A100": ("NVIDIA A100-SXM4-80GB", 8),
    "V100": ("Tesla V100-SXM2-16GB", 7),
    "H100": ("NVIDIA H100 80GB HBM3", 9),
    "MI300X": ("AMD Instinct MI300X", 9),
    "unnamed": (None, None),
}
Mutation = Callable[[dict[str, np.ndarray[Any, Any]]], None]


def capture(device: str = "A100", *, copies: int = 0, of_graph: bool = False) -> Trace:
    """200 kernels of 600 us and 60 us by turns, each launched 100 us before it may start, on one stream."""
    length = np.where(np.arange(200) % 2, 60 * US, 600 * US)
    start = AT + np.cumsum(length + US) - length
    rows = 200
    ops = {
        "rank": 0, "device": 0, "process": 7, "context": 1, "stream": 7, "kind": ["kernel"] * (rows - copies),
        "name": ["gemm", "add"] * (rows // 2), "start_ns": start, "end_ns": start + length,
        "correlation": np.arange(rows), "graph_id": [4 if of_graph else None] * rows,
    }  # fmt: skip
    ops["kind"] = [*ops["kind"], *["copy"] * copies]  # type: ignore[misc]
    ops["copy_kind"] = [None] * (rows - copies) + ["h2d"] * copies
    calls = {
        "rank": 0, "process": 7, "thread": 7, "name": "cudaLaunchKernel", "start_ns": start - 100 * US,
        "end_ns": start - 97 * US, "correlation": np.arange(rows),
    }  # fmt: skip
    name, major = DEVICES_OF[device]
    described = {"rank": [0], "device": [0], "name": [name], "compute_major": [major]}
    tables = {DEVICE_OPS: DEVICE_OPS.build(ops), API_CALLS: API_CALLS.build(calls), DEVICES: DEVICES.build(described)}
    return Trace("test", tables)


def changed(trace: Trace, mutate: Mutation, table: Any = DEVICE_OPS) -> Trace:
    """The trace with other values in some columns of a table."""
    frame = trace[table]
    columns = {
        name: frame[name].to_numpy().copy() for name in ("start_ns", "end_ns", "stream") if name in frame.columns
    }
    mutate(columns)
    rows = frame.with_columns(pl.Series(name, values) for name, values in columns.items())
    rows = rows.sort(table.sorted_by, maintain_order=True)
    return replace(trace, tables={**trace.tables, table: rows})


def without_calls(trace: Trace) -> Trace:
    return replace(trace, tables={table: frame for table, frame in trace.tables.items() if table is not API_CALLS})


def losses(trace: Trace) -> list[tuple[str, int]]:
    return [(note.message, note.count) for note in trace.notes if note.kind is NoteKind.DATA_LOSS]


def times(trace: Trace) -> list[tuple[int, int]]:
    return trace[DEVICE_OPS].select("start_ns", "end_ns").rows()


@pytest.mark.parametrize("device", DEVICES_OF)
def test_a_sound_capture_is_the_same_one(device: str) -> None:
    trace = capture(device, copies=8)
    assert make_plausible(trace) is trace


@pytest.mark.parametrize("device", DEVICES_OF)
@pytest.mark.parametrize("bad", [[3], [10, 50, 90, 130, 170], [0, 1], [4, 44], list(range(0, 60, 2))])
@pytest.mark.parametrize("to_ns", [90 * MS, 5 * MS])
def test_durations_beyond_the_next_start_end_there(device: str, bad: list[int], to_ns: int) -> None:
    def overflow(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["end_ns"][bad] = columns["start_ns"][bad] + to_ns

    mended = make_plausible(changed(capture(device), overflow))
    message = "records of GPU work overlap the next one on their stream: clipped there"
    assert losses(mended) == [(message, len(bad))]
    sound = capture(device)[DEVICE_OPS]
    later = sound["start_ns"].shift(-1)
    for row, (start, end) in enumerate(times(mended)):
        assert start == sound["start_ns"][row]
        assert end == (later[row] if row in bad else sound["end_ns"][row])


@pytest.mark.parametrize(("device", "count"), [("A100", 20), ("V100", 20), ("H100", 0), ("MI300X", 0), ("unnamed", 0)])
def test_the_tail_of_a_kernel_may_run_into_the_next_one_where_the_device_allows_it(device: str, count: int) -> None:
    def overlap(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["end_ns"][0:40:2] += 30 * US

    assert sum(number for _, number in losses(make_plausible(changed(capture(device), overlap)))) == count


@pytest.mark.parametrize("device", ["MI300X", "unnamed"])
def test_queues_that_streams_share_overlap_all_the_time(device: str) -> None:
    def share(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["end_ns"][0::2] += 70 * US  # every gemm outlasts the kernel after it

    trace = changed(capture(device), share)
    assert make_plausible(trace) is trace


def test_replays_overlap_on_their_stream() -> None:
    def overlap(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["end_ns"][0::2] += 70 * US

    for trace in (changed(capture(of_graph=True), overlap), changed(_launched_by_graphs(capture()), overlap)):
        assert make_plausible(trace) is trace


def _launched_by_graphs(trace: Trace) -> Trace:
    name = pl.lit("cudaGraphLaunch").cast(pl.Categorical()).alias("name")
    return replace(trace, tables={**trace.tables, API_CALLS: trace[API_CALLS].with_columns(name)})


@pytest.mark.parametrize("device", ["A100", "H100"])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_kernels_at_one_time_on_one_stream_are_said(device: str, every: int) -> None:
    def at_once(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["start_ns"][:] = AT + (np.arange(200) // (200 // every)) * MS
        columns["end_ns"][:] = columns["start_ns"] + 100 * US

    mended = make_plausible(changed(without_calls(capture(device)), at_once))
    assert losses(mended) == [("rows of GPU work run at one time on one stream, as none can", 200 - every)]


@pytest.mark.parametrize("rows", [[0], [5, 6, 7], list(range(60)), list(range(0, 200, 2))])
@pytest.mark.parametrize("early_ns", [2 * MS, 10 * S, 28 * HOUR, AT])
def test_work_before_its_launch_is_left_out(rows: list[int], early_ns: int) -> None:
    def early(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        length = columns["end_ns"][rows] - columns["start_ns"][rows]
        columns["start_ns"][rows] -= early_ns + 100 * US
        columns["end_ns"][rows] = columns["start_ns"][rows] + length * (early_ns != AT)

    mended = make_plausible(changed(capture(), early))
    assert sum(count for _, count in losses(mended)) == len(rows)
    sound = [time for row, time in enumerate(times(capture())) if row not in rows]
    assert times(mended) == sound


@pytest.mark.parametrize("offset_ns", [-1000 * S, -28 * HOUR, -20 * MS, 1000 * S, 5 * S])
def test_a_clock_that_is_off_is_moved_to_the_launches(offset_ns: int) -> None:
    def shift(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["start_ns"] += offset_ns
        columns["end_ns"] += offset_ns

    mended = make_plausible(changed(capture(), shift))
    assert losses(mended) == []
    assert [note.count for note in mended.notes if note.kind is NoteKind.ASSUMED] == [200]
    assert times(mended) == [(start - 100 * US, end - 100 * US) for start, end in times(capture())]


@pytest.mark.parametrize("lead_ns", [-300 * US, -5 * US, 50 * MS, 900 * MS])
def test_clocks_that_differ_a_little_and_long_queues_are_left_as_they_are(lead_ns: int) -> None:
    def shift(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["start_ns"] += lead_ns
        columns["end_ns"] += lead_ns

    trace = changed(capture(), shift)
    assert make_plausible(trace) is trace


def test_kernels_of_seconds_that_were_launched_at_once_are_a_queue() -> None:
    def lengthen(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["start_ns"][:] = columns["start_ns"][0] + np.arange(200) * 5 * S
        columns["end_ns"][:] = columns["start_ns"] + 5 * S - US

    trace = changed(capture("MI300X"), lengthen)
    assert make_plausible(trace)[DEVICE_OPS].height == 200


@pytest.mark.parametrize("rows", [list(range(100, 200)), list(range(0, 200, 3)), [150]])
@pytest.mark.parametrize("late_ns", [28 * HOUR, 60 * S])
def test_work_long_after_its_launch_and_all_other_work_is_left_out(rows: list[int], late_ns: int) -> None:
    def late(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        for name in ("start_ns", "end_ns"):
            columns[name][rows] += late_ns

    mended = make_plausible(changed(capture(), late))
    assert mended[DEVICE_OPS].height == 200 - len(rows)
    assert [count for _, count in losses(mended)] == [len(rows)]


@pytest.mark.parametrize("table", [DEVICE_OPS, API_CALLS])
@pytest.mark.parametrize("rows", [[0], [0, 199], list(range(9))])
def test_rows_far_from_all_others_are_left_out(table: Any, rows: list[int]) -> None:
    def far(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        for name in ("start_ns", "end_ns"):
            columns[name][rows] -= AT

    trace = capture()
    alone = replace(trace, tables={table: trace[table], DEVICES: trace[DEVICES]})
    mended = make_plausible(changed(alone, far, table))
    assert mended[table].height == 200 - len(rows)
    assert [count for _, count in losses(mended)] == [len(rows)]


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_copies_and_kernels_without_an_end_are_said(share: float) -> None:
    last = int(40 * share)

    def instant(columns: dict[str, np.ndarray[Any, Any]]) -> None:
        columns["end_ns"][160 : 160 + last] = columns["start_ns"][160 : 160 + last]

    mended = make_plausible(changed(capture(copies=40), instant))
    assert losses(mended) == [("copies take no time: when they ended was not recorded", last)]


def test_copies_of_unknown_direction_are_said() -> None:
    trace = capture(copies=40)
    ops = trace[DEVICE_OPS]
    unknown = pl.when(pl.col("kind") == "copy").then(pl.lit("unknown")).cast(ops.schema["copy_kind"])
    trace = replace(trace, tables={**trace.tables, DEVICE_OPS: ops.with_columns(copy_kind=unknown)})
    assert losses(make_plausible(trace)) == [("copies do not say which way they go", 40)]


@pytest.mark.parametrize("table", [DEVICE_OPS, API_CALLS])
def test_a_row_that_stands_twice_stays_once(table: Any) -> None:
    trace = capture()
    twice = table.build({name: pl.concat([column, column[:50]]) for name, column in trace[table].to_dict().items()})
    mended = make_plausible(replace(trace, tables={**trace.tables, table: twice}))
    assert mended[table].equals(trace[table])
    assert [(note.kind, note.count) for note in mended.notes] == [(NoteKind.SKIPPED, 50)]
    assert HOST_OPS not in mended
