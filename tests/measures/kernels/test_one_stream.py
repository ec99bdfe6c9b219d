"""Small kernels on one stream: which of them are a run, and what several streams would leave of their time.

The programs are those of benchmarks/lines/small_kernels.py: 32 kernels of 16 blocks, 19 us each, on an H100. Their
steps without a profiler were, in ms: on one stream in a CUDA graph 0.609; in a graph with 2, 4 and 8 streams 0.326,
0.180 and 0.170; each kernel after the one before it 0.600.
"""

import numpy as np
import polars as pl
import pytest
from tests.tables import trace_of

from timesink.diagnosis.all_clear import without_finding
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Bottleneck, NotApplicable, Undecided
from timesink.fixes.table import parse_change
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs
from timesink.measures.kernels.small_grids import fill_of
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.views.plan import what_if_page
from timesink.whatif import Case

MEASURED_MS = {2: 0.326, 4: 0.180, 8: 0.170}
ONE_STREAM_MS = 0.609


def graph_trace(blocks: int = 16) -> Trace:
    """Four steps, each one graph launch of 32 kernels on a stream."""
    steps, kernel_us, step_us = 4, 19, 610
    ops = [
        f"| k | softmax | {step * step_us + at * kernel_us} | {step * step_us + (at + 1) * kernel_us} | 7 | {step + 1} "
        f"| {blocks} | 1 | 1 | 1024 | 1 | 1 |"
        for step in range(steps)
        for at in range(32)
    ]
    calls = [f"| c | cudaGraphLaunch | {step * step_us} | {step * step_us + 5} | {step + 1} |" for step in range(steps)]
    marks = [f"| s | ProfilerStep#{step} | {step * step_us} | {(step + 1) * step_us} |" for step in range(steps)]
    sizes = " | ".join(f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz")
    head = f"| device_ops | name | start_us | end_us | stream | correlation | {sizes} |"
    tables = (
        (head, ops),
        ("| api_calls | name | start_us | end_us | correlation |", calls),
        ("| ranges | name | start_us | end_us |", marks),
        ("| devices | device | name | sm_count |", ["| gpu | 0 | NVIDIA H100 | 132 |"]),
    )
    return trace_of("\n\n".join("\n".join((head, *rows)) for head, rows in tables))


def whole_graphs() -> Trace:
    """The same, recorded by nsys without the nodes of its graphs."""
    trace = graph_trace()
    first = trace[DEVICE_OPS].group_by("correlation", maintain_order=True).first()
    end = trace[DEVICE_OPS].group_by("correlation", maintain_order=True).last()["end_ns"]
    sizes = [f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"]
    whole = first.select(trace[DEVICE_OPS].columns).with_columns(
        pl.lit("graph").cast(first.schema["kind"]).alias("kind"),
        pl.lit("CUDA graph 1").cast(first.schema["name"]).alias("name"),
        end.alias("end_ns"),
        *(pl.lit(None).cast(first.schema[size]).alias(size) for size in sizes),
    )
    return Trace(trace.source, {**trace.tables, DEVICE_OPS: whole})


@pytest.mark.parametrize("streams", MEASURED_MS)
def test_the_price_of_several_streams_holds_what_was_measured(streams: int) -> None:
    page = what_if_page(graph_trace(), [parse_change(f"streams {streams}")])
    (row,) = page.sheets[0].rows
    keys = [column.key for column in page.sheets[0].columns]
    low, high = (float(str(row[keys.index(key)])) / 1e6 for key in ("low_ns", "high_ns"))
    assert low <= ONE_STREAM_MS - MEASURED_MS[streams] <= high


def test_whether_kernels_depend_on_each_other_is_left_open() -> None:
    """The control, in which each kernel needs the one before it, gives the very same trace."""
    verdict = find("one-stream").verdict(graph_trace())
    assert isinstance(verdict, Undecided) and "streams 4" in verdict.to_decide


def test_grids_that_fill_the_device_are_no_matter() -> None:
    assert isinstance(find("one-stream").verdict(graph_trace(blocks=132)), NotApplicable)
    assert parse_change("streams 4").changes(graph_trace(blocks=132), 0) == ()


@pytest.mark.parametrize(
    ("trace", "change", "why"),
    [
        (graph_trace(blocks=132), "streams 4", "the grid of each of 128 kernels fills half of the GPU or more"),
        (graph_trace(blocks=132), "streams kernel:softmax 2", "the grid of each of 128 kernels fills half"),
        (graph_trace(), "streams kernel:gemm 2", "nothing in these steps matches"),
        (whole_graphs(), "streams 4", "nsys profile --cuda-graph-trace=node"),
    ],
)
def test_streams_that_cannot_help_say_why(trace: Trace, change: str, why: str) -> None:
    (row,) = what_if_page(trace, [parse_change(change)]).sheets[0].rows
    assert why in str(row[-1])
    assert row[3:7] == (None,) * 4  # a change without a price is not said to win 0


def test_nothing_is_said_of_kernels_within_whole_graphs_but_the_option_that_records_them() -> None:
    trace = whole_graphs()
    verdict, sentence = without_finding(trace, False, (), diagnose(trace).rulings)
    assert verdict is Bottleneck.UNDECIDED
    assert "100 % of the GPU's work is 4 graph replays, whose kernels were not recorded" in sentence
    assert "nsys profile --cuda-graph-trace=node" in sentence


def test_several_streams_leave_no_less_than_the_work_and_the_longest_kernel() -> None:
    trace = graph_trace(blocks=64)  # 64 blocks of 1024 threads: 0.48 of the device, two of them on a multiprocessor
    (runs,) = one_stream_runs(trace)
    selection = runs.on_streams(8)
    working = 18 / 19  # of 19 us a kernel takes one to start and end
    assert selection.usual == pytest.approx(working * 64 / 132)
    pauses = 3 * 2 / (128 * 19)  # of 2 us between four steps, which are one run
    assert selection.best == pytest.approx(working * 64 / 264 - pauses)


def run_of(length_us: float, pause_us: float = 0.0, fill: float = 0.48, count: int = 32) -> OneStreamRuns:
    length = np.full(count, 1000 * length_us)
    turn = length + np.append(np.full(count - 1, 1000 * pause_us), 0.0)
    return OneStreamRuns(
        (0, 0), np.arange(count), np.zeros(count, np.int64), length, turn, np.full(count, fill), np.full(count, fill)
    )


@pytest.mark.parametrize("streams", [2, 4, 8])
@pytest.mark.parametrize(
    ("length_us", "pause_us"), [(0.9, 0.0), (1.0, 1.5), (3.0, 0.0), (3.0, 1.5), (19.0, 0.0), (300.0, 2.0)]
)
def test_a_kernel_uses_its_share_while_it_works_and_not_while_it_starts_and_ends(
    length_us: float, pause_us: float, streams: int
) -> None:
    """Four streams won 1,110 us of 600 kernels of 3 us where 442 were called the most."""
    runs = run_of(length_us, pause_us)
    found, length, turn = runs.on_streams(streams), runs.length_ns, runs.turn_ns
    usual, best = (float((left * length).sum()) for left in (found.usual, found.best))
    pauses = float((turn - length).sum())
    assert best <= usual * (1 + 1e-9)
    # no more than so many run at once, pauses included, and the longest stays
    assert best + pauses >= min(max(turn.sum() / streams, length.max()), pauses + usual) * (1 - 1e-9)
    if length_us <= 1:  # nothing but start and end: the grids are no matter
        assert usual == pytest.approx(length.sum() / streams)
    shorter = run_of(length_us / 2, pause_us).on_streams(streams)
    assert (shorter.usual <= found.usual + 1e-9).all() and (shorter.best <= found.best + 1e-9).all()


def test_more_streams_never_leave_more() -> None:
    (runs,) = one_stream_runs(graph_trace())
    left = [runs.on_streams(count).usual.mean() for count in (2, 3, 4, 8, 64)]
    assert left == sorted(left, reverse=True) and left[0] == pytest.approx(0.5)


def test_a_target_leaves_other_kernels_alone() -> None:
    trace = graph_trace()
    (some,) = parse_change("streams kernel:softmax 4").changes(trace, 0)
    assert some.rows.size == 128 and some.keep[Case.EXPECTED.value].max() == pytest.approx(0.25)
    assert parse_change("streams kernel:gemm 4").changes(trace, 0) == ()


@pytest.mark.parametrize(
    ("blocks", "threads", "capability", "sms", "ratio", "uneven"),
    [
        (40, 256, (8, 6), 28, 40 * 256 / (28 * 1536), True),
        (28, 256, (8, 6), 28, 1 / 6, False),
        (132, 128, (9, 0), 132, 1 / 16, False),
        (50, 64, (7, 5), 40, 50 * 64 / (40 * 1024), True),
        (160, 1024, (7, 0), 80, 1.0, False),
    ],
)
def test_a_launch_fills_what_its_threads_take_of_the_places(
    blocks: int, threads: int, capability: tuple[int, int], sms: int, ratio: float, uneven: bool
) -> None:
    """A kernel that is all of the window and that nobody judges is told with how little of the GPU it fills."""
    small = [20 + 5 * at for at in range(40)]
    trace = trace_of(
        "| device_ops | name | start_us | end_us | stream | correlation | grid_x | grid_y | grid_z | block_x | block_y "
        "| block_z |\n"
        f"| k | orbits(double *, int) | 300 | 900000 | 7 | 1 | {blocks} | 1 | 1 | {threads} | 1 | 1 |\n"
        + "".join(f"| k | f(int) | {at} | {at + 4} | 7 | {at} | {sms} | 1 | 1 | 1024 | 1 | 1 |\n" for at in small)
        + "\n| api_calls | name | start_us | end_us | correlation |\n"
        + "".join(f"| c | cudaLaunchKernel | {at - 4} | {at - 2} | {at} |\n" for at in small)
        + "| c | cudaLaunchKernel | 290 | 292 | 1 |\n| w | cudaDeviceSynchronize | 293 | 900001 | |\n\n"
        "| devices | device | name | sm_count | compute_major | compute_minor |\n"
        f"| gpu | 0 | NVIDIA GPU | {sms} | {capability[0]} | {capability[1]} |"
    )
    fill = fill_of(trace, "orbits(double *, int)")
    assert fill is not None
    assert (fill.ratio, fill.is_uneven) == (pytest.approx(ratio), uneven)
    assert fill_of(trace, "other") is None
    said = diagnose(trace).statement
    assert (f"its {blocks} blocks of {threads} threads fill" in said) is (ratio < 0.5), said
    assert ("some with a block more" in said) is (uneven and ratio < 0.5)
