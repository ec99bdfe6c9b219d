"""Idle time is blamed whole, once, on what kept the device waiting.

Calls into the operating system hold up the device where nothing else explains the time, and with what is between.
"""

import lzma
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.strategies import frame, reordered, shifted, traces

from timesink.diagnosis.engine import diagnose
from timesink.measures.idle.blame import IdleBlame, idle_blame, idle_of_rank, idle_shares, intervals_of
from timesink.measures.timeline import device_gaps, device_timeline
from timesink.measures.timeline.launches import launches
from timesink.model.intervals import Intervals
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace

US = 1_000
HOST = {"rank": 0, "process": 1, "thread": 1}


def made(**tables: list[tuple[object, ...]]) -> Trace:
    """A trace in microseconds on one thread and one stream, which waits for its first kernel a launch latency of 5 us.

    calls and kernels are (name, start, end, correlation); ops, ranges and frames (name, start, end).
    """

    def rows(key: str, extra: dict[str, object]) -> list[dict[str, object]]:
        return [
            {"name": r[0], "start_ns": int(str(r[1])) * US, "end_ns": int(str(r[2])) * US, **extra}
            | ({"correlation": r[3]} if len(r) > 3 else {})
            for r in tables.get(key, [])
        ]

    device = {"rank": 0, "device": 0, "process": 1, "stream": 7, "kind": "kernel"}
    found: dict[Table, pl.DataFrame] = {
        DEVICE_OPS: frame(DEVICE_OPS, rows("kernels", device)),
        API_CALLS: frame(API_CALLS, rows("calls", HOST)),
        HOST_OPS: frame(HOST_OPS, rows("ops", HOST)),
        RANGES: frame(RANGES, rows("ranges", {**HOST, "kind": "push_pop", "depth": 0})),
        FRAMES: frame(FRAMES, rows("frames", HOST)),
    }
    return Trace("test", found)


