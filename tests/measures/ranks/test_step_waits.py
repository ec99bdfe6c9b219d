"""How long ranks waited in each step: by hand, and never more than they waited in all."""

from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.measures.communication.waits import collective_waits, waits_by_step
from timesink.measures.ranks import job
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.render.svg import chart_file
from timesink.views.figures import HeatChart
from timesink.views.ranks import heat_of

# Two ranks, three steps of 100 us; in each, rank 0 waits for rank 1: 20, 10 and 0 us. An exchange takes 10 us.
BEGAN_US = ((30, 50), (140, 150), (250, 250))


def two_ranks() -> Trace:
    kernels = ["| device_ops | rank | device | name | stream | start_us | end_us | correlation |"]
    calls = ["| api_calls | rank | name | start_us | end_us | correlation |"]
    ranges = ["| ranges | rank | name | start_us | end_us |"]
    for step, began in enumerate(BEGAN_US):
        for rank in (0, 1):
            ranges.append(f"| r | {rank} | ProfilerStep#{step} | {100 * step} | {100 * step + 99} |")
            product = ("gemm", 7, 100 * step + 5, 100 * step + 20)
            exchange = ("ncclDevKernel_AllReduce_Sum", 20, began[rank], began[1] + 10)
            for number, (name, stream, start, end) in enumerate((product, exchange), start=2 * step):
                kernels.append(f"| k | {rank} | {rank} | {name} | {stream} | {start} | {end} | {number} |")
                calls.append(f"| c | {rank} | cudaLaunchKernel | {100 * step + 2} | {100 * step + 3} | {number} |")
    return trace_of("\n\n".join("\n".join(table) for table in (kernels, calls, ranges)))


def test_waits_by_hand() -> None:
    frame = waits_by_step(collective_waits(two_ranks()))
    waited = {(rank, step): wait for rank, step, wait in frame.select("rank", "step", "wait_ns").iter_rows()}
    steps = sorted({step for _, step in waited})
    assert len(steps) >= 2
    for step in steps:
        assert waited[0, step] == 1000 * (BEGAN_US[step][1] - BEGAN_US[step][0])
        assert waited[1, step] == 0
    assert set(frame["transfer_ns"]) == {10_000}


@given(traces(min_ops=1))
def test_steps_hold_no_more_waiting_than_there_is(trace: Trace) -> None:
    waits = collective_waits(trace)
    frame = waits_by_step(waits)
    whole = pl.concat([some.select("exposed_wait_ns") for some in (waits.calls, waits.pairs)]).sum().item()
    assert frame["wait_ns"].sum() <= whole
    assert frame.select("rank", "step").is_unique().all()


def test_the_picture_has_a_cell_for_every_rank_and_step() -> None:
    heat = heat_of(collective_waits(two_ranks()))
    assert heat is not None
    assert heat.rows == ("0", "1")
    assert all(value == 0 for value in heat.values_ns[1])
    drawn = chart_file(heat)
    assert drawn.count("<rect") == 1 + len(heat.rows) * len(heat.columns)
    assert drawn.count('fill-opacity="1.000"') == 1  # the longest wait is the darkest


def test_many_ranks_share_rows_and_hostile_names_are_text() -> None:
    heat = HeatChart("<b>", "rank", "step", ("<script>", "b"), ("1",), ((5.0,), (None,)))
    assert "<script>" not in chart_file(heat)
    assert "<b>" not in chart_file(heat)
    assert 'fill="#d5dce4"' in chart_file(heat)


def test_one_rank_has_no_picture() -> None:
    table = "| device_ops | name | start_us | end_us |\n| a | gemm | 0 | 1 |"
    assert heat_of(collective_waits(trace_of(table))) is None


@pytest.mark.parametrize(
    ("lengths", "statuses", "busy", "recorded"),
    [
        ([65, 120], ["warm_up", "kept"], [65], 0),  # a collection of garbage, once
        ([60, 61, 200, 59], ["kept"] * 4, [60, 60, 60, 59], 0),
        ([120, 60, 61], ["kept", "kept", "stands_out"], [61, 60], 0),
        ([90, 90, 1], ["kept", "kept", "truncated"], [90, 90], 0),  # whose end nobody saw
        ([70, 1, 80, 90], ["warm_up", "no_device_work", "kept", "kept"], [80, 80], 0),
        ([50], ["kept"], [50], 0),
        ([65, 120], ["warm_up", "kept"], [45], 40),  # torch.profiler took a half of it in each step, at least
        ([50, 60, 70], ["kept"] * 3, [30, 40, 40], 60),
        ([50], ["kept"], [0], 60),
    ],
)
def test_one_long_step_of_a_host_is_no_pace_of_it(
    lengths: list[int], statuses: list[str], busy: list[int], recorded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that runs ahead of its GPU catches up on it; in each step it waits for 10."""
    ends = pl.Series(lengths).cum_sum() + 10 * pl.int_range(1, len(lengths) + 1, eager=True)
    frame = pl.DataFrame({"host_end_ns": ends, "status": statuses}).with_columns(
        rank=pl.lit(0, pl.Int32), process=0, thread=0, step=pl.int_range(pl.len()).cast(pl.Int32),
        host_start_ns=pl.col("host_end_ns").shift(1, fill_value=0),
    )  # fmt: skip
    waits = frame.select("rank", "process", "thread", start_ns=pl.col("host_end_ns") - 10, end_ns="host_end_ns")
    monkeypatch.setattr(job, "steps", lambda _: SimpleNamespace(frame=frame))
    monkeypatch.setattr(job, "blocking_calls", lambda _: waits)
    monkeypatch.setattr(job, "recording_us", lambda *_: (recorded / 1000, 1.0, 1.0))
    tables = {HOST_OPS: frame if recorded else frame.clear()}
    found = job.host_steps(SimpleNamespace(get=lambda table: tables.get(table, frame)))  # type: ignore[arg-type]
    assert (found["host_busy_ns"] - found["recorded_ns"]).clip(0).to_list() == busy
