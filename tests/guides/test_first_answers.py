"""What guides found wrong once, in their words and with their numbers: streams, small kernels, rows of csv, blocks that
synchronise, profiled steps."""

import csv
import io
import json
import lzma
import re
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from tests.guides.conftest import CAPTURES

from timesink.cli.app import run
from timesink.cli.demo import __file__ as demo
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.synchronisations import synchronised_ranges
from timesink.model.tables import RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.views.statement import checks_page

FAULTS = CAPTURES.parents[1] / "faults/captures"
CUT = (
    "ranges",
    "layers",
    "api_calls",
    "os_calls",
    "lines",
    "paths",
    "places",
)  # tables of which people see the first rows
TRACE = Path(demo).with_name("gpt_before.json.xz")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of two ranks, recorded on two H100."""
    folder = tmp_path_factory.mktemp("two")
    unpacked(CAPTURES / "two.tar.xz", folder)
    return folder


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert run([str(word) for word in words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("what", ["ranges", "calls", "lines", "idle"])
def test_tables_for_programs_hold_every_row_and_say_so(
    what: str, hour: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lab's step 3 parses the phases: data_load, forward, backward, optimizer."""
    lab = hour / "lab_before"
    document = json.loads(printed(capsys, "show", what, lab, "-f", "json"))
    tables = [name for name in CUT if name in document]
    assert tables
    for top in (1, 10_000):
        asked = json.loads(printed(capsys, "show", what, lab, "--top", top, "-f", "json"))
        assert {name: asked[name] for name in tables} == {name: document[name][:top] for name in tables}
    text = printed(capsys, "show", what, lab, "--top", "1")
    left = [int(count) for count in re.findall(r"(\d+) more\s+rows", text)]
    assert left == [len(document[name]) - 1 for name in tables if len(document[name]) > 1]
    if what == "ranges":
        rows = list(csv.DictReader(io.StringIO(printed(capsys, "show", what, lab, "-f", "csv"))))
        assert {row["name"] for row in rows} == {"step #", "data_load", "forward", "backward", "optimizer"}
        assert [row["count"] for row in rows if row["name"] == "step #"] == ["8"]


