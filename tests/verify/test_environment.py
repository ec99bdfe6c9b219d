"""Where a measurement was made, what was run, and what a capture's manifest says."""

import json
import sys
from pathlib import Path

import pytest

from timesink.errors import UsageError
from timesink.model.trace import Trace
from timesink.verify.environment import (
    Command,
    Environment,
    differences,
    environment,
    find_manifest,
    parse_gpus,
    read_manifest,
    trace_facts,
    workload,
)


def test_gpus_of_one_kind_are_named_once_and_counted() -> None:
    line = "NVIDIA H200, 143771, Disabled, 700.00, 580.95.05, 9.0\n"
    facts, driver = parse_gpus(line * 2)
    assert facts == {"gpu": "NVIDIA H200", "gpu memory MiB": "143771", "gpu MIG": "Disabled",
                     "gpu power limit W": "700.00",
                     "gpu compute capability": "9.0", "gpu count": "2"}  # fmt: skip
    assert driver == "580.95.05"


def test_no_variable_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_API_KEY", "NCCL_SECRET", "HOME_TOKEN", "NCCL_DEBUG", "TORCH_LOGS"):
        monkeypatch.setenv(name, "planted")
    assert "planted" not in str(environment())


def test_the_interpreter_of_the_command_is_asked_for_versions() -> None:
    asked = environment(Command((sys.executable, "-c", "pass")))
    assert asked.hard["python"] == "{}.{}".format(*sys.version_info[:2])
    assert "python" not in environment(Command(("/bin/true",))).hard


@pytest.mark.parametrize("said", ["[1]", "5", "[" * 2_000, "warning"])
def test_an_interpreter_that_answers_otherwise_has_no_known_packages(tmp_path: Path, said: str) -> None:
    fake = tmp_path / "python-of-mine"
    fake.write_text(f"#!/bin/sh\necho '{said}'\n")
    fake.chmod(0o755)
    assert "python" not in environment(Command((str(fake), "train.py"))).hard


def test_a_manifest_too_deep_to_walk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text('{"a":' * 600 + "1" + "}" * 600)
    with pytest.raises(UsageError, match="nested too deeply"):
        read_manifest(path)


def test_the_key_depends_on_the_facts_and_not_on_their_order() -> None:
    one, other = Environment({"a": "1", "b": "2"}), Environment({"b": "2", "a": "1"})
    assert one.key == other.key != Environment({"a": "2", "b": "2"}).key
    assert differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == {"b": ("2", "absent"), "c": ("absent", "3")}


def test_work_differs_by_arguments_files_and_declared_facts(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("batch = 8")
    command = Command(("python", "train.py"))
    keys = [workload(command), workload(Command(("python", "train.py", "-x"))), workload(command, [config])]
    config.write_text("batch = 16")
    keys += [workload(command, [config]), workload(command, [], {"world size": "8"})]
    assert len(set(keys)) == 5
    assert workload(command) == workload(Command(("python", "train.py")))


def test_manifests_differ_by_what_was_changed_and_not_by_when(tmp_path: Path) -> None:
    for name, batch, when in (("a", 8, "09:00"), ("b", 16, "10:00")):
        content = {
            "config": {"batch": batch, "shapes": [1, 2]},
            "started": when,
            "packages": {"torch": "2.11"},
            "pid": batch,
        }
        (tmp_path / f"{name}.json.manifest.json").write_text(json.dumps(content))
    found = [find_manifest(tmp_path / f"{name}.json") for name in "ab"]
    assert differences(*(read_manifest(path) for path in found if path)) == {"config.batch": ("8", "16")}


def test_manifests_of_captures_differ_by_versions_and_settings_and_by_nothing_that_was_measured(tmp_path: Path) -> None:
    for name, torch, busy, count in (("a", "2.10", "0 %", 1), ("b", "2.11", "71 %", 2)):
        rank = {
            "rank": 0, "start_up_ns": [["imports", "torch", count]], "unprofiled": {"step_ms": count},
            "settings": {"threads": str(count)}, "software": {"torch": torch, "cudnn": "9"},
        }  # fmt: skip
        content = {
            "timesink_manifest": 1, "made": f"2026-11-2{count}", "facts": {"batch": str(count)},
            "gpus": [{"index": "0", "utilization.gpu": busy, "clocks.sm": f"{count} MHz", "power.limit": "700 W"}],
            "ranks": [rank, {**rank, "rank": 1}],
        }  # fmt: skip
        (tmp_path / f"{name}.json.manifest.json").write_text(json.dumps(content))
    sides = [read_manifest(tmp_path / f"{name}.json.manifest.json") for name in "ab"]
    assert differences(*sides) == {"torch": ("2.10", "2.11")}
    assert sides[0]["gpus.power.limit"] == "700 W"
    traces = [Trace("a", {}).with_facts({"batch": value}) for value in "12"]
    assert differences(*map(trace_facts, traces)) == {"batch": ("1", "2")}


def test_no_manifest_is_none_and_a_broken_one_is_named(tmp_path: Path) -> None:
    assert find_manifest(tmp_path / "a.json") is None
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="not a readable manifest"):
        read_manifest(tmp_path / "manifest.json")
