"""`timesink memory`, as a user runs it."""

import json
import pickle
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from timesink.cli.app import run
from timesink.readers import read
from timesink.views.memory import segment_map

SNAPSHOT = Path(__file__).resolve().parents[1] / "data" / "memory" / "gpt_bf16_adamw.pickle.xz"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON a command writes; it exits with 0."""
    assert run([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def test_show_sums_to_the_peak_and_to_what_is_reserved(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "memory", "show", str(SNAPSHOT), "--device-used", "4.5")
    assert sum(row["bytes"] for row in page["categories"]) == page["peaks"][0]["peak_bytes"]
    sizes = {row["what"]: row["bytes"] for row in page["allocator"]}
    parts = list(sizes.values())
    assert sum(parts[:5]) == sizes["reserved, the sum of these"]
    assert sizes["outside torch: context, NCCL, libraries"] == 4_500_000_000 - sizes["reserved, the sum of these"]


def test_the_picture_is_sound_xml_with_a_band_per_category(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "memory.svg"
    page = said(capsys, "memory", "show", str(SNAPSHOT), "--svg", str(picture))
    root = ET.fromstring(picture.read_text())
    bands = root.findall("{http://www.w3.org/2000/svg}polygon")
    assert len(bands) >= len(page["categories"])


def test_plan_terms_sum_to_the_peak_and_every_one_has_formula_and_source(
    capsys: pytest.CaptureFixture[str], hub: Path
) -> None:
    page = said(capsys, "memory", "plan", "--hf-config", str(hub), "--sequence", "4096", "--precision", "bf16")
    backward = max(row["bytes"] for row in page["phases"])
    assert sum(row["bytes"] for row in page["terms"]) == backward
    assert all(row["formula"] and row["source"] for row in page["terms"])
    verdict = {row["what"]: row["value"] for row in page["verdict"]}
    assert verdict["parameters on this rank"] == "8,030,261,248"


def test_a_served_model_is_planned_with_its_cache(capsys: pytest.CaptureFixture[str], hub: Path) -> None:
    page = said(capsys, "memory", "plan", "--hf-config", str(hub), "--batch", "4", "--serve-context", "8192")
    cache = next(row for row in page["terms"] if row["part"] == "kv cache")
    assert cache["bytes"] == 131_072 * 4 * 8192


def test_a_plan_is_compared_with_a_run_term_by_term(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "gpt.json"
    config.write_text(json.dumps(json.loads(SNAPSHOT.with_name("gpt_bf16_adamw.json").read_text())["config"]))
    page = said(capsys, "memory", "plan", str(config), "--against", str(SNAPSHOT))
    errors = {row["part"]: row["error_ratio"] for row in page["against"]}
    assert abs(errors["total"]) < 0.01
    assert all(abs(error) < 0.02 for error in errors.values())


def test_a_snapshot_differs_from_itself_in_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "memory", "diff", str(SNAPSHOT), str(SNAPSHOT))
    assert {row["change_bytes"] for row in page["categories"]} == {0}


def calls_of(*arguments: str) -> int:
    """How many functions a command calls, Python's own and compiled ones: its work, on a busy machine too."""
    calls = 0

    def count(_frame: object, event: str, _what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert run([*arguments, "--format", "json"]) == 0
    finally:
        sys.setprofile(None)
    return calls


def deep_snapshot(path: Path, allocations: int) -> Path:
    """A snapshot of allocations that stay, each from a stack of its own, 40 frames deep, that differs in one line."""
    address, size = 1 << 20, 512
    trace: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    for number in range(allocations):
        lines = [*range(20), number, *range(21, 40)]
        frames = [{"filename": "train.py", "line": line, "name": "f"} for line in lines]
        place = {"size": size, "frames": frames}
        trace.append({"action": "alloc", "addr": address, "stream": 0, "time_us": 10 + number, **place})
        blocks.append({"address": address, "requested_size": size, "state": "active_allocated", **place})
        address += size
    total = allocations * size
    segment = {
        "device": 0, "address": 1 << 20, "total_size": total, "allocated_size": total, "active_size": total,
        "requested_size": total, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": [], "blocks": blocks,
    }  # fmt: skip
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace]}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", [("compare",), ("memory", "diff")], ids=" ".join)
def test_trust_a_snapshot_is_compared_in_work_that_grows_as_it_does(command: tuple[str, ...], tmp_path: Path) -> None:
    """One comparison of 90 kB was once seen to take 39 s."""
    small, large = (str(deep_snapshot(tmp_path / f"{count}.pickle", count)) for count in (200, 800))
    calls_of(*command, small, small)  # what is imported and remembered once
    assert calls_of(*command, large, large) < 4.5 * calls_of(*command, small, small)
    assert calls_of(*command, str(SNAPSHOT), str(SNAPSHOT)) < 500_000


def test_a_trace_without_memory_and_an_empty_request_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "plan"]) == 2
    assert "nothing to plan" in capsys.readouterr().err


@pytest.mark.parametrize("address", [0, (1 << 20) - 512, (1 << 20) + (64 << 20), 1 << 63, (1 << 64) - 512])
def test_a_block_outside_its_segment_is_nowhere_on_the_map(address: int, tmp_path: Path) -> None:
    path = deep_snapshot(tmp_path / "snapshot.pickle", 8)
    whole = segment_map(read([path]))
    content = pickle.loads(path.read_bytes())
    content["segments"][0]["blocks"][3]["address"] = address
    path.write_bytes(pickle.dumps(content))
    cut = segment_map(read([path], cache=False))
    assert whole is not None and cut is not None
    assert sum(cut.bytes_of.values()) == sum(whole.bytes_of.values()) - 512
