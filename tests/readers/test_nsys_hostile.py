"""Exports that are damaged, or made to harm: a clear error or a counted note, and nothing runs."""

import random
import sqlite3
import struct
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.readers.nsys_exports import write_sqlite

from timesink.errors import TimesinkError, UnreadableTrace
from timesink.model.tables import DEVICE_OPS, DEVICES, RANGES
from timesink.model.trace import Trace
from timesink.readers import ReadLimits, read
from timesink.readers.nsys import READERS

OWN = Path(__file__).resolve().parents[1] / "data" / "nsys" / "gpt_before_5_steps.sqlite"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
NAMES = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'gemm')"
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT"


@pytest.fixture
def database(tmp_path: Path):
    def making(*scripts: str) -> Path:
        path = tmp_path / "export.sqlite"
        with closing(sqlite3.connect(path)) as db:
            for script in scripts:
                db.executescript(script)
        return path

    return making


def losses(trace: Trace) -> list[tuple[str, int]]:
    return [(note.message, note.count) for note in trace.notes if note.kind.is_loss]


def test_a_view_in_place_of_kernels_is_refused_before_it_runs(database):
    path = database(NAMES, f"CREATE VIEW {KERNEL} AS {ENDLESS} n AS start, n AS end, 0 AS deviceId FROM c")
    with pytest.raises(UnreadableTrace, match=f"{KERNEL}: not a plain table.*nsys export"):
        read(path, cache=False)


def test_a_view_in_place_of_a_lesser_table_is_left_out_and_told(database):
    path = database(
        NAMES,
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER)",
        f"INSERT INTO {KERNEL} VALUES (1, 2, 0, 1)",
        f"CREATE VIEW TARGET_INFO_GPU AS {ENDLESS} n AS id, 'x' AS name FROM c",
    )
    trace = read(path, cache=False)
    assert ("TARGET_INFO_GPU is not a plain table, so it was not read", 0) in losses(trace)
    assert trace[DEVICES]["name"].to_list() == [None]


def test_a_view_that_the_schema_calls_a_table_is_refused(database):
    path = database(
        NAMES,
        f"CREATE VIEW {KERNEL} AS {ENDLESS} n AS start, n AS end FROM c",
        "PRAGMA writable_schema=ON",
        f"UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE name = '{KERNEL}'",
    )
    with pytest.raises(UnreadableTrace):
        read(path, cache=False)


def test_a_schema_that_hides_a_view_behind_the_text_of_a_table_is_refused(database):
    path = database(
        NAMES,
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER)",
        "PRAGMA writable_schema=ON",
        f"UPDATE sqlite_master SET sql = 'CREATE VIEW {KERNEL} AS {ENDLESS} n AS start, n AS end FROM c' "
        f"WHERE name = '{KERNEL}'",
    )
    with pytest.raises(UnreadableTrace):
        read(path, cache=False)


def test_a_virtual_table_is_refused(database):
    path = database(NAMES, f"CREATE VIRTUAL TABLE {KERNEL} USING fts5(start, end)")
    with pytest.raises(UnreadableTrace, match="not a plain table"):
        read(path, cache=False)


def test_a_generated_column_counts_as_missing(database):
    path = database(
        NAMES,
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER, demangledName INTEGER, "
        "streamId INTEGER GENERATED ALWAYS AS (abs(start)) VIRTUAL)",
        f"INSERT INTO {KERNEL} VALUES (1, 2, 1)",
    )
    assert read(path, cache=False)[DEVICE_OPS].select("stream", "name").rows() == [(-1, "gemm")]


def test_a_table_of_kernels_without_times_is_refused(database):
    path = database(NAMES, f"CREATE TABLE {KERNEL} (start INTEGER, deviceId INTEGER)")
    with pytest.raises(UnreadableTrace, match="no column end"):
        read(path, cache=False)


