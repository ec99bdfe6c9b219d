"""A Perfetto file read back with the official messages: its slices are the rows of the tables."""

import io
import threading
import urllib.error
import urllib.request
from collections import Counter
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.render.test_hostile_names import HOSTILE
from tests.strategies import traces
from tests.tables import trace_of

from timesink.cli.app import run
from timesink.cli.asked import origin
from timesink.diagnosis.engine import diagnose
from timesink.errors import UsageError
from timesink.export.held import write_table
from timesink.export.perfetto import deep_link, serve_once, write_perfetto
from timesink.export.tracks import edges, nesting_lanes
from timesink.measures.idle.blame import idle_blame
from timesink.measures.timeline.launches import launch_units
from timesink.measures.timeline.replay import critical_path
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.views.timeline.finding_window import window_of

messages: Any = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed (pip install perfetto)"
)
Slice = tuple[str, int, int]


def packets(trace: Trace, diagnosis: Any = None) -> Any:
    file = io.BytesIO()
    write_perfetto(trace, diagnosis, file)
    read_back = messages.Trace()
    read_back.ParseFromString(file.getvalue())
    return read_back.packet


def slices(found: Any) -> dict[str, Counter[Slice]]:
    """Slices by category, as a reader of the format finds them: a stack per track; it must never be crossed."""
    names: dict[int, str] = {}
    stacks: dict[int, list[tuple[str, str, int]]] = {}
    last: dict[int, int] = {}
    read_back: dict[str, Counter[Slice]] = {}
    for packet in found:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        track = event.track_uuid
        if event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END):
            assert packet.timestamp >= last.get(track, packet.timestamp)
            last[track] = packet.timestamp
        if event.type == event.TYPE_SLICE_BEGIN:
            stacks.setdefault(track, []).append((event.categories[0], names[event.name_iid], packet.timestamp))
        elif event.type == event.TYPE_SLICE_END:
            category, name, start = stacks[track].pop()
            read_back.setdefault(category, Counter())[name, start, packet.timestamp] += 1
    assert not any(stacks.values())
    return read_back


def rows(trace: Trace, table: Any) -> Counter[Slice]:
    frame = trace.get(table).select(pl.col("name").cast(pl.String), "start_ns", "end_ns")
    return Counter((name[:200], start, end) for name, start, end in frame.iter_rows())


@given(traces())
def test_slices_are_the_rows_of_the_tables(trace: Trace) -> None:
    read_back = slices(packets(trace))
    for table in (DEVICE_OPS, API_CALLS, HOST_OPS, RANGES):
        assert read_back.get(table.name, Counter()) == rows(trace, table)


def test_python_frames_and_calls_of_the_system_are_slices_too() -> None:
    trace = trace_of("""
    | frames | name | file | line | start_us | end_us |
    | outer  | main | a.py | 1    | 0        | 90     |
    | inner  | load | a.py | 2    | 10       | 30     |

    | os_calls | name | start_us | end_us |
    | reading  | read | 12       | 20     |
    | crossing | poll | 15       | 40     |
    """)
    read_back = slices(packets(trace))
    assert {name: read_back[name] for name in ("frames", "os_calls")} == {
        table.name: rows(trace, table) for table in (FRAMES, OS_CALLS)
    }


def test_slices_of_a_real_trace_are_its_rows_and_idle_time_is_there() -> None:
    trace = demo()
    found = packets(trace, diagnose(trace))
    read_back = slices(found)
    for table in (DEVICE_OPS, API_CALLS, HOST_OPS, RANGES):
        times = Counter((start, end) for _, start, end in read_back[table.name].elements())
        assert times == Counter(trace[table].select("start_ns", "end_ns").iter_rows())
    causes = set(idle_blame(trace).frame["cause"].cast(pl.String))
    ours = list(read_back["timesink"].elements())
    assert sum(end - start for name, start, end in ours if name in causes) == idle_blame(trace).idle_ns
    labels = {packet.track_descriptor.name for packet in found if packet.HasField("track_descriptor")}
    assert {"steps", "idle, because of", "launches ahead in the queue", "bytes being copied", "critical path"} <= labels
    assert any(label.startswith("finding 1: IDL101") for label in labels)


def demo() -> Trace:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        return read(path, cache=False)


def on_track(found: Any, label: str) -> list[tuple[str, int, int]]:
    """The slices of the tracks of that name, in order of time."""
    uuids = {packet.track_descriptor.uuid for packet in found if packet.track_descriptor.name.startswith(label)}
    names = {entry.iid: entry.name for packet in found for entry in packet.interned_data.event_names}
    stack: dict[int, list[tuple[str, int]]] = {}
    read_back = []
    for packet in found:
        event = packet.track_event
        if not packet.HasField("track_event") or event.track_uuid not in uuids:
            continue
        if event.type == event.TYPE_SLICE_BEGIN:
            stack.setdefault(event.track_uuid, []).append((names[event.name_iid], packet.timestamp))
        else:
            name, start = stack[event.track_uuid].pop()
            read_back.append((name, start, packet.timestamp))
    return sorted(read_back, key=lambda slice: slice[1:])


