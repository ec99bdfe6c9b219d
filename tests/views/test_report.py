"""Laws of what the report shows: shares that sum, windows that hold what they claim, lanes that lose nothing unsaid."""

import lzma
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.engine import diagnose
from timesink.knowledge.kernel_names import short_name, types_told
from timesink.measures.steps.per_step import step_windows
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.render.html.figures import packed
from timesink.views import Report
from timesink.views.report import report_of, step_series

BY_HAND = """
| device_ops | name | stream | start_us | end_us |
| a          | gemm | 7      | 0        | 30     |
| b          | gemm | 7      | 40       | 60     |
| beside b   | relu | 20     | 50       | 70     |

| api_calls | name             | start_us | end_us |
| launch    | cudaLaunchKernel | 32       | 36     |
"""


@pytest.fixture(scope="module")
def demo() -> tuple[Trace, Report]:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        trace = read(path, cache=False)
    return trace, report_of(trace, diagnose(trace))


@given(traces(min_ops=1))
def test_the_parts_of_a_step_sum_to_it(trace: Trace) -> None:
    for budget in step_budgets(trace):
        assert sum(part.time_ns for part in budget.parts) == pytest.approx(budget.period_ns)
        assert all(part.time_ns > 0 for part in budget.parts)


def test_the_parts_of_a_real_step_sum_to_it(demo: tuple[Trace, Report]) -> None:
    (budget,) = demo[1].budgets
    assert budget.steps == 11
    assert sum(part.time_ns for part in budget.parts) == pytest.approx(budget.period_ns, rel=1e-12)


def test_a_budget_by_hand() -> None:
    (budget,) = step_budgets(trace_of(BY_HAND))
    parts = {part.kind: part.time_ns for part in budget.parts}
    assert budget.period_ns == 70_000
    assert parts.pop("compute") == 60_000
    assert sum(parts.values()) == 10_000


def test_every_window_lies_in_a_step_and_points_to_what_the_finding_claims(demo: tuple[Trace, Report]) -> None:
    trace, report = demo
    assert report.windows
    assert report.timeline is not None
    for position, shown in report.windows.items():
        window = shown.window
        starts, ends = step_windows(trace, (window.rank, window.device))
        assert any(start <= window.start_ns and window.end_ns <= end for start, end in zip(starts, ends, strict=True))
        claimed = report.diagnosis.findings[position][1].claim.intervals[window.rank, window.device]
        row = report.timeline.lanes[shown.lane].rows[shown.row]
        assert (row.start_ns.tolist(), row.end_ns.tolist()) == (claimed.start_ns.tolist(), claimed.end_ns.tolist())
        assert claimed.clip(window.start_ns, window.end_ns).total_ns == window.claimed_ns > 0


def test_percentiles_are_those_of_the_steps_shown(demo: tuple[Trace, Report]) -> None:
    (line,) = demo[1].series
    ordered = sorted(line.period_ns)
    assert line.p50_ns == ordered[5]
    assert line.p90_ns == ordered[9]
    assert line.p99_ns is None


def test_a_report_is_the_same_every_time(demo: tuple[Trace, Report]) -> None:
    trace, report = demo
    again = report_of(trace, report.diagnosis)
    assert (again.windows, again.kernels, again.budgets) == (report.windows, report.kernels, report.budgets)
    assert report.timeline and again.timeline
    assert packed(again.timeline) == packed(report.timeline)


def test_the_step_that_stands_out_is_the_long_one_with_its_cause() -> None:
    path = Path(__file__).parents[1] / "data" / "compile" / "gc.1.rank0.json.xz"  # gc.collect() of a large heap, once
    with TemporaryDirectory() as folder:
        plain = Path(folder) / "gc.json"
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        (line,) = step_series(read(plain, cache=False))
    ((step, cause),) = line.spikes
    assert line.period_ns[line.numbers.index(step)] == max(line.period_ns) > 100 * line.p50_ns
    assert cause == "unrecorded_pause"  # the profiler does not record a collection of garbage


def test_what_a_kernel_does_is_told_as_far_as_its_name_tells(demo: tuple[Trace, Report]) -> None:
    sheet = demo[1].kernels
    assert sheet is not None
    at = [column.key for column in sheet.columns].index("work")
    work = {str(row[0]): str(row[at]) for row in sheet.rows}
    assert work["nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"] == "gemm"  # bf16 is in its short name
    # First contact defect B13: "reduce sum fp32" was a "reduction bf16".
    assert not [name for name, told in work.items() if types_told(short_name(name)) and types_told(told)]
    assert types_told(short_name(next(name for name in work if "sum_functor<c10::BFloat16" in name))) == {"bf16"}
    assert all("other" not in told for told in work.values())