def test_reading_neither_opens_other_files_nor_runs_programs_nor_writes(database):
    path = database(
        NAMES,
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER); INSERT INTO {KERNEL} VALUES (1, 2)",
        f"CREATE TRIGGER fire AFTER INSERT ON {KERNEL} BEGIN SELECT load_extension('/tmp/x'); END",
        "CREATE VIEW other AS SELECT load_extension('/tmp/x')",
    )
    before = path.read_bytes()
    read(OWN, cache=False)  # imports done, so that only reading is watched
    seen: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[object, ...]) -> None:
        if watching and event in {"subprocess.Popen", "os.system", "socket.connect", "sqlite3.enable_load_extension"}:
            seen.append(event)
        if watching and event == "open" and str(args[0]) != str(path):
            seen.append(f"open {args[0]}")

    sys.addaudithook(hook)
    trace = read(path, cache=False)
    watching.clear()
    assert not seen
    assert trace[DEVICE_OPS].height == 1
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_text_after_a_run_of_nulls_is_read(database):
    rows = ", ".join("(1, 2, 59, NULL)" for _ in range(70_000))
    path = database(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT)",
        f"INSERT INTO NVTX_EVENTS VALUES {rows}",
        "INSERT INTO NVTX_EVENTS VALUES (5, 6, 59, 'late')",
    )
    ranges = read(path, cache=False)[RANGES]
    assert ranges.height == 70_001
    assert ranges["name"].to_list().count("late") == 1


def test_a_number_after_a_run_of_nulls_is_read(database):
    rows = ", ".join("(1, 2, NULL)" for _ in range(70_000))
    path = database(
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER, correlationId INTEGER)",
        f"INSERT INTO {KERNEL} VALUES {rows}; INSERT INTO {KERNEL} VALUES (5, 6, 77)",
    )
    assert read(path, cache=False)[DEVICE_OPS]["correlation"].drop_nulls().to_list() == [77]


def test_integers_kept_as_text_or_as_reals_are_numbers_and_words_are_counted(database):
    path = database(
        NAMES,
        f"CREATE TABLE {KERNEL} (start, end, deviceId, streamId, demangledName)",
        f"INSERT INTO {KERNEL} VALUES (1, 2, 0, 7, 1), ('3', '4', 0, 7.0, '1')",
        f"INSERT INTO {KERNEL} VALUES (5, 6, 0, 'seven', 1), (7, 8.5, 0, 7, 1)",
    )
    trace = read(path, cache=False)
    assert trace[DEVICE_OPS].select("start_ns", "end_ns", "stream").rows() == [(1, 2, 7), (3, 4, 7), (5, 6, -1)]
    assert (f"cells of {KERNEL} that do not hold what their column should, read as missing", 2) in losses(trace)
    assert (f"rows of {KERNEL} without a usable start or end", 1) in losses(trace)


def test_text_that_is_no_utf_8_is_read_with_replacement(database):
    path = database("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT)")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, CAST(x'61ff62' AS TEXT))")
    assert read(path, cache=False)[RANGES]["name"].to_list() == ["a\N{REPLACEMENT CHARACTER}b"]


def test_a_huge_string_is_cut(database):
    path = database("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT)")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, ?)", ("x" * 10_000_000,))
    assert [len(name) for name in read(path, cache=False)[RANGES]["name"]] == [65_536]


def test_times_that_would_overflow_the_wall_clock_are_left_out(database):
    path = database(
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER)",
        f"INSERT INTO {KERNEL} VALUES (1, 9223372036854775807), (-9223372036854775808, 5), (1, 2)",
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)",
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)",
    )
    trace = read(path, cache=False)
    assert trace[DEVICE_OPS]["start_ns"].to_list() == [1_700_000_000_000_000_001]
    assert (f"rows of {KERNEL} end before they start", 2) in losses(trace)


def test_huge_string_ids_are_looked_up_without_a_table_of_all_ids(database):
    path = database(
        "CREATE TABLE StringIds (id INTEGER, value TEXT)",
        f"INSERT INTO StringIds VALUES ({1 << 62}, 'far'), (-5, 'below')",
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER, demangledName INTEGER)",
        f"INSERT INTO {KERNEL} VALUES (1, 2, {1 << 62}), (3, 4, -5), (5, 6, 7)",
    )
    assert read(path, cache=False)[DEVICE_OPS]["name"].to_list() == ["far", "below", "<unnamed>"]


