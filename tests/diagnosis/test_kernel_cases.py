"""What is said of captures, of invented rows, whose kernels or devices are easily taken for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from timesink.diagnosis.engine import diagnose
from timesink.readers import read

CASES = Path(__file__).parents[1] / "data" / "cases"


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        pytest.param("01_t4_fp16_named_s1688.json.gz", set(), id="fp16 products whose names begin as those of TF32"),
        pytest.param("gemm_nopermute.sqlite", set(), id="a matrix product with an argument NoPermute"),
    ],
)
def test_findings_are_those_that_the_rows_bear_out(name: str, findings: set[str]) -> None:
    assert {card.name for card, _ in diagnose(read(CASES / name)).findings} == findings
