"""ncu's CSV pages: locales, units, noise around them, labels or names."""

from pathlib import Path

import pytest

from timesink.diagnosis.engine import diagnose
from timesink.errors import UnreadableTrace
from timesink.knowledge.kernel_symbols import function_name, plain_name
from timesink.knowledge.metric_names import base_unit, normalised
from timesink.measures.counters import kernel_counters
from timesink.measures.counters.groups import launch_groups
from timesink.measures.counters.limiter import limits_of
from timesink.measures.counters.waste import Cause
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES, KERNEL_RULES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.readers.ncu.csv_pages import number, writes_decimal_comma
from timesink.views.kernels import kernels_page

FIXED = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
FIXED += ',"Device","CC"'
LAUNCH = '"0","12","python","here","void ns::k<int>(float *)","1","7","(256, 1, 1)","(1024, 2, 1)","0","8.6"'


def page(folder: Path, text: str) -> Trace:
    path = folder / "page.csv"
    path.write_text(text, encoding="utf-8")
    return read(path, cache=False)


def numbers(trace: Trace) -> dict[str, tuple[float | None, str | None]]:
    rows = trace[KERNEL_METRICS].select("metric", "value", "unit").iter_rows()
    return {
        name: (value, unit) for name, value, unit in rows if "__attribute" not in name and name != "launch__device_id"
    }


def test_a_raw_page_amid_program_output_is_found_and_scaled(tmp_path: Path) -> None:
    header = f'{FIXED},"gpu__time_duration.sum","dram__bytes_read.sum","l1tex__cycles_elapsed.avg"\n'
    units = '"","","","","","","","","","","","msecond","Gbyte","cycle"\n'
    row = f'{LAUNCH},"1,234.50","2.50","1,000,000"\n'
    trace = page(tmp_path, f"==PROF== Connected\nepoch 1, loss 2.0\n{header}{units}{row}==PROF== Disconnected\n")
    assert numbers(trace) == {
        "gpu__time_duration.sum": (1234.5e6, "ns"),
        "dram__bytes_read.sum": (2.5e9, "bytes"),
        "l1tex__cycles_elapsed.avg": (1e6, "cycle"),
    }
    profile = trace[KERNEL_PROFILES].row(0, named=True)
    assert (profile["function"], profile["grid_x"], profile["block_x"], profile["compute_minor"]) == ("k", 1024, 256, 6)
    assert profile["duration_ns"] == 1234.5e6
    assert [note.count for note in trace.notes] == [1]


def test_a_page_of_a_machine_that_writes_a_decimal_comma(tmp_path: Path) -> None:
    header = f'{FIXED},"gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed"\n'
    units = '"","","","","","","","","","","","nsecond","%"\n'
    trace = page(tmp_path, f'{header}{units}{LAUNCH},"117.344,2","45,25"\n')
    assert numbers(trace) == {
        "gpu__time_duration.sum": (117344.2, "ns"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": (45.25, "%"),
    }


def test_empty_and_unavailable_cells_are_absent_and_nan_is_kept(tmp_path: Path) -> None:
    header = f'{FIXED},"a__x.sum","b__x.sum","c__x.sum","d__x.sum"\n'
    trace = page(tmp_path, f'{header}"","","","","","","","","","","","","","",""\n{LAUNCH},"","n/a","nan","3"\n')
    found = {name: value for name, (value, _) in numbers(trace).items()}
    assert set(found) == {"c__x.sum", "d__x.sum"}
    assert found["c__x.sum"] != found["c__x.sum"]
    assert trace[KERNEL_PROFILES]["failed_metrics"].to_list() == [1]


def test_details_by_label_and_by_name_are_one(tmp_path: Path) -> None:
    header = (
        f'{FIXED},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"'
    )
    header += ',"Estimated Speedup Type","Estimated Speedup"\n'
    rule = f'{LAUNCH},"SpeedOfLight","","","","SOLBottleneck","OPT","Slow.","global","12.5"\n'
    by_label = f'{LAUNCH},"GPU Speed Of Light Throughput","Duration","us","12.50",""\n'
    by_name = f'{LAUNCH},"GPU Speed Of Light Throughput","gpu__time_duration.sum","us","12.50",""\n'
    for row in (by_label, by_name):
        trace = page(tmp_path, header + row + rule)
        assert numbers(trace) == {"gpu__time_duration.sum": (12500.0, "ns")}
        rules = trace[KERNEL_RULES].select("rule", "kind", "speedup_kind", "speedup_percent").rows()
        assert rules == [("SOLBottleneck", "optimization", "global", 12.5)]


def test_a_summary_is_the_mean_of_its_launches(tmp_path: Path) -> None:
    header = f'{FIXED},"Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
    trace = page(tmp_path, header + f'{LAUNCH},"3","GPU Speed Of Light Throughput","Duration","us","1","2","1.5"\n')
    assert numbers(trace) == {"Invocations": (3.0, None), "gpu__time_duration.sum": (1500.0, "ns")}
    assert [note.count for note in trace.notes if "summaries" in note.message] == [1]


@pytest.mark.parametrize(("counts", "lengths"), [((3,), (1.5,)), ((250, 25, 14), (1.92, 1.86, 1.75)), ((1, 1), (2, 3)),
                                                 ((20, 10), (3220, 3060)), ((7, 0), (41, 30)),
                                                 ((10**9, 2), (1.5, 3.0))])  # fmt: skip
def test_a_summary_counts_for_all_of_its_launches(
    counts: tuple[int, ...], lengths: tuple[float, ...], tmp_path: Path
) -> None:
    header = f'{FIXED},"Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
    rows = [
        f'{LAUNCH.replace("k<int>", f"k{at}")},"{count or ""}",'
        f'"GPU Speed Of Light Throughput","{label}","{unit}","0","1","{mean}"\n'
        for at, (count, length) in enumerate(zip(counts, lengths, strict=True))
        for label, unit, mean in (("Duration", "us", length), ("DRAM Throughput", "%", 91.0))
    ]
    trace = page(tmp_path, header + "".join(rows))
    kernels = kernel_counters(trace)
    assert [kernel.launches for kernel in kernels] == [count or 1 for count in counts]
    groups = launch_groups([one for one in map(limits_of, kernels) if one is not None], Cause.MEMORY)
    assert sum(group.count for group in groups) == sum(count or 1 for count in counts)
    total = sum(1e3 * length * (count or 1) for count, length in zip(counts, lengths, strict=True))
    assert sum(group.total_ns for group in groups) == pytest.approx(total)
    assert diagnose(trace).profiled_kernels == sum(count or 1 for count in counts)
    (told, *_) = kernels_page(trace).sheets
    assert told.rows, "a count of a file is no length of a list"


def test_a_page_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace, match="holds no kernel"):
        page(tmp_path, f'{FIXED},"a__x.sum"\n')


