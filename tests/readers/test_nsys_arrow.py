"""A folder of Parquet or Arrow files gives the same trace as the SQLite export it stands beside."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow
import pyarrow.parquet
import pytest
from tests.readers.nsys_exports import parsed

from timesink.errors import UnreadableTrace
from timesink.model.tables import DEVICE_OPS, RANGES, SOURCES
from timesink.readers import ReadLimits, read
from timesink.readers.nsys import READERS

OWN = Path(__file__).resolve().parents[1] / "data" / "nsys" / "gpt_before_5_steps.sqlite"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def write_stream(frame: pl.DataFrame, path: Path) -> None:
    frame.write_ipc_stream(path)


WRITERS = {"parquet": pl.DataFrame.write_parquet, "arrow": pl.DataFrame.write_ipc, "stream": write_stream}


def folder_of(path: Path, tables: dict[str, pl.DataFrame], kind: str) -> Path:
    path.mkdir()
    suffix = "parquet" if kind == "parquet" else "arrow"
    for name, frame in tables.items():
        WRITERS[kind](frame, path / f"{name}.{suffix}")
    return path


def own_tables() -> dict[str, pl.DataFrame]:
    with closing(sqlite3.connect(OWN)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: pl.DataFrame(
                db.execute(f'SELECT * FROM "{name}"').fetchall(),
                schema=[row[1] for row in db.execute(f'PRAGMA table_info("{name}")')],
                orient="row",
                infer_schema_length=None,
            )
            for name in names
        }


def text_tables(text: str) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(rows, schema=columns, orient="row") for name, (columns, rows) in parsed(text).items()}


ONE = f"""
StringIds
id value
1 "gemm"