def test_the_critical_path_is_on_a_track_of_its_own_without_a_gap() -> None:
    trace = demo()
    path = critical_path(trace)[0]
    shown = on_track(packets(trace), "critical path")
    assert [(start, end) for _, start, end in shown] == list(zip(path.start_ns, path.end_ns, strict=True))
    assert all(earlier[2] == later[1] for earlier, later in pairwise(shown))
    starts, ends = set(trace[DEVICE_OPS]["start_ns"]), set(trace[DEVICE_OPS]["end_ns"])
    on_device = [(start, end) for name, start, end in shown if name.startswith("GPU: ")]
    assert len(on_device) > 100
    assert all(start in starts and end in ends for start, end in on_device)


def test_each_finding_has_a_track_with_exactly_what_it_claims() -> None:
    trace = demo()
    diagnosis = diagnose(trace)
    found = packets(trace, diagnosis)
    for number, (card, finding) in enumerate(diagnosis.findings, start=1):
        claimed = [
            pair for part in finding.claim.intervals.values() for pair in zip(part.start_ns, part.end_ns, strict=True)
        ]
        shown = on_track(found, f"finding {number}: {card.code}")
        assert [(start, end) for _, start, end in shown] == sorted(claimed)


def test_the_depth_of_the_queue_is_that_of_the_launches() -> None:
    trace = demo()
    found = packets(trace)
    (uuid,) = (p.track_descriptor.uuid for p in found if p.track_descriptor.name == "launches ahead in the queue")
    shown = [(p.timestamp, p.track_event.counter_value) for p in found if p.track_event.track_uuid == uuid]
    units = launch_units(trace).sort("call_start_ns", "call")
    assert shown == list(units.select("call_start_ns", "queue_depth").iter_rows())


@pytest.mark.usefixtures("port_of_perfetto")
def test_open_prints_a_link_to_the_window_of_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        assert run(["report", "--open", str(path), "--no-browser", "--timeout", "1"]) == 2
    lines = capsys.readouterr().out.splitlines()
    trace = demo()
    findings = diagnose(trace).findings
    assert len(lines) == 1 + 2 * len(findings)
    for number, (card, finding) in enumerate(findings):
        window = window_of(trace, finding)
        assert lines[1 + 2 * number].startswith(f"finding {number + 1}: {card.code} ")
        assert lines[2 + 2 * number].endswith(f"&visStart={window.start_ns}&visEnd={window.end_ns}")


@pytest.mark.usefixtures("port_of_perfetto")
def test_open_prints_a_link_to_the_stretch_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        shown = ["report", "--open", str(path), "--no-browser", "--timeout", "1"]
        assert run([*shown, "--at", "40ms:41.5ms"]) == 2
        out = capsys.readouterr().out
        assert run([*shown, "--at", "40ms:", "--finding", "1"]) == 2
        assert "two places" in capsys.readouterr().err
    first_ns, _ = demo().extent_ns or (0, 0)
    assert out.endswith(f"&visStart={first_ns + 40_000_000}&visEnd={first_ns + 41_500_000}\n")
    assert len(out.splitlines()) == 1


def test_an_arrow_leads_from_each_launch_to_its_work() -> None:
    trace = trace_of("""
    | device_ops | name | start_us | end_us | correlation |
    | a          | gemm | 10       | 30     | 5           |
    | b          | relu | 40       | 60     | 6           |
    | stray      | void | 70       | 80     |             |

    | api_calls | name             | start_us | end_us | correlation |
    | of b      | cudaLaunchKernel | 4        | 6      | 6           |
    | of a      | cudaLaunchKernel | 1        | 3      | 5           |
    | a sync    | cudaDeviceSync   | 7        | 9      | 7           |
    """)
    ends: dict[int, list[int]] = {}
    for packet in packets(trace):
        for flow in packet.track_event.flow_ids:
            ends.setdefault(flow, []).append(packet.timestamp)
    assert sorted(sorted(pair) for pair in ends.values()) == [[1_000, 10_000], [4_000, 40_000]]


