"""What no capture holds is refused in one line or answered, never by a traceback nor without end."""

import gc
import gzip
import json
import re
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fuzz.seeds import nsys_sqlite

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import redact
from timesink.capture.redaction.cleaner import Cleaner
from timesink.cli.app import run
from timesink.cli.commands import ENTRIES, SERVERS
from timesink.cli.parser import loaded
from timesink.errors import UnreadableTrace
from timesink.knowledge import kernel_names
from timesink.knowledge.kernels import decode
from timesink.readers import read
from timesink.untrusted.budget import VARIABLE, ReadLimits, usual_limits
from timesink.untrusted.spending import OverBudget, watched

PAGE = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream"\n'
    '"0","7","python3.11","h","{}","1","7"\n'
)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(list(arguments))
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return code, said


@pytest.mark.parametrize("cell", ["A" * 131_073, "9" * 400, "9" * 5000, "1e400", "-" * 131_073, str(1 << 70)])
def test_cells_that_no_log_of_a_pipeline_has(tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"item,tA0,tA1,tB0,tB1\n0,0,1,1,2\n1,{cell},2,2,3\n")
    assert answer(capsys, "ranks", "--pipeline", str(path))[0] == 2


@pytest.mark.parametrize("command", ["diagnose", "capture --redact"])
def test_a_page_with_a_cell_beyond_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    path = tmp_path / "page.csv"
    path.write_text(PAGE.format("k" * 131_073))
    assert answer(capsys, *command.split(), str(path))[0] == 2


NUMBERED = (
    "sm90_xmma_gemm_f32_tilesize{0}x{0}x{0}_stage{0}_warpsize{0}x1x1", "nvjet_sm90_tst_{0}x{0}_64x{0}_v_bz_TNT",
    "Cijk_Ailk_Bljk_HB_MT{0}x{0}x{0}_SN", "ampere_sgemm_{0}x{0}_nn", "cutlass_80_tensorop_s{0}gemm_{0}x{0}_{0}x{0}_tn",
    "void at::native::vectorized_elementwise_kernel<{0}, f<float>>(int)", "HMMA.{0}x{0}x{0}.F32",
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("digits", ["9" * 20, "9" * 5000, "²", "٣٣٣"])
def test_numbers_in_names_that_no_kernel_has(name: str, digits: str) -> None:
    shown = decode(name.format(digits))
    assert shown.tile is None or max(shown.tile) < 100_000
    kernel_names.short_name(name.format(digits))


def many_devices(path: Path, column: str, number: str) -> Path:
    path.write_bytes(nsys_sqlite()[0])
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
        values = ", ".join(f"({number})" if name == column else f'k."{name}"' for name in names)
        rows = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) SELECT {values}"
        one = "(SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1) k"
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL {rows} FROM n, {one}")
    return path


@pytest.mark.parametrize(("column", "number"), [("deviceId", "i"), ("globalPid", "k.globalPid + (i << 24)")])
def test_more_devices_or_processes_than_a_machine_has(tmp_path: Path, column: str, number: str) -> None:
    with pytest.raises(UnreadableTrace, match="no machine has as many"):
        read(many_devices(tmp_path / "many.sqlite", column, number), cache=False)


@pytest.mark.slow
@pytest.mark.parametrize("text", [b" " * (80 << 20), b'{"ph": "X"},' * (8 << 20), b'"' + b"a" * (80 << 20) + b'"'])
def test_a_bomb_is_not_redacted(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + text + b"]}", 1))
    if len(text) > ReadLimits().unpacking_ratio * path.stat().st_size:
        with pytest.raises(CaptureError, match="bomb"):
            redact(path)
    path.write_bytes(gzip.compress(text, 9))
    with pytest.raises(CaptureError, match="bomb"):
        redact(path)


def test_a_small_file_of_very_many_events_is_a_bomb_to_readers_and_redaction(tmp_path: Path) -> None:
    path = tmp_path / "events.json.gz"
    event = b'{"ph":"X","cat":"cpu_op","name":"x","ts":1,"dur":1,"pid":0,"tid":1},'
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + event * (1 << 20) + event[:-1] + b"]}", 9))
    assert 150 < event_ratio(path, event) < 300
    with pytest.raises(CaptureError, match="bomb"):
        redact(path)
    with pytest.raises(UnreadableTrace, match="bomb"):
        read(path, cache=False)


