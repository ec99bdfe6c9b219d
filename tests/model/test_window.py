"""What belongs to a window, and what is no window."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import traces

from timesink.errors import UsageError
from timesink.model.span import Span
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.model.window import Window


@given(traces(), st.integers(0, 150), st.integers(1, 150))
def test_a_window_of_the_whole_keeps_every_row(trace: Trace, start: int, length: int) -> None:
    first, last = trace.extent_ns or (0, 0)
    whole = trace.between(first, last + 1)
    assert all(whole[table].equals(trace[table]) for table in (DEVICE_OPS, API_CALLS) if table in trace)
    cut = trace.between(start, start + length)
    assert cut.extent_ns == trace.extent_ns or trace.extent_ns is None
    again = cut.between(start, start + length)
    assert all(again[table].equals(cut[table]) for table in cut)


@given(traces(), st.integers(0, 150), st.integers(1, 150))
def test_every_op_that_starts_in_a_window_keeps_its_launch(trace: Trace, start: int, length: int) -> None:
    cut = trace.between(start, start + length)
    key = ["rank", "process", "correlation"]
    inside = cut.get(DEVICE_OPS).filter(pl.col("start_ns").is_between(start, start + length, closed="left"))
    launched = inside.join(trace.get(API_CALLS).filter(pl.col("start_ns") < start + length), on=key, how="semi")
    assert inside.join(cut.get(API_CALLS), on=key, how="semi").height == launched.height


@pytest.mark.parametrize(
    ("text", "start_ns", "end_ns"),
    [
        ("12.5s:13.5s", 12_500_000_000, 13_500_000_000),
        ("800ms:1.2s", 800_000_000, 1_200_000_000),
        (":3s", 0, 3_000_000_000),
        (" 12.5us : ", 12_500, None),
        ("0s:7ns", 0, 7),
    ],
)
def test_a_window_is_written_with_units(text: str, start_ns: int, end_ns: int | None) -> None:
    assert Span.parse(text) == Span(start_ns, end_ns)


@pytest.mark.parametrize(
    "text",
    ["", ":", "5s", "1:2", "nan:2s", "1s:inf", "-1s:2s", "2s:1s", "1s:1s", "1s:2s:3s", "1e3s:", "1 m:2 m", "٣s:"],
)
def test_what_is_no_window_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        Span.parse(text)
    assert "12.5s:13.5s" in refused.value.remedy


def test_a_window_behind_the_trace_is_refused_and_one_that_ends_behind_it_is_not() -> None:
    with pytest.raises(UsageError, match="the trace is 81"):
        Window.of(Span.parse("90s:"), 0, 81 * 10**9)
    assert str(Window.of(Span.parse("80s:90s"), 5, 5 + 81 * 10**9)) == "window 80.0 s to 81.0 s of 81.0 s"
