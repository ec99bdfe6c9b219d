"""However a trace is laid out as JSON, and however it is cut into windows, the same tables come of it."""

import json
from decimal import Decimal
from random import Random
from typing import Any

import polars as pl
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
    calls = [event for event in distinct if event.get("cat") == "cuda_runtime"]
    for call in calls:  # those of several processes may be ranks in one file, which is split (test_kineto_merged.py)
        call["pid"] = calls[0]["pid"]
    document: dict[str, Any] = {"traceEvents": distinct, "schemaVersion": 1}
    text = Laid(random).write(document if base is None else {**document, "baseTimeNanoseconds": base})
    file = tmp_path_factory.mktemp("layout") / "trace.json"
    file.write_bytes(text.encode())
    trace = READERS[0].read(file, ReadLimits())
    expected = rows_of(json.loads(text, parse_float=Decimal))
    for name in ("host_ops", "api_calls", "device_ops", "ranges"):
        rows = sorted(trace.get(BY_NAME[name]).select(COLUMNS[name].split()).rows(), key=repr)
        assert rows == expected.get(name, []), name


def decoded(text: bytes, window: int, threads: int = 1, part_bytes: int = 1 << 20) -> tuple[Any, ...]:
    """All that the decoder gives of a text that comes in windows."""
    decoder = _native.KinetoDecoder(1 << 20, threads, part_bytes)
    for place in range(0, len(text), window):
        if not decoder.feed(text[place : place + window]):
            break
    decoder.finish()
    tables = {
        name: {column: pl.Series(values).to_list() for column, values in columns.items()}
        for name, columns in decoder.tables().items()
    }
    ending = decoder.ending, decoder.ending_byte, decoder.trailing_bytes, decoder.properties()
    return *ending, decoder.counts(), decoder.unknown_categories(), tables, pl.Series(decoder.strings()).to_list()


@settings(max_examples=examples(60), deadline=None)
@given(several=st.lists(events, max_size=5), cut=st.integers(0, 400), window=st.integers(1, 50))
def test_windows_change_nothing(several: list[dict[str, Any]], cut: int, window: int) -> None:
    text = json.dumps({"traceEvents": several}).encode()[: -cut or None]
    assert decoded(text, window) == decoded(text, len(text) or 1)


def test_values_larger_than_a_slice_of_the_text_are_read_whole() -> None:
    several = [{"ph": "X", "cat": "cpu_op", "name": f"{n}" * 90_000, "ts": n, "dur": 1} for n in range(5)]
    text = json.dumps({"traceEvents": several}).encode()
    whole = decoded(text, len(text))
    assert whole == decoded(text, 1_000)
    assert [len(name) for name in whole[-1]] == [0] + [90_000] * 5  # the first text is none


# What a cut in the wrong place meets: braces inside of texts and arguments, records that break off, words for threads
# and categories (their numbers depend on the texts before), arguments that are none, the end of the array.
ODD = (
    '{"ph":"X","cat":"cpu_op","name":"}, {","pid":1,"tid":"stream x","ts":1,"dur":2,"args":{"x":[{"a":1}, {"b":2}]}}',
    '{"ph":"X","cat":"odd","name":"new","pid":1,"tid":2,"ts":3,"dur":2}',
    '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":"worker","ts":4,"dur":2,"args":null}',
    '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":3,"ts":5,"dur":2,"args":{"External id":8,"Sequence number":1}}',
    '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":3,"ts":6,"dur":"7","args":{"Input Dims":[[1, 2], []]}}',
    '{"ph":"f","id":1,"pid":1,"tid":3,"ts":6,"cat":"ac2g","name":"ac2g","bp":"e"}',
    '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":"stream 7","ts":9,"dur":2,"args":{"device":0,"grid":[1, 2, 3]}}',
    '{"ph":"X","cat":"cpu_op","name":"broken","pid":1 1}',
    '{"ph":"M","name":"thread_name","pid":1,"tid":"worker","args":{"name":"loader"}}',
    '], "other": [{"x":1}, {"y":2}',
)


@settings(max_examples=examples(150), deadline=None)
@given(
    several=st.lists(st.sampled_from(ODD) | events.map(json.dumps), max_size=40),
    cut=st.integers(0, 200),
    window=st.integers(1, 300),
    threads=st.integers(2, 4),
    part_bytes=st.integers(1, 400),
)
def test_threads_change_nothing(several: list[str], cut: int, window: int, threads: int, part_bytes: int) -> None:
    text = f'{{"traceEvents": [{", ".join(several)}], "host_name": "h"}}'.encode()[: -cut or None]
    assert decoded(text, window, threads=threads, part_bytes=part_bytes) == decoded(text, window)


def test_arguments_that_are_none_do_not_hide_those_of_the_next_event() -> None:
    op = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":3,"ts":4,"dur":2,"args":%s}'
    text = f'[{op % "null"}, {op % "null"}, {op % """{"External id":8}"""}]'.encode()
    tables = decoded(text, len(text))[-2]
    assert tables["host_ops"]["external_id"] == [None, None, 8]


def test_large_texts_are_shared_between_threads_and_read_as_one_reads_them() -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"op %d","pid":1,"tid":%d,"ts":%d.250,"dur":2,"args":{"External id":%d}}'
    several = (event % (place % 97, place % 3, place * 7919 % 40_000, place) for place in range(20_000))
    text = f'{{"traceEvents": [{", ".join(several)}]}}'.encode()
    alone = decoded(text, 1 << 16)
    assert len(alone[-2]["host_ops"]["name"]) == 20_000
    assert decoded(text, 1 << 16, threads=4, part_bytes=1 << 14) == alone
