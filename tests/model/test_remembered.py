from __future__ import annotations

from timesink.model.trace import Trace, release, release_after, remembered


def test_a_measure_is_taken_once_until_it_is_released() -> None:
    asked = []

    @release_after("XYZ")
    @remembered
    def measure(trace: Trace) -> int:
        asked.append(trace.source)
        return len(asked)

    one, other = Trace("one", {}), Trace("other", {})
    assert [measure(one), measure(one), measure(other)] == [1, 1, 2]
    release("XYZ", one)
    release("XYZ", one)
    assert [measure(one), measure(other)] == [3, 2]
    assert asked == ["one", "other", "one"]
