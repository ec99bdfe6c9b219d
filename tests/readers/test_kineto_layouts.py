"""However a trace is laid out as JSON, and however it is cut into windows, the same tables come of it."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.readers.slow_kineto import COLUMNS, rows_of

from timesink import _native
from timesink.model.tables import ALL
from timesink.readers import ReadLimits
from timesink.readers.kineto import READERS

BY_NAME = {table.name: table for table in ALL}

Drawn = st.SearchStrategy[dict[str, Any]]

words = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ids = st.integers(0, 2**31 - 1)
digits = st.text("0123456789", max_size=5)


def decimals(largest: int) -> st.SearchStrategy[str]:
    """Microseconds with up to five decimals, as text, so that no float comes in between."""
    return st.builds(lambda whole, part: f"{whole}.{part}" if part else f"{whole}", st.integers(0, largest), digits)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
triples = st.lists(st.integers(1, 2**31 - 1), min_size=3, max_size=3)
shapes = st.lists(st.lists(ids, max_size=3), max_size=3)


def complete(category: str, args: dict[str, st.SearchStrategy[Any]]) -> Drawn:
    noise = st.dictionaries(words.map(lambda word: f"x{word}"), junk, max_size=2)
    own = st.builds(lambda known, other: known | other, st.fixed_dictionaries({}, optional=args), noise)
    fields = {"ph": st.just("X"), "cat": st.just(category), "name": words, "pid": ids, "tid": ids}
    fields |= {"ts": decimals(10**15), "dur": decimals(10**9), "args": own}
    return st.fixed_dictionaries(fields, optional={"id": junk, "bp": words})


device_args = {"device": st.integers(0, 7), "stream": ids, "correlation": ids, "grid": triples, "block": triples}
events = st.one_of(
    complete("cpu_op", {"External id": st.integers(0, 2**64 - 1), "Sequence number": ids, "Input Dims": shapes}),
    complete("cuda_runtime", {"correlation": ids, "cbid": ids}),
    complete("kernel", device_args),
    complete("user_annotation", {}),
    complete("cuda_profiler_range", {"stream": ids}),
    st.fixed_dictionaries({"ph": st.sampled_from("sf"), "cat": st.just("ac2g"), "id": ids, "name": words}),
)


class Laid:
    """Writes JSON with drawn spacing, key order and spelling of numbers."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def space(self) -> str:
        return self.random.choice(["", "", " ", "\n  ", "\t"])

    def write(self, value: Any, key: str = "") -> str:
        s = self.space
        if isinstance(value, dict):
            items = list(value.items())
            self.random.shuffle(items)
            return (
                "{" + ",".join(f"{s()}{json.dumps(k)}{s()}:{s()}{self.write(v, k)}{s()}" for k, v in items) + s() + "}"
            )
        if isinstance(value, list):
            return "[" + ",".join(f"{s()}{self.write(item)}{s()}" for item in value) + s() + "]"
        if key in ("ts", "dur") and isinstance(value, str):
            return self.random.choice([value, value, f'"{value}"'])
        return json.dumps(value, ensure_ascii=self.random.random() < 0.5)


@settings(max_examples=examples(150), deadline=None)
@given(several=st.lists(events, max_size=6), base=st.none() | st.integers(0, 2**60), random=st.randoms())
def test_any_layout_reads_as_the_slow_reader_reads_it(
    tmp_path_factory: pytest.TempPathFactory, several: list[dict[str, Any]], base: int | None, random: Random
) -> None:
    # Equal records would be kept once; the number in the name keeps them apart.
    distinct = [{**event, "name": f"{event['name']}{place}"} for place, event in enumerate(several)]
    document: dict[str, Any] = {"traceEvents": distinct, "schemaVersion": 1}
    text = Laid(random).write(document if base is None else {**document, "baseTimeNanoseconds": base})
    file = tmp_path_factory.mktemp("layout") / "trace.json"
    file.write_bytes(text.encode())
    trace = READERS[0].read(file, ReadLimits())
    expected = rows_of(json.loads(text, parse_float=Decimal))
    for name in ("host_ops", "api_calls", "device_ops", "ranges"):
        rows = sorted(trace.get(BY_NAME[name]).select(COLUMNS[name].split()).rows(), key=repr)
        assert rows == expected.get(name, []), name


@settings(max_examples=examples(60), deadline=None)
@given(several=st.lists(events, max_size=5), cut=st.integers(0, 400), window=st.integers(1, 50))
def test_windows_change_nothing(several: list[dict[str, Any]], cut: int, window: int) -> None:
    text = json.dumps({"traceEvents": several}).encode()[: -cut or None]
    whole, pieces = _native.KinetoDecoder(1 << 20), _native.KinetoDecoder(1 << 20)
    whole.feed(text)
    for place in range(0, len(text), window):
        pieces.feed(text[place : place + window])
    for decoder in (whole, pieces):
        decoder.finish()
    assert (whole.ending, whole.ending_byte, whole.counts()) == (pieces.ending, pieces.ending_byte, pieces.counts())
    assert {n: {c: len(v) for c, v in t.items()} for n, t in whole.tables().items()} == {
        n: {c: len(v) for c, v in t.items()} for n, t in pieces.tables().items()
    }