def parts(blame: IdleBlame) -> list[tuple[str, int, int]]:
    """(cause, start, end) in microseconds, neighbours of one cause as one."""
    merged: list[tuple[str, int, int]] = []
    for cause, start, end in blame.frame.select(pl.col("cause").cast(pl.String), "start_ns", "end_ns").rows():
        if merged and merged[-1][0] == cause and merged[-1][2] == start // US:
            merged[-1] = (cause, merged[-1][1], end // US)
        else:
            merged.append((cause, start // US, end // US))
    return merged


def test_a_wait_is_charged_the_time_the_host_lost_by_it_and_the_host_the_rest() -> None:
    # the host waits from 10 to 100 for the kernel, returns at 105, and needs until 400 to launch again
    blame = idle_blame(
        made(
            calls=[
                ("cudaLaunchKernel", 0, 4, 1),
                ("cudaStreamSynchronize", 10, 105, None),
                ("cudaLaunchKernel", 400, 404, 2),
            ],
            kernels=[("k", 5, 100, 1), ("k", 405, 500, 2)],
            ops=[("aten::item", 8, 107)],
        )
    )
    assert parts(blame) == [("sync", 100, 195), ("unrecorded_code", 195, 400), ("launch_latency", 400, 405)]
    assert blame.frame["host_op"].to_list() == ["aten::item", "aten::item", "aten::item", None, None]
    assert blame.frame["sync_row"].to_list() == [1, 1, 1, 1, 1]


def test_without_a_wait_the_innermost_activity_of_the_launching_thread_is_the_cause() -> None:
    blame = idle_blame(
        made(
            calls=[("cudaLaunchKernel", 0, 4, 1), ("cudaMalloc", 150, 180, None), ("cudaLaunchKernel", 300, 304, 2)],
            kernels=[("k", 5, 100, 1), ("k", 305, 400, 2)],
            ops=[("aten::mm", 140, 200)],
            frames=[("train.py(9): prepare", 20, 250)],
        )
    )
    assert parts(blame) == [
        ("python", 100, 140), ("dispatch", 140, 150), ("allocator", 150, 180), ("dispatch", 180, 200),
        ("python", 200, 250), ("unrecorded_code", 250, 300), ("launch_latency", 300, 305),
    ]  # fmt: skip
    assert blame.frame["call"].to_list()[2] == "cudaMalloc"


def test_what_encloses_speaks_before_what_it_encloses_where_it_names_a_purpose() -> None:
    blame = idle_blame(
        made(
            calls=[("cudaLaunchKernel", 0, 4, 1), ("cudaLaunchKernel", 300, 304, 2)],
            kernels=[("k", 5, 100, 1), ("k", 305, 400, 2)],
            ranges=[
                ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 90, 200),
                ("Optimizer.step#SGD.step", 210, 320),
            ],
            ops=[("aten::stack", 120, 180), ("aten::add_", 220, 320)],
        )
    )
    assert parts(blame) == [
        ("loader", 100, 200), ("unrecorded_code", 200, 210), ("optimizer", 210, 300), ("launch_latency", 300, 305),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ops", "called", "computed_us"),
    [
        ([("aten::lerp_", 1_000, 3_000)], [], 2_000),
        ([("aten::_foreach_lerp_", 1_000, 2_000), ("aten::lerp_", 1_010, 1_400)], [], 1_000),  # its parts are short
        ([("aten::sort", 1_000, 1_600), ("aten::topk", 1_700, 2_400)], [], 1_300),
        ([("aten::lerp_", 1_000, 1_400)], [], 0),  # dispatch takes as long by chance
        ([("aten::linear", 1_000, 3_000)], [2_000], 0),  # it launches, late
        ([("aten::linear", 1_000, 3_000), ("aten::lerp_", 1_100, 1_900)], [2_000], 800),
        ([("c10d::barrier", 1_000, 3_000)], [], 0),  # it waits for other ranks
        ([("AddmmBackward0", 1_000, 3_000)], [], 0),
    ],
)
def test_long_operators_that_call_nothing_compute_on_the_cpu(
    ops: list[tuple[object, ...]], called: list[int], computed_us: int
) -> None:
    more = [("cudaEventQuery", start, start + 1, None) for start in called]
    blame = idle_blame(
        made(
            calls=[("cudaLaunchKernel", 0, 4, 1), *more, ("cudaLaunchKernel", 4_000, 4_004, 2)],
            kernels=[("k", 5, 100, 1), ("k", 4_005, 4_100, 2)],
            ops=ops,
        )
    )
    computed = [end - start for cause, start, end in parts(blame) if cause == "python"]
    assert sum(computed) == computed_us


@pytest.mark.parametrize(
    ("operator", "wait", "kernels", "cause"),
    [
        ("aten::cudnn_convolution", "cudaEventSynchronize", "abc", "compile"),
        ("aten::cudnn_convolution", "cudaStreamSynchronize", "abcdefg", "compile"),
        ("aten::convolution_backward", "cudaDeviceSynchronize", "abcde", "compile"),
        ("aten::miopen_convolution", "hipEventSynchronize", "abca", "compile"),
        ("aten::cudnn_convolution_transpose", "cudaEventSynchronize", "abbc", "compile"),
        ("aten::cudnn_convolution", "cudaEventSynchronize", "ab", "sync"),
        ("aten::nonzero", "cudaStreamSynchronize", "abc", "sync"),
    ],
)
def test_what_comes_late_behind_a_search_is_the_searchs(operator: str, wait: str, kernels: str, cause: str) -> None:
    """Four small kernels behind it find the device idle, as the last trial was waited for."""
    calls: list[tuple[object, ...]] = [("cudaLaunchKernel", 0, 4, 1)]
    ran: list[tuple[object, ...]] = [("k", 5, 100, 1)]
    for at, name in enumerate(kernels):
        now = 500 * at + 600
        calls += [("cudaLaunchKernel", now, now + 4, at + 2), (wait, now + 6, now + 105, None)]
        ran.append((name, now + 5, now + 100, at + 2))
    done = 500 * len(kernels) + 210
    late = [(done + 40 * at, len(ran) + at + 1) for at in range(4)]
    calls += [("cudaLaunchKernel", at, at + 4, row) for at, row in late]
    ran += [("e", at + 6, at + 20, row) for at, row in late]
    ops = [(operator, 90, done - 15), *(("aten::relu", at - 10, at + 8) for at, _ in late)]
    behind = [one for one, start, _ in parts(idle_blame(made(calls=calls, kernels=ran, ops=ops))) if start > done - 30]
    assert set(behind) == {cause}


@pytest.mark.parametrize(
    ("operator", "wait", "kernels", "searches"),
    [
        ("aten::cudnn_convolution", "cudaEventSynchronize", ["a", "b", "c"], True),
        ("aten::cudnn_convolution", "cudaStreamSynchronize", ["a", "a", "b", "c", "d"], True),
        ("aten::convolution_backward", "cudaDeviceSynchronize", ["a", "b", "c", "d", "e"], True),
        ("aten::miopen_convolution", "hipEventSynchronize", ["a", "b", "c"], True),
        ("aten::cudnn_convolution", "", ["a", "b", "c", "d"], False),  # its layout is converted
        ("aten::cudnn_convolution", "cudaEventSynchronize", ["a", "a", "a"], False),  # one kernel, again and again
        ("aten::cudnn_convolution", "cudaEventSynchronize", ["a", "b"], False),
        ("aten::linear", "cudaEventSynchronize", ["a", "b", "c"], False),
    ],
)
def test_a_convolution_that_waits_for_several_kernels_searches_for_an_algorithm(
    operator: str, wait: str, kernels: list[str], searches: bool
) -> None:
    calls: list[tuple[object, ...]] = [("cudaLaunchKernel", 0, 4, 1)]
    ran: list[tuple[object, ...]] = [("k", 5, 100, 1)]
    for at, name in enumerate(kernels):
        now = 500 * at + 600
        calls.append(("cudaLaunchKernel", now, now + 4, at + 2))
        ran.append((name, now + 5, now + 100, at + 2))
        calls += [(wait, now + 6, now + 105, None)] if wait else []
    blame = idle_blame(made(calls=calls, kernels=ran, ops=[(operator, 90, 500 * len(kernels) + 700)]))
    searched = sum(end - start for cause, start, end in parts(blame) if cause == "compile")
    assert searched == (500 + 405 * (len(kernels) - 1) if searches else 0)  # all but what its first launch takes


@pytest.mark.parametrize(("gap_us", "cause"), [(2, "kernel_gap"), (40, "unexplained")])
def test_a_queued_kernel_that_starts_late_is_ordinary_or_unexplained(gap_us: int, cause: str) -> None:
    blame = idle_blame(
        made(
            calls=[("cudaLaunchKernel", 0, 4, 1), ("cudaLaunchKernel", 10, 14, 2)],
            kernels=[("k", 5, 100, 1), ("k", 100 + gap_us, 200, 2)],
        )
    )
    assert parts(blame) == [(cause, 100, 100 + gap_us)]


def test_gaps_inside_a_graph_launch_are_the_graphs() -> None:
    blame = idle_blame(made(calls=[("cudaGraphLaunch", 0, 20, 1)], kernels=[("a", 10, 20, 1), ("b", 23, 30, 1)]))
    assert parts(blame) == [("graph_gap", 20, 23)]


def test_a_polled_event_blames_nobody_for_a_drain() -> None:
    blame = idle_blame(
        made(
            calls=[("cudaLaunchKernel", 0, 4, 1), ("cudaEventQuery", 10, 105, None), ("cudaLaunchKernel", 200, 204, 2)],
            kernels=[("k", 5, 100, 1), ("k", 205, 300, 2)],
        )
    )
    assert not (blame.frame["cause"] == "sync").any()


@settings(deadline=None)
@given(traces())
def test_a_rank_alone_has_the_idle_time_it_has_among_all(trace: Trace) -> None:
    whole = idle_blame(trace).frame
    for rank in trace.rank_numbers:
        assert_frame_equal(idle_of_rank(trace, rank), whole.filter(pl.col("rank") == rank))


def totals(blame: IdleBlame) -> pl.DataFrame:
    """Idle time and stretches by device and cause."""
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("idle_ns")
    found = blame.frame.group_by("rank", "device", "cause").agg(length, pl.len().alias("stretches"))
    return found.sort("rank", "device", pl.col("cause").to_physical())


@given(traces())
def test_the_stretches_are_the_gaps(trace: Trace) -> None:
    blame, gaps = idle_blame(trace), device_gaps(trace).frame
    assert blame.idle_ns == int((gaps["end_ns"] - gaps["start_ns"]).sum()) == totals(blame)["idle_ns"].sum()
    claimed = intervals_of(blame.frame)
    for line in device_timeline(trace):
        mine = blame.frame.filter((pl.col("rank") == line.rank) & (pl.col("device") == line.device))
        assert (mine["end_ns"] > mine["start_ns"]).all()
        idle_ns = line.idle.total_ns
        assert int((mine["end_ns"] - mine["start_ns"]).sum()) == idle_ns
        if idle_ns:  # disjoint, since the union is as long as the sum
            assert (claimed[line.rank, line.device] & line.idle).total_ns == idle_ns
    assert set(blame.frame["op_row"]) == set(gaps["op"])
    for op in gaps.iter_rows(named=True):
        ended = Intervals.of(blame.ended_by(np.array([op["op"]])))
        assert (ended.start_ns.tolist(), ended.end_ns.tolist()) == ([op["start_ns"]], [op["end_ns"]])
    assert blame.ended_by(gaps["op"].to_numpy()).equals(blame.stretches)
    assert blame.ended_by(np.array([], np.int64)).is_empty()


@settings(deadline=None)
@given(traces(), st.integers(1, 5))
def test_gaps_blamed_a_few_at_a_time_are_blamed_the_same(trace: Trace, at_once: int) -> None:
    whole, gaps_found, found = idle_blame(trace), device_gaps(trace).frame, launches(trace)
    again = replace(trace)  # a trace of its own: nothing is remembered of it
    few_gaps = mock.patch("timesink.measures.timeline.GAPS_AT_ONCE", at_once)
    with few_gaps, mock.patch("timesink.model.arrays.AT_ONCE", at_once):
        assert idle_blame(again).frame.equals(whole.frame)
        assert device_gaps(again).frame.equals(gaps_found)
        assert {key: part.host_late_ratio for key, part in launches(again).items()} == {
            key: part.host_late_ratio for key, part in found.items()
        }


@settings(deadline=None)
@given(traces(), st.integers(0, 10**18))
def test_a_shifted_clock_blames_the_same(trace: Trace, by_ns: int) -> None:
    assert totals(idle_blame(shifted(trace, by_ns))).equals(totals(idle_blame(trace)))


@settings(deadline=None)
@given(traces(), st.sampled_from([lambda f: f.reverse(), lambda f: f.sample(fraction=1.0, shuffle=True, seed=3)]))
def test_the_order_of_rows_moves_no_idle_time_between_devices(
    trace: Trace, order: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    def by_device(blame: IdleBlame) -> list[tuple[object, ...]]:
        return totals(blame).group_by("rank", "device").agg(pl.col("idle_ns").sum()).sort("rank", "device").rows()

    assert by_device(idle_blame(reordered(trace, order))) == by_device(idle_blame(trace))


def test_an_operator_cut_in_two_changes_no_cause() -> None:
    def blamed(ops: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        calls = [("cudaLaunchKernel", 0, 4, 1), ("cudaLaunchKernel", 300, 304, 2)]
        kernels = [("k", 5, 100, 1), ("k", 305, 400, 2)]
        blame = idle_blame(made(calls=calls, kernels=kernels, ops=ops))
        return totals(blame).select("cause", "idle_ns").rows()

    assert blamed([("aten::mm", 90, 310)]) == blamed([("aten::mm", 90, 200), ("aten::mm", 200, 310)])


WRITES = Path(__file__).resolve().parents[2] / "data" / "nsys" / "writes.sqlite.xz"


def test_a_program_that_writes_in_each_step_waits_for_the_operating_system(tmp_path: Path) -> None:
    """Its steps of 4.8 ms write for 3.2 ms."""
    path = tmp_path / "writes.sqlite"
    path.write_bytes(lzma.decompress(WRITES.read_bytes()))
    trace = read(path, cache=False)
    largest, *_ = idle_shares(trace)
    assert largest.cause == "os_call"
    assert largest.per_step_ns == pytest.approx(3.17e6, rel=0.01)
    assert "Most of it: fsync, range write samples" in diagnose(trace).statement
