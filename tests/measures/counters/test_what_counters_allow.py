"""What counters that are missing, levels, clocks and names allow to say of a launch, over launches made up."""

import codecs
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from benchmarks.kernels.score import unpacked
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.counters.kernel_counter_strategies import kernel, kernels

from timesink.knowledge.metric_names import meant_by
from timesink.measures.counters import KernelCounters, kernel_counters, limiter, occupancy_of
from timesink.measures.counters.bounds import awake_ns, bound_of_any
from timesink.measures.counters.causes import bound_in_fp32, gain_ns, is_tiny, most_ns
from timesink.measures.counters.limiter import limits_of, why_unexplained
from timesink.measures.counters.operations import variant_of
from timesink.measures.counters.pages import given_of
from timesink.measures.counters.resources import Leaf, Resource, leaves, throughput_of
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.records import replace
from timesink.rules.ncu.causes import said_of

KERNELS = Path(__file__).parents[3] / "benchmarks" / "kernels"
PIPE, LOADS = "l1tex__data_pipe_lsu_wavefronts", "sm__inst_executed_pipe_lsu"
NO_SHARED = {"launch__shared_mem_per_block_static": 0, "launch__shared_mem_per_block_dynamic": 0}
# Of sections that a basic set leaves out: accesses, atomics, local memory, lanes, waits.
NOT_BASIC = re.compile(
    "l1tex__t_|srcunit|memory_l|smsp__sass|mem_shared|bank_conflicts|executed_op|sass__|thread_inst|derived|issue_stalled"
)


def basic(one: KernelCounters) -> KernelCounters:
    kept = {name: value for name, value in one.values.items() if not NOT_BASIC.search(name)}
    return replace(
        one, values=kept, texts={n: t for n, t in one.texts.items() if n.startswith("breakdown")}, messages=()
    )


QUICK = ("reports/coalescing", "reports/locals", "unseen8/reports/cuda", "unseen8/reports/triton")
ALL = sorted(str(path.relative_to(KERNELS)).removesuffix(".ncu-rep.xz") for path in KERNELS.rglob("*.ncu-rep.xz"))


@pytest.mark.parametrize("report", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow) for of in ALL])
def test_leaving_counters_out_never_turns_an_answer(report: str) -> None:
    """What the narrow set leaves possible contains the full one's limiter, its share and its bound."""
    with unpacked(KERNELS / f"{report}.ncu-rep.xz") as path:
        launches = kernel_counters(read(path, cache=False))
    assert launches
    for one in launches:
        full, narrow = limits_of(one), limits_of(basic(one))
        if full is None or narrow is None:
            continue
        assert {full.limiter, *full.others} <= {narrow.limiter, *narrow.others}, one.function
        assert not full.others or "detailed" in report
        for cause in (full.limiter, narrow.limiter):
            assert narrow.least_share(cause) <= full.shares[cause] + 1e-9 <= narrow.most_share(cause) + 2e-9, (
                one.function
            )


def with_some(one: KernelCounters, rng: random.Random) -> Iterator[KernelCounters]:
    """The launch with nearly all, half, few of its counters, and without a tenth of the kinds of them."""
    for ratio in (0.9, 0.5, 0.15):
        yield replace(one, values={name: value for name, value in one.values.items() if rng.random() < ratio})
    kinds = sorted({name.partition(".")[0].rpartition("_")[0] for name in one.values})
    gone = {kind for kind in kinds if rng.random() < 0.1}
    yield replace(
        one, values={n: v for n, v in one.values.items() if n.partition(".")[0].rpartition("_")[0] not in gone}
    )


@pytest.mark.slow
@pytest.mark.parametrize("report", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow) for of in ALL])
def test_whatever_is_left_out_only_widens(report: str) -> None:
    """Limiters, every cause's share at least and at most, and the bound without it: the full answer lies within."""
    with unpacked(KERNELS / f"{report}.ncu-rep.xz") as path:
        launches = kernel_counters(read(path, cache=False))
    rng = random.Random(report)
    for one in launches:
        full = limits_of(one)
        for some in with_some(one, rng) if full is not None else ():
            found = limits_of(some)
            if found is None or full is None:
                assert why_unexplained(some)
                continue
            assert {full.limiter, *full.others} <= {found.limiter, *found.others}, one.function
            for cause in Cause:
                assert found.least_share(cause) <= full.least_share(cause) + 0.01, (one.function, cause)
                most = max(full.shares[cause], full.largest.get(cause, 0.0))
                assert found.most_share(cause) >= most - 0.01, (one.function, cause)
                assert full.shares[cause] < 0.01 or found.bounds[cause] >= 0.99 * full.bounds[cause], one.function


