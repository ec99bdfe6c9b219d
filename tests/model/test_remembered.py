from __future__ import annotations

from timesink.model.trace import Trace, forget, remembered


def test_a_measure_is_taken_once_until_it_is_forgotten() -> None:
    asked = []

    @remembered
    def measure(trace: Trace) -> int:
        asked.append(trace.source)
        return len(asked)

    one, other = Trace("one", {}), Trace("other", {})
    assert [measure(one), measure(one), measure(other)] == [1, 1, 2]
    forget(measure, one)
    forget(measure, one)
    assert [measure(one), measure(other)] == [3, 2]
    assert asked == ["one", "other", "one"]
