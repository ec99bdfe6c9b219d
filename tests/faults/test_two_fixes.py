"""Two fixes that two models once priced apart: what was measured lies in the interval that is foretold."""

import json

import pytest
from benchmarks.faults.adopt import MEASURED
from benchmarks.faults.score import Job, archive_observed


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["torch", "nsys"])
@pytest.mark.parametrize("fault", ["fp32_training", "channels_first"])
def test_tf32_and_channels_last_win_what_is_foretold(fault: str, tool: str) -> None:
    seen = archive_observed(Job(fault, tool, json.loads(MEASURED.read_text(encoding="utf-8"))))
    planted = [one for one in seen if one.variant == "fault" and one.severity != "harmless"]
    assert len(planted) == 2
    for one in planted:
        assert one.foretold is not None
        assert one.foretold.low <= one.gain <= one.foretold.high
