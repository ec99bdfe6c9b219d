"""One trap of real or hostile Kineto files per test."""

import gzip
import json
from typing import Any

import polars as pl
import pytest
from tests.readers.kineto_texts import KERNEL, OP, events, messages, op

from timesink.errors import UnreadableTrace
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES, SOURCES
from timesink.model.trace import NoteKind
from timesink.readers import ReadLimits


@pytest.mark.parametrize(
    ("written_us", "start_ns"),
    [
        ("1682725898237042.123", 1682725898237042123),  # float64 would be off by up to 125 ns
        ("1694128201435418", 1694128201435418000),
        ("4303092021064.042", 4303092021064042),
        ("12", 12000),
        ("12.5", 12500),
        ("12.0004", 12000),
        ("12.0005", 12001),  # halves away from zero
        ("-12.0005", -12001),
        ("0.0004999999999999999999999", 0),
        ("1.5e3", 1500000),
        ("15E-1", 1500),
        ("1e-9", 0),
        ('"12.25"', 12250),  # quoted
        ("2305843009213693.952", 2305843009213693952),  # the latest that a clock says
        ("0000000000000000000000000000000000000000012", 12000),
    ],
)
def test_times_are_exact(written: Any, written_us: str, start_ns: int) -> None:
    trace = written(events(op(ts=written_us, dur="0")))
    assert trace[HOST_OPS]["start_ns"].to_list() == [start_ns]


@pytest.mark.parametrize(
    "bad", ["NaN", "Infinity", "-Infinity", "1e400", "9223372036854775.808", '"soon"', "[1]", "null"]
)
def test_an_event_without_a_usable_time_is_dropped_and_counted(written: Any, bad: str) -> None:
    trace = written(events(op(ts=bad), op(name="kept")))
    assert trace[HOST_OPS]["name"].to_list() == ["kept"]
    assert messages(trace, NoteKind.DATA_LOSS)[0] == ("events without a usable time", 1)


def test_the_base_time_counts_wherever_it_stands(written: Any) -> None:
    base = 1_700_000_000_000_000_001
    before = f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{OP}]}}'
    after = f'{{"traceEvents": [{OP}], "baseTimeNanoseconds": "{base}"}}'
    for text in (before, after):
        trace = written(text)
        assert trace[HOST_OPS].select("start_ns", "end_ns").row(0) == (base + 1000, base + 3000)
        assert trace[SOURCES]["clock_origin_ns"].to_list() == [base]


def test_display_units_do_not_change_times(written: Any) -> None:
    assert written(events(OP, displayTimeUnit="ns"))[HOST_OPS]["start_ns"].to_list() == [1000]


@pytest.mark.parametrize(
    "text",
    [f"[{OP}]", f'\ufeff {{"traceEvents":[\n\t{OP}\r\n ,]}}', f'{{"a":{{"traceEvents":[1]}},"traceEvents":[{OP}]}}'],
)
def test_layouts_of_the_top_level(written: Any, text: str) -> None:
    assert written(text)[HOST_OPS]["external_id"].to_list() == [3]


def test_old_spellings(written: Any) -> None:
    kernel = KERNEL.replace('"kernel"', '"Kernel"').replace('"tid":7', '"tid":"stream 7"')
    kernel = kernel.replace('"context":1,"stream":7,"correlation":9', '"external id":4')
    copy = KERNEL.replace('"kernel"', '"Memcpy"').replace('"k"', '"Memcpy DtoH (Device -> Pageable)"')
    copy = copy.replace('"ts":5', '"ts":9').replace('"correlation":9', '"bytes":8')
    step = '{"ph":"X","cat":"Operator","name":"ProfilerStep#4","pid":7,"tid":"8","ts":1,"dur":20,"args":{}}'
    trace = written(events(kernel, copy, step, op(cat="Operator"), op(cat="Runtime", args='"correlation":"9"')))
    ops = trace[DEVICE_OPS]
    assert ops.select(
        "stream", "external_id", "kind", "copy_kind", "src_memory", "dst_memory", "bytes", "process"
    ).rows() == [
        (7, 4, "kernel", None, None, None, None, 7),
        (7, None, "copy", "d2h", "device", "pageable", 8, 7),
    ]
    assert trace[RANGES].select("name", "thread", "depth").rows() == [("ProfilerStep#4", 8, 0)]
    assert trace[API_CALLS]["correlation"].to_list() == [9]
    assert trace[HOST_OPS].height == 1


