"""What `nsys stats` prints, in each of its forms: never another figure than the report's, and nothing that sums lack.

The tables of ranges and calls are nsys' own, of reports whose exports are in the repository (tests/data/nsys/stats);
those of kernels are summed here from the same exports.
"""

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.measures.timeline.test_nsys_stats import EXPORTS, REPORTS, unpacked

from timesink.cli.app import run
from timesink.errors import UnreadableTrace
from timesink.measures.kernels import kernels
from timesink.measures.timeline.host_times import call_times, range_times
from timesink.model.tables import API_CALLS, OS_CALLS, SUMS
from timesink.model.trace import Trace
from timesink.readers import read

FIGURES = ("count", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")
KERNELS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
MADE: dict[str, Callable[[Trace], pl.DataFrame]] = {
    "nvtx_sum": range_times,
    "cuda_api_sum": lambda trace: call_times(trace, API_CALLS),
    "osrt_sum": lambda trace: call_times(trace, OS_CALLS),
    "cuda_gpu_kern_sum": kernels,
}


def as_csv(rows: list[list[str]]) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()


def as_json(rows: list[list[str]]) -> str:
    def value(cell: str) -> object:
        try:
            return int(cell)
        except ValueError:
            return float(cell) if cell.replace(".", "").isdigit() else cell

    objects = [dict(zip(rows[0], map(value, row), strict=True)) for row in rows[1:]]
    return json.dumps(objects, indent=2) + "\n"


def grouped(rows: list[list[str]]) -> list[list[str]]:
    """With commas between thousands, as text has them."""
    whole = [[f"{int(cell):,}" if cell.isdigit() else cell for cell in row] for row in rows]
    return [[f"{float(cell):,.1f}" if cell.replace(".", "").isdigit() else cell for cell in row] for row in whole]


def as_frame(rows: list[list[str]]) -> str:
    rows = grouped(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    return "\n".join(["", " ** Summary (some_sum):", "", rule, lines[0], rule, *lines[1:], rule, ""])


def as_ruled(rows: list[list[str]]) -> str:
    rows = grouped(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [" " + "  ".join(map(str.rjust, row[:-1], widths)) + "  " + row[-1] for row in rows]
    return "\n".join([lines[0], " " + "  ".join("-" * width for width in widths), *lines[1:], ""])


def amid(text: str) -> str:
    return f"Processing [report.sqlite] with [cuda_api_sum.py]... \n{text}\nProcessing [report.sqlite] with [x.py]...\n"


FORMS = {
    "csv": as_csv,
    "json": as_json,
    "frame": as_frame,
    "ruled": as_ruled,
    "csv amid lines": lambda rows: amid(as_csv(rows)),
    "json amid lines": lambda rows: amid(as_json(rows)),
}


def printed(query: str, name: str, export: Path) -> list[list[str]]:
    """The table that nsys printed; of kernels the one that it would."""
    if query != "cuda_gpu_kern_sum":
        path = EXPORTS / "stats" / f"{name}.{query}.csv"
        return list(csv.reader(path.read_text("utf-8").splitlines())) if path.exists() else []
    with sqlite3.connect(export) as db:
        found = db.execute(
            "select sum(end - start), count(*), avg(end - start), min(end - start), max(end - start), value "
            "from CUPTI_ACTIVITY_KIND_KERNEL join StringIds on id = demangledName group by value order by 1 desc"
        ).fetchall()
    whole = sum(row[0] for row in found)
    cells = (
        [f"{100 * total / whole:.1f}", total, count, f"{mean:.1f}", f"{mean:.1f}", least, most, "0.0", kernel]
        for total, count, mean, least, most, kernel in found
    )
    return [KERNELS.split(","), *([str(cell) for cell in row] for row in cells)]


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_sums_are_those_of_the_report_they_come_from(name: str, tmp_path: Path) -> None:
    export = unpacked(REPORTS[name], tmp_path / "export.sqlite")
    trace = read(export, cache=False)
    for query, made in MADE.items():
        rows, whole = printed(query, name, export), made(trace)
        assert len(rows) - 1 == whole.height or not (rows or whole.height)
        for number, form in enumerate(FORMS if rows else ()):
            page = tmp_path / f"{query}.{number}.{form[:4]}"
            page.write_text(FORMS[form](rows), encoding="utf-8")
            assert_same(read(page, cache=False)[SUMS], whole)


def assert_same(sums: pl.DataFrame, whole: pl.DataFrame) -> None:
    figures = [figure for figure in FIGURES if figure in whole.columns]
    told, known = (frame.sort("name", *figures).select("name", *figures).to_dicts() for frame in (sums, whole))
    assert [row.pop("name") for row in told] == [row.pop("name") for row in known]
    assert told == [pytest.approx(row, abs=0.051, rel=0) for row in known]
    shares = sums["total_ns"] / sums["total_ns"].sum()
    assert sums["time_ratio"].to_list() == pytest.approx(shares.to_list(), abs=0.0006)


def test_older_words_and_other_units_are_read(tmp_path: Path) -> None:
    page = tmp_path / "old.txt"
    page.write_text(
        "Time(%)  Total Time (ms)  Operations  Average  Minimum  Maximum  StdDev      Operation\n"
        "-------  ---------------  ----------  -------  -------  -------  ------  ------------------\n"
        "  100.0             1.50           3   500000   400000   600000     0.0  [CUDA memcpy HtoD]\n\n"
        "Total (MB)  Operations  Average  Minimum  Maximum  StdDev      Operation\n"
        "----------  ----------  -------  -------  -------  ------  ------------------\n"
        "    12.000           3    4.000    4.000    4.000   0.000  [CUDA memcpy HtoD]\n"
    )
    (row,) = read(page, cache=False)[SUMS].to_dicts()
    assert (row["what"], row["name"], row["count"], row["bytes"]) == ("copy", "[CUDA memcpy HtoD]", 3, 12_000_000)
    assert (row["total_ns"], row["mean_ns"], row["median_ns"], row["max_ns"]) == (1_500_000, 500_000.0, None, 600_000)


@pytest.mark.parametrize(
    "head",
    [
        "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances\nstep,PushPop,5,6,1\n",
        "Start (ns),Duration (ns),CorrId,Name\n1,2,3,add\n",
        "PID,TID,DevId,Count,QCount,TAvg (ns),API Name,Kernel Name\n1,1,0,4,3,2.0,cudaLaunchKernel,add\n",
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\nstep,PushPop,1,1,1,1,5,add\n",
        "Time (%),Total Time (ns),Instances,Avg (ns),GridXYZ,BlockXYZ,Name\n100.0,5,1,5.0,1 1 1,32 1 1,add\n",
        "Time (%),Total Time (ns),Instances,Avg (ns),Category,Operation\n100.0,5,1,5.0,CUDA_KERNEL,add\n",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n",
    ],
)
def test_tables_that_are_no_sums_by_name_are_refused(head: str, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text(head)
    with pytest.raises(UnreadableTrace, match=r"no sums of kernels|no row of a table"):
        read(page, cache=False)


@pytest.mark.parametrize("command", [["diagnose"], ["show", "idle"], ["show", "lines"], ["plan"]])
def test_nothing_is_answered_that_sums_do_not_tell(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, str(EXPORTS / "stats" / "writes.cuda_api_sum.csv")]) == 2
    assert "no timeline" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cuda_api_sum", "nvtx_sum", "osrt_sum"])
def test_show_has_the_rows_that_nsys_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = EXPORTS / "stats" / f"writes.{name}.csv"
    assert run(["show", "--format", "json", "--top", "500", str(page)]) == 0
    totals = [int(row["Total Time (ns)"]) for row in csv.DictReader(page.read_text("utf-8").splitlines())]
    told = capsys.readouterr().out
    assert all(f'"total_ns": {total}' in told for total in totals)


ANALYSED = """Processing [run1.sqlite] with [/opt/nsight/rules/cuda_memcpy_async.py]...

 ** CUDA Async Memcpy with Pageable Memory (cuda_memcpy_async):

Suggestion: If applicable, use PINNED memory instead.

 Duration (ns)  Start (ns)   Src Kind  Bytes (MB)
 -------------  ----------  --------  ----------
     1,234,567  1000000000  Pageable      12.345
       234,567  2000000000  Pageable       1.345

 ** GPU Gaps (gpu_gaps):

There were no problems detected related to GPU utilization.
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ANALYSED, ("cuda_memcpy_async found 2, gpu_gaps found nothing", "diagnose run1.sqlite")),
        (ANALYSED[ANALYSED.index(" ** GPU") :], ("prints: gpu_gaps found nothing;", "diagnose REPORT.nsys-rep")),
        (ANALYSED.replace("run1", "a\x1b[31mb"), ("cuda_memcpy_async found 2", "diagnose a\\x1b[31mb.sqlite")),
        (ANALYSED.replace("(gpu_gaps)", "(gpu_time_util:2)"), ("gpu_time_util found nothing", "run1")),
        (ANALYSED.replace("1,234,567", "1234567.5").replace("\n", "\r\n"), ("cuda_memcpy_async found 2", "run1")),
    ],
)
def test_what_nsys_analyze_prints_is_named_and_its_report_asked_for(
    text: str, said: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "analyze.txt").write_text(text, newline="")
    with pytest.raises(UnreadableTrace) as raised:
        read([tmp_path / "analyze.txt"])
    assert said[0] in str(raised.value) and said[1] in raised.value.remedy


_RULED = """
 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)   Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  -------
     80.8      444,988,647      5,862  75,910.7  69,056.5    57,597   583,238     56,331.0  advance
     19.2      105,720,847      5,862  18,034.9   8,410.0     6,714   444,785     36,827.3  reduce
"""
_CALLS = _RULED.replace("Instances", "Num Calls").replace("advance", "cudaLaunchKernel").replace("reduce", "cudaFree")
_BARS = "".join(f"[1/8] [{'=' * (at // 4)}{at}%{' ' * 20}] run.nsys-rep\n" for at in range(100)) + "\n"
_COLLECTED = "nsys target script complete.\nCollecting data...\nGenerating '/tmp/nsys-report-1.qdstrm'\n"


@pytest.mark.parametrize(
    "before",
    ["", "\n", "[1/8] [100%] run.nsys-rep\n", _BARS, _COLLECTED + _BARS],
    ids=["none", "blank", "bar", "bars", "collected"],
)
def test_what_nsys_prints_of_its_progress_is_no_row_and_no_json(before: str, tmp_path: Path) -> None:
    """The output of `nsys profile --stats=true`, kept whole or from the first table on."""
    path = tmp_path / "nsys_output.txt"
    parts = [f"[{at}/8] Executing '{name}' stats report\n{table}\n" for at, name, table in (
        (6, "cuda_gpu_kern_sum", _RULED), (5, "cuda_api_sum", _CALLS))]  # fmt: skip
    path.write_text(before + "".join(parts))
    trace = read(path, cache=False)
    assert trace[SUMS].select("what", "name", "count", "total_ns").rows() == [
        ("kernel", "advance", 5862, 444988647),
        ("kernel", "reduce", 5862, 105720847),
        ("api_call", "cudaLaunchKernel", 5862, 444988647),
        ("api_call", "cudaFree", 5862, 105720847),
    ]
    assert not trace.notes