def test_counters_by_hand() -> None:
    trace = trace_of("""
    | device_ops | kind | name | copy_kind | bytes | stream | start_us | end_us |
    | one        | copy | copy | h2d       | 100   | 7      | 0        | 30     |
    | beside     | copy | copy | d2h       | 40    | 20     | 10       | 20     |
    """)
    values = [
        (packet.timestamp, packet.track_event.counter_value)
        for packet in packets(trace)
        if packet.track_event.type == messages.TrackEvent.TYPE_COUNTER
    ]
    assert values == [(0, 100), (10_000, 140), (20_000, 100), (30_000, 0)]


interval_lists = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=12)


@given(interval_lists)
def test_lines_hold_every_interval_once_and_nest(intervals: list[tuple[int, int]]) -> None:
    start, end = [a for a, _ in intervals], [a + length for a, length in intervals]
    lanes = nesting_lanes(start, end)
    assert sorted(row for lane in lanes for row in lane) == list(range(len(intervals)))
    for lane in lanes:
        events = list(edges(lane, start, end))
        assert all(a.time_ns <= b.time_ns for a, b in pairwise(events))
        stack: list[int] = []
        for event in events:
            if event.is_begin:
                stack.append(event.row)
            else:
                assert stack.pop() == event.row


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_scrubbed(name: str) -> None:
    table = pl.Series([name.encode("utf-8", "replace").decode("utf-8")], dtype=pl.Categorical())
    trace = trace_of("""
    | device_ops | name | start_us | end_us |
    | a          | gemm | 10       | 30     |
    """)
    renamed = Trace("test", {DEVICE_OPS: trace[DEVICE_OPS].with_columns(table.alias("name"))})
    ((shown, _, _),) = slices(packets(renamed))["device_ops"]
    assert shown.isprintable()
    assert len(shown) <= 1_300


def fetched(port: int, path: str, origin: str | None) -> tuple[int, str | None, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Origin": origin} if origin else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Access-Control-Allow-Origin"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Access-Control-Allow-Origin"], b""


def test_the_file_is_served_once_to_one_origin_and_nothing_else_is(tmp_path: Path) -> None:
    file = tmp_path / "trace.pftrace"
    file.write_bytes(b"trace")
    (tmp_path / "secret").write_bytes(b"secret")
    ui, port, ready = "https://ui.perfetto.dev", 19_001, threading.Event()
    result: list[bool] = []
    thread = threading.Thread(target=lambda: result.append(serve_once(file, ui, 20, port=port, on_ready=ready.set)))
    thread.start()
    assert ready.wait(10)
    assert fetched(port, "/secret", ui)[0] == 404
    assert fetched(port, "/../secret", ui)[0] == 404
    assert fetched(port, "/trace.pftrace", "https://evil.example")[:2] == (403, None)
    assert fetched(port, "/trace.pftrace", ui) == (200, ui, b"trace")
    thread.join(10)
    assert result == [True]
    with pytest.raises(OSError, match="refused"):
        fetched(port, "/trace.pftrace", ui)


def test_a_page_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    assert serve_once(tmp_path / "none", "https://ui.perfetto.dev", 0.1, port=19_002) is False


def test_a_link_names_the_window_in_the_time_of_the_trace() -> None:
    assert deep_link("https://ui.perfetto.dev", (5, 9)) == (
        "https://ui.perfetto.dev/#!/?url=http%3A%2F%2F127.0.0.1%3A9001%2Ftrace.pftrace&visStart=5&visEnd=9"
    )
    for wrong in ("javascript:alert(1)", "https://ui.perfetto.dev/x", "ui.perfetto.dev"):
        with pytest.raises(UsageError, match="not an origin"):
            origin(wrong)


def test_tables_come_back_as_they_were(tmp_path: Path) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        trace = read(path, cache=False)
        want = trace[DEVICE_OPS].with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
        for name, load in (("t.parquet", pl.read_parquet), ("t.json", pl.read_ndjson), ("t.csv", pl.read_csv)):
            assert (
                run(["report", "--export", "table", str(path), "--table", "device_ops", "-o", str(tmp_path / name)])
                == 0
            )
            got = load(tmp_path / name)
            for column in ("name", "start_ns", "end_ns", "bytes"):
                assert got[column].to_list() == want[column].to_list()
        assert run(["report", "--export", "table", str(path), "--table", "nothing", "-o", str(tmp_path / "x.csv")]) == 2
        assert run(["report", "--export", "table", str(path), "-o", str(tmp_path / "x.csv")]) == 2
        assert sorted(file.name for file in tmp_path.iterdir()) == ["t.csv", "t.json", "t.parquet"]


def test_a_cell_of_a_csv_file_is_no_formula(tmp_path: Path) -> None:
    write_table(pl.DataFrame({"name": ["=cmd|' /C calc'!A0", "@sum", "gemm"]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines() == ["name", "'=cmd|' /C calc'!A0", "'@sum", "gemm"]
