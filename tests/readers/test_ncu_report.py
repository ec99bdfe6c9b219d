"""Nsight Compute reports: every field read from hand-made bytes, and real reports against ncu's own CSV of them."""

import lzma
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.readers import ncu_reports as made

from timesink.errors import UnreadableTrace
from timesink.model.tables import DEVICES, KERNEL_METRICS, KERNEL_PROFILES, KERNEL_RULES, SOURCES
from timesink.model.trace import NoteKind, Trace
from timesink.readers import ReadLimits, read
from timesink.readers.ncu.wire import MetricSpans, decode

SUITE = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels" / "reports"


def read_bytes(folder: Path, data: bytes, name: str = "a.ncu-rep") -> Trace:
    path = folder / name
    path.write_bytes(data)
    return read(path, cache=False)


def values(trace: Trace, profile: int = 0) -> dict[str, float | str | None]:
    rows = trace[KERNEL_METRICS].filter(pl.col("profile") == profile)
    names, numbers, texts = (rows[column].to_list() for column in ("metric", "value", "text"))
    return {name: number if text is None else text for name, number, text in zip(names, numbers, texts, strict=True)}


def test_every_field_of_a_report_arrives(tmp_path: Path) -> None:
    metrics = {
        "gpu__time_duration.sum": 1500.0,
        "launch__device_id": 0,
        "device__attribute_compute_capability_major": 9,
        "device__attribute_compute_capability_minor": 0,
        "device__attribute_display_name": "NVIDIA Test GPU",
    }
    trace = read_bytes(tmp_path, made.simple(metrics))
    row = trace[KERNEL_PROFILES].row(0, named=True)
    assert (row["name"], row["function"], row["process"]) == ("void k(float *)", "k", 7)
    assert [row[f"grid_{axis}"] for axis in "xyz"] == [2, 3, 1]
    assert [row[f"block_{axis}"] for axis in "xyz"] == [64, 1, 1]
    assert (row["context"], row["stream"], row["device"], row["duration_ns"]) == (1, 9, 0, 1500.0)
    assert (row["compute_major"], row["compute_minor"], row["gpu"]) == (9, 0, "NVIDIA Test GPU")
    assert (row["tool_version"], row["cuda_version"], row["driver_version"]) == ("2025.3.1.0", "13.0", "580.1")
    assert (row["command"], row["clock_control"]) == ("ncu -o report a.out", "locked_base")
    assert (row["metrics"], row["failed_metrics"]) == (5, 0)
    assert trace[SOURCES]["format"].to_list() == ["ncu_report"]
    assert trace[DEVICES].select("name", "sm_count", "clock_hz").row(0) == ("NVIDIA Test GPU", 132, 1_980_000_000)


@pytest.mark.parametrize(("states", "wanted"), [((0, 0), "unlocked"), ((1, 1), "locked_base"), ((1, 0), "lock_failed")])
def test_the_clock_lock_is_kept(tmp_path: Path, states: tuple[int, int], wanted: str) -> None:
    data = made.report(made.block([made.kernel("k", [made.metric(0, 1.0)], locked=states)], ["a"]))
    assert read_bytes(tmp_path, data)[KERNEL_PROFILES]["clock_control"].to_list() == [wanted]


def test_names_of_later_blocks_follow_those_of_earlier_ones(tmp_path: Path) -> None:
    first = made.block([made.kernel("a", [made.metric(1, 5.0)])], ["x", "y"])
    second = made.block([made.kernel("b", [made.metric(2, 6), made.metric(0, "word")])], ["z"])
    trace = read_bytes(tmp_path, made.report(first, second))
    assert values(trace, 0) == {"y": 5.0}
    assert values(trace, 1) == {"z": 6.0, "x": "word"}


def test_a_failed_counter_is_nan_and_an_instanced_one_without_total_is_null(tmp_path: Path) -> None:
    metrics = [made.metric(0, math.nan), made.metric(1, None, instances=3), made.metric(2, math.nan)]
    names = ["failed", "instanced", "derived__ratio"]
    trace = read_bytes(tmp_path, made.report(made.block([made.kernel("k", metrics)], names)))
    found = values(trace)
    assert isinstance(found["failed"], float)
    assert math.isnan(found["failed"])
    assert found["instanced"] is None
    assert trace[KERNEL_PROFILES]["failed_metrics"].to_list() == [1]  # 0/0 in a derived metric is no failed pass


