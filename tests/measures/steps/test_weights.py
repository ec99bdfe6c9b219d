"""How often slow steps come, counted from all the steps of a recording."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.steps.spike_traces import simulated
from tests.measures.steps.test_steps import loop

from timesink.measures.steps.slow_steps import slow_rates, weights
from timesink.measures.steps.steps import steps


def test_the_ends_of_a_recording_count_where_their_length_is_seen() -> None:
    trace = loop([53_000, 2_600, 2_400, 53_200, 2_600, 2_500])
    assert slow_rates(trace) == {0: 2 / 6}


def test_alike_steps_have_no_rate() -> None:
    assert slow_rates(loop([100, 101, 102, 100, 103])) == {}


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_weights_are_one_on_average_and_give_slow_steps_their_rate(periods: list[int], rate: float) -> None:
    lengths = np.array(periods, np.float64)
    weight = weights(rate, lengths)
    long = lengths > 1.5 * np.median(lengths)
    assert np.isclose(weight.mean(), 1.0)
    if long.any():
        assert np.isclose(weight[long].sum() / weight.sum(), rate)


def test_a_host_that_waits_in_some_steps_for_many_is_not_slow_in_them() -> None:
    trace, _ = simulated(3, "gc")  # the host runs ahead and waits in every fourth step; one of 38 is slow
    assert slow_rates(trace)[0] <= 2 / steps(trace).windows.height
