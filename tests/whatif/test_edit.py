"""The cost of windows whose launches are replaced, worked by hand with every coefficient other than zero."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from timesink.whatif.edit import Edit

US = 1_000


def saved(least: int) -> list[float]:
    """Thread 3 has windows of 100, 300 and 40 us, in which 2, 3 and 1 marked calls begin."""
    starts = np.array([0, 60, 100, 150, 399, 400, 30, 20]) * US
    thread = np.array([3, 3, 3, 3, 3, 3, 9, 3])
    marked = np.array([1, 1, 1, 1, 1, 1, 1, 0], dtype=bool)  # the last is another call
    window_start, window_end = np.array([0, 100, 400]) * US, np.array([100, 400, 440]) * US
    part = SimpleNamespace(start_ns=window_start, end_ns=window_end, lengths_ns=window_end - window_start)
    shares: list[float] = []

    def save_host_parts(number: int, start_ns: Any, end_ns: Any, share: Any) -> None:
        assert number == 3
        assert (start_ns == window_start).all()
        assert (end_ns == window_end).all()
        shares.extend(share.tolist())

    calls = SimpleNamespace(start_ns=starts, thread=thread)
    edit = SimpleNamespace(graph=SimpleNamespace(program=SimpleNamespace(calls=calls)), save_host_parts=save_host_parts)
    given: dict[str, Any] = {"fixed_us": 10.0, "per_launch_us": 35.0, "least": least}
    Edit.replace_launches(edit, {3: part}, marked, **given)  # type: ignore[arg-type, dict-item]
    return shares


def test_a_window_costs_a_fixed_part_and_a_part_for_each_launch() -> None:
    # 10 + 2 x 35 = 80 of 100 us; 10 + 3 x 35 = 115 of 300 us; 10 + 1 x 35 = 45 of 40 us: no more than it did
    assert saved(least=0) == pytest.approx([0.2, 185 / 300, 0.0])


def test_a_window_with_too_few_launches_keeps_its_cost() -> None:
    assert saved(least=3) == pytest.approx([0.0, 185 / 300, 0.0])
    assert saved(least=2) == pytest.approx([0.2, 185 / 300, 0.0])
