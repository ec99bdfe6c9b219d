"""A redacted file contains none of what was planted, and says the same as before of everything else."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import default_target, redact
from timesink.capture.redaction.cleaner import Cleaner
from timesink.readers import read

DATA = Path(__file__).resolve().parents[1] / "data/capture/compiled"
PLANTED = ("hunter2", "ann-smith", "gpu-box-17", "hf_abcdefghijkl", "/home/ann-smith", "secret-project", "WANDB")
ENVIRONMENT = "OLDPWD=/ WANDB_API_KEY=hunter2 HOME=/home/ann-smith HOST=gpu-box-17 PATH=/secret-project/bin TERM=x"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A real export of a GPU program, with secrets put back where nsys puts them."""
    path = tmp_path / "report.sqlite"
    path.write_bytes(lzma.decompress((DATA / "nsys/report.sqlite.xz").read_bytes()))
    with sqlite3.connect(path) as db:
        free = db.execute("SELECT MAX(id) FROM StringIds").fetchone()[0] + 1
        strings = [ENVIRONMENT, "/home/ann-smith/secret-project/train.py", "printed hunter2"]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(strings, free)))
        db.execute("CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)")
        db.execute("INSERT INTO ProcessStreams VALUES (1, ?, ?)", (free + 1, free + 2))
        settings = {
            "META_DATA_CAPTURE": {
                "PROCESS_0:ENVIRONMENT_VARIABLE": ENVIRONMENT,
                "PROCESS_0:USER_NAME": "ann-smith",
                "PROCESS_0:ARGUMENT_3": "--token=hunter2",
                "PROCESS_0:WORKING_DIR": "/home/ann-smith/secret-project",
            },
            "META_DATA_EXPORT": {"EXPORT_HOST": "gpu-box-17", "EXPORT_USER": "ann-smith"},
            "TARGET_INFO_SYSTEM_ENV": {"Hostname": "gpu-box-17"},
        }
        for table, values in settings.items():
            width = len(db.execute(f"PRAGMA table_info({table})").fetchall())
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            for name, value in values.items():
                row = {"name": name, "value": value}
                kinds = [row.get(column, "" if width > 2 else None) for column in columns]
                db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * width)})", kinds)
        used = db.execute("SELECT textId FROM NVTX_EVENTS WHERE textId IS NOT NULL LIMIT 1").fetchone()
        text = "ann-smith on gpu-box-17 reads /home/ann-smith/secret-project/data.bin"
        if used:
            db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (text, used[0]))
        else:
            db.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid = (SELECT MIN(rowid) FROM NVTX_EVENTS)", (text,))
    return path


def leaks(content: bytes) -> list[str]:
    return [planted for planted in PLANTED if planted.encode() in content]


def test_an_export_keeps_its_events_and_loses_what_was_planted(database: Path, tmp_path: Path) -> None:
    assert set(leaks(database.read_bytes())) == set(PLANTED) - {"hf_abcdefghijkl"}
    done = redact(database, tmp_path / "out.sqlite")
    assert leaks(done.path.read_bytes()) == []
    before, after = read(database, cache=False), read(done.path, cache=False)
    for table in before:
        if table.name not in ("sources", "ranges"):
            assert after[table].equals(before[table]), table.name
        assert after[table].height == before[table].height
    said = " ".join(done.removed)
    for word in ("ProcessStreams", "META_DATA_CAPTURE", "strings", "folders", "names of hosts and users"):
        assert word in said


# Cells of columns of texts, and whole schemas, that once ended the redaction with no word of what is wrong.
OTHER_CELLS = {
    "a setting named by a number": "CREATE TABLE META_DATA_CAPTURE (name, value);"
    "INSERT INTO META_DATA_CAPTURE VALUES (5, 'hunter2'), (x'484f5354', 'gpu-box-17'), (NULL, 1.5)",
    "a string that is a number": "CREATE TABLE StringIds (id, value); CREATE TABLE t (nameId, x TEXT);"
    "INSERT INTO StringIds VALUES (1, 5), (2, 'hunter2'); INSERT INTO t VALUES (1, 'kept'), (NULL, 2.5), ('a', '')",
    "a string kept as bytes": "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); CREATE TABLE t (nameId);"
    "INSERT INTO StringIds VALUES (1, CAST('/home/ann-smith/kept' AS BLOB)); INSERT INTO t VALUES (1)",
    "an environment kept as bytes": "CREATE TABLE StringIds (id, value TEXT); CREATE TABLE t (nameId, x);"
    f"INSERT INTO StringIds VALUES (1, CAST('{ENVIRONMENT}' AS BLOB)); INSERT INTO t VALUES (1, 'kept')",
}


@pytest.mark.parametrize("script", OTHER_CELLS.values(), ids=OTHER_CELLS)
def test_cells_of_another_type_are_cleaned_as_texts(tmp_path: Path, script: str) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(script)
    content = redact(path, tmp_path / "out.sqlite", ["gpu-box-17"]).path.read_bytes()
    assert leaks(content) == []
    assert (b"kept" in content) == ("kept" in script)


