"""The doctor finds the nsys that Nsight Compute carries, and says exactly what it lacks."""

import stat
from pathlib import Path

import pytest

from timesink.cli import doctor


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def nsight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions of Nsight Compute, as they lie on a disk, on a machine without libdw1 and libelf1."""
    home = tmp_path / "opt/nvidia/nsight-compute"
    for version in ("2024.10.1", "2025.3.1"):
        program(home / version / "host/target-linux-x64/nsys", f"NVIDIA Nsight Systems version {version}.12-0v0")
        (home / version / "host/linux-desktop-glibc_2_11_3-x64").mkdir()
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    return tmp_path


def test_the_newest_bundled_nsys_is_found_with_what_it_lacks(nsight: Path) -> None:
    found = doctor.nsys_probe({}, nsight)
    host = nsight / "opt/nvidia/nsight-compute/2025.3.1/host"
    assert found.place == str(host / "target-linux-x64/nsys")
    assert found.found == "2025.3.1.12-0v0"
    link = f"ln -sfn linux-desktop-glibc_2_11_3-x64 {host / 'host-linux-x64'}"
    assert found.remedy == f"{link}; apt-get install libdw1 libelf1"
    assert not found.is_ready


def test_a_linked_importer_with_its_libraries_is_ready(nsight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = nsight / "opt/nvidia/nsight-compute/2025.3.1/host"
    (host / "host-linux-x64").symlink_to("linux-desktop-glibc_2_11_3-x64")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so.1")
    assert doctor.nsys_probe({}, nsight).is_ready


def test_without_any_nsys_the_doctor_says_what_to_install(tmp_path: Path) -> None:
    found = doctor.nsys_probe({}, tmp_path)
    assert found.found == ""
    assert "install Nsight Systems" in found.remedy


def test_an_nsys_too_old_for_cuda_13_is_named_so(tmp_path: Path) -> None:
    old = program(tmp_path / "bin/nsys", "NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0")
    found = doctor.nsys_probe({"PATH": str(old.parent)}, tmp_path)
    assert found.place == str(old)
    assert "loses most kernels of CUDA 13 programs" in found.remedy


def test_counters_for_root_only_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = tmp_path / "params"
    parameters.write_text("EnableMSI: 1\nRmProfilingAdminOnly: 1\n", encoding="utf-8")
    monkeypatch.setattr(doctor, "_is_root", lambda: False)
    assert "counters are for root only" in doctor.counter_remedy(parameters)
    monkeypatch.setattr(doctor, "_is_root", lambda: True)
    assert doctor.counter_remedy(parameters) == ""
    assert doctor.counter_remedy(tmp_path / "absent") == ""


@pytest.mark.parametrize(("level", "ready"), [("-1", True), ("2", True), ("4", False)])
def test_cpu_sampling_needs_a_kernel_that_allows_it(
    level: str, ready: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_is_root", lambda: False)
    path = tmp_path / "perf_event_paranoid"
    path.write_text(f"{level}\n", encoding="utf-8")
    assert doctor.sampling_probe(path).is_ready is ready


def test_gpus_are_listed_with_their_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "0, NVIDIA H200, 580.65.06, 345 MHz, 1980 MHz, [N/A], Enabled, Disabled"
    listed = program(tmp_path / "bin/nvidia-smi", line)
    monkeypatch.setenv("PATH", f"{listed.parent}:/usr/bin:/bin")
    (gpu,) = doctor.gpu_probes()
    assert gpu.is_ready
    assert (gpu.name, gpu.found) == ("GPU 0", "NVIDIA H200, driver 580.65.06, SM clock 345 MHz of 1980 MHz")
