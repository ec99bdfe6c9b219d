"""The profiler's raw memory timeline: four numbers a row, categories kept, totals exact."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from timesink.errors import UnreadableTrace
from timesink.measures.memory import memory_ledger
from timesink.measures.memory.classes import Category
from timesink.model.tables import MEMORY_EVENTS
from timesink.readers import read, reader_of
from timesink.readers.memory_timeline import READERS

ROWS = [
    [-1, 1, 100, 0],  # a weight, there before
    [1000, 2, 40, 4],  # an activation
    [2000, 2, 30, 7],  # nobody knows
    [3000, 3, -30, 7],  # becomes a gradient: its bytes move
    [3000, 3, 30, 5],
    [4000, 4, -40, 4],
]


def written(folder: Path, text: bytes, name: str = "timeline.raw.json") -> Path:
    path = folder / name
    path.write_bytes(text)
    return path


def test_rows_become_events_and_versions_move_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(ROWS).encode())
    assert reader_of(path) is READERS[0]
    trace = read(path, cache=False)
    assert trace[MEMORY_EVENTS]["bytes"].to_list() == [100, 40, 30, -30, 30, -40]
    assert trace[MEMORY_EVENTS]["time_ns"].to_list() == [1000, 1000, 2000, 3000, 3000, 4000]
    ledger = memory_ledger(trace)[0, 0]
    order = list(Category)
    live = {name: ledger.live_bytes[order.index(name)].tolist() for name in Category}
    assert live[Category.WEIGHTS] == [0, 100, 100, 100, 100, 100, 100]
    assert live[Category.ACTIVATIONS] == [0, 0, 40, 40, 40, 40, 0]
    assert live[Category.GRADIENTS] == [0, 0, 0, 0, 0, 30, 30]
    assert live[Category.UNCLASSIFIED] == [0, 0, 0, 30, 0, 0, 0]


def test_gzip_reads_like_plain(tmp_path: Path) -> None:
    plain = written(tmp_path, json.dumps(ROWS).encode())
    packed = written(tmp_path, gzip.compress(json.dumps(ROWS).encode()), "timeline.raw.gz")
    assert read(packed, cache=False)[MEMORY_EVENTS].equals(read(plain, cache=False)[MEMORY_EVENTS])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'[[1, 2, 3, 4], ["x"]]', "whole numbers"),
        (b"[[1, 2, 3, 4], [5]]", "no rows of four"),
        (b"[[1, 2, 3, 4], [5, 2, 9999999999999999999999, 1]]", "64 bits"),
        (b"[[1, 2, 3, 4], [5, 2, 4-4, 1]]", "damaged"),
    ],
)
def test_a_damaged_timeline_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    with pytest.raises(UnreadableTrace, match=words):
        read(written(tmp_path, text), cache=False)


def test_the_public_timeline_sums_as_a_plain_count_does(shared_data: Path) -> None:
    path = shared_data / "public" / "memory" / "memory_timeline.raw.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))
    sums: Counter[int] = Counter()
    low: Counter[int] = Counter()
    for _, _, size, category in rows:
        sums[category] += size
        low[category] = min(low[category], sums[category])
    trace = read(path, cache=False)
    assert trace[MEMORY_EVENTS].height == len(rows) == 16_845
    ledger = memory_ledger(trace)[0, 0]
    assert (ledger.live_bytes >= 0).all()
    assert (ledger.live_bytes.sum(axis=0) == ledger.totals_bytes).all()
    change = ledger.totals_bytes[-1] - ledger.totals_bytes[0]
    assert change == sum(sums.values())
    order = list(Category)
    for category, index in ((Category.WEIGHTS, 0), (Category.GRADIENTS, 5), (Category.ACTIVATIONS, 4)):
        series = ledger.live_bytes[order.index(category)]
        assert series[-1] - series[0] == sums[index]