def test_rule_messages_lose_their_markup(tmp_path: Path) -> None:
    text = "See @section:Occupancy:Occupancy section@ and @url:the guide:https://example.com/a@."
    rules = made.rule("A", text, 4, 12.5) + made.rule("B", "fine", 1)
    trace = read_bytes(tmp_path, made.report(made.block([made.kernel("k", [made.metric(0, 1.0)], rules)], ["a"])))
    assert trace[KERNEL_RULES].drop("rank").rows() == [
        (0, "A", "A section", "optimization", "A title", "See Occupancy section and the guide.", "global", 12.5),
        (0, "B", "A section", "ok", "A title", "fine", None, None),
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20_000),
            st.one_of(
                st.floats(allow_nan=False),
                st.integers(0, 2**53),
                st.text(max_size=200),
                st.none(),
            ),
            st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_metrics_decoded_together_are_what_was_written(written: list[tuple[int, made.Value, int]]) -> None:
    bodies = [made.metric(name, value, extra) for name, value, extra in written]
    spans, at, data = MetricSpans(), 0, b""
    for body in bodies:
        size_bytes = 1 if body[1] < 0x80 else 2
        spans.starts.append(at + 1 + size_bytes)
        spans.ends.append(at + len(body))
        data += body
        at += len(body)
    spans.counts.append(len(written))
    columns = decode(data, spans)
    assert columns.name.tolist() == [name for name, _, _ in written]
    for index, (_, value, _) in enumerate(written):
        match value:
            case str():
                assert columns.texts[index] == value
            case None:
                assert not columns.is_number[index]
            case _:
                assert columns.value[index] == float(value)


def test_single_precision_and_32_bit_values_are_read(tmp_path: Path) -> None:
    metrics = [
        made.message(13, made.number(1, 0) + made.message(2, made.single(2, 0.5))),
        made.message(13, made.number(1, 1) + made.message(2, made.number(4, 77))),
    ]
    trace = read_bytes(tmp_path, made.report(made.block([made.kernel("k", metrics)], ["a", "b"])))
    assert values(trace) == {"a": 0.5, "b": 77.0}


def test_a_compressed_report_reads_as_the_plain_one(tmp_path: Path) -> None:
    data = made.simple({"gpu__time_duration.sum": 2000.0})
    packed = zstandard.ZstdCompressor().compress(data)
    plain, compressed = read_bytes(tmp_path, data), read_bytes(tmp_path, packed, "a.ncu-repz")
    assert plain[KERNEL_METRICS].equals(compressed[KERNEL_METRICS])
    assert plain[KERNEL_PROFILES].equals(compressed[KERNEL_PROFILES])


