"""Facts of a run and the times of its steps without a profiler: from the command line through the manifest to what is
said of the capture."""

import gzip
import json
import lzma
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timesink.capture.agent.settings import program_settings
from timesink.capture.errors import CaptureError
from timesink.capture.manifest import Capture
from timesink.capture.recorded_run import RecordedRun, facts_of, parse_facts, recorded_run, settings_of
from timesink.capture.running import CaptureSettings
from timesink.cli.options import of_run, read_traces
from timesink.diagnosis.engine import diagnose
from timesink.render import Format, render
from timesink.render.schemas import schema
from timesink.views.capture import steps_sheet

STEPS_MS = [10.0 + number / 10 for number in range(12)]


def captured(folder: Path, **more: Any) -> Path:
    """The demo's capture as `timesink capture` would have left it."""
    trace = folder / "rank0.json.gz"
    trace.write_bytes(
        gzip.compress(lzma.decompress((resources("timesink.cli.demo") / "gpt_before.json.xz").read_bytes()))
    )
    manifest: dict[str, Any] = {
        "timesink_manifest": 1,
        "tool": {"name": "torch"},
        "facts": {"resolution": "512", "batch": "8"},
        "ranks": [
            {"rank": 0, "unprofiled": {"step_ms": 2.0, "steps_ms": [2.0]}},
            {"rank": 1, "unprofiled": {"step_ms": 10.55, "steps_ms": STEPS_MS}, "profiled": {"step_ms": 12.0}},
        ],
        "files": [{"file": trace.name, "bytes": 1, "counts": {"kernels": 3}}],
        "missing": [],
        **more,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return trace


def test_what_the_run_was_and_its_steps_without_a_profiler_are_said(tmp_path: Path) -> None:
    path = captured(tmp_path)
    diagnosis = diagnose(of_run(read_traces([path]), None, [path], {"batch": "16"}))
    said = next(text for text in diagnosis.statements if text.startswith("attribution"))
    assert said.endswith("(at resolution=512, batch=16, as profiled)")
    text = render(diagnosis, Format.TEXT, verbose=True)
    assert "resolution=512, batch=16" in text
    assert "without a profiler 12 steps: p50 10.6 ms, p90 11.0 ms (p99" in " ".join(text.split())
    document = json.loads(render(diagnosis, Format.JSON))
    jsonschema.validate(document, schema("diagnosis"))
    assert document["facts"] == {"resolution": "512", "batch": "16"}
    alone = document["steps"]["unprofiled"]
    assert (alone["count"], alone["p99_ms"]) == (12, None)
    assert alone["p90_ms"] == pytest.approx(10.99)


def test_a_capture_shows_percentiles_only_of_enough_steps(tmp_path: Path) -> None:
    captured(tmp_path)
    done = Capture.load(tmp_path)
    steps = steps_sheet(done.unprofiled_steps_ms, done.unprofiled_step_ms, done.profiled_step_ms)
    row = dict(zip((field.key for field in steps.columns), steps.rows[0], strict=True))
    assert row["unprofiled_step_ms"] == 10.55
    assert row["unprofiled_p90_ms"] == pytest.approx(10.99)
    assert "unprofiled_p99_ms" not in row


def test_a_step_that_is_given_leaves_the_measured_ones_out(tmp_path: Path) -> None:
    path = captured(tmp_path)
    trace = of_run(read_traces([path]), 9.0, [path])
    assert (trace.unprofiled_step_ns, trace.unprofiled_steps_ns) == (9e6, ())


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        (["resolution"], "NAME=VALUE is"),
        (["=512"], "not a name"),
        (["1st=512"], "not a name"),
        (["a b=1"], "not a name"),
        (["resolution="], "not a value"),
        (["resolution= 512"], "not a value"),
        (["resolution=\x1b[2J"], "not a value"),
        (["resolution=" + "9" * 81], "not a value"),
        (["a=1", "a=2"], "given twice"),
        ([f"fact{number}=1" for number in range(21)], "too many"),
    ],
)
def test_what_is_no_fact_is_refused(texts: list[str], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_facts(texts)


def test_a_fact_may_hold_equal_signs_and_stand_twice() -> None:
    assert parse_facts(["flags=a=b", "flags=a=b"]) == {"flags": "a=b"}
    with pytest.raises(CaptureError, match="not a name"):
        CaptureSettings(Path("out"), facts={"1": "x"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["rank", "unprofiled", "step_ms", "steps_ms", "facts", "a"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ranks=JSON, facts=JSON)
def test_a_manifest_of_anybodys_is_read_as_far_as_it_makes_sense(
    tmp_path_factory: pytest.TempPathFactory, ranks: Any, facts: Any
) -> None:
    folder = tmp_path_factory.mktemp("anybodys")
    (folder / "manifest.json").write_text(json.dumps({"timesink_manifest": 1, "ranks": ranks, "facts": facts}))
    run = recorded_run([folder])
    assert run.step_ms is None or 0 < run.step_ms < float("inf")
    assert all(0 < ms < float("inf") for ms in run.steps_ms)
    assert all(value.isprintable() for value in run.facts.values())


def test_facts_that_captures_dispute_are_not_said(tmp_path: Path) -> None:
    for name, resolution in (("one", "512"), ("two", "1024")):
        (tmp_path / name).mkdir()
        captured(tmp_path / name, facts={"resolution": resolution, "batch": "8", "bad\n": "x", "odd": 3})
    assert recorded_run([tmp_path / "one", tmp_path / "two"]).facts == {"batch": "8"}
    assert facts_of({}) == RecordedRun().facts == {}


def test_settings_are_what_all_ranks_say_and_how_busy_their_own_gpus_were() -> None:
    gpus = [
        {"index": "0", "utilization.gpu": "0 %", "power.draw": "600 W", "power.limit": "700 W"},
        {"index": "1", "utilization.gpu": "97 %"},
        {"index": "2", "power.draw": "458.50 W", "power.limit": "700.00 W"},
        {"index": "3", "power.draw": "[N/A]", "power.limit": "[N/A]"},
    ]
    ranks = [
        {"settings": {"threads": "16", "cpus": "8"}},
        {"settings": {"threads": "16", "cpus": "4", "bad name": "x"}},
    ]
    assert settings_of({"ranks": ranks, "gpus": gpus}) == {"threads": "16", "others_busy": "97"}
    seen = {number: {"gpus": gpus, "environment": {"CUDA_VISIBLE_DEVICES": number}} for number in "0123"}
    assert {number: settings_of(manifest).get("others_busy") for number, manifest in seen.items()} == {
        "0": None, "1": "97", "2": "66", "3": None,
    }  # fmt: skip


def test_a_program_tells_its_processors_and_whether_launches_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = program_settings()
    assert int(found["cpus"]) >= 1
    assert (found["launch_blocking"], found["ranks_here"]) == ("on", "2")
