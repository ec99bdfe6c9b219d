import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import frame, shifted, traces
from tests.tables import trace_of

from timesink.diagnosis.budgets import step_budgets
from timesink.errors import UsageError
from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.steps import marks, step_times, steps
from timesink.measures.steps.launch_sequences import step_candidates
from timesink.measures.steps.marks import StepMarker
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import StepChoice, Trace
from timesink.records import replace


def loop(periods_ns: list[int], name: str = "ProfilerStep#{}", **columns: object) -> Trace:
    """A loop that launches one kernel 1 ns into each step; the kernel runs 500 ns later, for 5 ns."""
    begins = [sum(periods_ns[:index]) for index in range(len(periods_ns))]
    numbered = list(enumerate(begins))
    shared = {"rank": 0, "process": 1}
    return Trace(
        "loop",
        {
            RANGES: frame(
                RANGES,
                [
                    {
                        "thread": 1,
                        "name": name.format(i),
                        "start_ns": at,
                        "end_ns": at + periods_ns[i],
                        "kind": "push_pop",
                    }
                    | {"depth": 0, **shared, **columns}
                    for i, at in numbered
                ],
            ),
            API_CALLS: frame(
                API_CALLS,
                [
                    {"thread": 1, "name": "cudaLaunchKernel", "start_ns": at + 1, "end_ns": at + 2, "correlation": i}
                    | shared
                    for i, at in numbered
                ],
            ),
            DEVICE_OPS: frame(
                DEVICE_OPS,
                [
                    {"device": 0, "stream": 7, "kind": "kernel", "name": "gemm", "correlation": i}
                    | shared
                    | {"start_ns": at + 501, "end_ns": at + 506}
                    for i, at in numbered
                ],
            ),
        },
    )


def test_a_step_lasts_from_its_first_kernel_to_the_first_of_the_next() -> None:
    found = steps(loop([100, 100, 130, 100]))
    assert found.marker is StepMarker.PROFILER_STEP
    assert found.windows.select("step", "start_ns", "end_ns", "period_ns").rows() == [
        (0, 501, 601, 100),
        (1, 601, 701, 100),
        (2, 701, 831, 130),
    ]
    assert (found.count, found.times.p50_ns, found.times.max_ns) == (3, 100.0, 130)


def test_the_last_step_is_truncated_and_counted() -> None:
    found = steps(loop([100] * 4))
    assert found.frame["status"].to_list() == ["kept", "kept", "kept", "truncated"]
    assert found.dropped == {"truncated": 1}


def test_slow_leading_steps_are_warm_up() -> None:
    found = steps(loop([900, 300, *[100] * 8]))
    assert found.frame["status"].to_list() == ["warm_up", "warm_up", *["kept"] * 7, "truncated"]
    assert found.dropped == {"truncated": 1, "warm_up": 2}
    assert found.times.max_ns == 100


