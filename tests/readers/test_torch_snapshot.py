"""PyTorch memory snapshots: what a real one says, what a hostile one may not do, and totals to the byte."""

import gzip
import io
import lzma
import os
import pickle
import struct
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from timesink.errors import UnreadableTrace
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS, MEMORY_SEGMENTS
from timesink.readers import ReadLimits, read, reader_of
from timesink.readers.torch_snapshot import READERS, columns_of

FRAMES = [{"name": "forward", "filename": "/home/me/train.py", "line": 7}, {"name": "run", "filename": "??", "line": 0}]
MB = 1 << 20


def event(action: str, addr: int, size: int, time_us: int, frames: Any = ()) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": list(frames)}


def snapshot() -> dict[str, Any]:
    """One 2 MiB segment: 1000 bytes in use in a block of 1024, the rest free; one block came and went before."""
    blocks = [
        {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": FRAMES},
        {"address": 5120, "size": 2 * MB - 1024, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {
        "device": 0,
        "address": 4096,
        "total_size": 2 * MB,
        "allocated_size": 1024,
        "active_size": 1024,
        "requested_size": 1000,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
    trace = [
        event("segment_alloc", 4096, 2 * MB, 10),
        event("alloc", 4096, 1000, 11, FRAMES),
        event("alloc", 5120, 300, 12, FRAMES),
        event("free_requested", 5120, 300, 13),
        event("free_completed", 5120, 300, 13),
    ]
    marks = [
        {"stage": "START", "name": "Optimizer.step#Adam.step", "device": 0, "time_us": 11},
        {"stage": "END", "name": "Optimizer.step#Adam.step", "device": 0, "time_us": 12},
        {"stage": "END", "name": "never begun", "device": 0, "time_us": 12},
    ]
    return {"segments": [segment], "device_traces": [trace], "external_annotations": marks}


def written(folder: Path, content: Any, name: str = "snapshot.pickle") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


def refusal(path: Path, match: str, limits: ReadLimits | None = None) -> float:
    """Seconds until the file is refused with those words."""
    started = time.monotonic()
    with pytest.raises(UnreadableTrace, match=match):
        columns_of(path, limits or ReadLimits())
    return time.monotonic() - started


def test_a_hand_written_snapshot_becomes_events_segments_blocks_and_ranges(tmp_path: Path) -> None:
    trace = read(written(tmp_path, snapshot()), cache=False)
    events = trace[MEMORY_EVENTS]
    assert events["bytes"].to_list() == [0, 1000, 300, -300, 0]
    assert events["total_allocated_bytes"].to_list() == [0, 1000, 1300, 1000, 1000]
    assert events["total_reserved_bytes"].to_list() == [2 * MB] * 5
    assert events["time_ns"].to_list() == [10_000, 11_000, 12_000, 13_000, 13_000]
    assert events["stack"][1] == "/home/me/train.py(7): forward;run"
    assert events["stack"][0] is None
    assert trace[MEMORY_SEGMENTS].select("total_bytes", "requested_bytes", "largest_free_bytes").row(0) == (
        2 * MB,
        1000,
        2 * MB - 1024,
    )
    assert trace[MEMORY_BLOCKS]["state"].to_list() == ["active", "inactive"]
    assert trace[MEMORY_MARKS].select("start_ns", "end_ns").rows() == [(11_000, 12_000)]
    assert [(note.message, note.count) for note in trace.notes] == [
        ("annotations without their other end were left out", 1)
    ]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_snapshot_reads_like_the_plain_one(tmp_path: Path, suffix: str, pack: Any) -> None:
    plain = read(written(tmp_path, snapshot()), cache=False)
    packed = read(written(tmp_path, pack(pickle.dumps(snapshot())), f"snapshot.pickle{suffix}"), cache=False)
    assert packed[MEMORY_EVENTS].equals(plain[MEMORY_EVENTS])


def test_totals_end_at_what_is_in_use_though_the_oldest_events_were_dropped(tmp_path: Path) -> None:
    content = snapshot()
    content["device_traces"] = [content["device_traces"][0][2:]]
    totals = read(written(tmp_path, content), cache=False)[MEMORY_EVENTS]["total_allocated_bytes"]
    assert totals.to_list() == [1300, 1000, 1000]


def test_an_old_snapshot_without_times_sizes_or_traces_is_read(tmp_path: Path) -> None:
    content = snapshot()["segments"]
    for block in content[0]["blocks"]:
        del block["requested_size"], block["address"]
    del content[0]["requested_size"]
    trace = read(written(tmp_path, content), cache=False)
    assert trace[MEMORY_BLOCKS].select("address", "requested_bytes").rows() == [(4096, 1024), (5120, 0)]
    assert trace[MEMORY_EVENTS].height == 0


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


def test_a_reduction_is_refused_by_the_name_it_asks_for_and_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = written(tmp_path, {"segments": [Calls(os.system, f"touch {mark}")]})
    refusal(path, r"it asks for posix\.system")
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # protocol 0 GLOBAL
        b"(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02cbuiltins\neval\nq\x00X\x01\x00\x00\x001\x85R.",
    ],
)
def test_every_way_to_name_a_global_is_refused(tmp_path: Path, content: bytes) -> None:
    refusal(written(tmp_path, content), "it asks for")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x02Pobject\n.", "persistent id"),
        (b"\x80\x02\x82\x01.", "no pickle of plain containers"),  # EXT1: an extension nobody registered
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "budget|bytes of memory|cut off|plain containers"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "bytes of memory|cut off|plain containers"),  # BINBYTES8
        (b"\x80\x02]r\xff\xff\xff\x7f.", "bytes of memory|cut off|plain containers|no memory snapshot|budget"),  # memo
        (b"\x80\x04}.", "no memory snapshot"),
        (pickle.dumps([1, 2, 3]), "records"),
        (pickle.dumps({"segments": 5}), "segments is not a list"),
        (b"", "cut off"),
    ],
)
def test_what_is_no_snapshot_is_refused_within_seconds(tmp_path: Path, content: bytes, why: str) -> None:
    assert refusal(written(tmp_path, content), why) < 15


