"""Each figure of the page of taught workflows is printed by a command on a capture of the repository, or in a file."""

import lzma
import re
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked

from timesink.cli.app import run
from timesink.cli.demo import __file__ as demo

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/workflows.md"
FIGURE = re.compile(r"(?<![\w.,#])[-+]?\d[\d,]*(?:\.\d+)?(?![\w×]|\.\d)")
ONE, ROOFLINE, COALESCING = (
    "kernels one_launch --id 0",
    "kernels --roofline roofline",
    "kernels coalescing.ncu-rep --id 0",
)
D1, D2 = (
    "ranks --pipeline depth1.rank0.jsonl depth1.rank1.jsonl",
    "ranks --pipeline depth2.rank0.jsonl depth2.rank1.jsonl",
)
TRACED = "ranks --pipeline depth1.rank0.json depth1.rank1.json"
LAB, TRACE = "lab_before", "trace.json.gz"
GUIDES, LINES = "benchmarks/guides/README.md", "benchmarks/lines/README.md"
SOURCES: dict[str, tuple[str, ...]] = {
    "show what bounds a kernel, from counters": ("kernels roofline",),
    "where time goes: processor, kernels, copies, collectives": (f"show {LAB}",),
    "operator to GPU work": (f"show {TRACE} --top 20",),
    "`ncu --set full --target-processes all`": ("kernels one_launch",),
    "gaps, copies, NCCL on the timeline": (f"show idle {LAB}",),
    "throughput, occupancy, stalls of a kernel": (ROOFLINE,),
    "conclude in a sentence": (f"diagnose {LAB}",),
    "the roofline": (ROOFLINE,),
    "every operator classified": (f"show ops {TRACE} --top 60", "show ops two_kernels.sqlite"),
    "broad first, then deep": (f"kernels --next {TRACE}",),
    "work on the critical path": (f"plan {TRACE} --change cuda_graph",),
    "which line is slow": (f"show lines {LAB}",),
    "kernels per operator": (f"show --kernels-of aten::addmm {TRACE}",),
    "one launch of one kernel": (ONE,),
    "GPU active, in per cent": (f"show {LAB}",),
    "DRAM and SM shares of the peak": ("kernels --roofline one_launch",),
    "what the processor did in the longest gap": (f"show idle {LAB}",),
    "sliders to choose a tool": ("doctor slow --gpu-utilization 95 --one-kernel 45", "doctor --help-all"),
    "keep the report for the desktop program": (GUIDES,),
    "`nvtx_sum`": (f"show ranges {LAB}",),
    "`nvtx_gpu_proj_sum`": (f"show ranges {LAB}",),
    "phases of a layer: time, share, idle": ("show ranges layer_nsys --top 20", "show ranges layers_torch --top 40"),
    "`cuda_api_sum`": (f"show calls {LAB}",),
    "`osrt_sum`": (f"show calls {LAB}",),
    "the phase that dominates a step": (f"show statement {LAB}",),
    "measure the gain of a fix": (f"compare {TRACE} after.json.gz",),
    "tables of ranges before and after": (f"compare {LAB} lab_after",),
    "gate one number of a table, relative to another file": (
        f"gate --limits after.json.gz --baseline {TRACE} --limit 'mean(steps.period_ns) <= 0.8x'",
    ),
    "sampled call stacks": (f"show lines {LAB}",),
    "GPU metrics: SMs, tensor cores, DRAM, PCIe, clock": ("show two_kernels.sqlite",),
    "busy, and not working": (LINES,),
    "kernels one after another on one stream": (LINES, "plan small.graph.json --change 'streams 4'"),
    "percentiles of steps without a profiler": (f"diagnose -v {LAB}",),
    "facts of the run (`resolution=512`) in the capture": (
        f"diagnose -v {TRACE} --fact resolution=512 --fact batch=8",
    ),
    "all that a report says of one kernel": (ONE,),
    "speed of light: SM, memory, L1, L2, DRAM": (ONE,),
    "GB/s at each level, bytes moved": (ONE,),
    "FLOP/s and share of the peak, by pipe": (ONE,),
    "bytes against the algorithm's minimum": ("kernels roofline --id 0 --least-bytes 168000000",),
    "coalescing, bank conflicts, spills, divergence, atomics": ("kernels atomics.ncu-rep --id 0",),
    "occupancy, and what limits it": ("kernels atomics.ncu-rep --id 0",),
    "eligible warps, no eligible, stall reasons": ("kernels atomics.ncu-rep --id 0",),
    "launch: waves, tail, registers": ("kernels atomics.ncu-rep --id 0",),
    "the decision tree": (COALESCING, "kernels tensor.ncu-rep --id 0"),
    "a matmul short of its peak: which tiles": ("kernels roofline --id 1",),
    "limits of 80, 60, 30 %, 128 registers": (COALESCING,),
    "chosen figures of all kernels": ("kernels coalescing.ncu-rep --columns limiter,sm_pct,dram_pct --sort dram_pct",),
    "two versions side by side": ("kernels atomics.ncu-rep --against atomics.ncu-rep",),
    "fail where a figure falls below 0.95 of a baseline": (
        "gate --limits one_launch --baseline one_launch --limit 'kernel_sheets.dram_pct[profile=0] >= 0.95x'",
    ),
    "wall time across stages and ranks": (TRACED,),
    "do streams and messages overlap": (D1, D2, "benchmarks/stages/README.md"),
    "period: the longest stage or the sum": (D1,),
    "gate on OverlapScore and period": (f"{D1} --min-overlap 0.30",),
    "communication isolated": ("benchmarks/stages/results/collectives.json",),
    "a serialised pipeline recognised": ("diagnose depth1.rank0.json depth1.rank1.json", "benchmarks/stages/README.md"),
    "depth 1 against depth 2": (f"{D1} --against depth2.rank0.jsonl",),
    "p50, p90, p99 of steady steps": (f"diagnose -v {LAB}",),
    "spikes a class of their own": ("show statement gc.json",),
    "the three statements": ("show statement breaks_broken.txt --against breaks_compiled.txt",),
    "equal environments of ranks": (f"{D1}",),
    "what is off the period": (f"plan {TRACE} --change 'scale kernel:. 0.9'",),
}  # fmt: skip


