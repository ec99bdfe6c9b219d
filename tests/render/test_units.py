"""Figures as people read them: the unit leaves one to three digits before the point, also where rounding adds one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.units import bytes_text, rate_text, time_text, times_text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (time_text(999.4), "999 ns"),
        (time_text(999.6), "1.00 us"),
        (time_text(999_499), "999 us"),
        (time_text(999_600), "1.00 ms"),
        (time_text(-999_700_000), "-1.00 s"),
        (bytes_text(999_900), "1.00 MB"),
        (rate_text(999.8e9, "FLOP/s"), "1.00 TFLOP/s"),
        (times_text(1.159), "1.16×"),
        (times_text(9.84), "9.8×"),
        (times_text(42.3), "42×"),
    ],
)
def test_a_figure_is_in_the_unit_that_it_rounds_to(shown: str, text: str) -> None:
    assert shown == text


@given(st.floats(1, 9.9e11))
def test_no_figure_has_four_digits_before_the_point(value: float) -> None:
    for text in (time_text(value), bytes_text(value), rate_text(value, "B/s")):
        assert float(text.split()[0]) < 1000


@given(st.floats(1, 1e4))
def test_a_factor_is_within_two_percent(ratio: float) -> None:
    assert abs(float(times_text(ratio)[:-1]) / ratio - 1) < 0.02
