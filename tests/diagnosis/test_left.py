"""What is left: each state, and a sentence that claims no more than was looked at."""

from __future__ import annotations

import pytest
from tests.render.diagnoses import diagnosis

from timesink.diagnosis.saving import LeftState, what_is_left
from timesink.diagnosis.verdicts import Diagnosis, Quantity
from timesink.records import replace

ONE = diagnosis()  # 2.1 ms, 2.4 ms at most, of 12 ms


def priced(gain: Quantity | None, of_ms: float | None = 12.0) -> Diagnosis:
    card, finding = ONE.findings[0]
    return replace(ONE, findings=((card, replace(finding, recoverable=gain, of_ms=of_ms)),))


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (ONE, LeftState.WORTH_FIXING),
        (priced(Quantity(0.1, "ms", high=2.4)), LeftState.WORTH_FIXING),  # the upper end counts
        (priced(Quantity(0.1, "ms", high=2.2)), LeftState.NOTHING_ABOVE),
        (replace(ONE, findings=()), LeftState.NOTHING_ABOVE),
        (priced(None), LeftState.NOT_PRICED),
        (priced(Quantity(2.4, "ms"), of_ms=None), LeftState.NOT_PRICED),
        (replace(ONE, findings=(), partial="cut at byte 7"), LeftState.UNKNOWN),
        (replace(ONE, findings=(), rulings=ONE.rulings[2:]), LeftState.UNKNOWN),  # no rule looked
    ],
)
def test_the_state_is_that_of_the_costliest_finding(found: Diagnosis, state: LeftState) -> None:
    left = what_is_left(found, 0.19)
    assert left.state is state
    assert f"{left.looked} rules looked, {left.blind} could not" in left.sentence
    assert ("nothing above 19.0 % of the step is left" in left.sentence) == (state is LeftState.NOTHING_ABOVE)
