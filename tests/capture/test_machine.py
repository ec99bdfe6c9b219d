"""The doctor's look at GPUs, containers and disks."""

import shutil
from pathlib import Path

import pytest

from timesink.cli import doctor
from timesink.cli.doctor import container_probe, counter_remedy, disk_probes, gpu_probe, memory_limit


@pytest.mark.parametrize(
    ("persistence", "mig", "reasons", "remedy"),
    [
        ("Enabled", "Disabled", 0, ""),
        ("Enabled", "Disabled", 0x1, ""),  # idle is no slowing
        ("Enabled", "Disabled", 0x4, "held down by software power cap"),
        ("Enabled", "Disabled", 0x60, "held down by heat (software), heat (hardware)"),
        ("Enabled", "Enabled", 0, "MIG is on"),
        ("Disabled", "Disabled", 0, "nvidia-smi -pm 1"),
    ],
)
def test_a_gpus_state_is_ok_or_has_a_remedy(persistence: str, mig: str, reasons: int, remedy: str) -> None:
    probe = gpu_probe(f"0, NVIDIA H200, 580.65.06, 345 MHz, 1980 MHz, [N/A], {persistence}, {mig}", reasons)
    assert probe.is_ready is (remedy == "")
    assert remedy in probe.remedy


def test_a_container_without_capabilities_is_told_how_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("CapEff:\t00000000a80425fb\n")
    assert container_probe(tmp_path).is_ready  # no sign of a container: nothing is withheld
    (tmp_path / ".dockerenv").touch()
    probe = container_probe(tmp_path)
    assert "--cap-add SYS_ADMIN" in probe.remedy
    assert "--cap-add SYS_PTRACE" in probe.remedy
    (tmp_path / "proc/self/status").write_text("CapEff:\t000001ffffffffff\n")
    assert container_probe(tmp_path).is_ready


def test_memory_limits_of_both_control_group_versions_are_read(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    first = tmp_path / "sys/fs/cgroup/memory"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_limit(tmp_path) is None
    (first / "memory.limit_in_bytes").write_text("4294967296\n")
    assert memory_limit(tmp_path) == 4 << 30
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert memory_limit(tmp_path) == 4 << 30
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1073741824\n")
    assert memory_limit(tmp_path) == 1 << 30
    assert "memory limit 1.0 GiB" in container_probe(tmp_path).found


def test_a_disk_without_room_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(probe.is_ready for probe in disk_probes(tmp_path))
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: real._replace(free=1 << 30))
    captures, raw = disk_probes(tmp_path)
    assert "--output" in captures.remedy
    assert "TMPDIR" in raw.remedy


@pytest.mark.parametrize(("root", "restricted", "refused"), [(True, 1, False), (False, 1, True), (False, 0, False)])
def test_counters_need_root_or_the_drivers_leave(tmp_path: Path, root: bool, restricted: int, refused: bool) -> None:
    parameters = tmp_path / "params"
    parameters.write_text(f"Mobile: 0\nRmProfilingAdminOnly: {restricted}\n")
    remedy = counter_remedy(parameters, is_root=root)
    assert ("ERR_NVGPUCTRPERM" in remedy) is refused
