"""What the profiler hides of a program's waits, on captures of programs whose truth was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gate.test_gate import CAPTURES, captured

from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Clear, Found, Undecided
from timesink.units import NS_PER_MS


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_waits_that_the_profiler_hides_are_undecided_until_the_step_without_it_is_told(
    tool: str, tmp_path: Path
) -> None:
    """Under either profiler this program's host is late at every launch; without one, the loss it reads costs 14 %."""
    wanted = "final_loss_read.high.fault"
    traces = {name: trace for name, trace, _ in captured(CAPTURES / f"final_loss_read.{tool}.tar.xz", tmp_path)}
    hidden = find("host-sync").verdict(traces[wanted], {})
    assert isinstance(hidden, Undecided)
    assert "--unprofiled-step-ms" in hidden.to_decide
    assert 0.12 < hidden.most_ratio < 0.16, "measured: 14 %, with a CPU quicker than estimates allow"
    assert isinstance(find("host-sync").verdict(traces[wanted].with_unprofiled_step(0.69 * NS_PER_MS), {}), Found)


def test_threads_of_autograd_that_wait_for_each_other_are_no_matter_of_the_operating_system(tmp_path: Path) -> None:
    for _, trace, _ in captured(CAPTURES / "small_training_step.nsys.tar.xz", tmp_path):
        assert isinstance(find("operating-system").verdict(trace, {}), Clear)