def billion_laughs(levels: int, width: int = 2) -> bytes:
    """A list of `width` times the same list, `levels` deep: a few hundred bytes, width ** levels nodes."""
    out = io.BytesIO()
    out.write(b"\x80\x02}U\x08segments]q\x00")
    for level in range(levels):
        out.write(b"](" + b"".join(b"h" + bytes([level]) for _ in range(width)) + b"e" + b"q" + bytes([level + 1]))
    out.write(b"s.")
    return out.getvalue()


def test_two_to_the_fortieth_nodes_are_refused_without_being_walked(tmp_path: Path) -> None:
    content = billion_laughs(40)
    assert len(content) < 500
    assert refusal(written(tmp_path, content), "records|no pickle") < 15


def test_one_shared_record_unfolds_only_as_far_as_the_budget(tmp_path: Path) -> None:
    block = {"address": 1, "size": 1, "state": "inactive", "frames": []}
    content = {"segments": [{"blocks": [block] * 5000}] * 5000}  # 25 million rows in a small file
    path = written(tmp_path, content)
    assert path.stat().st_size < 100_000
    limits = ReadLimits(base_events=100_000, events_per_byte=0)
    assert refusal(path, "more nodes than the budget", limits) < 20


def test_processor_time_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path, {"segments": [{"blocks": [{"size": 1, "frames": []}] * 3000}] * 3000})
    limits = ReadLimits(base_cpu_s=1, cpu_s_per_mb=0, base_memory_bytes=1 << 30, base_events=1 << 40)
    assert refusal(path, "exceeds its budget of 1 s|bytes of memory", limits) < 20


def test_a_packed_bomb_stops_at_the_unpacked_limit(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"\x80\x02" + bytes(64 * MB)), "bomb.pickle.gz")
    refusal(path, "unpacks to more than", ReadLimits(unpacked_bytes=MB))


def test_a_memory_hog_meets_its_limit(tmp_path: Path) -> None:
    hog = b"\x80\x02" + b"]q\x00" + b"".join(b"r" + struct.pack("<I", 1 << n) for n in range(20, 31)) + b"."
    path = written(tmp_path, hog)
    limits = ReadLimits(base_memory_bytes=256 * MB, memory_per_byte=0)
    assert refusal(path, "bytes of memory|plain containers", limits) < 20


def test_strange_values_in_known_places_do_no_harm(tmp_path: Path) -> None:
    content = snapshot()
    content["device_traces"][0][1].update(size=-5, addr="here", frames=[1, None, {"name": 3}], time_us=1 << 90)
    content["segments"][0]["segment_pool_id"] = "all"
    trace = read(written(tmp_path, content), cache=False)
    assert trace[MEMORY_EVENTS].height == 5


def test_a_binary_pickle_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    assert reader_of(written(tmp_path, snapshot(), "no_suffix")) is READERS[0]


def test_the_public_snapshot_has_its_known_events(shared_data: Path) -> None:
    trace = read(shared_data / "public" / "memory" / "snapshot.pickle", cache=False)
    events = trace[MEMORY_EVENTS]
    assert events.height == 19_464
    counts = dict(events["action"].cast(pl.String).value_counts().iter_rows())
    assert counts == {"alloc": 6488, "free_requested": 6488, "free_completed": 6488}
    blocks, segments = trace[MEMORY_BLOCKS], trace[MEMORY_SEGMENTS]
    active = blocks.filter(pl.col("state") == "active")
    assert active["requested_bytes"].sum() == segments["requested_bytes"].sum() == events["total_allocated_bytes"][-1]
    assert active["bytes"].sum() == segments["allocated_bytes"].sum()
    assert blocks["bytes"].sum() == segments["total_bytes"].sum()
