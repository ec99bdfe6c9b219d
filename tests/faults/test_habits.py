"""The fourth set: each rule finds the fault that was planted for it, and is clear of the program that was mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults import score, suite
from benchmarks.faults.adopt import CAPTURES
from benchmarks.faults.pack import unpacked

import timesink
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Found

ARCHIVES = [
    pytest.param(fault, archive, id=archive.name)
    for fault in suite.FAULTS
    if fault.part == 4
    for tool in score.TOOLS
    if (archive := CAPTURES / f"{fault.name}.{tool}.tar.xz").exists()
]


@pytest.mark.parametrize(("fault", "archive"), ARCHIVES)
def test_a_planted_habit_is_found_and_its_fix_is_clear(fault: suite.Fault, archive: Path, tmp_path: Path) -> None:
    unpacked(archive, tmp_path)
    rule = find(fault.bottleneck.replace("_", "-"))
    captures = score.captures_in(tmp_path)
    assert f"{fault.name}.high.fault" in captures
    for name, (path,) in captures.items():
        trace = timesink.read(path).with_settings(score.settings_beside(path))
        assert isinstance(rule.verdict(trace), Found) == name.endswith(".fault"), name
