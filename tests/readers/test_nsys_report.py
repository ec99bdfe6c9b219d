"""Reports need `nsys`; a stand-in plays its part, so that every way it can go is seen."""

import stat
from pathlib import Path

import pytest

from timesink.errors import MissingTool, TimesinkError, ToolFailed, UnreadableTrace
from timesink.model.tables import DEVICE_OPS, SOURCES
from timesink.readers import nsys as exporting
from timesink.readers import read
from timesink.readers.nsys import READERS

OWN = Path(__file__).resolve().parents[1] / "data" / "nsys" / "gpt_before_5_steps.sqlite"
HEAD = b"NVIDIA Tegra Profiler Report 2025.3"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "run 1%p.nsys-rep"
    path.write_bytes(HEAD)
    return path


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def standing_in(script: str) -> Path:
        program = tmp_path / "bin" / "nsys"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/calls'\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return tmp_path / "calls"

    return standing_in


GOOD = f"cp '{OWN}' export.sqlite"


def test_a_report_is_exported_and_read_as_its_sqlite_export_is(report, nsys):
    calls = nsys(GOOD)
    trace = read(report, cache=False)
    assert trace[DEVICE_OPS].equals(read(OWN, cache=False)[DEVICE_OPS])
    assert trace[SOURCES].select("format", "path").rows() == [("nsys_report", str(report))]
    assert calls.read_text().split("\n")[0] == (
        f"export --type sqlite --force-overwrite true --quiet true --output export.sqlite {report}"
    )


def test_the_same_bytes_are_exported_once(report, nsys, tmp_path):
    calls = nsys(GOOD)
    copy = tmp_path / "copy.qdrep"
    copy.write_bytes(report.read_bytes())
    for path in (report, report, copy):
        read(path, cache=False)
    assert len(calls.read_text().splitlines()) == 1


def test_exports_used_long_ago_are_forgotten(report, nsys, tmp_path):
    nsys(GOOD)
    for number in range(10):
        report.write_bytes(HEAD + bytes([number]))
        read(report, cache=False)
    assert len(list((tmp_path / "cache").rglob("*.sqlite"))) == 8


def test_without_nsys_the_error_has_the_command_to_run(report, monkeypatch, tmp_path):
    monkeypatch.setattr(exporting, "find_nsys", lambda: None)
    with pytest.raises(MissingTool) as caught:
        read(report, cache=False)
    assert "nsys export --type sqlite --output 'run 1%p.sqlite' 'run 1%p.nsys-rep'" in str(caught.value)


def test_a_report_of_a_newer_nsys_says_so(report, nsys):
    nsys("echo 'Exportation error: Version number is invalid: 2027@1'; exit 1")
    with pytest.raises(ToolFailed, match=r"ended with status 1 .*2027@1; use an Nsight Systems at least as new"):
        read(report, cache=False)


def test_an_nsys_that_says_yes_and_writes_nothing_is_an_error(report, nsys):
    nsys("exit 0")
    with pytest.raises(ToolFailed, match="it said nothing"):
        read(report, cache=False)


def test_an_nsys_that_hangs_is_ended(report, nsys, monkeypatch):
    nsys("sleep 60")
    monkeypatch.setattr(exporting, "_SECONDS_TO_EXPORT", 0.2)
    with pytest.raises(ToolFailed, match="took more than"):
        read(report, cache=False)


def test_a_failed_export_leaves_nothing_in_the_cache(report, nsys, tmp_path):
    nsys("echo half > export.sqlite; exit 3")
    with pytest.raises(TimesinkError):
        read(report, cache=False)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_raw_stream_is_refused_with_the_way_to_import_it(tmp_path):
    path = tmp_path / "run.qdstrm"
    path.write_bytes(b"\x00stream")
    with pytest.raises(UnreadableTrace, match="QdstrmImporter --input-file"):
        read(path, cache=False)


def test_reports_are_known_by_their_first_words_or_their_name(tmp_path):
    reader = READERS[1]
    assert reader.recognises(tmp_path / "anything", HEAD)
    assert reader.recognises(tmp_path / "run.QDREP", b"x")
    assert not reader.recognises(tmp_path / "run.json", b"{")


def installed(root: Path, name: str) -> Path:
    program = root / name
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return program


def test_nsys_is_looked_for_in_a_fixed_order(tmp_path):
    compute = installed(tmp_path, "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys")
    assert exporting.find_nsys({}, tmp_path) == compute
    installed(tmp_path, "opt/nvidia/nsight-systems/2025.9.1/bin/nsys")
    newest = installed(tmp_path, "opt/nvidia/nsight-systems/2025.10.1/bin/nsys")
    assert exporting.find_nsys({}, tmp_path) == newest
    cuda = installed(tmp_path, "usr/local/cuda-13.0/bin/nsys")
    assert exporting.find_nsys({}, tmp_path) == cuda
    home = installed(tmp_path, "mycuda/bin/nsys")
    assert exporting.find_nsys({"CUDA_HOME": str(home.parents[1])}, tmp_path) == home
    path = installed(tmp_path, "elsewhere/nsys")
    assert exporting.find_nsys({"PATH": str(path.parent), "CUDA_HOME": str(home.parents[1])}, tmp_path) == path


def test_no_nsys_is_no_error_until_it_is_needed(tmp_path):
    assert exporting.find_nsys({"PATH": ""}, tmp_path) is None


def test_nsight_computes_nsys_without_its_link_is_told_how_to_make_it(tmp_path, monkeypatch, report):
    program = installed(tmp_path, "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys")
    program.write_text("#!/bin/sh\necho 'Importer error status: The importer binary was not found.'; exit 1\n")
    with pytest.raises(ToolFailed, match=r"ln -sfn linux-desktop-glibc_2_11_3-x64 .*/host/host-linux-x64"):
        exporting.export_sqlite(program, report, tmp_path)