@pytest.mark.parametrize("harm", ["bytes in the schema", "text that is no UTF-8", "another table of settings"])
def test_an_export_that_cannot_be_redacted_says_so_and_leaves_no_file(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        if harm == "text that is no UTF-8":
            db.execute("INSERT INTO StringIds VALUES (1, CAST(x'ff41' AS TEXT))")
        elif harm == "another table of settings":
            db.execute("CREATE TABLE META_DATA_CAPTURE (a)")
    if harm == "bytes in the schema":  # which SQLite quotes in its message
        path.write_bytes(path.read_bytes().replace(b"CREATE TABLE StringIds", b"CREATE TABL\xea StringIds"))
    with pytest.raises(CaptureError, match=r"cannot be redacted.*export the report again"):
        redact(path, tmp_path / "out.sqlite")
    assert [*tmp_path.iterdir()] == [path]


def test_a_kineto_trace_keeps_its_events_and_loses_what_was_planted(tmp_path: Path) -> None:
    source = tmp_path / "rank0.json.gz"
    with gzip.open(DATA / "torch/rank0.json.gz") as file:
        document = json.load(file)
    document["hostName"] = "gpu-box-17"
    document["traceName"] = "/home/ann-smith/run.json"
    document["distributedInfo"] = {"note": "user ann-smith, token=hf_abcdefghijkl"}
    document["traceEvents"][0]["name"] = "/home/ann-smith/secret-project/train.py(12): forward"
    document["traceEvents"][1]["args"]["cmd"] = "python train.py --password hunter2"
    with gzip.open(source, "wt") as file:
        json.dump(document, file)
    done = redact(source, names=["gpu-box-17"])
    assert done.path == tmp_path / "rank0.redacted.json.gz"
    with gzip.open(done.path) as file:
        content = file.read()
    assert leaks(content) == []
    cleaned = json.loads(content)
    assert cleaned["traceEvents"][0]["name"] == "train.py(12): forward"
    assert [e["ts"] for e in cleaned["traceEvents"] if "ts" in e] == [
        e["ts"] for e in document["traceEvents"] if "ts" in e
    ]
    before, after = read(source, cache=False), read(done.path, cache=False)
    for table in before:
        assert after[table].height == before[table].height


def test_an_ncu_report_loses_names_and_folders_and_keeps_its_counters(shared_data: Path, tmp_path: Path) -> None:
    from timesink.model.tables import KERNEL_METRICS, SOURCES

    reports = [path for path in sorted((shared_data / "public/ncu").glob("*.ncu-rep")) if path.stat().st_size > 1000]
    for source in reports[:4]:
        done = redact(source, tmp_path / source.name)
        before, after = read(source, cache=False), read(done.path, cache=False)
        assert after[KERNEL_METRICS].equals(before[KERNEL_METRICS])
        assert after[SOURCES]["host"].to_list() != before[SOURCES]["host"].to_list() or before[SOURCES][
            "host"
        ].to_list() == [None]
        for name in ("/home/", "/root/", "/workspace/", "/content/"):
            assert name.encode() not in done.path.read_bytes()


def test_reports_are_cleaned_line_by_line(tmp_path: Path) -> None:
    source = tmp_path / "report.md"
    source.write_text("trace /home/ann-smith/secret-project/run.json\nran --token=hunter2\nidle 12.5 %\n")
    done = redact(source)
    assert done.path.read_text() == "trace run.json\nran --token=***\nidle 12.5 %\n"


def test_the_original_is_never_written_over(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("x")
    with pytest.raises(CaptureError, match="would be overwritten"):
        redact(source, source)
    with pytest.raises(CaptureError, match="no kind of file"):
        redact(Path(__file__))
    with pytest.raises(CaptureError, match="nsys' own format"):
        report = tmp_path / "r.nsys-rep"
        report.write_bytes(b"\x00" * 20)
        redact(report)
    assert default_target(tmp_path / "a.b.json.gz") == tmp_path / "a.redacted.b.json.gz"


@given(st.lists(st.text(alphabet="abc_.:<>() ,*&0123456789", max_size=40)))
def test_texts_without_folders_names_or_secrets_stay_as_they_are(texts: list[str]) -> None:
    cleaner = Cleaner()
    assert [cleaner.clean(text) for text in texts] == texts


@given(st.sampled_from(["void f<T>(", "x ", "", "see "]), st.sampled_from([" end", "", ": 3", ")"]))
def test_a_planted_name_never_survives(before: str, after: str) -> None:
    cleaner = Cleaner(["gpu-box-17"])
    for planted in ("gpu-box-17", "/home/ann-smith/x.py", f"/opt/{os.uname().nodename}/y"):
        cleaned = cleaner.clean(f"{before}{planted}{after}")
        assert not {"gpu-box-17", "ann-smith", "/opt/"} & {word for word in PLANTED if word in cleaned}
        assert "/home" not in cleaned


def test_kernel_names_and_divisions_are_no_folders() -> None:
    cleaner = Cleaner()
    for text in ("void at::native::elementwise_kernel<128, 4>(int)", "a/b", "layer1/conv/weight", "1/2/3", "aten::div"):
        assert cleaner.clean(text) == text


def test_the_command_says_what_it_removed(command_line: Callable[..., object], tmp_path: Path) -> None:
    source = tmp_path / "log.txt"
    source.write_text("/home/ann-smith/a.py\n")
    done = command_line("redact", source)
    assert done.returncode == 0  # type: ignore[attr-defined]
    assert "folders in 1 different texts" in done.stdout  # type: ignore[attr-defined]
    assert command_line("redact", tmp_path / "absent").returncode == 2  # type: ignore[attr-defined]
