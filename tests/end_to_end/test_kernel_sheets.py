"""The sheet of a profiled kernel: its figures are those of ncu's details page, its checks stand beside the verdict."""

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.measures.counters.kernel_counter_strategies import kernel
from tests.profiles import ABSENT
from tests.readers.ncu_pages import PAGES, PUBLIC, REPORTS, SUITE, Reading, Style, raw_page, reading_into, unpacked

from timesink.cli.app import run
from timesink.errors import UsageError
from timesink.export.held import holdings
from timesink.knowledge.metric_names import normalised
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.causes import limiter_name, limiter_words
from timesink.measures.counters.checks import CHECKS, check_limits, checks_of
from timesink.measures.counters.machine_roofs import LeastBytes
from timesink.measures.counters.resources import Resource
from timesink.measures.counters.sheet import FIGURES, VERDICT, Value, kernel_sheets, verdict_of
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.readers.ncu.csv_pages import metric_of, number, page_rows
from timesink.views.kernel_path import decision_path
from timesink.views.kernel_sheet import printed, sheets_page

DETAILS = [(report, page) for report, pages in PAGES.items() for page in pages if "details" in page.name]
# Figures that are a counter, though the sheet works them out where another version counts them otherwise.
ALSO = {
    "gpu__time_duration.sum": "duration_ns",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "active_threads",
}
FIGURES_OF_PUBLIC = json.loads((Path(__file__).parents[1] / "data" / "ncu" / "public_figures.json").read_text("utf-8"))
FIGURE_OF = {counter: figure.key for figure in FIGURES for counter in figure.counters} | ALSO


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    return reading_into(tmp_path_factory.mktemp("sheets"))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "atomics.ncu-rep"
    path.write_bytes(unpacked(SUITE / "atomics.ncu-rep.xz"))
    return path


def assert_printed(value: Value, shown: str, unit: str) -> None:
    """Whether the figure is what the page shows, to its digits; what the page calls nan or n/a is none."""
    if shown in ("nan", "n/a"):
        assert value is None
        return
    _, factor = normalised(unit)
    digits = len(shown.partition(".")[2])
    assert isinstance(value, float)
    assert f"{value / factor:.{digits}f}" == f"{number(shown, False):.{digits}f}"


@pytest.mark.parametrize(("report", "page"), DETAILS, ids=lambda path: path.name)
def test_every_figure_is_that_of_the_details_page_to_its_digits(report: Path, page: Path, reading: Reading) -> None:
    sheets = kernel_sheets(reading(report))
    header, rows, _ = page_rows(unpacked(page).decode())
    compared = 0
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        key = FIGURE_OF.get(metric_of(cells["Section Name"], cells["Metric Name"]) or "")
        if key is not None:
            assert_printed(sheets[int(cells["ID"])].figures[key], cells["Metric Value"], cells["Metric Unit"])
            compared += 1
    assert compared >= 45 * len(sheets)


@pytest.mark.parametrize("name", FIGURES_OF_PUBLIC)
def test_figures_of_an_a100_and_an_a10g_are_those_of_their_details_pages(name: str, reading: Reading) -> None:
    """What ncu 2025.3.1 prints with --import of public reports; one of their kernels has NaN for its passes."""
    path = PUBLIC / f"{name}.ncu-rep"
    if not path.exists():
        pytest.skip(ABSENT)
    sheets = kernel_sheets(reading(path))
    for key, kernels in FIGURES_OF_PUBLIC[name].items():
        for sheet, told in zip(sheets, kernels, strict=True):
            shown, _, unit = told.partition(" ")
            assert_printed(sheet.figures[key], shown, unit)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_no_check_contradicts_the_verdict(path: Path, reading: Reading) -> None:
    for sheet in kernel_sheets(reading(path)):
        if sheet.limits is None:
            continue
        word = limiter_words(limiter_name(sheet.limits))
        to_roof = verdict_of(sheet.limits)["roof_speedup"]
        if sheet.limits.limiter in (Cause.MEMORY, Cause.COMPUTE) and sheet.limits.top.resource is Resource.ALU:
            assert isinstance(to_roof, float)
            assert to_roof <= 1 / sheet.limits.top.busy + 1e-9
        says = {one.check.name: one.says for one in checks_of(sheet, check_limits({}))}
        assert not any("done" in text or "no limit" in text for text in says.values())
        if says.get("memory_high") and sheet.limits.limiter.value in ("uncoalesced", "bank_conflicts", "atomics"):
            assert word in says["memory_high"]
        if says.get("stalled") and sheet.limits.top.busy > 0.5:
            assert sheet.limits.top.name in says["stalled"]
        assert list(decision_path(sheet))[-1].startswith(f"Of the time: {limiter_words(sheet.limits.limiter.value)} ")


