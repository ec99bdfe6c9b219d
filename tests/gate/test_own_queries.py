"""Figures that commands print of public files, worked out again by a few lines that know nothing of our readers."""

import csv
import json
import pickle
import re
import sqlite3
from typing import Any

import pytest
from tests.profiles import ABSENT, PROFILES

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.measures.timeline import device_timeline
from timesink.readers import read

PUBLIC = PROFILES / "public"
pytestmark = pytest.mark.skipif(not PUBLIC.is_dir(), reason=ABSENT)


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """What a command prints as JSON."""
    capsys.readouterr()
    run([*command, "--format", "json"])
    return json.loads(capsys.readouterr().out)


def test_the_peak_and_the_allocator_of_a_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    """What is allocated at the end, less what the record changed, is where it began; the rest is a running sum."""
    path = PUBLIC / "memory" / "snapshot.pickle"
    snapshot = pickle.loads(path.read_bytes())
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    active = [block for block in blocks if block["state"] == "active_allocated"]
    asked = sum(block["requested_size"] for block in active)
    sign = {"alloc": 1, "free_completed": -1}
    changes = [sign.get(event["action"], 0) * event["size"] for event in snapshot["device_traces"][0]]
    level = peak = asked - sum(changes)
    for change in changes:
        level += change
        peak = max(peak, level)
    said = printed(capsys, "memory", "show", str(path))
    assert said["peaks"][0]["peak_bytes"] == peak
    assert sum(row["bytes"] for row in said["categories"]) == peak
    allocator = {row["what"]: row["bytes"] for row in said["allocator"]}
    assert allocator["asked for by tensors"] == asked
    assert allocator["rounding within blocks"] == sum(block["size"] for block in active) - asked
    assert allocator["reserved, the sum of these"] == sum(one["total_size"] for one in snapshot["segments"])
    empty = [one["total_size"] for one in snapshot["segments"] if one["active_size"] == 0]
    assert allocator["free segments (cached)"] == sum(empty)


def test_the_time_of_a_kernel_on_a_page_of_details(capsys: pytest.CaptureFixture[str]) -> None:
    path = PUBLIC / "ncu" / "copy_blocked_details.csv"
    with path.open(encoding="utf-8") as lines:
        page = {row["Metric Name"]: row["Metric Value"].replace(",", "") for row in csv.DictReader(lines)}
    (kernel,) = printed(capsys, "kernels", str(path))["kernels"]
    assert kernel["time_us"] == pytest.approx(float(page["Duration"]) / 1_000)
    assert kernel["roof"] == "DRAM" and kernel["roof_share"] == pytest.approx(float(page["DRAM Throughput"]) / 100)


@pytest.mark.parametrize("name", ["cache_hit_miss", "comp_failure", "corrupted", "simple", "comp_metrics"])
def test_how_often_a_log_compiled(name: str) -> None:
    """The compiler writes its metrics once a compilation."""
    path = PUBLIC / "torch_logs" / f"{name}.log"
    metrics = len(re.findall(r'"compilation_metrics": \{', path.read_text("utf-8", "replace")))
    statement = diagnose(read(path, cache=False)).statement
    told = re.search(r"(\d+) compilations?", statement)
    assert told is None or int(told[1]) == metrics
    assert told is not None or "breaks" in statement


@pytest.mark.parametrize("name", ["h100_2gpu_before", "h100_2gpu_after", "power_iteration", "healthy_1pct"])
def test_busy_time_of_a_report_of_nsight_systems(name: str) -> None:
    """The union of kernels, copies and sets of each GPU, by SQLite and a sweep."""
    path = PUBLIC / "nsys" / f"{name}.sqlite"
    spans: dict[int, list[tuple[int, int]]] = {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
                query = f"SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{table}"
                for device, start, end in database.execute(query):
                    spans.setdefault(device, []).append((start, end))
    busy = {}
    for device, own in spans.items():
        until = total = 0
        for start, end in sorted(own):
            total += max(0, end - max(start, until))
            until = max(until, end)
        busy[device] = total
    lines = device_timeline(read(path, cache=False)).by_device
    assert sorted(line.busy.total_ns for line in lines.values()) == sorted(busy.values())
