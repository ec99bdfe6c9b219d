"""The run-to-run deviation, measured and stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.verify.runs_by_hand import row

from timesink.verify import calibration
from timesink.verify.environment import Environment
from timesink.verify.records import BrokenRecord


def test_a_calibration_is_the_deviation_of_log_means_over_all_sessions(tmp_path: Path) -> None:
    here = Environment({"gpu": "x"})
    path = calibration.location(tmp_path, here, "w")
    first = calibration.store(path, here, "cmd", [row(mean) for mean in (1.0, 1.01, 0.99, 1.0, 1.02)])
    both = calibration.store(path, here, "cmd", [row(mean) for mean in (1.1, 1.11)])
    assert (first.df, both.sessions, both.df) == (4, 2, 6)
    assert both.run_sd_ratio == pytest.approx(np.log([1.0, 1.01, 0.99, 1.0, 1.02, 1.1, 1.11]).std(ddof=1), rel=1e-5)


def test_calibration_discards_the_first_run() -> None:
    rows = calibration.calibrate(lambda number: row(1.0 + number), 5)
    assert [r.mean_s for r in rows] == [3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1, "environment": {}, "sessions": [{}]}',
                                  '{"schema_version": 1, "environment": {}, "sessions": [{"run_means_s": [1, 0]}]}',
                                  '{"schema_version": 1, "environment": {}, "sessions": []}'])  # fmt: skip
def test_a_damaged_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(BrokenRecord):
        calibration.read(path)