def test_ids_of_every_width_and_spelling(written: Any) -> None:
    wide = op(name="wide", args='"External id":18446744073709551615')
    text = op(name="text", args='"External Id":"17"')
    negative = op(name="negative", args='"External id":-1')
    trace = written(events(wide, text, negative))
    ids = dict(trace[HOST_OPS].select(pl.col("name").cast(pl.String), "external_id").rows())
    assert ids == {"wide": 2**64 - 1, "text": 17, "negative": None}


def test_an_argument_may_change_its_type(written: Any) -> None:
    memset = KERNEL.replace('"kernel"', '"gpu_memset"').replace('"k"', '"Memset (Device)"')
    values = ["4", '"2000"', "2000.0", "null", '{"a":[1,"]"]}', '"many"', "true"]
    texts = [memset.replace("5", str(place)).replace("9", f'9,"bytes":{value}') for place, value in enumerate(values)]
    trace = written(events(*texts))
    assert trace[DEVICE_OPS]["bytes"].to_list() == [4, 2000, 2000, None, None, None, None]


def test_names_with_braces_quotes_and_escapes(written: Any) -> None:
    names = ['a}, {"ph": 1} ]', 'quote " and \\ slash', "tab\tline\n", "snow \u2603 and \U0001f600", "", "C:\\Users"]
    trace = written(
        events(*(json.dumps({**json.loads(OP), "ts": place, "name": name}) for place, name in enumerate(names)))
    )
    assert trace[HOST_OPS]["name"].to_list() == names


def test_damaged_text_is_kept_as_far_as_it_goes(written: Any) -> None:
    text = events(op(name=r"C:\Users\ud800"), op(ts="2", name="raw\x01control")).encode()
    trace = written(text.replace(b"aten", b"aten") + b"")
    assert trace[HOST_OPS]["name"].to_list() == ["C:\\Users\ufffd", "raw\x01control"]
    assert ("distinct texts with a backslash that escapes nothing, kept as written", 1) in messages(
        trace, NoteKind.ASSUMED
    )
    trace = written(events(op(name="caf#")).encode().replace(b"#", b"\xe9"))
    assert trace[HOST_OPS]["name"].to_list() == ["caf\ufffd"]
    assert messages(trace, NoteKind.DATA_LOSS)[0] == (
        "distinct texts with bytes that are not UTF-8, replaced by U+FFFD",
        1,
    )


def test_escaped_keys_are_keys(written: Any) -> None:
    assert written('{"traceEvents":[' + OP.replace('"cat"', '"c\\u0061t"') + "]}")[HOST_OPS].height == 1


def test_json_arguments_are_one_text_however_they_are_spaced(written: Any) -> None:
    tight, loose = op(args='"Input Dims":[[1,2],[]]'), op(ts="2", args='"Input Dims": [ [1,\n 2], [ ] ]')
    assert written(events(tight, loose))[HOST_OPS]["input_shapes"].to_list() == ["[[1,2],[]]"] * 2


def test_durations_that_are_missing_or_negative(written: Any) -> None:
    missing = '{"ph":"X","cat":"cpu_op","name":"missing","pid":7,"tid":8,"ts":1}'
    trace = written(events(missing, op(ts="2", dur="-1", name="negative")))
    assert trace[HOST_OPS].select("name", "start_ns", "end_ns").rows() == [("missing", 1000, 1000)]
    assert ("complete events without a duration, kept as instants", 1) in messages(trace, NoteKind.ASSUMED)
    assert ("events that end before they start", 1) in messages(trace, NoteKind.DATA_LOSS)


