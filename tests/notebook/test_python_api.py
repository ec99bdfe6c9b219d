"""The Python API: what the commands answer, from a path or a trace, and its ways out (first contact defect 29)."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

import timesink
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

DEMO = Path(str(files("timesink.cli"))) / "demo"
BEFORE, AFTER = DEMO / "gpt_before.json.gz", DEMO / "gpt_after.json.gz"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "python.md"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return timesink.read(BEFORE, cache=False)


def test_a_path_and_its_trace_have_the_same_diagnosis(trace: Trace) -> None:
    of_path, of_trace = (timesink.diagnose(capture).to_dict() for capture in (str(BEFORE), trace))
    assert {**of_path, "sources": ()} == {**of_trace, "sources": ()}


def test_tables_answer_to_their_names(trace: Trace) -> None:
    assert trace["device_ops"] is trace[DEVICE_OPS]
    assert "device_ops" in trace
    assert "os_calls" not in trace
    with pytest.raises(KeyError, match="not recorded; the trace holds api_calls"):
        trace["os_calls"]


def test_files_of_several_ranks_are_one_trace(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.json.gz" for rank in (0, 1)]
    for path in paths:
        path.write_bytes(BEFORE.read_bytes())
    for given in (paths, tmp_path):
        assert timesink.read(given, cache=False).ranks == (0, 1)


def test_every_result_is_short_in_a_prompt_and_whole_when_written(trace: Trace) -> None:
    results = (
        timesink.diagnose(trace),
        timesink.summary(trace, top=3),
        timesink.idle(trace),
        timesink.what_if(trace, "remove-sync"),
        timesink.compare(trace, AFTER),
    )
    for result in results:
        assert len(repr(result)) < 200
        assert result.to_dict() == json.loads(result.to_json())
        assert result.to_html().startswith("<!doctype html>")
        assert result.to_markdown()
        assert "\x1b" not in result.to_text()
        assert result._repr_html_().startswith('<div class="timesink">')
    assert len(repr(trace)) < 200


def test_the_page_lists_every_function() -> None:
    listed = set(re.findall(r"^\| `(\w+)\(", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == set(timesink.__all__) - {"Trace", "__version__", "annotate", "profile", "stages", "step"}