def test_a_report_that_unpacks_too_far_is_refused(tmp_path: Path) -> None:
    from timesink.readers.ncu import READERS

    path = tmp_path / "bomb.ncu-repz"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"NVR\0" + bytes(1 << 20)))
    with pytest.raises(UnreadableTrace, match="unpacks to more than 65,536 bytes"):
        READERS[0].read(path, ReadLimits(unpacked_bytes=1 << 16))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", "git-LFS pointer"),
        (b"\x00\x01\x02random bytes", "no Nsight Compute report"),
        (b"NVR\0", "cut off before the first kernel"),
        (made.report(), "no profiled kernel"),
        (made.report(made.block(details=made.session())), "no profiled kernel"),
    ],
)
def test_a_file_without_kernels_is_refused_with_its_reason(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(UnreadableTrace, match=words):
        read_bytes(tmp_path, data)


def test_a_cut_report_yields_its_whole_kernels_and_says_so(tmp_path: Path) -> None:
    two = made.report(
        made.block([made.kernel("a", [made.metric(0, 1.0)])], ["x"]),
        made.block([made.kernel("b", [made.metric(0, 2.0)])]),
    )
    trace = read_bytes(tmp_path, two[:-5])
    assert trace[KERNEL_PROFILES]["function"].to_list() == ["a"]
    assert [note.kind for note in trace.notes] == [NoteKind.DAMAGE]
    assert "breaks off at byte" in trace.notes[0].message


def unpacked(group: str, folder: Path) -> Path:
    packed = SUITE / f"{group}.ncu-rep.xz"
    target = folder / packed.stem
    target.write_bytes(lzma.decompress(packed.read_bytes()))
    return target


@pytest.mark.parametrize("page", ["raw_base", "raw_auto", "details_name", "details_label"])
def test_a_report_agrees_with_the_page_ncu_prints_of_it(tmp_path: Path, page: str) -> None:
    report = values_by_kernel(read(unpacked("atomics", tmp_path), cache=False))
    csv = tmp_path / f"{page}.csv"
    csv.write_bytes(lzma.decompress((SUITE / f"atomics.{page}.csv.xz").read_bytes()))
    printed = values_by_kernel(read(csv, cache=False))
    shared = [key for key in printed if key in report and isinstance(printed[key], float)]
    assert len(shared) > (10_000 if page.startswith("raw") else 250)
    wrong = [key for key in shared if not same(printed[key], report[key], exact=page == "raw_base")]
    assert [name for _, name in wrong if not name.startswith("derived__pct_occupancy")] == []


def same(printed: object, exact_value: object, *, exact: bool) -> bool:
    """Equal within what the page rounds: two decimals, in base units or after scaling."""
    if not isinstance(printed, float) or not isinstance(exact_value, float):
        return False
    if math.isnan(printed) or math.isnan(exact_value):
        return math.isnan(printed) and math.isnan(exact_value)
    return math.isclose(printed, exact_value, rel_tol=1e-9 if exact else 0.006, abs_tol=0.00501)


def values_by_kernel(trace: Trace) -> dict[tuple[int, str], object]:
    rows = trace[KERNEL_METRICS].select("profile", "metric", "value", "text").iter_rows()
    return {(profile, name): text if value is None else value for profile, name, value, text in rows}


def test_pages_tell_the_same_launches_as_the_report(tmp_path: Path) -> None:
    columns = ["name", "function", "grid_x", "grid_y", "block_x", "stream", "compute_major"]
    report = read(unpacked("atomics", tmp_path), cache=False)[KERNEL_PROFILES].select(columns)
    csv = tmp_path / "raw.csv"
    csv.write_bytes(lzma.decompress((SUITE / "atomics.raw_auto.csv.xz").read_bytes()))
    assert read(csv, cache=False)[KERNEL_PROFILES].select(columns).equals(report)


@pytest.mark.slow
def test_a_thousand_kernels_of_two_thousand_metrics_take_seconds_to_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    names = [f"unit{index}__counter.sum" for index in range(2000)]
    some = generator.random(2000)
    result = made.kernel("k", [made.metric(i, float(v) if i % 3 else int(v * 1e6)) for i, v in enumerate(some)])
    data = made.report(made.block(strings=names), *(made.block([result]) for _ in range(1000)))
    started = time.process_time()
    trace = read_bytes(tmp_path, data)
    assert trace[KERNEL_METRICS].height == 2_000_000
    assert time.process_time() - started < 5


def kernels_of(path: Path) -> Iterator[dict[str, float | str | None]]:
    trace = read(path, cache=False)
    yield from (values(trace, profile) for profile in trace[KERNEL_PROFILES]["profile"].to_list())


@pytest.mark.parametrize("name", ["a10g_sgemm_ladder", "a10g_nan_kernel", "a100_cutlass"])
def test_values_are_those_of_the_vendors_own_reader(shared_data: Path, name: str) -> None:
    """Where NVIDIA's `ncu_report` is installed. An instanced metric without aggregate is 0 there and null here."""
    vendor = pytest.importorskip("ncu_report", reason="no ncu_report (extras/python of Nsight Compute on PYTHONPATH)")
    path = shared_data / "public" / "ncu" / f"{name}.ncu-rep"
    actions = [action for part in vendor.load_report(str(path)) for action in part]
    for mine, action in zip(kernels_of(path), actions, strict=True):
        assert set(mine) == set(action.metric_names())
        for metric, value in mine.items():
            theirs = action.metric_by_name(metric).value()
            if value is None:
                assert theirs in (None, 0)
            elif isinstance(value, float) and math.isnan(value):
                assert math.isnan(theirs)
            else:
                assert value == theirs