def test_missing_categories_are_guessed_from_what_an_event_carries(written: Any) -> None:
    bare = [text.replace('"cat":"kernel",', "").replace('"cat":"cpu_op",', "") for text in (KERNEL, OP)]
    kernel = bare[0].replace('"device"', '"grid":[1,1,1],"device"')
    call = '{"ph":"X","name":"cudaLaunchKernel","pid":7,"tid":8,"ts":1,"dur":1,"args":{"correlation":9}}'
    other = '{"ph":"X","name":"what","pid":7,"tid":8,"ts":1,"dur":1}'
    trace = written(events(kernel, bare[1], call, other))
    assert [trace[table].height for table in (DEVICE_OPS, HOST_OPS, API_CALLS)] == [1, 1, 1]
    assert ("events without a category, placed by what they carry", 3) in messages(trace, NoteKind.ASSUMED)
    assert ("events without a category", 1) in messages(trace, NoteKind.SKIPPED)


def test_unsorted_events_are_sorted_by_thread_and_time(written: Any) -> None:
    shuffled = [op(ts="9", name="c"), op(ts="1", name="a"), op(ts="9", dur="1", name="b").replace('"tid":8', '"tid":5')]
    assert written(events(*shuffled))[HOST_OPS]["name"].to_list() == ["b", "a", "c"]


def test_a_record_written_twice_counts_once(written: Any) -> None:
    second = KERNEL.replace('"correlation":9', '"correlation":10')
    trace = written(events(KERNEL, KERNEL, second, op(cat="cuda_runtime", args='"correlation":9')))
    assert trace[DEVICE_OPS]["correlation"].to_list() == [9, 10]
    assert ("rows stand twice in the file; one of each is kept", 1) in messages(trace, NoteKind.SKIPPED)


def test_kernels_without_a_launch_record_stay(written: Any) -> None:
    trace = written(events(KERNEL))
    assert trace[DEVICE_OPS].height == 1
    assert API_CALLS not in trace
    assert "no calls of the GPU's runtime were recorded" in messages(trace, NoteKind.DATA_LOSS)[0][0]


def test_phases_that_are_not_read_are_counted(written: Any) -> None:
    texts = [
        '{"ph":"B","name":"b","ts":1}',
        '{"ph":"E","ts":2}',
        '{"ph":"C","name":"c","ts":2}',
        '{"ph":"?","ts":2}',
        OP,
    ]
    skipped = dict(messages(written(events(*texts)), NoteKind.SKIPPED))
    assert sorted(skipped.values()) == [1, 1, 2]


def test_unknown_categories_are_named(written: Any) -> None:
    trace = written(events(op(cat="mtia_ccp_events"), op(cat="mtia_ccp_events"), OP))
    assert messages(trace, NoteKind.SKIPPED) == [("events of categories that are not read: 'mtia_ccp_events' (2)", 2)]


def test_truncation_keeps_the_prefix_and_names_the_byte(written: Any) -> None:
    whole = events(OP, op(ts="2", name="b"), op(ts="3", name="c"))
    place = whole.index('"c"') - 40
    trace = written(whole[: place + 60])
    assert trace[HOST_OPS]["name"].to_list() == ["aten::add", "b"]
    start = whole.index("{", whole.index('"b"') + 20 + whole[whole.index('"b"') + 20 :].index("}, "))
    assert (
        messages(trace, NoteKind.DAMAGE)[0][0]
        == f"the text breaks off; what stands before byte {start} of the text was read"
    )


def test_every_prefix_of_a_trace_reads_or_is_refused(written: Any) -> None:
    whole = events(OP, KERNEL, traceName="x", baseTimeNanoseconds=5)
    for length in range(len(whole) + 1):
        try:
            trace = written(whole[:length])
        except UnreadableTrace:
            assert length < whole.index("[") + 1
        else:
            assert trace.get(HOST_OPS).height == (length >= whole.index(KERNEL) - 2)


