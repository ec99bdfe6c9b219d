"""Every page that ncu prints of a report has the limiter of the report, or leaves it undecided.

The pages are of 24 kernels on an H100, made by ncu 2025.3: `benchmarks/kernels/unseen6` has their reports.
"""

import lzma
import sys
from functools import cache
from pathlib import Path

import pytest

from timesink.errors import UnreadableTrace
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.readers import read

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "tests/data/ncu_pages"
# Pages and how many of their kernels are decided at least.
DECIDED = {
    "cuda.details.txt": 5,
    "cuda.details_both.csv": 5,
    "cuda.sol.txt": 1,
    "cuda.summary.csv": 4,
    "plain.txt": 1,
    "triton.details.csv": 7,
    "triton.details.txt": 7,
    "triton.raw.txt": 2,
    "triton.sol.csv": 3,
    "triton.summary.txt": 5,
}


@cache
def reported(name: str) -> dict[str, KernelLimits]:
    sys.path.insert(0, str(ROOT / "benchmarks" / "kernels"))
    try:
        from score import faults_in
    finally:
        sys.path.pop(0)
    faults, _ = faults_in(ROOT / "benchmarks/kernels/unseen6/reports" / f"{name}.ncu-rep.xz")
    return dict(faults)


@pytest.mark.parametrize("name", DECIDED)
def test_a_page_has_the_reports_limiter_or_none(name: str, tmp_path: Path) -> None:
    page = tmp_path / name
    page.write_bytes(lzma.decompress((PAGES / f"{name}.xz").read_bytes()))
    of_report = reported("triton" if name.startswith("triton") else "cuda")
    decided = [one for one in kernel_limits(read(page, cache=False)) if one is not None]
    for one in decided:
        report = of_report[one.kernel.function.removesuffix("_fault")]
        assert one.limiter is report.limiter, one.kernel.function
        assert one.kernel.duration_ns == pytest.approx(report.kernel.duration_ns, rel=0.1)
        assert (one.kernel.grid, one.kernel.block) == (report.kernel.grid, report.kernel.block)
    assert len(decided) >= DECIDED[name]


KERNEL = "  scale(float *) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.9"
TABLE = """    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    Metric Name               Metric Unit Metric Value
    ----------------------- ------------- ------------
    DRAM Throughput                     %        92.10
    Memory Throughput                   %        92.10
    Compute (SM) Throughput             %        20.40
    Duration                      usecond       128.00
    ----------------------- ------------- ------------
"""
ADVICE = "    OPT   Est. Speedup: 12.5%\n          Memory is busy.\n"
PAGE = f"==PROF== Connected to process 7\n[7] app@host\n{KERNEL}\n{TABLE}{ADVICE}"
OLD_TABLE = "\n".join([*TABLE.splitlines()[:2], *TABLE.splitlines()[4:]])
VARIANTS = {
    "as printed": f"==PROF== Connected to process 7\n[7] app@host\n{KERNEL}\n{TABLE}",
    "without the process": f"{KERNEL}\n{TABLE}",
    "cut to the left": "\n".join(line.strip() for line in f"{KERNEL}\n{TABLE}".splitlines()),
    "of 2020": f"  scale, 2020-May-05 12:00:00, Context 1, Stream 7\n{TABLE}",
    "quoted in a mail": f"hello,\nthis is what I get:\n\n{KERNEL}\n{TABLE}\n\nwhy is it slow?\n",
    "Windows lines": f"{KERNEL}\n{TABLE}".replace("\n", "\r\n"),
    "of 2021, without heads of tables": f"  scale(float *), 2021-May-05 12:00:00, Context 1, Stream 7\n{OLD_TABLE}",
    "in a comment": "".join(f"// {line}\n" for line in PAGE.splitlines()),
    "in a comment of Python": "".join(f"# {line}".rstrip() + "\n" for line in PAGE.splitlines()),
    "quoted by an answer": "".join(f">> {line}\n" for line in PAGE.splitlines()),
    "with numbers of its lines": "".join(f"{at}: {line}\n" for at, line in enumerate(PAGE.splitlines(), 96)),
    "with a message": f"{KERNEL}\n{TABLE}\n{ADVICE}",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_pasted_is_read(variant: str, tmp_path: Path) -> None:
    page = tmp_path / "pasted.txt"
    page.write_text(VARIANTS[variant])
    trace = read(page, cache=False)
    (found,) = trace["kernel_profiles"].select("name").rows()
    assert found[0].startswith("scale")
    values = dict(trace["kernel_metrics"].select("metric", "value").rows())
    assert values["gpu__time_duration.sum"] == 128_000.0
    assert values["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"] == 92.1


def test_a_page_without_a_kernel_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "pasted.txt"
    page.write_text(TABLE)
    with pytest.raises(UnreadableTrace, match="no kernel"):
        read(page, cache=False)