SHRINKING = {
    "elimination": [10_000 + 10 * (600 - n) ** 2 // 60 for n in range(600)],
    "blocks of a triangle": [10_000 + (500 - n) ** 3 // 2_000 for n in range(500)],
    "halved now and then": [64_000 >> (n // 100) for n in range(500)],
    "down to a floor": [max(9_000 - 10 * n, 6_500) for n in range(900)],
    "a queue that empties": [int(50_000 * 0.995**n) for n in range(800)],
}


@pytest.mark.parametrize("name", SHRINKING)
def test_work_that_gets_less_is_no_warm_up(name: str) -> None:
    """Half of the loop was called warm-up: a quarter of its time was told of."""
    periods = SHRINKING[name]
    assert len(periods) - steps(loop(periods)).count <= 1  # the last has no end


@pytest.mark.parametrize("ahead", [[900], [900, 300], [5_000, 200, 180], [900, 100, 400], [300] * 5])
def test_a_start_is_warm_up_however_long_the_loop(ahead: list[int]) -> None:
    found = steps(loop([*ahead, *[100] * 400]))
    assert found.dropped["warm_up"] >= sum(period > 250 for period in ahead[:2])
    assert found.count >= 399


def test_a_slow_step_in_the_middle_is_kept() -> None:
    found = steps(loop([100, 100, 100, 900, 100, 100]))
    assert found.dropped == {"truncated": 1}
    assert found.times.max_ns == 900


def test_a_leading_step_that_allocates_is_warm_up_though_it_is_not_slow() -> None:
    calm = loop([100] * 6)
    allocation = {"rank": 0, "process": 1, "thread": 1, "name": "cudaMalloc", "start_ns": 50, "end_ns": 60}
    calls = pl.concat([frame(API_CALLS, [allocation]), calm[API_CALLS]]).sort(API_CALLS.sorted_by)
    assert steps(Trace("t", {**calm.tables, API_CALLS: calls})).dropped == {"truncated": 1, "warm_up": 1}
    every = [allocation | {"start_ns": 100 * i + 50, "end_ns": 100 * i + 60} for i in range(6)]
    calls = pl.concat([frame(API_CALLS, every), calm[API_CALLS]]).sort(API_CALLS.sorted_by)
    assert steps(Trace("t", {**calm.tables, API_CALLS: calls})).dropped == {"truncated": 1}


def test_ranges_that_repeat_mark_steps_whatever_number_is_in_their_names() -> None:
    found = steps(loop([100] * 5, name="iteration {}"))
    assert (found.marker, found.marker_name, found.count) == (StepMarker.RANGE, "iteration #", 4)


def test_two_ranges_of_a_name_are_too_few_to_mark_steps() -> None:
    assert steps(loop([100] * 2, name="iteration {}")).marker is None


def test_phases_mark_steps_by_the_first_of_each_round() -> None:
    rounds = [
        f"| {phase} | {phase} | {at + 100 * i} | {at + length + 100 * i} |"
        for i in range(4)
        for phase, at, length in (("load", 0, 10), ("forward", 10, 30), ("backward", 40, 50), ("optimizer", 90, 10))
    ]
    calls = [f"| c | cudaLaunchKernel | {50 + 100 * i} | {51 + 100 * i} | {i} |" for i in range(4)]
    ops = [f"| k | gemm | {60 + 100 * i} | {70 + 100 * i} | {i} |" for i in range(4)]
    found = steps(
        trace_of(
            "\n".join(["| ranges | name | start_ns | end_ns |", *rounds, ""])
            + "\n".join(["", "| api_calls | name | start_ns | end_ns | correlation |", *calls, ""])
            + "\n".join(["", "| device_ops | name | start_ns | end_ns | correlation |", *ops])
        )
    )
    assert (found.marker_name, found.count) == ("load", 3)
    assert found.frame["host_start_ns"].to_list() == [0, 100, 200, 300]
    assert found.times.p50_ns == 100.0


def test_an_outer_range_that_does_not_repeat_hides_no_steps() -> None:
    inner = loop([100] * 5, name="batch_{}", depth=1)
    outer = {"rank": 0, "process": 1, "thread": 1, "name": "epoch", "start_ns": 0, "end_ns": 500, "depth": 0}
    ranges = pl.concat([frame(RANGES, [outer | {"kind": "push_pop"}]), inner[RANGES]]).sort(RANGES.sorted_by)
    assert steps(Trace("t", {**inner.tables, RANGES: ranges})).marker_name == "batch_#"


def kernels(names: list[str], distance_ns: int = 10) -> Trace:
    rows = [
        {"rank": 0, "device": 0, "process": 1, "stream": 7, "kind": "kernel", "name": name}
        | {"start_ns": distance_ns * i, "end_ns": distance_ns * i + 5}
        for i, name in enumerate(names)
    ]
    return Trace("kernels", {DEVICE_OPS: frame(DEVICE_OPS, rows)})


def test_without_marks_the_kernels_that_come_back_show_the_steps_not_the_layers() -> None:
    one = ["embed", *["norm", "gemm", "gelu"] * 4, "loss", "adam"]
    found = steps(kernels(one * 6))
    assert (found.marker, found.marker_name) == (StepMarker.KERNEL_PATTERN, "embed")
    assert set(found.windows["period_ns"]) == {10 * len(one)}
    assert found.count == 5


def test_a_window_that_opens_amid_a_step_changes_the_period_by_nothing() -> None:
    one = ["embed", *["norm", "gemm", "gelu"] * 4, "loss", "adam"]
    found = steps(kernels((one * 7)[5:-3]))
    assert set(found.windows["period_ns"]) == {10 * len(one)}


def test_kernels_in_no_order_show_no_steps() -> None:
    names = [f"k{(i * i * 7 + i * 3) % 101 % 9}" for i in range(80)]
    assert steps(kernels(names)).marker is None


def test_steps_of_a_program_without_gpu_are_its_ranges() -> None:
    host = loop([100] * 4)
    found = steps(Trace("host", {RANGES: host[RANGES]}))
    assert (found.count, found.times.p50_ns, found.windows.height) == (4, 100.0, 0)


def test_a_quantile_is_stated_only_where_there_are_enough_steps() -> None:
    few, many = step_times(range(1, assumed.P99_NEEDS.whole)), step_times(range(1, assumed.P99_NEEDS.whole + 1))
    assert (few.count, few.p99_ns) == (99, None)
    assert many.p99_ns is not None
    assert (step_times(range(9)).p90_ns, step_times([7]).p50_ns, step_times([]).p50_ns) == (None, 7.0, None)


@given(st.lists(st.integers(50, 400), min_size=2, max_size=12))
def test_windows_of_kept_steps_are_disjoint_and_sum_to_their_periods(periods_ns: list[int]) -> None:
    trace = loop(periods_ns)
    found = steps(trace)
    windows = found.windows
    assert found.frame.height == len(periods_ns) == windows.height + sum(found.dropped.values())
    assert (windows["start_ns"][1:] >= windows["end_ns"][:-1]).all()
    kept = [periods_ns[step] for step in windows["step"]]
    assert windows["period_ns"].to_list() == kept


@given(traces(), st.integers(-(10**15), 10**15))
def test_moving_the_clock_moves_the_steps_and_nothing_else(trace: Trace, by_ns: int) -> None:
    here, there = steps(trace), steps(shifted(trace, by_ns))
    assert here.times == there.times
    assert here.frame["status"].to_list() == there.frame["status"].to_list()
    assert here.windows["period_ns"].to_list() == there.windows["period_ns"].to_list()


LAYERS = ["embed", *["norm", "gemm", "gelu"] * 4, "loss", "adam"] * 6


def test_the_user_chooses_the_loop_by_its_number_of_rounds() -> None:
    assert steps(kernels(LAYERS).with_steps(StepChoice(count=24))).frame.height == 24
    assert [candidate.rounds for candidate in step_candidates(kernels(LAYERS))][:1] == [6]
    with pytest.raises(UsageError, match="nothing repeats 11 times; choose from 6 steps of "):
        steps(kernels(LAYERS).with_steps(StepChoice(count=11)))


def test_the_user_names_the_kernel_or_the_range_that_begins_a_step() -> None:
    by_kernel = steps(kernels(LAYERS).with_steps(StepChoice("^loss$")))
    assert (by_kernel.marker_name, by_kernel.frame.height) == ("loss", 6)
    every_fourth = steps(kernels(LAYERS).with_steps(StepChoice("^norm$", 6)))
    assert every_fourth.frame["host_start_ns"].diff().drop_nulls().unique().to_list() == [150]
    assert steps(loop([10] * 5, "mine {}").with_steps(StepChoice("^mine"))).marker is StepMarker.RANGE
    with pytest.raises(UsageError, match="no range and no kernel that comes back matches 'yours'"):
        steps(kernels(LAYERS).with_steps(StepChoice("yours")))


@pytest.mark.parametrize(
    ("counts", "turns"),
    [
        ([100, 50] * 3, 2),
        ([100, 98] * 3, 1),  # a launch in fifty: the same step
        ([100, 97] * 3, 2),
        ([100, 100, 50] * 3, 3),
        ([100, 80, 60, 90, 70], 1),
        ([100, 50], 1),
    ],
)
def test_two_optimizers_that_take_turns_make_one_step(counts: list[int], turns: int) -> None:
    starts = pl.Series("start_ns", [1_000 * at for at in range(len(counts) + 1)])
    launches = [1_000 * at + n for at, count in enumerate(counts) for n in range(1, count + 1)]
    assert marks._optimizers(starts, pl.DataFrame({"start_ns": launches})) == turns


def test_of_the_layers_of_a_model_the_first_begins_a_step() -> None:
    layers = loop([100] * 9, name="decoder_layer_{}")
    names = layers[RANGES]["name"].cast(pl.String).to_list()
    turned = layers[RANGES].with_columns(
        pl.Series("name", [f"decoder_layer_{i % 3}" for i in range(len(names))]).cast(layers[RANGES]["name"].dtype)
    )
    found = steps(Trace("t", {**layers.tables, RANGES: turned}))
    assert (found.marker_name, found.times.p50_ns) == ("decoder_layer_#", 300.0)


def test_one_pass_over_the_layers_of_a_model_has_no_steps() -> None:
    assert steps(loop([100] * 9, name="decoder_layer_{}")).marker is None
    assert steps(loop([100] * 9, name="decoder_pass_{}")).marker_name == "decoder_pass_#"


@pytest.mark.parametrize(("other_ns", "marker"), [(40, StepMarker.RANGE), (60, None)])
def test_ranges_that_hold_little_of_the_gpu_work_mark_no_steps(other_ns: int, marker: StepMarker | None) -> None:
    copies = loop([100] * 10, name="Identity_{}")  # kernels of 5 ns each; one before them takes other_ns
    shared = {"rank": 0, "process": 1, "correlation": 99}
    before = {"thread": 1, "name": "cudaLaunchKernel", "start_ns": -3_000, "end_ns": -2_990}
    work = {"device": 0, "stream": 7, "kind": "kernel", "name": "conv", "start_ns": -2_980, "end_ns": -2_980 + other_ns}
    calls, ops = frame(API_CALLS, [before | shared]), frame(DEVICE_OPS, [work | shared])
    tables = {API_CALLS: pl.concat([calls, copies[API_CALLS]]), DEVICE_OPS: pl.concat([ops, copies[DEVICE_OPS]])}
    assert steps(Trace("t", {**copies.tables, **tables})).marker == marker


LATE = """
| ranges | name             | start_us | end_us | times | every_us |
| step   | ProfilerStep#{n} |        0 |   1000 |     9 |     1000 |

| api_calls | name             | correlation | start_us | end_us | times | every_us |
| a         | cudaLaunchKernel |         100 |        0 |      5 |     9 |     1000 |
| b         | cudaLaunchKernel |         200 |       10 |     15 |     9 |     1000 |

| device_ops | name | correlation | stream | start_us | end_us | times | every_us |
| a          | a    |         100 |      7 |       20 |    300 |     9 |     1000 |
| b          | b    |         200 |      8 |      320 |    600 |     9 |     1000 |
"""


@pytest.mark.parametrize("late_us", [700, 1_000, 1_500, 2_500])
@pytest.mark.parametrize("step", [2, 3, 4, 6])
def test_windows_do_not_overlap_where_work_of_a_step_runs_behind_that_of_the_next(step: int, late_us: int) -> None:
    trace = trace_of(LATE)
    is_late = pl.col("correlation").is_in([100 + step, 200 + step])
    ops = trace[DEVICE_OPS].with_columns(
        pl.when(is_late).then(pl.col(column) + late_us * 1_000).otherwise(pl.col(column)).alias(column)
        for column in ("start_ns", "end_ns")
    )
    trace = replace(trace, tables={**trace.tables, DEVICE_OPS: ops.sort("start_ns", maintain_order=True)})
    windows = steps(trace).windows
    assert windows.height >= 4
    assert (windows["start_ns"][1:] >= windows["end_ns"][:-1]).all()
    for budget in step_budgets(trace):
        assert sum(part.time_ns for part in budget.parts) == pytest.approx(budget.period_ns, rel=1e-9)