def test_a_damaged_record_costs_one_record(written: Any) -> None:
    trace = written(
        events(op(name="a"), '{"ph":"X" "cat":}', op(ts="2", name="b"), "17", "null", '["x"]', op(ts="3", name="c"))
    )
    assert trace[HOST_OPS]["name"].to_list() == ["a", "b", "c"]
    lost = dict(messages(trace, NoteKind.DATA_LOSS))
    assert lost["damaged records passed over; reading went on at the next event"] == 1
    assert lost["elements of traceEvents that are no events"] == 3


def test_depth_is_bounded(written: Any) -> None:
    deep = op(name="deep", args=f'"x":{"[" * 1000}{"]" * 1000}')
    trace = written(events(op(ts="1", name="a"), deep, op(ts="2", name="b")))
    assert trace[HOST_OPS]["name"].to_list() == ["a", "b"]
    assert written(events(op(name="fine", args=f'"x":{"[" * 60}{"]" * 60}')))[HOST_OPS].height == 1


def test_long_texts_are_cut_and_counted(written: Any) -> None:
    trace = written(events(op(name="é" * 600_000)))
    (name,) = trace[HOST_OPS]["name"].to_list()
    assert name == "é" * 524_288
    assert ("distinct texts cut to 1 MiB", 1) in messages(trace, NoteKind.DATA_LOSS)


def test_gzip_in_several_members_and_gzip_cut_short(written: Any) -> None:
    text = events(OP, KERNEL).encode()
    halves = gzip.compress(text[:50]) + gzip.compress(text[50:])
    assert written(halves, "two.json.gz")[HOST_OPS].height == 1
    long = events(*[op(ts=str(place), name=f"n{place * 7919 % 10007}") for place in range(20_000)]).encode()
    cut = written(gzip.compress(long)[:-2000], "cut.json.gz")
    assert 0 < cut[HOST_OPS].height < 20_000
    assert messages(cut, NoteKind.DAMAGE)[0][0].startswith("the gzip stream ends before its end mark")
    wrong = bytearray(gzip.compress(text))
    wrong[-5] ^= 0xFF  # the checksum
    with pytest.raises(UnreadableTrace, match="the gzip stream is damaged"):
        written(bytes(wrong), "wrong.json.gz")


def test_a_decompression_bomb_is_refused(written: Any) -> None:
    bomb = gzip.compress(b'{"traceEvents":[' + b" " * (80 << 20) + b"]}")
    with pytest.raises(UnreadableTrace, match="decompression bomb"):
        written(bomb, "bomb.json.gz")
    assert written(bomb, "bomb.json.gz", limits=ReadLimits(unpacking_ratio=2000)).notes
    with pytest.raises(UnreadableTrace, match="unpacks to more than 1,000 bytes"):
        written(events(OP) + " " * 2000, limits=ReadLimits(unpacked_bytes=1000))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3\n", "git-LFS pointer"),
        (b"hello\nworld", 'unknown file format: it begins with "hello"'),
        (b"\x7fELF\x02\x01", "unknown file format: it is binary and begins with 7f 45 4c 46 02 01"),
        *((begin + b"..", "this is a compressed file") for begin in (b"\xfd7zXZ\0", b"(\xb5/\xfd", b"BZh9", b"PK\3\4")),
        (b'{"a": 1, "b": []}', "JSON without traceEvents is not a profiler trace (its members: 'a', 'b')"),
        (b'{"traceEvents": 5}', "traceEvents is not an array"),
        (b"[1, 2, 3]", "its array of 3 holds no event with a duration"),
        (b'[{"id": 1}]', "its array of 1 holds no event with a duration"),
        (b'{"schemaVersion": 1, "device', "breaks off before its traceEvents"),
        (gzip.compress(b"", mtime=0), "unknown file format"),
        (gzip.compress(b"SQLite format 3\0", mtime=0), "unknown file format"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_reason(written: Any, content: bytes, says: str) -> None:
    with pytest.raises(UnreadableTrace) as refusal:
        written(content)
    assert says in str(refusal.value)
    assert refusal.value.remedy


def test_a_trace_without_events_says_so(written: Any) -> None:
    trace = written('{"traceEvents": []}')
    assert list(trace) == [SOURCES]
    assert messages(trace, NoteKind.DATA_LOSS)[0][0] == "the file holds no events"
