"""What Kineto events become in the tables that take more than copying."""

from pathlib import Path
from typing import Any

import pytest
from tests.readers.kineto_texts import KERNEL, OP, events, messages, op

from timesink.errors import UsageError
from timesink.model.tables import DEVICES, EVENT_WAITS, FRAMES, HOST_OPS, MEMORY_EVENTS, SOURCES, SYNCS, THREADS
from timesink.model.trace import NoteKind
from timesink.readers import read


def test_frames_have_file_and_line_where_the_name_has(written: Any) -> None:
    names = [
        "torch/nn/modules/module.py(1530): _call_impl",
        "<built-in method numel of Parameter object at 0x7f>",
        "nn.Module: Linear_0",
        "a(1).py(2): f(3): g",
    ]
    texts = [
        op(ts=str(place), cat="python_function", name=name, args=f'"Python id":{place},"Python parent id":null')
        for place, name in enumerate(names)
    ]
    frames = written(events(*texts))[FRAMES]
    assert frames.select("file", "line", "frame_id", "parent_id").rows() == [
        ("torch/nn/modules/module.py", 1530, 0, None),
        (None, None, 1, None),
        (None, None, 2, None),
        ("a(1).py", 2, 3, None),
    ]


def test_memory_events(written: Any) -> None:
    text = (
        '{{"ph":"i","s":"t","name":"[memory]","pid":7,"tid":8,"ts":{ts},"args":{{"Bytes":{size},"Addr":140654474690560,'
        '"Device Type":{kind},"Device Id":{device},"Total Allocated":5,"Total Reserved":6}}}}'
    )
    trace = written(events(text.format(ts=2, size=-4, kind=1, device=1), text.format(ts=1, size=4, kind=0, device=-1)))
    rows = (
        trace[MEMORY_EVENTS].select("device", "action", "time_ns", "address", "bytes", "total_allocated_bytes").rows()
    )
    assert rows == [(-1, "alloc", 1000, 140654474690560, 4, 5), (1, "free", 2000, 140654474690560, -4, 5)]


def test_synchronisations_and_the_edges_between_streams(written: Any) -> None:
    text = (
        '{{"ph":"X","cat":"cuda_sync","name":"{kind}","pid":0,"tid":1000007,"ts":{ts},"dur":1,"args":'
        '{{"cuda_sync_kind":"{kind}","stream":{stream},"correlation":{corr},"device":0,"context":1{more}}}}}'
    )
    wait = ',"wait_on_stream":{},"wait_on_cuda_event_record_corr_id":{},"wait_on_cuda_event_id":3'
    texts = [
        text.format(kind="Context Sync", ts=1, stream=-1, corr=11, more=""),
        text.format(kind="Stream Sync", ts=2, stream=7, corr=12, more=""),
        text.format(kind="Stream Wait Event", ts=3, stream=7, corr=13, more=wait.format(20, 10)),
        text.format(kind="Stream Wait Event", ts=4, stream=20, corr=14, more=wait.format(7, 15)),
        text.format(kind="Stream Wait Event", ts=5, stream=20, corr=16, more=wait.format(-1, -1)),
        op(ts="2.5", cat="cuda_runtime", name="cudaStreamWaitEvent", args='"correlation":13'),
    ]
    trace = written(events(*texts))
    assert trace[SYNCS].select("kind", "stream", "correlation").rows() == [
        ("device", None, 11), ("stream", 7, 12), ("stream_wait_event", 7, 13),
        ("stream_wait_event", 20, 14), ("stream_wait_event", 20, 16),
    ]  # fmt: skip
    edges = trace[EVENT_WAITS].select("start_ns", "stream", "waited_stream", "record_correlation", "event_id").rows()
    assert edges == [(2500, 7, 20, 10, 3), (4000, 20, 7, None, 3), (5000, 20, None, None, 3)]
    lost = messages(trace, NoteKind.DATA_LOSS)
    assert ("event waits name a record later than the wait; the record is left out", 1) in lost


def test_threads_are_named_and_streams_are_not_threads(written: Any) -> None:
    name = '{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":"{name}"}}}}'
    trace = written(events(OP, name.format(pid=7, tid=8, name="main"), name.format(pid=0, tid=7, name="stream 7")))
    assert trace[THREADS].select("process", "thread", "name").rows() == [(7, 8, "main")]


def test_a_thread_called_by_a_word_gets_a_negative_number(written: Any) -> None:
    threads = written(events(OP.replace('"tid":8', '"tid":"loader"'), OP))[HOST_OPS]["thread"].to_list()
    assert threads[0] < 0
    assert threads[1] == 8


def test_devices_are_those_described_and_those_that_worked(written: Any) -> None:
    one = {"id": 1, "name": "G", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 10**11}
    for described, worked in (
        ([one], (0, "G", 9, 132, 10**11)),  # which is idle: the one that works is a GPU of the same machine
        ([one, {**one, "id": 2, "name": "H"}], (0, None, None, None, None)),
    ):
        trace = written(events(KERNEL, deviceProperties=described))
        rows = trace[DEVICES].select("device", "name", "compute_major", "sm_count", "memory_bytes").rows()
        assert rows[:2] == [worked, (1, "G", 9, 132, 10**11)]


def test_ranks_come_from_the_file_the_caller_or_the_file_names(tmp_path: Path) -> None:
    for rank in (3, 1):
        (tmp_path / f"own_{rank}.json").write_text(events(OP, distributedInfo={"rank": rank, "world_size": 4}))
        (tmp_path / f"rank{rank}_silent.json").write_text(events(OP))
    own = [tmp_path / "own_3.json", tmp_path / "own_1.json"]
    assert read(own, cache=False)[HOST_OPS]["rank"].to_list() == [1, 3]
    assert read(own[0], rank=9, cache=False)[SOURCES].select("rank", "world_size").rows() == [(9, 4)]
    silent = read([tmp_path / "rank3_silent.json", tmp_path / "rank1_silent.json"], cache=False)
    assert silent[HOST_OPS]["rank"].to_list() == [1, 3]
    assert ("several files claim rank 0; ranks taken from the file names", 2) in messages(silent, NoteKind.ASSUMED)
    with pytest.raises(UsageError, match="2 files claim rank 0: rank1_silent") as caught:
        read([tmp_path], cache=False)
    assert "timesink compare " in caught.value.remedy
    with pytest.raises(UsageError, match="given twice"):
        read([own[0], own[0]], cache=False)
