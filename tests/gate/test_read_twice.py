"""Sentences that had to be read twice: a factor beside a price that is not of it, a kernel told with its parameters, an
exchange that happens once, a first run told as a cost that comes back."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.sentences import false_sentences
from tests.gate.test_kinds_of_captures import recorded
from tests.readers import ncu_reports as made

from timesink import diagnose, read
from timesink.diagnosis.verdicts import Diagnosis, Quantity
from timesink.records import replace

PCT = ".avg.pct_of_peak_sustained_elapsed"
NS = "gpu__time_duration.sum"


def page(tmp_path: Path, units: dict[str, float], name: str = "stencil(float*)", ns: float = 465_000.0) -> Diagnosis:
    metrics = {NS: ns, **{f"{unit}{PCT}": busy for unit, busy in units.items()}}
    values = [made.metric(index, value) for index, value in enumerate(metrics.values())]
    path = tmp_path / "page.ncu-rep"
    path.write_bytes(made.report(made.block([made.kernel(name, values)], list(metrics))))
    found = diagnose(read(path, cache=False))
    assert false_sentences(found, read(path, cache=False)) == []
    return found


PAGES: Sequence[dict[str, float]] = (
    {"dram__cycles_active": 93.9, "sm__inst_executed": 20.0},
    {"dram__cycles_active": 20.0, "sm__inst_executed_pipe_xu": 72.8, "sm__inst_executed": 51.0},
    {"dram__cycles_active": 5.0, "sm__inst_executed_pipe_fma": 69.0, "sm__inst_executed": 40.0},
    {"dram__cycles_active": 99.0, "sm__inst_executed": 30.0},
    {"dram__cycles_active": 9.0, "sm__inst_executed": 51.5},
)


@pytest.mark.parametrize("units", PAGES, ids=lambda units: max(units, key=lambda unit: units[unit]))
def test_where_counters_are_missing_no_factor_says_less_than_the_price(units: dict[str, float], tmp_path: Path) -> None:
    for _, finding in page(tmp_path, units).findings:
        assert not ("Counters are missing" in finding.message and "as fast" in finding.message), finding.message


def test_the_law_sees_a_price_beyond_its_factor_and_a_larger_next_cause(tmp_path: Path) -> None:
    found = page(tmp_path, PAGES[0])
    card, finding = found.findings[0]
    for spends in (
        "kernel k, 465 us, spends at most 98.5 % of its time. At its L1 roof it is at most 1.07× as fast",
        "kernel k, 465 us, spends 29.7 to 46.9 % of its time in latency. The next cause, compute bound, takes 52.2 %",
        "kernel k, 465 us, spends at most 42.0 % of its time moving bytes",
    ):
        priced = replace(finding, message=spends, recoverable=Quantity.ms(440e3, 0.0, 440e3))
        faults = false_sentences(
            replace(found, findings=((card, priced),)), read(tmp_path / "page.ncu-rep", cache=False)
        )
        assert [fault for fault in faults if fault.endswith(spends)]


@pytest.mark.parametrize("name", ["kernel(int*)", "kernel_conv2d(float*)", "cdpKernel<int>(int*)", "my_kernel_v2"])
def test_a_kernel_that_is_named_so_is_not_called_so_twice(name: str, tmp_path: Path) -> None:
    found = page(tmp_path, PAGES[0], name)
    assert "kernel kernel" not in found.statement.lower()


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("kernel_IMGA(int *, curandStateXORWOW *, int *, int *, int *)", "kernel_IMGA"),
        ("fused_force_kernel(const float *, const float *, int, int)", "fused_force"),
        ("void solve<float, (int)4>(T1 *, const T1 *)", "solve"),
        ("ns::advance(double *, ns::Grid const *)", "advance"),
        ("wrapped_walk(unsigned char *, float *)", "wrapped_walk"),
    ],
)
def test_an_undecided_kernel_is_named_without_its_parameters(kernel: str, short: str, tmp_path: Path) -> None:
    program = Program()
    for _ in range(40):
        program.launch(kernel, 6_000.0, grid=[1024, 1, 1], block=[256, 1, 1])
    trace = recorded(program, "nsys", tmp_path)
    found = diagnose(trace)
    assert f"of the kernels' time is {short}" in found.statement
    assert "ncu -- ./program" in found.statement  # nothing shows Python, least of all the word `fused`
    assert false_sentences(found, trace) == []


@pytest.mark.parametrize(("first_us", "rest_us"), [(440e3, 4e3), (90e3, 1e3), (2e6, 3e3), (60e3, 2e3), (300e3, 9e3)])
@pytest.mark.parametrize("is_last", [True, False])
def test_one_long_exchange_is_said_to_be_one(first_us: float, rest_us: float, is_last: bool, tmp_path: Path) -> None:
    program = Program()
    lengths = [rest_us * (1 + 0.1 * number) for number in range(12)]
    for number, length in enumerate([*lengths, first_us] if is_last else [first_us, *lengths]):
        program.launch("ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long)", length)
        program.launch(f"stage_{number}(float*)", 40.0)  # no loop, or the usual step would be told
    found = diagnose(recorded(program, "kineto", tmp_path))
    assert " may be start-up" in found.statement