@pytest.mark.parametrize(
    ("cell", "comma", "wanted"),
    [
        ("1,234.56", False, 1234.56),
        ("1.234,56", True, 1234.56),
        ("1,234", False, 1234.0),
        ("1.234", True, 1234.0),
        ("12", True, 12.0),
        ("96 (1; 2; 3)", False, 96.0),
        ("No-CC", False, None),
        ("", False, None),
    ],
)
def test_numbers_in_cells(cell: str, comma: bool, wanted: float | None) -> None:
    assert number(cell, comma) == wanted


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [(["1,234.5", "12"], False), (["1.234,5", "12"], True), (["12", "word"], False), (["0,25"], True)],
)
def test_the_decimal_mark_is_what_unambiguous_cells_say(cells: list[str], wanted: bool) -> None:
    assert writes_decimal_comma(cells) is wanted


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        ("usecond", ("ns", 1e3)),
        ("us", ("ns", 1e3)),
        ("Gbyte/second", ("bytes/s", 1e9)),
        ("Tbyte/s", ("bytes/s", 1e12)),
        ("cycle/nsecond", ("Hz", 1e9)),
        ("Ghz", ("Hz", 1e9)),
        ("Kbyte/block", ("bytes/block", 1e3)),
        ("sector/us", ("sector/s", 1e6)),
        ("inst", ("inst", 1.0)),
        ("", (None, 1.0)),
    ],
)
def test_printed_units_of_both_spellings_come_to_one(printed: str, wanted: tuple[str | None, float]) -> None:
    unit, factor = normalised(printed)
    assert unit == wanted[0]
    assert factor == pytest.approx(wanted[1])


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("gpu__time_duration.sum", "ns"),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
        ("dram__bytes.sum.per_second", "bytes/s"),
        ("dram__bytes.sum.peak_sustained", "bytes/cycle"),
        ("sm__cycles_elapsed.avg.per_second", "Hz"),
        ("smsp__thread_inst_executed_per_inst_executed.ratio", None),
        ("launch__grid_size", None),
    ],
)
def test_a_name_tells_its_base_unit(metric: str, unit: str | None) -> None:
    assert base_unit(metric) == unit


@pytest.mark.parametrize(
    ("demangled", "function"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<(int)8, at::native::Gelu<float>>(int, T1)",
            "vectorized_elementwise_kernel",
        ),
        ("(anonymous namespace)::one_counter_fault(const float *, float *)", "one_counter_fault"),
        ("nvjet_sm90_tst_64x8", "nvjet_sm90_tst_64x8"),
        ("basic(int, int)", "basic"),
    ],
)
def test_the_bare_name_of_a_kernel(demangled: str, function: str) -> None:
    assert function_name(demangled) == function


def test_demanglers_agree_on_the_plain_name() -> None:
    assert plain_name("void a::f<(int)4, (bool)1>(float *)") == plain_name("void a::f<4,1>(float*)")


@pytest.mark.parametrize(
    ("undecided", "decided", "is_told"),
    [(11.6, 1.41, True), (3.0, 2.9, True), (2.9, 3.0, False), (0.1, 9.0, False), (900.0, 1.0, True)],
)
def test_of_a_kernel_that_takes_longer_and_is_undecided_the_answer_tells(
    undecided: float, decided: float, is_told: bool, tmp_path: Path
) -> None:
    header = f'{FIXED},"Section Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = [
        f'{LAUNCH.replace("k<int>", name)},"GPU Speed Of Light Throughput","{label}","{unit}","{value}"\n'
        for name, length, level in (("busy", decided, "DRAM"), ("other", undecided, "L1/TEX Cache"))
        for label, unit, value in (("Duration", "ms", length), (f"{level} Throughput", "%", 91.0))
    ]
    (_, found), *_ = diagnose(page(tmp_path, header + "".join(rows))).findings
    assert ("What limits other fp32, " in found.message and "is undecided" in found.message) is is_told
