"""The join by number against a slow one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timesink._native import first_places

IDS = st.lists(st.one_of(st.integers(-2, 30), st.integers(0, 1 << 62)), max_size=40)


@given(IDS, IDS)
def test_each_id_is_found_where_it_stands_first(wanted: list[int], known: list[int]) -> None:
    expected = [known.index(one) if one >= 0 and one in known else -1 for one in wanted]
    assert first_places(np.array(wanted, np.int64), np.array(known, np.int64)).tolist() == expected