EVENT = '{"ph":"X","cat":"cpu_op","name":"x","ts":%d,"dur":1,"pid":0,"tid":1}'


def test_more_events_than_a_file_of_that_size_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(f'{{"traceEvents": [{",".join(EVENT % at for at in range(400))}]}}')
    assert read(path, cache=False, limits=ReadLimits(base_events=400, events_per_byte=0))
    with pytest.raises(UnreadableTrace, match=f"400 events in {path.stat().st_size:,} bytes, and 150 .*BUDGET=3"):
        read(path, cache=False, limits=ReadLimits(base_events=150, events_per_byte=0))


def test_one_variable_raises_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2.5")
    for name in ReadLimits.__slots__:
        assert getattr(usual_limits(), name) == 2.5 * getattr(ReadLimits(), name)
    for nonsense in ("", "many", "-1", "0", "nan", "inf"):
        monkeypatch.setenv(VARIABLE, nonsense)
        assert usual_limits() == ReadLimits()


@pytest.mark.parametrize(("limit", "said"), [("base_cpu_s", "s of CPU time"), ("base_memory_bytes", "MB of memory")])
def test_a_command_ends_once_it_spent_more_than_its_files_allow(
    limit: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(nsys_sqlite()[0])
    small = ReadLimits(**{limit: 1}, cpu_s_per_mb=0, memory_per_byte=0)
    monkeypatch.setattr("timesink.untrusted.spending.usual_limits", lambda: small)
    monkeypatch.setattr("timesink.diagnosis.engine.diagnose", endless)
    code, told = answer(capsys, "diagnose", str(path), "--no-cache")
    assert code == 2
    assert said in told
    assert f"{path.stat().st_size:,} bytes of files" in told
    assert f"set {VARIABLE}=" in told


@pytest.mark.parametrize("shape", ["link", "link to a link", "folder of links"])
def test_of_a_link_the_size_counts_of_what_it_leads_to(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (real := tmp_path / "real.sqlite").write_bytes(nsys_sqlite()[0])
    (folder := tmp_path / "ranks").mkdir()
    (path := folder / "run.sqlite").symlink_to(real)
    if shape == "link to a link":
        (path := tmp_path / "again.sqlite").symlink_to(folder / "run.sqlite")
    small = ReadLimits(base_cpu_s=0.2, cpu_s_per_mb=0)
    monkeypatch.setattr("timesink.untrusted.spending.usual_limits", lambda: small)
    monkeypatch.setattr("timesink.diagnosis.engine.diagnose", endless)
    code, told = answer(capsys, "diagnose", str(folder if "folder" in shape else path), "--no-cache")
    assert code == 2
    assert f"{real.stat().st_size:,} bytes of files" in told


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Almost no CPU time is allowed, and a diagnosis has no end."""
    monkeypatch.setattr("timesink.untrusted.spending.usual_limits", lambda: ReadLimits(base_cpu_s=0.2, cpu_s_per_mb=0))
    monkeypatch.setattr("timesink.diagnosis.engine.diagnose", endless)


@pytest.mark.usefixtures("hurried")
def test_a_request_of_an_agent_ends_in_its_thread_and_the_server_lives(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed (pip install mcp)")
    from timesink.mcp.server import build

    (tmp_path / "run.sqlite").write_bytes(nsys_sqlite()[0])
    tools = {tool.name: tool.fn for tool in build([tmp_path])._tool_manager.list_tools()}
    with ThreadPoolExecutor(1) as thread:
        for _ in range(2):
            with pytest.raises(Exception, match="s of CPU time for 135,168 bytes of files"):
                thread.submit(tools["diagnose"], "run.sqlite").result()
        assert thread.submit(tools["list_captures"]).result().structured_content["of"] == 1


@pytest.mark.slow
def test_a_server_keeps_nothing_of_a_file_that_it_refused(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed (pip install mcp)")
    from timesink.mcp.server import build

    (tmp_path / "run.json.gz").write_bytes(gzip.compress(b'{"stacks": [' + b" " * 300_000_000))
    ask = {tool.name: tool.fn for tool in build([tmp_path])._tool_manager.list_tools()}["diagnose"]
    gc.disable()  # what is in a cycle waits for it, and a server may wait for long
    kept = []
    try:
        for _ in range(6):
            with pytest.raises(Exception, match="unpack to more than"):
                ask("run.json.gz")
            (line,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
            kept.append(int(line) << 10)
    finally:
        gc.enable()
    assert kept[-1] - kept[1] < 100_000_000  # 65 MB a request before: 260


@pytest.mark.usefixtures("hurried")
def test_two_works_share_the_time_that_the_process_takes() -> None:
    def waits() -> None:
        with watched():
            time.sleep(1.2)

    def spends() -> None:
        with watched():
            endless()

    with ThreadPoolExecutor(2) as threads:
        patient, hasty = threads.submit(waits), threads.submit(spends)
        with pytest.raises(OverBudget, match="s of CPU time for 0 bytes"):
            hasty.result()
        patient.exception()  # over, whatever it was charged with


def test_every_command_is_held_to_a_budget_or_serves() -> None:
    assert {entry for entry in ENTRIES if not hasattr(loaded(entry).invoke, "__wrapped__")} == SERVERS


def endless(*_: Any, **__: Any) -> None:
    taken = []
    while True:
        taken.append(bytearray(1 << 12) if len(taken) < 1 << 14 else None)


def event_ratio(path: Path, event: bytes) -> float:
    return (len(event) << 20) / path.stat().st_size


def test_a_long_line_between_quotes_is_proved_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.log"
    path.write_text(f'V0101 00:00:00.000000 1 torch/x.py:1] {{"a": 1}}\n"{"kernel " * 30_000}"\n"a" text\n')
    assert answer(capsys, "capture", "--redact", str(path), "--proof")[0] == 1  # no software writes so long a text


PRIVATE: dict[str, Any] = {
    "cmd": "python train.py --key hunter2xyz", "PGPASSWORD": "python9000", "user": "root", "password": "12345678",
    "serial": "1654504772205", "account": 320943948584, "api_key": "model", "token": "ab", "host": "localhost",
    "argv": ["python", "train.py"], "user_metadata": {"name": "python", "step": "loss"}, "uuid": "0",
}  # fmt: skip


@pytest.mark.parametrize("key", PRIVATE)
@pytest.mark.parametrize("inside", [False, True])
def test_values_of_private_keys_are_always_replaced(tmp_path: Path, key: str, inside: bool) -> None:
    path, copy = tmp_path / "plain.json", tmp_path / "copy.json"
    path.write_text(json.dumps({"env": {key: PRIVATE[key]}} if inside else {key: PRIVATE[key]}))
    removed = redact(path, copy, ()).removed
    left = copy.read_text()
    assert removed
    for text in _texts(PRIVATE[key]):
        assert f'"{text}"' not in left
        assert f": {text}" not in left
    again = tmp_path / "again.json"
    redact(copy, again, ())
    assert json.loads(again.read_text()) == json.loads(left)


def _texts(value: Any) -> list[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return [str(text) for text in inner]


@pytest.mark.parametrize(
    "name",
    [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x256x64_warpgroupsize2x1x1_g1_execute",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize256x128x32_stage3_warpsize4x2x1_tensor16x8x8_kernel_cudnn",
        "sm100_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize128x128x128_clustersize4x2x1_execute_kernel__5x_cublas",
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_ttn_align8",
    ],
)
def test_kernels_of_xmma_keep_their_tiles(name: str) -> None:
    assert Cleaner().symbol(name) == name


def test_a_full_disk_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise pl.exceptions.ComputeError("No space left on device (os error 28)")

    path = tmp_path / "run.sqlite"
    path.write_bytes(nsys_sqlite()[0])
    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    target = tmp_path / "ops.parquet"
    code, said = answer(
        capsys, "report", str(path), "--export", "table", "--table", "device_ops", "-o", str(target), "--no-cache"
    )
    assert (code, target.exists()) == (2, False)
    assert "No space left" in said


def test_a_report_of_this_version_keeps_its_style_its_script_and_the_names_of_its_parts(tmp_path: Path) -> None:
    path, page, copy = tmp_path / "run.sqlite", tmp_path / "page.html", tmp_path / "copy.html"
    path.write_bytes(nsys_sqlite()[0])
    assert run(["report", str(path), "--no-cache", "-o", str(page)]) == 0
    assert not any("not this version's" in what for what in redact(page, copy).removed)
    before, after = (set(re.findall(r' id="([^"]*)"', file.read_text())) for file in (page, copy))
    assert before == after
