"""What a rank waits for another's host is host time of that rank, which recording makes longer."""

from collections.abc import Callable

import pytest
from hypothesis import given
from tests.measures.ranks.test_why_late import Kernels, job_of, step_of
from tests.strategies import traces

from timesink.measures.communication.late_hosts import waited_for_hosts
from timesink.measures.communication.waits import collective_waits
from timesink.measures.timeline.replay import calibrated_pricers, deflated_pricers, pricers
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS

EARLY, LATE = step_of(4000), step_of(7000)  # us into a step of 10 ms: a host is 3 ms late
OPERATORS = ["| host_ops | name | rank | process | thread | start_us | end_us | times | every_us |"]


def busy(rank: int, start_us: int, times: int, every_us: int) -> str:
    """An operator that takes a late rank's 3 ms, so often."""
    host = f"{rank} | {rank + 1} | {rank + 1}"
    return f"| o | `aten::sort` | {host} | {start_us + 4005} | {start_us + 6995} | {times} | {every_us} |"


def always() -> Trace:
    return job_of({0: [EARLY], 1: [LATE]}, "\n".join([*OPERATORS, busy(1, 0, 5, 10_000)]))


def in_turn(ranks: int = 2) -> Trace:
    steps = {rank: [LATE if turn == rank else EARLY for turn in range(ranks)] for rank in range(ranks)}
    count = 3 * ranks
    rows = [busy(rank, 10_000 * rank, 3, 10_000 * ranks) for rank in range(ranks)]
    return job_of(steps, "\n".join([*OPERATORS, *rows]), count=count)


def of_three() -> Trace:
    return in_turn(3)


def without_operators() -> Trace:
    """As Nsight Systems records it, which slows all of a host's time."""
    turns = [LATE, EARLY]
    return job_of({0: turns, 1: turns[::-1]}, count=6)


def beside_copies() -> Trace:
    copied: Kernels = [*EARLY, ("Memcpy HtoD", 9, 1, 20, 30, 90)]
    return job_of(
        {0: [copied], 1: [[*LATE, ("Memcpy HtoD", 9, 1, 20, 30, 90)]]}, "\n".join([*OPERATORS, busy(1, 0, 5, 10_000)])
    )


@pytest.mark.parametrize("made", [always, in_turn, of_three, without_operators, beside_copies])
@pytest.mark.parametrize("told_ms", [9.0, 8.0, 7.4])
def test_every_rank_of_a_job_takes_the_step_that_is_told(made: Callable[[], Trace], told_ms: float) -> None:
    """Of 10 ms of which a host's 3 are waited for, no rank's replay is held at 10 by those."""
    trace = made().with_unprofiled_step(told_ms * NS_PER_MS)
    steps = {rank: pricer.step_ns / NS_PER_MS for rank, pricer in calibrated_pricers(trace).items()}
    assert steps == {rank: pytest.approx(told_ms, rel=0.05) for rank in trace.rank_numbers}


def test_it_is_what_the_late_host_was_at_work_by_hand() -> None:
    waited = waited_for_hosts(always())
    assert set(waited) == {0}
    assert waited[0][1].tolist() == pytest.approx(
        [3e6 - 2_000] * 4
    )  # before the first nothing is known; 2 us were not recorded


def test_waiting_for_a_gpu_that_computes_more_is_none() -> None:
    more: Kernels = [("gemm", 7, 132, 0, 10, 7000), *LATE[1:]]
    assert not waited_for_hosts(job_of({0: [EARLY], 1: [more]}))


def test_a_host_that_did_nothing_recorded_was_slowed_by_nothing() -> None:
    """It slept, say; operators were recorded elsewhere."""
    slept = job_of(
        {0: [EARLY], 1: [LATE]}, "\n".join([*OPERATORS, "| o | `aten::mul` | 0 | 1 | 1 | 100 | 110 | 5 | 10000 |"])
    )
    (waited,) = [part for _, part in waited_for_hosts(slept).values()] or [[0]]
    assert max(waited) < 50_000


def test_without_a_told_step_so_much_of_it_is_left_as_of_the_host() -> None:
    """A late host's 3 ms are a hundred operators, each of which it cost to record."""
    rows = [f"| o | `aten::sort` | 1 | 2 | 2 | {at} | {at + 25} | 5 | 10000 |" for at in range(4005, 6990, 30)]
    trace = job_of({0: [EARLY], 1: [LATE]}, "\n".join([*OPERATORS, *rows]))
    (_, expected, _), recorded = deflated_pricers(trace)[0], pricers(trace)[0]
    few_ns = recorded.device_ns - expected.device_ns  # its own host recorded two launches a step
    both = [row.replace("| 1 | 2 | 2 |", "| 0 | 1 | 1 |") for row in rows]
    trace = job_of({0: [EARLY], 1: [LATE]}, "\n".join([*OPERATORS, *both, *rows]))
    (_, expected, _), recorded = deflated_pricers(trace)[0], pricers(trace)[0]
    assert recorded.device_ns - expected.device_ns > 1.5 * few_ns > 0


@given(traces(min_ops=1))
def test_it_is_a_part_of_what_was_waited(trace: Trace) -> None:
    waits = collective_waits(trace).calls
    for rank, (rows, waited_ns) in waited_for_hosts(trace).items():
        ops = trace[DEVICE_OPS][rows]
        assert set(ops["rank"]) <= {rank}
        assert sum(waited_ns) <= waits.filter(waits["rank"] == rank)["wait_ns"].sum()
