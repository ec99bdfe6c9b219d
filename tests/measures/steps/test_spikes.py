"""Spikes: the right step, the right reason, and none where there is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.steps.spike_traces import KINDS, simulated, slowed

from timesink.measures.steps.spikes import Spike, StepOps, align, spikes

NAMED = {
    "gc": Spike.GARBAGE_COLLECTION,
    "allocator_retry": Spike.ALLOCATOR_RETRY,
    "checkpoint": Spike.CHECKPOINT,
    "slow_batch": Spike.SLOW_DATA,
    "recompile": Spike.RECOMPILATION,
}
TRACES = 40  # of each kind
LEAST_RIGHT = 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_planted_spikes_are_named_with_their_step(kind: str) -> None:
    right = 0
    for seed in range(TRACES):
        trace, at = simulated(seed, kind)
        found = [(spike.kind, spike.label) for spike in spikes(trace).found]
        right += found == [(NAMED[kind], f"ProfilerStep#{at}")]
    assert right >= LEAST_RIGHT * TRACES, f"{right} of {TRACES}"


@pytest.mark.slow
def test_kernels_slower_by_one_factor_are_a_matter_of_clocks() -> None:
    right = 0
    for seed in range(TRACES):
        trace, at = slowed(seed, 1.6)
        right += [(spike.kind, spike.label) for spike in spikes(trace).found] == [(Spike.CLOCKS, f"ProfilerStep#{at}")]
    assert right >= LEAST_RIGHT * TRACES, f"{right} of {TRACES}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_step_claims_what_its_cause_carries(kind: str) -> None:
    for spike in spikes(simulated(0, kind)[0]).found:
        assert spike.carried_ns <= spike.of_cause.total_ns <= spike.period_ns


@pytest.mark.slow
def test_steps_that_are_alike_have_no_spike() -> None:
    for seed in range(TRACES):
        trace, _ = simulated(seed, None)
        assert spikes(trace).found == ()


def ops(starts: list[int], lengths: list[int], tokens: list[int], window_end: int) -> StepOps:
    start = np.array(starts, np.int64)
    return StepOps(np.array(tokens, np.int64), start, start + np.array(lengths), (starts[0], window_end))


def difference_ns(step: StepOps, other: StepOps) -> int:
    aligned = align(step, other)
    alone = ~np.isin(np.arange(other.token.size), aligned.pair)
    missing_ns = other.busy_ns[alone].sum() + other.idle_ns[:-1][alone].sum()
    return int(aligned.busy_ns.sum() + aligned.idle_ns.sum() - missing_ns)


def test_a_kernel_that_only_one_step_has_carries_the_difference() -> None:
    usual = ops([0, 20], [10, 10], [1, 2], 40)
    slow = ops([0, 20, 40], [10, 10, 50], [1, 2, 3], 100)
    aligned = align(slow, usual)
    assert aligned.pair.tolist() == [0, 1, -1]
    assert aligned.busy_ns.tolist() == [0, 0, 50]
    assert aligned.idle_ns.tolist() == [0, 0, 10, 0]  # before the extra kernel, where the usual step ended
    assert difference_ns(slow, usual) == 60


step = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50), st.integers(1, 3)), min_size=1, max_size=12)


@given(step, step, st.integers(0, 100), st.integers(0, 100))
def test_differences_sum_to_the_difference_of_the_windows(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]], late: int, later: int
) -> None:
    def laid(parts: list[tuple[int, int, int]], tail: int) -> StepOps:
        starts = np.cumsum([0, *(gap for gap, _, _ in parts[1:])]).tolist()
        return ops(starts, [length for _, length, _ in parts], [token for _, _, token in parts], starts[-1] + tail + 1)

    mine, theirs = laid(first, late), laid(second, later)
    for part in (mine, theirs):
        assert part.busy_ns.sum() + part.idle_ns.sum() == part.window_ns[1] - part.window_ns[0]
    lengths = [part.window_ns[1] - part.window_ns[0] for part in (mine, theirs)]
    assert difference_ns(mine, theirs) == lengths[0] - lengths[1]
