import pytest
from hypothesis import given, settings
from tests.laws import examples
from tests.strategies import traces
from tests.tables import trace_of

from timesink.errors import UsageError
from timesink.measures.steps import steps
from timesink.measures.timeline.start_up_parts import NOTHING, start_up_parts
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.views.summary import start_up_page, summary_page


@settings(deadline=None, max_examples=examples(50))
@given(traces())
def test_start_up_closes(trace: Trace) -> None:
    """Parts of every rank sum to its time before the first steady step, none is empty, none comes twice."""
    for one in start_up_parts(trace):
        windows = steps(trace).windows
        first = windows.filter(windows["rank"] == one.rank)["start_ns"].min()
        recorded = (trace.get(table) for table in (API_CALLS, HOST_OPS, RANGES, DEVICE_OPS))
        begun_ns = [frame.filter(frame["rank"] == one.rank)["start_ns"].min() for frame in recorded]
        assert one.span_ns == first - min(at for at in begun_ns if at is not None)  # type: ignore[operator,type-var]
        assert sum(time_ns for *_, time_ns in one.parts) == one.span_ns
        assert all(time_ns > 0 for *_, time_ns in one.parts)
        assert len({kind for kind, *_ in one.parts}) == len(one.parts)
        assert 0 <= one.owned_ratio <= 1


def begun() -> Trace:
    """Imports until 200 ms, a context until 300, a library until 350, nothing until 400, a batch until 600, then five
    steps of 10 ms."""
    steps_ = range(5)
    ranges = "\n".join(f"| s{at} | ProfilerStep#{at} | {600 + 10 * at} | {610 + 10 * at} |" for at in steps_)
    calls = "\n".join(f"| l{at} | cudaLaunchKernel | {600 + 10 * at} | {601 + 10 * at} | {at + 1} |" for at in steps_)
    kernels = "\n".join(f"| k{at} | gemm | {602 + 10 * at} | {609 + 10 * at} | {at + 1} |" for at in steps_)
    return trace_of(f"""
        | frames | name                                           | start_ms | end_ms |
        | f      | <frozen importlib._bootstrap>(1360): _find_and_load | 0   | 200    |

        | ranges | name                    | start_ms | end_ms |
        | b      | DataLoader.__next__     | 400      | 600    |
        {ranges}

        | api_calls | name              | start_ms | end_ms | correlation |
        | c         | cuCtxCreate_v4    | 200      | 300    | 0           |
        | d         | cuLibraryLoadData | 300      | 350    | 0           |
        {calls}

        | device_ops | name | start_ms | end_ms | correlation |
        {kernels}
        """)


def test_each_part_of_a_start_is_named() -> None:
    (found,) = start_up_parts(begun())
    told = {kind: round(time_ns / 1e6) for kind, _, time_ns in found.parts}
    first = round(found.span_ns / 1e6)
    assert first >= 600
    assert {kind: told[kind] for kind in ("libraries and kernels loaded", "the GPU's context", "imports")} == {
        "libraries and kernels loaded": 50, "the GPU's context": 100, "imports": 200,
    }  # fmt: skip
    assert told[NOTHING] == 50
    assert sum(told.values()) == first


def test_the_summary_shows_a_start_that_is_longer_than_its_steps_and_no_other() -> None:
    (sheet,) = [sheet for sheet in summary_page(begun(), 20).sheets if sheet.key == "start_up"]
    assert sum(row[-2] for row in sheet.rows) == start_up_parts(begun())[0].span_ns  # type: ignore[misc]
    short = begun().between(600_000_000, 650_000_000)
    assert not [sheet for sheet in summary_page(short, 20).sheets if sheet.key == "start_up"]


def test_the_start_is_asked_for_alone_and_leads_with_what_took_most() -> None:
    told = start_up_page(begun(), 20)
    assert told.title == "602 ms before the first steady step; most goes to imports: 200 ms"
    assert [sheet.key for sheet in told.sheets] == ["start_up"]
    with pytest.raises(UsageError, match="begins with the steps") as refused:
        start_up_page(
            trace_of("""
            | device_ops | name | start_us | end_us |
            | k          | gemm | 10       | 20     |
            """),
            20,
        )
    assert "capture torch" in refused.value.remedy