def figures(text: str) -> set[str]:
    return {found.lstrip("+-").rstrip(",").replace(",", "") for found in FIGURE.findall(text)}


def rows() -> dict[str, set[str]]:
    """The figures that each step shows, without those of the commands it names and of exit codes."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 4 and line.startswith("| ") and cells[0] != "step":
            said = re.sub(r"`timesink [^`]*`|\bexit \d|, \d where a number is not there", "", cells[2])
            if wanted := figures(said):
                found[cells[0]] = wanted
    return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workflows")
    for archive in ("guides/captures/one.tar.xz", "stages/results/h200_x2.tar.xz"):
        unpacked(ROOT / "benchmarks" / archive, folder)
    reports = [f"benchmarks/kernels/reports/{name}.ncu-rep" for name in ("atomics", "coalescing", "tensor")]
    packed = ("benchmarks/lines/captures/two_kernels.sqlite", "benchmarks/lines/captures/small.graph.json",
              "tests/data/compile/captured_gc.0.rank0.json", *reports)  # fmt: skip
    for name in packed:
        named = "gc.json" if "captured_gc" in name else Path(name).name
        (folder / named).write_bytes(lzma.decompress((ROOT / f"{name}.xz").read_bytes()))
    for name, copy in (("gpt_before.json.xz", TRACE), ("gpt_after.json.xz", "after.json.gz")):
        shutil.copy(Path(demo).with_name(name), folder / copy)
    for path in (ROOT / "benchmarks/guides/captures").glob("*.txt"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def printed(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COLUMNS", "300")

    def of(source: str) -> set[str]:
        if (ROOT / source).is_file():
            return figures((ROOT / source).read_text(encoding="utf-8"))
        capsys.readouterr()
        run(shlex.split(source))
        return figures(capsys.readouterr().out)

    return cache(of)


@pytest.mark.parametrize("step", rows())
def test_every_figure_of_a_step_is_of_the_repository(step: str, printed) -> None:  # type: ignore[no-untyped-def]
    assert step in SOURCES, f"say of what capture its figures are: {sorted(rows()[step])}"
    known = set().union(*(printed(source) for source in SOURCES[step]))
    assert rows()[step] <= known, sorted(rows()[step] - known)


def test_no_source_is_of_a_step_that_is_gone() -> None:
    assert set(SOURCES) <= set(rows()), set(SOURCES) - set(rows())
