"""The programs with one slow line each, recorded on an H100: the first finding is at that line."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from benchmarks.lines.score import PROGRAMS, function_of, marked_lines, place

from timesink.diagnosis.pricing import price_change
from timesink.fixes.table import parse_change
from timesink.readers import read

CAPTURES = PROGRAMS.parent / "captures"
AT_LEAST = 10
# Unprofiled, in ms per step: on one stream and on 2, 4 and 8 (benchmarks/lines/README.md).
MEASURED_MS = {"graph": (0.610, {2: 0.320, 4: 0.173, 8: 0.172}), "one_stream": (0.648, {2: 0.344, 4: 0.358, 8: 0.411})}


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name.removeprefix('small.')}.json"
    path.write_bytes(lzma.decompress((CAPTURES / f"{name}.json.xz").read_bytes()))
    return path


@pytest.mark.slow
def test_the_first_finding_is_at_the_slow_line_in_ten_of_twelve_programs_and_in_its_function_in_all(
    tmp_path: Path,
) -> None:
    programs = sorted(PROGRAMS.glob("*.py"))
    assert len(programs) == 12
    at_line = 0
    for program in programs:
        file, line, rule = place(unpacked(program.stem, tmp_path))
        assert file is not None and line is not None, (program.stem, rule)
        assert Path(file).name == program.name
        marked = marked_lines(program)
        at_line += line in marked
        assert function_of(program, line) == function_of(program, min(marked)), (program.stem, line)
    assert at_line >= AT_LEAST


@pytest.mark.parametrize("name", MEASURED_MS)
def test_what_several_streams_win_lies_in_the_interval(name: str, tmp_path: Path) -> None:
    trace = read(unpacked(f"small.{name}", tmp_path), cache=False)
    one_ms, of_streams = MEASURED_MS[name]
    for streams, ms in of_streams.items():
        (change,) = parse_change(f"streams {streams}").changes(trace, 0)
        priced = price_change(change, 0, trace)
        assert priced is not None
        assert priced.gain.low <= one_ms - ms <= priced.gain.high
