"""The step of a job without a profiler, from what each rank would take by itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from timesink.measures.ranks import paces
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS

WHOLE = Intervals.one(0, 100 * NS_PER_MS)


def job(
    monkeypatch: pytest.MonkeyPatch,
    steps_ms: dict[int, tuple[float, float, float]],
    waits_ms: dict[int, tuple[float, float]],
    recorded_ms: dict[int, float] | None = None,
) -> Trace:
    """Ranks with steps for little, expected and much cost of recording, that wait so long in collectives and in
    messages between stages."""

    def stood(part: int) -> dict[tuple[int, int], Intervals]:
        at = {rank: (10 * part * NS_PER_MS, (10 * part + ms[part]) * NS_PER_MS) for rank, ms in waits_ms.items()}
        return {(rank, 0): Intervals.one(int(begin), int(end)) for rank, (begin, end) in at.items() if end > begin}

    def of(ms: float) -> Any:
        return SimpleNamespace(step_ns=ms * NS_PER_MS)

    recorded = recorded_ms or dict.fromkeys(steps_ms, 12.0)
    lines = {(rank, 0): SimpleNamespace(exposed_communication=WHOLE) for rank in steps_ms}
    for name, what in {
        "deflated_pricers": {rank: tuple(map(of, ms)) for rank, ms in steps_ms.items()},
        "pricers": {rank: of(recorded[rank]) for rank in steps_ms},
        "waiting_in_collectives": stood(0),
        "between_stages": stood(1),
        "device_timeline": SimpleNamespace(by_device=lines),
    }.items():
        monkeypatch.setattr(paces, name, lambda _, what=what: what)
    longest = lambda _, parts: max((part.total_ns for part in parts.values()), default=0)  # noqa: E731
    monkeypatch.setattr(paces, "largest_per_step_ns", longest)
    return Trace("made", {})


def test_a_job_takes_as_long_as_its_shortest_rank_or_the_slowest_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a collective rank 0 waits 3 ms and rank 1 waits 7."""
    steps = {0: (12.0, 10.0, 8.0), 1: (11.0, 10.5, 6.0)}
    trace = job(monkeypatch, steps, {0: (3, 0), 1: (7, 0)})
    found = {
        rank: [(step / NS_PER_MS, alone / NS_PER_MS) for step, alone in of]
        for rank, of in paces.rank_paces_ns(trace).items()
    }
    assert found == {0: [(12, 9), (10, 7), (8, 5)], 1: [(11, 4), (10.5, 3.5), (6, 0)]}
    assert paces.estimated_step_ns(trace) == (6 * NS_PER_MS, 10 * NS_PER_MS, 11 * NS_PER_MS)
    assert paces.kept_ratio(trace) == (6 / 12, 10 / 12, 11 / 12)  # both ranks are recorded with 12 ms
    empty = job(monkeypatch, {}, {})
    assert (paces.estimated_step_ns(empty), paces.kept_ratio(empty)) == (None, None)


@pytest.mark.parametrize("stood_ms", [4.0, 6.0, 8.0, 9.0, 9.9])
def test_what_a_stage_waits_for_another_is_not_its_own(monkeypatch: pytest.MonkeyPatch, stood_ms: float) -> None:
    """The GPU of rank 0 waits for messages of rank 1, whose CPU recording slows; that it runs a collective meanwhile
    counts once."""
    trace = job(monkeypatch, {0: (12.0, 12.0, 12.0), 1: (11.0, 8.0, 6.0)}, {0: (1.0, stood_ms), 1: (0, 1.0)})
    alone_ms = 12.0 - stood_ms - 1.0
    assert paces.rank_paces_ns(trace)[0][0][1] == pytest.approx(alone_ms * NS_PER_MS)
    expected = (max(6.0, alone_ms), max(8.0, alone_ms), max(11.0, alone_ms))
    assert paces.estimated_step_ns(trace) == pytest.approx([ms * NS_PER_MS for ms in expected])


def test_stages_take_the_step_of_the_longest_however_many_of_theirs_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, recorded = {0: (27.0,) * 3, 1: (24.0,) * 3, 2: (0.0,) * 3}, {0: 27.0, 1: 24.0, 2: 0.0}
    of_stages = paces.rank_paces_ns(job(monkeypatch, steps, {0: (0, 13.0), 1: (0, 9.0)}, recorded))
    assert [of_stages[rank][0][0] / NS_PER_MS for rank in steps] == pytest.approx([27.0, 27.0, 0.0])
    of_ranks = paces.rank_paces_ns(job(monkeypatch, steps, {0: (13.0, 0)}, recorded))
    assert [of_ranks[rank][0][0] / NS_PER_MS for rank in steps] == pytest.approx([27.0, 24.0, 0.0])
