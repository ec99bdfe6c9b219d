"""Of a job of many ranks those are looked into that stand out, and they say what all would."""

import pytest
from tests.measures.ranks.test_why_late import Kernels, job_of, step_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.verdicts import Diagnosis
from timesink.measures.ranks import telling as ranks_telling
from timesink.measures.ranks.telling import MOST, outstanding, telling, telling_text
from timesink.model.trace import Trace
from timesink.views.ranks import page_of_trace
from timesink.views.report import report_of

EARLY, LATE = step_of(4000), step_of(7000)
MORE: Kernels = [("gemm", 7, 132, 0, 10, 6500), *EARLY[1:]]  # on its GPU, and late by that
LONGER: Kernels = [("gemm", 7, 132, 0, 10, 3000), *EARLY[1:]]  # idle for a millisecond more


def job_with(odd: Kernels, at: int, count: int = MOST + 16, steps: int = 3) -> Trace:
    return job_of({rank: [odd if rank == at else EARLY] for rank in range(count)}, count=steps)


@pytest.mark.parametrize(("odd", "at"), [(LATE, 70), (MORE, 33), (LONGER, 50), (LATE, 0), (EARLY, 12)])
def test_the_rank_that_stands_out_is_looked_into_with_its_neighbors(odd: Kernels, at: int) -> None:
    trace = job_with(odd, at)
    told = set(telling(trace).rank_numbers)
    assert {0, *outstanding(trace)} <= told
    assert set(range(8)) <= told
    if odd is not EARLY:
        assert at in outstanding(trace)
        assert set(range(at // 8 * 8, at // 8 * 8 + 8)) <= told
    assert len(told) <= 32
    assert f"{len(told)} of {MOST + 16} ranks are diagnosed" in telling_text(trace)


@pytest.mark.slow
@pytest.mark.parametrize("at", [9, 70])
def test_they_say_what_all_would(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The late rank, its cause and its price, and the same as `ranks`, which compares all."""
    trace = job_with(LATE, at, steps=8)
    part = diagnose(trace)
    assert f"rank {at} on a is late" in page_of_trace(trace, 3).title
    monkeypatch.setattr(ranks_telling, "MOST", 1_000)
    whole = diagnose(job_with(LATE, at, steps=8))
    assert part.statement == whole.statement
    assert of_rank(part, at) == {code: pytest.approx(ms, rel=0.05) for code, ms in of_rank(whole, at).items()}
    assert not [note for note in whole.notes if "are diagnosed" in note.message]


def of_rank(diagnosis: Diagnosis, rank: int) -> dict[str, float]:
    """What each finding at a rank would win, ms."""
    found = {card.code: one.recoverable for card, one in diagnosis.findings if one.where.rank == rank}
    return {code: worth.most for code, worth in found.items() if worth}


def test_all_ranks_are_in_the_picture_and_among_the_sources() -> None:
    trace = job_with(LATE, 70)
    diagnosis = diagnose(trace)
    report = report_of(trace, diagnosis)
    assert len(diagnosis.sources) == MOST + 16 > len(diagnosis.devices)
    (ranks,) = [section.page for section in report.sections if section.key == "ranks"]
    assert ranks.title.startswith(f"{MOST + 16} ranks")
    assert not [note for note in diagnosis.notes if "no file holds" in note.message]
    assert plan(trace, diagnosis).step_ms == pytest.approx(plan(telling(trace), diagnosis).step_ms)


def test_few_ranks_are_all_looked_into() -> None:
    trace = job_with(LATE, 7, MOST)
    assert telling(trace) is trace and telling_text(trace) == ""
