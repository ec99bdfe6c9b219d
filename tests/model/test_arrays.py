"""Small helpers of arrays against NumPy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timesink.model.arrays import median

whole = st.lists(st.integers(-(2**62), 2**62), min_size=1)
real = st.lists(st.floats(-1e300, 1e300), min_size=1)


@given(whole | real)
def test_the_median_is_that_of_numpy(values: list[int] | list[float]) -> None:
    assert median(values) == float(np.median(values)) == median(np.array(values)[::-1])