@pytest.mark.parametrize("report", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow) for of in ALL])
def test_the_profilers_own_level_of_a_report_is_a_floor_of_its_units(report: str) -> None:
    """No launch of any report is told that L1 does less than a tenth below what the profiler says of it."""
    with unpacked(KERNELS / f"{report}.ncu-rep.xz") as path:
        launches = kernel_counters(read(path, cache=False))
    for one in launches:
        level, idle = throughput_of(one, Resource.L1), occupancy_of(one).sm_idle or 0.0
        if level is not None:
            told = max(leaf.busy for leaf in leaves(one) if leaf.resource is Resource.L1)
            others = max(leaf.busy for leaf in leaves(one))
            assert max(told, others) >= level * (1 - idle) / 1.1 - 0.01, one.function


@pytest.mark.parametrize(
    "page", ["cuda.sol.txt", "triton.sol.csv", "cuda.details.txt", "plain.txt", "triton.summary.txt"]
)
def test_a_page_of_levels_is_explained_in_few_ways(page: str) -> None:
    """Each takes 50 us: what does not change an answer is not tried apart."""
    with unpacked(KERNELS.parents[1] / f"tests/data/ncu_pages/{page}.xz") as path:
        launches = kernel_counters(read(path, cache=False))
    for one in launches:
        given_ways = [*given_of(one)]
        assert len(given_ways) <= 600
        assert len({id(way.work) for way in given_ways}) <= 100


