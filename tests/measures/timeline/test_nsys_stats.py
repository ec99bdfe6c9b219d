"""Tables of ranges and calls are those that `nsys stats` prints, to the nanosecond, on seven reports of ours."""

import csv
import lzma
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
from benchmarks.faults import pack

from timesink.measures.timeline.attribution import launch_links, push_pop_ranges
from timesink.measures.timeline.autograd import waiting_ranges
from timesink.measures.timeline.host_times import call_times, range_times
from timesink.measures.timeline.ranges import thread_projection
from timesink.model.tables import API_CALLS, OS_CALLS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read

ROOT = Path(__file__).resolve().parents[3]
EXPORTS = ROOT / "tests" / "data" / "nsys"
REPORTS = {
    "gpt_before_5_steps": EXPORTS / "gpt_before_5_steps.sqlite",
    "emit_nvtx": EXPORTS / "emit_nvtx.sqlite.xz",
    "writes": EXPORTS / "writes.sqlite.xz",
    "compiled": ROOT / "tests" / "data" / "capture" / "compiled" / "nsys" / "report.sqlite.xz",
    **{
        name: ROOT / "benchmarks" / "faults" / "captures" / f"{name}.nsys.tar.xz"
        for name in ("printed_loss", "compiled_again", "too_few_workers")
    },
}
STYLES = {"push_pop": "PushPop", "start_end": "StartEnd"}
Row = tuple[float, ...]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trace]:
    """The trace of a report, by its name."""
    folder = tmp_path_factory.mktemp("reports")
    known: dict[str, Trace] = {}

    def opened(name: str) -> Trace:
        if name not in known:
            known[name] = read(unpacked(REPORTS[name], folder / f"{name}.sqlite"), cache=False)
        return known[name]

    return opened


def unpacked(path: Path, target: Path) -> Path:
    if path.name.endswith(".tar.xz"):
        pack.unpacked(path, target.parent)
        return target.parent / path.name.replace(".nsys.tar.xz", ".high.fault.sqlite")
    if path.suffix == ".xz":
        target.write_bytes(lzma.decompress(path.read_bytes()))
        return target
    return path


def printed(name: str, query: str) -> list[dict[str, str]]:
    path = EXPORTS / "stats" / f"{name}.{query}.csv"
    return list(csv.DictReader(path.read_text("utf-8").splitlines())) if path.exists() else []


def unversioned(name: str) -> str:
    """nsys keeps what CUPTI appends to names of calls; timesink does not."""
    return re.sub(r"_v\d+$", "", name)


def sums(rows: Iterable[dict[str, str]], count: str, name: str) -> dict[tuple[str, str], Row]:
    """count, total, mean, median, least, most: of one row each, or of the versions of one call together."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = unversioned(row[name]), row.get("Style", "")
        times = [float(row[f"{what} (ns)"]) for what in ("Total Time", "Avg", "Med", "Min", "Max")]
        assert key not in found, "two versions of one call in a report: choose another report"
        found[key] = (int(row[count]), *(pytest.approx(ns, abs=0.051, rel=0) for ns in times))
    return found


def ours(frame: pl.DataFrame, style: bool) -> dict[tuple[str, str], Row]:
    figures = ("count", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")
    return {
        (row["name"], STYLES[row["kind"]] if style else ""): tuple(row[name] for name in figures)
        for row in frame.iter_rows(named=True)
    }


@pytest.mark.parametrize("name", REPORTS)
def test_ranges_are_those_of_nvtx_sum(report: Callable[[str], Trace], name: str) -> None:
    wanted = sums(printed(name, "nvtx_sum"), "Instances", "Range")
    assert wanted
    assert ours(range_times(report(name)), style=True) == wanted


@pytest.mark.parametrize("name", REPORTS)
def test_cuda_calls_are_those_of_cuda_api_sum(report: Callable[[str], Trace], name: str) -> None:
    wanted = sums(printed(name, "cuda_api_sum"), "Num Calls", "Name")
    assert wanted
    assert ours(call_times(report(name), API_CALLS), style=False) == wanted


@pytest.mark.parametrize("name", REPORTS)
def test_operating_system_calls_are_those_of_osrt_sum(report: Callable[[str], Trace], name: str) -> None:
    assert ours(call_times(report(name), OS_CALLS), style=False) == sums(printed(name, "osrt_sum"), "Num Calls", "Name")


@pytest.mark.parametrize("name", REPORTS)
def test_gpu_work_of_ranges_is_that_of_nvtx_gpu_proj_sum(report: Callable[[str], Trace], name: str) -> None:
    """Of the range's own thread it is the same; what else ours have is what autograd launched while they waited."""
    trace, rows = report(name), printed(name, "nvtx_gpu_proj_sum")
    times = range_times(trace)
    own = times.filter(pl.col("thread_launch_count") > 0)
    figures = ("thread_launch_count", "thread_projected_ns")
    assert {(row["name"], STYLES[row["kind"]]): tuple(row[key] for key in figures) for row in own.to_dicts()} == {
        (row["Range"], row["Style"]): (int(row["Total GPU Ops"]), int(row["Total Proj Time (ns)"])) for row in rows
    }
    instances = thread_projection(trace)
    assert instances["range"].n_unique() == sum(int(row["Range Instances"]) for row in rows)
    host_ns = (instances["host_end_ns"] - instances["host_start_ns"]).sum()
    assert host_ns == sum(int(row["Total Range Time (ns)"]) for row in rows)
    more = times["op_count"].sum() - thread_projection(trace)["op_count"].sum()
    assert more == adopted_ops(trace)


def adopted_ops(trace: Trace) -> int:
    """What autograd launched, counted once for the waiting range and once for each one around it."""
    ranges, call = push_pop_ranges(trace), launch_links(trace).call
    crossing = trace[RANGES].filter(pl.col("kind") == "start_end")
    starts = trace[API_CALLS]["start_ns"]
    total = 0
    for row in call[call >= 0].tolist():
        waiting = int(waiting_ranges(trace)[row])
        if waiting >= 0:
            mine = ranges.row(waiting, named=True)
            around = pl.concat([ranges.select(crossing.columns), crossing]).filter(
                pl.col("thread") == mine["thread"], pl.col("start_ns") <= starts[row], pl.col("end_ns") > starts[row]
            )
            total += around.height
    return total


def test_the_reports_hold_what_autograd_launched(report: Callable[[str], Trace]) -> None:
    times = range_times(report("gpt_before_5_steps"))
    backward = times.row(by_predicate=pl.col("name") == "backward", named=True)
    assert (backward["thread_launch_count"], backward["op_count"]) == (5, 810)