{KERNEL}
start end deviceId streamId globalPid demangledName
100 150 0 7 7: 1
"""


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_gives_the_trace_of_the_database(tmp_path, kind):
    folder = folder_of(tmp_path / "run_pqtdir", own_tables(), kind)
    there, here = read(folder, cache=False), read(OWN, cache=False)
    assert set(there) == set(here)
    for table in here:
        if table is not SOURCES:
            assert there[table].equals(here[table]), table
    assert there.notes == here.notes
    assert there[SOURCES].select("format", "tool_version").rows() == [("nsys_arrow", "2025.3.2.0")]


def test_unsigned_ids_and_coded_text_are_read(tmp_path):
    tables = text_tables(ONE)
    tables[KERNEL] = tables[KERNEL].cast({"globalPid": pl.UInt64, "start": pl.UInt64, "deviceId": pl.UInt8})
    tables["StringIds"] = tables["StringIds"].cast({"value": pl.Categorical(), "id": pl.UInt32})
    trace = read(folder_of(tmp_path / "export", tables, "parquet"), cache=False)
    assert trace[DEVICE_OPS].select("process", "start_ns", "name").rows() == [(7, 100, "gemm")]


def test_a_column_of_words_where_numbers_belong_is_missing(tmp_path):
    tables = text_tables(ONE)
    tables[KERNEL] = tables[KERNEL].with_columns(pl.lit("seven").alias("streamId"))
    trace = read(folder_of(tmp_path / "export", tables, "parquet"), cache=False)
    assert trace[DEVICE_OPS]["stream"].to_list() == [-1]
    message = f"cells of {KERNEL} that do not hold what their column should, read as missing"
    assert [note.count for note in trace.notes if note.message == message] == [1]


def test_only_a_folder_with_a_table_of_an_export_is_taken(tmp_path):
    assert READERS[2].recognises(folder_of(tmp_path / "export", text_tables(ONE), "parquet"), b"")
    assert not READERS[2].recognises(tmp_path, b"")
    assert not READERS[2].recognises(OWN, OWN.read_bytes()[:4096])


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_damaged_file_is_named(tmp_path, kind, share):
    folder = folder_of(tmp_path / "export", own_tables(), kind)
    (file,) = folder.glob(f"{KERNEL}.*")
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UnreadableTrace, match=f"{KERNEL}.*export the report again"):
        read(folder, cache=False)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("name", ["start", "streamId"])
def test_a_column_that_is_there_twice_is_damage(tmp_path, kind, name):
    folder = folder_of(tmp_path / "export", own_tables(), kind)
    (file,) = folder.glob(f"{KERNEL}.*")
    frame = own_tables()[KERNEL].to_arrow()
    twice = pyarrow.Table.from_arrays([*frame.columns, frame[name]], names=[*frame.column_names, name])
    if kind == "parquet":
        pyarrow.parquet.write_table(twice, file)
    else:
        opened = pyarrow.ipc.new_file if kind == "arrow" else pyarrow.ipc.new_stream
        with file.open("wb") as stream, opened(stream, twice.schema) as writer:
            writer.write_table(twice)
    with pytest.raises(UnreadableTrace, match=f"{KERNEL}.*two columns are named {name}"):
        read(folder, cache=False)


def test_a_folder_that_unpacks_beyond_the_limit_is_refused(tmp_path):
    rows = {"start": [0] * 1_000_000, "end": [1] * 1_000_000, "eventType": [59] * 1_000_000}
    folder = folder_of(tmp_path / "export", {"NVTX_EVENTS": pl.DataFrame(rows)}, "parquet")
    assert sum(file.stat().st_size for file in folder.iterdir()) < 100_000
    with pytest.raises(UnreadableTrace, match="unpacks to more than 1,000,000 bytes"):
        READERS[2].read(folder, ReadLimits(unpacked_bytes=1_000_000))


def test_missing_tables_and_columns_are_missing_data_not_errors(tmp_path):
    tables = {KERNEL: pl.DataFrame({"start": [1], "end": [2]})}
    trace = read(folder_of(tmp_path / "export", tables, "arrow"), cache=False)
    assert trace[DEVICE_OPS].select("name", "stream", "correlation").rows() == [("<unnamed>", -1, None)]
    assert RANGES not in trace


def _littered(column: pyarrow.Array) -> pyarrow.Array:
    """The same values, texts as views; where one is null, a view that points far outside."""
    views = column.cast(pyarrow.string_view())
    validity, places, *texts = views.buffers()
    far = np.frombuffer(places, np.uint64).reshape(-1, 2).copy()
    far[: len(views)][views.is_null().to_numpy(zero_copy_only=False)] = (0x7FFFFFF0, 0x7FFFFFF0_0000FFFF)
    buffers = [validity, pyarrow.py_buffer(far), *texts]
    return pyarrow.Array.from_buffers(views.type, len(views), buffers, views.null_count)


def _indexed(column: pyarrow.Array) -> pyarrow.Array:
    """The same values by a dictionary; where one is null, an index far outside."""
    coded = column.cast(pyarrow.string()).dictionary_encode()
    indices = np.where(column.is_null().to_numpy(zero_copy_only=False), 0x7FFFFFF0, coded.indices.fill_null(0))
    mask = pyarrow.py_buffer(np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    far = pyarrow.Array.from_buffers(pyarrow.int32(), len(column), [mask, pyarrow.py_buffer(indices.astype(np.int32))])
    return pyarrow.DictionaryArray.from_arrays(far, coded.dictionary, safe=False)


@pytest.mark.parametrize("spoil", [_littered, _indexed])
def test_what_stands_where_a_value_is_null_is_not_looked_at(tmp_path: Path, spoil: Callable[..., object]) -> None:
    tables = own_tables()
    sound, odd = folder_of(tmp_path / "sound", tables, "arrow"), folder_of(tmp_path / "odd", tables, "arrow")
    table = tables["NVTX_EVENTS"].to_arrow().combine_chunks()
    assert table["text"].null_count
    texts = spoil(table["text"].combine_chunks().cast(pyarrow.large_string()))
    table = table.set_column(table.schema.get_field_index("text"), "text", texts)
    with pyarrow.OSFile(str(odd / "NVTX_EVENTS.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    assert read(odd, cache=False)[RANGES].equals(read(sound, cache=False)[RANGES])