def test_a_sheet_begins_with_limiter_roof_and_distance_and_then_the_bound(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kernels", str(report), "--id", "0"]) == 0
    first, *_ = capsys.readouterr().out.split("\n\n")
    order = ["atomics", "78.72 % of its L2 roof", "1.27 x to it", "212.29 x without the limiter"]
    places = [" ".join(first.split()).index(words) for words in order]
    assert places == sorted(places)


def test_sheets_as_json_hold_every_figure_and_as_csv_a_column_each(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kernels", str(report), "--name", "HISTOGRAM", "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)["kernels"]
    assert [entry["id"] for entry in entries] == [0, 1]
    assert set(entries[0]["figures"]) == {figure.key for figure in FIGURES}
    assert entries[0]["figures"]["dram_pct"] == pytest.approx(0.4475, abs=1e-4)
    assert run(["kernels", str(report), "--id", "2", "--format", "csv"]) == 0
    header, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["id", "kernel", *VERDICT, *(figure.key for figure in FIGURES)]
    assert row[0] == "2"


def test_a_table_has_the_columns_asked_for_in_the_order_asked_for(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["kernels", str(report), "--columns", "duration_ns,limiter", "--sort", "duration_ns", "--format", "csv"]
    assert run(asked) == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["id", "kernel", "duration_ns", "limiter"]
    times = [float(row[2]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert run(["kernels", str(report), "--columns", "dram_pc"]) != 0
    assert "dram_pct" in capsys.readouterr().err


def test_a_limit_of_a_check_is_overridden_by_name(report: Path, reading: Reading) -> None:
    (sheet, *_) = kernel_sheets(reading(SUITE / "atomics.ncu-rep.xz"))
    holds = {one.check.name: one.holds for one in checks_of(sheet, check_limits({"registers": 8}))}
    assert (holds["registers"], holds["sm_high"]) == (True, False)
    with pytest.raises(UsageError, match="registres"):
        check_limits({"registres": 8})


@pytest.mark.parametrize(("least", "says"), [(8.39e6, "2.00 x the least of 8.39 MB: reading"), (33.6e6, "0.50 x")])
def test_bytes_that_dram_moved_stand_beside_those_of_the_algorithm(least: float, says: str, reading: Reading) -> None:
    (sheet, *_) = kernel_sheets(reading(SUITE / "atomics.ncu-rep.xz"))
    *_, last = decision_path(sheet, LeastBytes(least))
    assert f"DRAM moved 16.8 MB, {says}" in last


def traced(folder: Path, kernel: KernelCounters, rows: list[int], times: float = 1.0) -> Path:
    """A trace in which aten::mm of so many rows times 4096 x 4096 launches this kernel, once for each of `rows`."""
    events: list[dict[str, Any]] = []
    args = {"Input type": ["c10::BFloat16"] * 2, "grid": list(kernel.grid), "block": list(kernel.block), "device": 0}
    for at, count in enumerate(rows):
        ids = {"External id": at + 1, "correlation": at + 1, "stream": 7}
        shapes = {"Input Dims": [[count, 4096], [4096, 4096]], "Input Strides": [[4096, 1], [1, 4096]]}
        for cat, name, start, length in (
            ("cpu_op", "aten::mm", 0.0, 20.0),
            ("cuda_runtime", "cudaLaunchKernel", 5.0, 5.0),
            ("kernel", kernel.name, 30.0, (kernel.duration_ns or 0.0) / 1000 * times),
        ):
            place = {"ph": "X", "pid": 0 if cat == "kernel" else 1, "tid": 7 if cat == "kernel" else 1}
            found = {**args, **ids, **(shapes if cat == "cpu_op" else {})}
            events.append({**place, "cat": cat, "name": name, "ts": 1000 * at + start, "dur": length, "args": found})
    path = folder / f"trace{len(rows)}{times}.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    return path


@pytest.mark.parametrize(
    ("rows", "times", "says"),
    [
        ([4096, 4096], 1.0, "1.78 x the least of 101 MB (aten::mm [[4096,4096],[4096,4096]]): reading"),
        ([4096, 2048], 1.0, "not known: in the timeline operators of 2 shapes launch it"),
        ([4096], 4.0, "not known: in the timeline it takes 4 x as long, as another shape would"),
        ([], 1.0, "not known: the timeline has no launch of this kernel, grid and block"),
    ],
)
def test_shapes_of_a_trace_say_what_a_kernel_must_move(
    rows: list[int], times: float, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "full.ncu-rep"
    report.write_bytes(unpacked(SUITE.parent / "known_shapes" / "results" / "full.ncu-rep.xz"))
    (sheet, *_), other = kernel_sheets(read(report, cache=False)), kernel({}, name="another")
    trace = traced(tmp_path, sheet.kernel if rows else other, rows or [1], times)
    assert run(["kernels", str(report), "--id", "0", "--timeline", str(trace), "--format", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["kernels"]
    assert says in entry["path"][-1]


EPILOGUES = {
    "unseen/reports/wide_output": ["the epilogue is the longer"],
    "unseen/reports/cuda": ["the epilogue is the longer", "the main loop is the longer"],
    "unseen2/reports/cuda": [*["the epilogue is the longer"] * 2, "the main loop is the longer"],
}


@pytest.mark.parametrize("report", EPILOGUES)
def test_products_are_told_whether_their_main_loop_or_their_epilogue_is_the_longer(
    report: str, reading: Reading
) -> None:
    """Results written by rows, in fp32, worked on at length or added up, beside products that wait for copies."""
    sheets = kernel_sheets(reading(SUITE.parent / f"{report}.ncu-rep.xz"))
    steps = [step for sheet in sheets for step in decision_path(sheet) if step.startswith("Main loop")]
    ends = [step.rpartition(": ")[2].rstrip(".") for step in steps]
    assert sorted(ends) == sorted(EPILOGUES[report])


def test_what_is_not_recorded_is_named_and_not_shown_as_zero(reading: Reading) -> None:
    trace = reading(next(iter(PAGES)).parent / "atomics.details_label.csv.xz")
    page = sheets_page(kernel_sheets(trace)[:1], {})
    assert any("not recorded: stalls" in note for note in page.notes)
    assert "spill_bytes" not in {row[0] for sheet in page.sheets for row in sheet.rows}
    assert kernel_sheets(trace)[0].figures["excess_sectors_pct"] is None


def test_the_figures_are_columns_of_a_table_that_queries_can_name(reading: Reading) -> None:
    (held,) = (one for one in holdings(reading(SUITE / "atomics.ncu-rep.xz")) if one.name == "kernel_sheets")
    assert held.frame.columns == ["rank", "profile", "kernel", *VERDICT, *(figure.key for figure in FIGURES)]
    assert held.frame.height == 6


def test_keys_of_figures_and_checks_are_distinct_and_checks_name_figures() -> None:
    keys = [figure.key for figure in FIGURES]
    assert len(set(keys)) == len(keys)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert {key for check in CHECKS for key in check.figures} <= set(keys)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (670784.0, "ns", "670.78 us"),
        (1.04e12, "bytes/s", "1.04 TB/s"),
        (93.652, "%", "93.65 %"),
        (1040069.97, "", "1,040,069.97"),
        (132.0, "", "132"),
        (0.004, "", "0.00"),
        ("PolicySpread", "", "PolicySpread"),
    ],
)
def test_figures_are_printed_with_the_digits_of_the_details_page(value: float | str, unit: str, text: str) -> None:
    assert printed(value, unit) == text


@pytest.mark.skipif(not PUBLIC.is_dir(), reason=ABSENT)
def test_a_kernel_whose_passes_failed_has_neither_figures_nor_advice_to_record_more(reading: Reading) -> None:
    sheet = kernel_sheets(reading(PUBLIC / "a10g_nan_kernel.ncu-rep"))[3]
    page = sheets_page([sheet], {})
    assert {key for key, value in sheet.figures.items() if value is not None} == set()
    assert page.notes == ()
    assert "failed passes" in page.title


def test_two_reports_are_drawn_with_an_arrow_for_each_kernel_that_moved(
    report: Path, tmp_path: Path, reading: Reading, capsys: pytest.CaptureFixture[str]
) -> None:
    page = raw_page(reading(SUITE / "gemm.ncu-rep.xz"), Style())
    header, units, *rows = page.splitlines(keepends=True)
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text(header + units + "".join(row for row in rows if "_fault" in row))
    new.write_text(header + units + "".join(row for row in rows if "_fix" in row))
    picture = tmp_path / "roof.svg"
    assert run(["kernels", "--roofline", str(old), "--against", str(new), "-o", str(picture)]) == 0
    tree = ElementTree.fromstring(picture.read_text())
    arrows = tree.findall(".//{http://www.w3.org/2000/svg}polygon")
    assert len(arrows) == 9  # three kernels at three levels
    assert run(["kernels", "--roofline", str(old), "--against", str(new)]) == 2
    assert "add -o roof.svg" in capsys.readouterr().err
