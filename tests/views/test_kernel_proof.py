"""A launch in one screen: its limiter, three counters that show it, what to do, what that wins, what to collect."""

from pathlib import Path

import pytest
from benchmarks.kernels.score import unpacked

from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.render import Style
from timesink.render.text import render_page
from timesink.views import Page
from timesink.views.kernel_proof import proof_sheet

ROOT = Path(__file__).parents[2]
REPORTS = [ROOT / f"benchmarks/kernels/unseen8/reports/{of}.ncu-rep.xz" for of in ("cuda", "triton")]
PAGES = [ROOT / f"tests/data/ncu_pages/{of}.xz" for of in ("cuda.details.txt", "triton.sol.csv")]
LINES = 23  # of a terminal of 24, and the command


def launches(path: Path) -> list[tuple[KernelCounters, KernelLimits | None]]:
    with unpacked(path) as report:
        trace = read(report, cache=False)
    return list(zip(kernel_counters(trace), kernel_limits(trace), strict=True))


@pytest.mark.parametrize("path", [*REPORTS, *PAGES], ids=lambda path: path.name)
def test_a_launch_fits_a_screen_and_shows_what_proves_it(path: Path) -> None:
    for kernel, limits in launches(path):
        sheet = proof_sheet(kernel, limits, "in short", "Combine values before the atomic update.")
        answers = [(str(question), str(answer)) for question, answer in sheet.rows]
        asked = [question for question, _ in answers]
        assert len(render_page(Page("one launch", (sheet,)), Style()).splitlines()) <= LINES
        if limits is None:
            assert asked == ["what limits it", "to be surer"]
            continue
        shown = [answer for question, answer in answers if question == "what shows it"]
        assert len(set(shown)) == 3 or limits.has_levels_only
        assert asked[0] == "what limits it" and "to be surer" in asked
        told = dict(answers)
        assert (("--set full" in told["to be surer"]) is bool(limits.others or limits.has_levels_only)) or (
            "which lines" in told["to be surer"]
        )


def test_the_counters_shown_are_those_of_the_limiter() -> None:
    proof = {
        Cause.BANK_CONFLICTS: "memory_l1_wavefronts_shared",
        Cause.UNCOALESCED: "memory_l2_theoretical_sectors_global",
        Cause.DIVERGENCE: "smsp__thread_inst_executed_per_inst_executed",
        Cause.REGISTER_SPILLS: "local",
        Cause.ATOMICS: "mem_global_op_red",
        Cause.LATENCY: "issue_stalled",
        Cause.OCCUPANCY: "sm__cycles_active",
    }
    seen = set[Cause]()
    for kernel, limits in [launch for path in REPORTS for launch in launches(path)]:
        if limits is None or limits.limiter not in proof:
            continue
        rows = proof_sheet(kernel, limits, "in short", "").rows
        first = next(str(answer) for question, answer in rows if question == "what shows it")
        assert proof[limits.limiter] in first, kernel.name
        seen.add(limits.limiter)
    assert len(seen) >= 6