@pytest.mark.parametrize(("passes", "requests"), [(98, 7), (95, 10), (90, 9), (99, 11), (80, 6)])
def test_passes_beyond_need_are_wasted_though_nobody_counted_on_what(
    passes: float, requests: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On compute capability 9.0 an SM takes one instruction a cycle: so many passes each, of which 4 are needed."""
    monkeypatch.setattr(limiter, "_NAMED", len(Cause))
    one = kernel(
        {PIPE: passes, LOADS: requests, "launch__shared_mem_per_block_dynamic": 24_000, "sm__inst_executed": 8}
    )
    assert limits_of(one) is None
    assert "bank conflicts" in why_unexplained(one) and "uncoalesced" in why_unexplained(one)
    assert ("or memory (" in why_unexplained(one)) is (requests / passes * 4 > 0.3)
    assert f"{passes / requests:.1f} passes" in why_unexplained(one)
    counted = {"memory_l2_theoretical_sectors_global": 4.0, "memory_l2_theoretical_sectors_global_ideal": 4.0}
    known = limits_of(replace(one, values={**one.values, **counted}))
    assert known is not None and known.limiter is Cause.BANK_CONFLICTS


@pytest.mark.parametrize(("level", "pipe"), [(99.2, 49.5), (91.9, 46), (97, 48.4), (88, 45.7), (99.9, 50)])
def test_the_profilers_own_level_is_a_floor_of_its_units(level: float, pipe: float) -> None:
    values = {
        PIPE: pipe,
        LOADS: 40,
        "sm__inst_executed": 30,
        "l1tex__throughput.avg.pct_of_peak_sustained_active": level,
    }
    one = replace(kernel(values), compute_capability=(7, 5))
    found = limits_of(one)
    said = why_unexplained(one) if found is None else found.top.name
    assert ("l1tex__throughput" in said) if found else f"its L1 is {level:.1f} % busy" in said
    near = limits_of(kernel({"dram__cycles_active": 50, "l1tex__throughput.avg.pct_of_peak_sustained_active": 40}))
    assert near is not None and near.top.resource is Resource.DRAM


@pytest.mark.parametrize(("theory", "achieved"), [(100, 16.6), (100, 40), (99.9, 25), (100, 5), (100, 33)])
def test_what_an_sm_can_be_full_of_limits_nothing(theory: float, achieved: float) -> None:
    limits = {f"launch__occupancy_limit_{of}": 12.0 for of in ("registers", "warps")}
    share = {"sm__maximum_warps_per_active_cycle_pct": theory}
    busy = {"sm__warps_active.avg.pct_of_peak_sustained_active": achieved, "sm__inst_executed": 14}
    one = kernel({**limits, **share, **busy}, duration_ns=7.6e6)
    assert occupancy_of(one).limited_by == ()
    found = limits_of(one)
    assert found is not None and found.limiter is Cause.OCCUPANCY
    assert "No resource limits" in said_of(found)[1]


@pytest.mark.parametrize("theory", [66.7, 50, 75, 25, 93.75])
def test_of_limits_that_tie_all_are_named(theory: float) -> None:
    limits = {f"launch__occupancy_limit_{of}": 1.0 for of in ("shared_mem", "warps")}
    more = {"launch__occupancy_limit_registers": 2.0, "sm__maximum_warps_per_active_cycle_pct": theory}
    assert occupancy_of(kernel({**limits, **more})).limited_by == ("shared memory", "the block's size")


OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
FFMA, INTEGER = (f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("ffma", "integer"))


@pytest.mark.parametrize(
    ("name", "opcodes", "kind"),
    [
        ("f(float *, int)", "MUFU.EX2: 90; I2F: 3; IMAD: 400", "xu_functions"),
        ("f(float *, int)", "FLO.U32: 70; POPC: 20; MUFU.RCP: 8", "xu_bits"),
        ("f(float *, int)", "I2F.S64: 60; F2I: 30; MUFU.RCP: 30", "xu_conversions"),
        ("propagate(int *, const int *, int *, int)", "", "xu_integers"),
        ("f(const float *, float *)", "", "xu"),
        ("f(int *)", "MUFU.RCP: 5; POPC: 5", "xu"),
    ],
)
def test_a_pipe_is_named_with_what_ran_on_it(name: str, opcodes: str, kind: str) -> None:
    one = replace(kernel({}), name=name, texts={OPCODES: opcodes} if opcodes else {})
    assert variant_of(one, Leaf("sm__inst_executed_pipe_xu", Resource.XU, 0.9, 0.9)) == kind


HEAVY, WHOLE = (f"sm__pipe_{of}_cycles_active" for of in ("fmaheavy", "fma"))


@pytest.mark.parametrize(
    ("pipe", "opcodes", "kind"),
    [
        (HEAVY, "IMAD.WIDE.U32: 140; IADD3: 70; FFMA: 9", "fma_integers"),
        (HEAVY, "IMAD: 69; FFMA: 44; FMUL: 17; LOP3.LUT: 46", "fma_integers"),
        (WHOLE, "IMAD: 44; FFMA: 44; FMUL: 17", "fma"),
        (WHOLE, "FFMA: 900; IMAD.MOV.U32: 20", "fma"),
        (HEAVY, "FADD: 900; IMAD: 20", "fma"),
        (WHOLE, "LOP3.LUT: 90; DFMA: 3", "fma"),
    ],
)
def test_a_pipe_of_multiply_adds_is_named_by_its_opcodes(pipe: str, opcodes: str, kind: str) -> None:
    """Though all arguments are floats: what the kernel executed decides."""
    one = replace(kernel({}), name="f(const float *, float *)", texts={OPCODES: opcodes})
    assert variant_of(one, Leaf(pipe, Resource.FMA, 0.8, 0.8)) == kind


@pytest.mark.parametrize(
    ("opcodes", "said"),
    [
        ("UMOV: 65; DFMA: 34; IADD3: 1", "on instruction issue (instructions: UMOV 65.0 %, DFMA 34.0 %)"),
        (
            "IMAD.WIDE: 30; IMAD: 30; LOP3.LUT: 40",
            "on instruction issue (instructions: IMAD 60.0 %, LOP3 40.0 %)",
        ),
        ("", "on instruction issue"),
    ],
)
def test_work_is_named_with_the_opcodes_that_most_of_it_is(opcodes: str, said: str) -> None:
    one = replace(kernel({"sm__inst_executed": 95}), texts={OPCODES: opcodes} if opcodes else {})
    found = limits_of(one)
    assert found is not None
    assert said_of(found)[0].strip() == said


@pytest.mark.parametrize(("blocks", "one"), [(1, True), (2, False), (16, False), (64, False)])
def test_one_block_that_does_it_all_is_told_apart(blocks: int, one: bool) -> None:
    idle = {"sm__cycles_active.avg": 100 * blocks / 132, "sm__cycles_elapsed.max": 100, "launch__sm_count": 132}
    few = {"launch__waves_per_multiprocessor": blocks / 132 / 16, "sm__inst_executed": 0.1}
    found = limits_of(replace(kernel({**idle, **few}, duration_ns=1e7), grid=(blocks, 1, 1)))
    assert found is not None and found.limiter is Cause.OCCUPANCY
    assert ("break the chain" in said_of(found)[1]) is one


@pytest.mark.parametrize("busy", [62, 70, 80, 89, 91, 97])
@pytest.mark.parametrize(("unit", "reach"), [("dram__cycles_active", "bytes in flight"), (HEAVY, "warps ready")])
def test_the_price_of_a_roof_is_told_with_what_reaches_it(unit: str, reach: str, busy: float) -> None:
    """Where nobody measured whether the same work must pass, the price is not the roof's, nor is the advice."""
    found = limits_of(kernel({unit: busy}))
    assert found is not None
    assert (reach in said_of(found)[1]) is (busy < 90 and not found.others)
    assert not found.others or gain_ns(found, found.limiter) <= most_ns(found, found.limiter)


@pytest.mark.parametrize(
    ("queue", "reach"), [("lg_throttle", False), ("mio_throttle", False), ("long_scoreboard", True)]
)
def test_more_bytes_on_the_way_help_no_warp_that_waits_in_a_full_queue(queue: str, reach: bool) -> None:
    found = limits_of(kernel({PIPE: 80, f"smsp__average_warps_issue_stalled_{queue}_per_issue_active.ratio": 9}))
    assert found is not None and found.limiter is Cause.MEMORY
    assert ("bytes in flight" in said_of(found)[1]) is reach


@pytest.mark.parametrize(
    ("name", "counts", "of_integers"),
    [
        ("modmul(unsigned int *, const unsigned int *, int)", {FFMA: 0, INTEGER: 6e12}, True),
        ("modmul(float *, int)", {FFMA: 10, INTEGER: 6e12}, True),
        ("f(unsigned long long *, uint32_t)", {}, True),
        ("f(const uint4 *, size_t)", {}, True),
        ("gemm(const float *, float *, int)", {}, False),
        ("gemm(int *)", {FFMA: 6e12, INTEGER: 1e12}, False),
        ("void gemm<T>(T *, int)", {}, False),
    ],
)
def test_tensor_cores_are_not_advised_where_integers_are_multiplied(
    name: str, counts: Mapping[str, float], of_integers: bool
) -> None:
    one = replace(kernel({**counts, "sm__pipe_fma_cycles_active": 82}), name=name)
    found = limits_of(one)
    assert found is not None
    assert ("tensor cores (tf32" in said_of(found)[1]) is not of_integers


@pytest.mark.parametrize(("busy", "lanes"), [(85, 2), (95, 4), (70, 2), (90, 1), (99, 8)])
def test_the_price_of_fp32_is_that_of_fp32(busy: float, lanes: float) -> None:
    of = {
        f"sm__sass_thread_inst_executed_op_{op}fma_pred_on.sum.peak_sustained": n
        for op, n in (("f", 128), ("d", lanes))
    }
    found = limits_of(kernel({**of, "sm__pipe_fp64_cycles_active": busy, "sm__inst_executed": 3}))
    assert found is not None
    bound = bound_in_fp32(found)
    assert bound == pytest.approx(1 / max(0.03, busy / 100 * lanes / 128))
    assert gain_ns(found, Cause.COMPUTE) == pytest.approx(1e5 * (1 - 1 / bound))


@given(kernels(), st.floats(700, 1e7))
def test_no_price_of_empty_places_is_below_an_empty_launch(one: KernelCounters, length_ns: float) -> None:
    one = replace(one, duration_ns=length_ns)
    found = limits_of(one)
    assert found is None or found.bounds[Cause.OCCUPANCY] <= bound_of_any(one)


@pytest.mark.parametrize(
    ("us", "mhz", "tiny"),
    [(26.6, 49.5, True), (60, 30, True), (26.6, 1500, False), (90, 49.5, True), (300, 210, False)],
)
def test_a_launch_at_an_idle_clock_is_as_long_as_its_cycles(us: float, mhz: float, tiny: bool) -> None:
    clock = {"gpc__cycles_elapsed.avg.per_second": mhz * 1e6, "sm__inst_executed": 1}
    one = kernel({**clock, "sm__warps_active.avg.pct_of_peak_sustained_active": 2}, duration_ns=us * 1e3)
    found = limits_of(one)
    assert found is not None
    assert is_tiny(found) is tiny
    assert awake_ns(one) == pytest.approx(us * 1e3 if mhz > 300 else us * mhz)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("sm_warps_active.avg.pct_of_peak_sustained_active", "sm__warps_active.avg.pct_of_peak_sustained_active"),
        ("l1text_bytes_pipe_lsu_mem_global_op_ld.sum", "l1tex__..."),
        ("gpu_time_duration.sum", "gpu__time_duration.sum"),
        ("dram_bytes.sum", "dram__bytes.sum"),
        ("sm_cycles_elapsed.max", "sm__cycles_elapsed.max"),
        ("sm__cycles_elapsed.max", ""),
    ],
)
def test_a_misspelt_name_is_told_with_what_is_meant(asked: str, meant: str) -> None:
    assert meant_by(asked) == meant


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8, b""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_page_is_read_in_any_encoding_that_a_shell_writes(tmp_path: Path, mark: bytes, end: str) -> None:
    with unpacked(KERNELS.parents[1] / "tests/data/ncu_pages/cuda.sol.txt.xz") as page:
        text = page.read_text(encoding="utf-8")
    encoding = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(mark, "utf-8")
    written, plain = tmp_path / "log.txt", tmp_path / "plain.txt"
    written.write_bytes(mark + text.replace("\n", end).encode(encoding))
    plain.write_text(text, encoding="utf-8")
    names = [[one.name for one in kernel_counters(read(path, cache=False))] for path in (written, plain)]
    assert names[0] == names[1] != []