def test_a_column_that_hides_the_row_id_costs_no_rows(database):
    rows = ", ".join(f"({at}, {at + 1}, NULL)" for at in range(1000))
    path = database(
        f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER, _rowid_ INTEGER)", f"INSERT INTO {KERNEL} VALUES {rows}"
    )
    assert read(path, cache=False)[DEVICE_OPS].height == 1000


def test_a_table_without_row_ids_is_read(database):
    path = database(
        f"CREATE TABLE {KERNEL} (start INTEGER PRIMARY KEY, end INTEGER) WITHOUT ROWID",
        f"INSERT INTO {KERNEL} VALUES (1, 2), (3, 4)",
    )
    assert read(path, cache=False)[DEVICE_OPS]["start_ns"].to_list() == [1, 3]


def test_a_file_that_is_no_database_says_what_it_is(tmp_path):
    path = tmp_path / "notes.sqlite"
    path.write_text("these are my notes")
    with pytest.raises(UnreadableTrace, match=r"not a SQLite database.*these are my"):
        READERS[0].read(path, ReadLimits())


@pytest.mark.parametrize("bytes_kept", [20, 100, 4096])
def test_a_file_cut_to_its_head_is_an_error_with_the_way_out(tmp_path, bytes_kept):
    path = tmp_path / "cut.sqlite"
    path.write_bytes(OWN.read_bytes()[:bytes_kept])
    with pytest.raises(UnreadableTrace, match="nsys export"):
        READERS[0].read(path, ReadLimits())


def test_another_programs_database_is_an_error(database):
    with pytest.raises(UnreadableTrace, match="of 1 tables, none of them from an Nsight Systems export"):
        read(database("CREATE TABLE bookmarks (url TEXT)"), cache=False)


def test_a_database_without_tables_is_an_error(database):
    with pytest.raises(UnreadableTrace, match="without a single table"):
        read(database("PRAGMA user_version=1"), cache=False)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_data_in_a_side_file_is_not_passed_over_in_silence(tmp_path, suffix):
    path = tmp_path / "export.sqlite"
    path.write_bytes(OWN.read_bytes())
    (tmp_path / f"export.sqlite{suffix}").write_bytes(b"x" * 64)
    with pytest.raises(UnreadableTrace, match=r"lies beside it.*PRAGMA wal_checkpoint"):
        read(path, cache=False)


def kernels_only(path: Path, rows: int) -> Path:
    write_sqlite(path, 'StringIds\nid value\n1 "gemm"')
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER, streamId INTEGER)")
        db.executemany(f"INSERT INTO {KERNEL} VALUES (?, ?, 7)", [(at, at + 1) for at in range(rows)])
    return path


def test_a_truncated_export_yields_the_rows_that_are_there(tmp_path):
    path = kernels_only(tmp_path / "cut.sqlite", 50_000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    trace = read(path, cache=False)
    starts = trace[DEVICE_OPS]["start_ns"].to_list()
    assert starts == list(range(len(starts))) and 20_000 < len(starts) < 30_000
    assert any("cut off" in message for message, _ in losses(trace))
    assert any(f"table {KERNEL} is damaged" in message for message, _ in losses(trace))


def test_a_truncated_export_whose_names_are_lost_is_an_error(tmp_path):
    path = tmp_path / "cut.sqlite"
    whole = OWN.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableTrace, match="StringIds: damaged from its first row"):
        read(path, cache=False)


def test_rows_before_a_damaged_page_are_kept_and_the_damage_is_told(tmp_path):
    path = kernels_only(tmp_path / "damaged.sqlite", 5000)
    data = bytearray(path.read_bytes())
    data[-3 * 4096 :] = b"\xff" * (3 * 4096)
    path.write_bytes(data)
    trace = read(path, cache=False)
    starts = trace[DEVICE_OPS]["start_ns"].to_list()
    assert starts == list(range(len(starts))) and 3000 < len(starts) < 5000
    assert any(f"table {KERNEL} is damaged" in message for message, _ in losses(trace))


