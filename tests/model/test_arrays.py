"""Small helpers of arrays against NumPy and plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timesink.model.arrays import flag_at, median

whole = st.lists(st.integers(-(2**62), 2**62), min_size=1)
real = st.lists(st.floats(-1e300, 1e300), min_size=1)


@given(whole | real)
def test_the_median_is_that_of_numpy(values: list[int] | list[float]) -> None:
    assert median(values) == float(np.median(values)) == median(np.array(values)[::-1])


@given(st.lists(st.booleans()), st.data())
def test_a_flag_is_that_at_its_index_and_false_for_none(flags: list[bool], data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(-1, len(flags) - 1)))
    found = flag_at(np.array(flags, np.bool_), np.array(index, np.int64))
    assert found.tolist() == [at >= 0 and flags[at] for at in index]