def test_the_blocks_of_a_program_of_two_ranks_that_synchronises_are_no_throughput(
    two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, blocked in (("tp_blocks", True), ("tp_compiled", False), ("tp_eager", False)):
        text = printed(capsys, "show", "statement", two / name).splitlines()[0]
        assert ("block-profiled: attribution, not throughput" in text) is blocked, name


SPELLINGS = (
    "{}", "model.{}", "{} (block)", "[{}]", "block/{}", "nvtx:{}", "## {} ##", "torch.{}", "DiT.{}.forward", "{} step",
    "forward {}", "Attention: {}",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tp_blocks", "tp_compiled", "tp_eager"])
def test_blocks_are_seen_in_every_spelling_of_their_ranges(name: str, two: Path) -> None:
    trace = read(two / name, cache=False)
    ranges, own = trace[RANGES], {"denoise", "decode", "recompute_kv_cache"}
    assert own <= {*ranges["name"].cast(pl.String)}
    for spelling, change in product(SPELLINGS, (str, str.upper, str.title)):
        names = [spelling.format(change(text)) if text in own else text for text in ranges["name"].cast(pl.String)]
        respelled = ranges.with_columns(pl.Series("name", names, pl.Categorical))
        told = Trace(trace.source, {**trace.tables, RANGES: respelled}, trace.notes)
        assert synchronised_ranges(told).attribution_only is (name == "tp_blocks"), (spelling, change)


def test_profiled_steps_are_no_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "statement", TRACE)
    assert "profiled step: the median step takes 12.3 ms (11 steady steps;" in text
    assert "no throughput: a profiler ran" in text
    assert "throughput: the" not in text
    assert "steps/s" not in text


def test_a_statement_takes_facts_and_the_step_without_a_profiler(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("show", "statement", TRACE)
    text = printed(capsys, *words, "--fact", "resolution=512", "--fact", "batch=32", "--unprofiled-step-ms", "10")
    assert "(at resolution=512, batch=32, as profiled)" in text
    assert "throughput: a step takes 10.0 ms, 3,200 samples/s (one figure, without a profiler, resolution" in text
    assert "profiled step:" not in text
    assert run([*map(str, words), "--fact", "resolution"]) == 2
    assert "resolution=512" not in printed(capsys, *words)


@pytest.mark.parametrize("name", ["broken_in_pieces.torch", "adamw_one_by_one.torch", "item_per_layer.nsys"])
def test_small_kernels_are_counted_and_never_called_clear_where_most_kernels_are(name: str, tmp_path: Path) -> None:
    unpacked(FAULTS / f"{name}.tar.xz", tmp_path)
    for path in sorted(tmp_path.glob("*.high.fault.*")):
        trace = read(path)
        small = next(row for row in checks_page(trace).sheets[0].rows if row[0] == "small kernels")
        lengths = [
            length for device in kernel_facts(trace).devices for length in kernel_facts(trace).on(device)["length"]
        ]
        share = sum(length < 10_000 for length in lengths) / len(lengths)
        found = re.search(r"(\d+) of (\d+) kernels of a step take less than 10 us", str(small[2]))
        if small[1] == "clear":
            assert share < 0.55
        if found:
            assert int(found[1]) / int(found[2]) == pytest.approx(share, abs=0.1)
        else:
            assert small[1] == "found"


def test_what_streams_win_is_said_to_be_a_model(tmp_path: Path) -> None:
    """Four streams won 1,110 us of a program where the model said 442."""
    packed = CAPTURES.parents[1] / "lines/captures/small.graph.json.xz"
    (trace := tmp_path / "graph.json").write_bytes(lzma.decompress(packed.read_bytes()))
    told = {str(row[0]): row for row in checks_page(read(trace)).sheets[0].rows}
    said = str(told["kernels one after another that could overlap"][2])
    assert "4 streams are modelled to win 446 us" in said
    assert "may win more" in said
    assert "at most" not in said


def test_a_comparison_names_the_gpu_of_each_share(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shares of several ranks came to 160 %."""
    capsys.readouterr()
    assert run(["compare", str(two / "tp_compiled"), str(two / "tp_broken")]) in (0, 1)
    said = " ".join(capsys.readouterr().out.split())
    assert "so that they do not sum: exposed communication share of rank 0, GPU 0 before" in said
    assert "idle share of rank 1, GPU 1 before, of rank 1, GPU 1 after" in said
    assert run(["compare", str(TRACE), str(TRACE)]) == 0
    assert "so that they do not sum" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["lab_before", "lab_after", "layer_nsys"])
def test_of_a_plain_capture_every_kernel_is_on_a_side_or_said_to_be_open(
    name: str, hour: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passes over memory are of memory; whether a matmul computes is left to its sizes; nothing is counted twice."""
    rows = json.loads(printed(capsys, "show", "ops", hour / name, "-f", "json"))["kernels"]
    facts = kernel_facts(trace := read(next((hour / name).glob("report*"))))
    lengths = [int(length) for device in facts.devices for length in facts.on(device)["length"]]
    parts = {row["part"]: row for row in rows if not row["part"].startswith("idle")}
    assert sum(row["time_ns"] for row in parts.values()) == sum(lengths)
    assert parts["short kernels"]["time_ns"] == sum(length for length in lengths if length < 10_000)
    assert parts["gemm"]["bound"] == "compute or memory, by their sizes"
    assert all(row["bound"] == "memory" for part, row in parts.items() if part in ("pointwise", "foreach", "norm"))
    idle_ns = sum(device_timeline(trace)[device].idle_ns for device in facts.devices)
    assert sum(row["time_ns"] for row in rows if row["part"].startswith("idle")) == pytest.approx(idle_ns, rel=0.01)


@pytest.mark.parametrize("name", ["tp_eager", "tp_compiled", "tp_blocks"])
def test_both_sums_are_those_of_the_table(name: str, two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CPU time beside GPU time of one trace: about as long is a sign of launching."""
    rows = json.loads(printed(capsys, "show", two / name, "-f", "json"))["operators"]
    host_ns, device_ns = (sum(row[f"self_{part}_ns"] for row in rows) for part in ("host", "device"))
    said = " ".join(printed(capsys, "show", two / name, "--top", "2").split())
    assert f"{host_ns / device_ns:.2f} x the self GPU of {device_ns / 1e6:.3g} ms" in said
    assert ("the queue tells whether launching does" in said) is (host_ns > device_ns)


@pytest.mark.parametrize("name", ["lab_before", "two/tp_compiled", "two/tp_eager"])
def test_the_checks_count_what_they_look_for(
    name: str, hour: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The post's checks ask whether there are any: of short kernels, of copies, of collectives."""
    path = two / name.removeprefix("two/") if name.startswith("two/") else hour / name
    rows = json.loads(printed(capsys, "show", "checks", path, "-f", "json"))["checks"]
    counts = {row["check"]: int(row["because"].partition(" ")[0].replace(",", "")) for row in rows}
    document = json.loads(printed(capsys, "show", path, "-f", "json"))
    copied = sum(row["count"] for row in document["copies"] if row["copy_kind"] in ("h2d", "d2h"))
    assert counts["copies between CPU and GPU"] == copied
    kernels = json.loads(printed(capsys, "query", path, "SELECT count(*) AS n FROM device_ops WHERE kind = 'kernel' "
                                 "AND end_ns - start_ns < 10000", "-f", "json"))  # fmt: skip
    assert counts["small kernels"] == kernels["rows"][0]["n"]


def test_of_a_cpu_alone_the_operators_that_take_its_time_come_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By GPU time, which none has, they came by their names, and the longest of 14 was left out."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{chr(97 + at)}", "pid": 1, "tid": 1, "ts": 99 * at, "dur": 1 + at}
        for at in range(14)
    ]
    (path := tmp_path / "cpu.json").write_text(json.dumps({"traceEvents": events}))
    text = printed(capsys, "show", path)
    said = re.findall(r"aten::(\w)\b", text)
    assert said == list("nmlkjihgfe")
    assert "by CPU time" in " ".join(text.split())
    assert "by CPU time" not in " ".join(printed(capsys, "show", TRACE).split())