def test_pages_that_refer_to_one_another_end(tmp_path):
    """Eight levels of inner pages, each naming the next level 300 times, would be 300 ** 8 rows."""
    path = tmp_path / "loop.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER)")
        db.executemany(f"INSERT INTO {KERNEL} VALUES (?, ?)", [(at, at + 1) for at in range(200_000)])
        root = db.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    leaf = next(page for page in range(pages, 0, -1) if data[(page - 1) * 4096] == 0x0D)
    levels = [root, *(page for page in range(pages, 0, -1) if data[(page - 1) * 4096] == 0x0D and page != leaf)][:8]
    for page, below in zip(levels, [*levels[1:], leaf], strict=True):
        cells = [struct.pack(">IB", below, at) for at in range(1, 120)]
        body = bytearray(4096)
        offset = 4096
        pointers = b""
        for content in cells:
            offset -= len(content)
            body[offset : offset + len(content)] = content
            pointers += struct.pack(">H", offset)
        body[:12] = struct.pack(">BHHHBI", 0x05, 0, len(cells), offset, 0, below)
        body[12 : 12 + len(pointers)] = pointers
        data[(page - 1) * 4096 : page * 4096] = body
    path.write_bytes(data)
    with pytest.raises(UnreadableTrace, match="more than the file can hold"):
        read(path, cache=False)


@pytest.mark.parametrize("seed", range(30))
def test_random_damage_ends_in_a_trace_or_a_clear_error(tmp_path, seed):
    rng = random.Random(seed)
    data = bytearray(OWN.read_bytes())
    for _ in range(rng.choice([1, 5, 50, 500])):
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(data)
    try:
        trace = READERS[0].read(path, ReadLimits())
    except TimesinkError as error:
        assert str(path) in str(error)
    else:
        for table in trace:
            table.check(trace[table])


def test_a_link_and_a_name_that_needs_quoting_are_read(tmp_path):
    target = tmp_path / "50% of #1?.sqlite"
    target.write_bytes(OWN.read_bytes())
    link = tmp_path / "link.sqlite"
    link.symlink_to(target)
    assert read(link, cache=False)[DEVICE_OPS].height == read(target, cache=False)[DEVICE_OPS].height > 0


@pytest.mark.parametrize("number", [1 << 31, 1 << 40, -(1 << 31) - 1, (1 << 63) - 1])
def test_a_member_of_an_enumeration_that_no_row_can_refer_to_is_passed_over(tmp_path, number):
    # the columns that refer to members hold 32 bits: the numbers of these once ended the reading
    path = write_sqlite(
        tmp_path / "export.sqlite",
        f"""
        StringIds
        id value
        1 "gemm"
        2 "forward"

        {KERNEL}
        start end deviceId contextId streamId correlationId globalPid shortName
        10 20 0 1 7 1 7: 1

        CUPTI_ACTIVITY_KIND_MEMCPY
        start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind
        30 40 0 1 7 2 7: 64 1 0 2

        NVTX_EVENTS
        start end eventType globalTid textId
        5 50 59 7:9 2

        SCHED_EVENTS
        start cpu isSchedIn globalTid threadState
        10 0 1 7:9 0
        30 0 0 7:9 0

        ENUM_NSYS_EVENT_TYPE
        id name label
        59 "NvtxPushPopRange" "Push/pop"
        {number} "NvtxStartEndRange" "Start/end"

        ENUM_CUDA_MEM_KIND
        id name label
        {number} "CUDA_MEMOPR_MEMORY_KIND_PINNED" "Pinned"

        ENUM_CUDA_MEMCPY_OPER
        id name label
        {number} "CUDA_MEMCPY_KIND_UVM_HTOD" "UVM"

        ENUM_SAMPLING_THREAD_STATE
        id name label
        {number} "Terminated" "Terminated"
        """,
    )
    trace = read(path, cache=False)
    assert trace[DEVICE_OPS]["start_ns"].to_list() == [10, 30]
    assert trace[DEVICE_OPS]["src_memory"].to_list() == [None, "pageable"]
    assert trace[RANGES]["name"].to_list() == ["forward"]
