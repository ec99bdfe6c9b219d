"""Loaders of several workers give as many batches at a time: of a few recorded steps some wait long, others not."""

from __future__ import annotations

import random

import pytest
from tests.measures.steps.spike_traces import MS, US, Loop

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.steps.slow_steps import usual_steps
from timesink.model.trace import Trace


def loaded(waits_ms: list[float]) -> Trace:
    """Steps of about 12 ms of kernels that wait for their batch so long."""
    loop = Loop(random.Random(1))
    for number, wait_ms in enumerate(waits_ms):
        begin = loop.now
        loop.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", int(wait_ms * MS) + 50 * US)
        for index in range(12):
            loop.now += loop.about(5 * US)
            loop.launch(f"kernel_{index}", MS)
        loop.wait()
        loop.mark(f"ProfilerStep#{number}", begin)
    return loop.trace()


@pytest.mark.parametrize(
    "waits_ms",
    [
        [0, 20, 0, 90, 0, 0],  # two workers, which fall behind
        [0, 80, 0, 25, 0, 0],
        [0, 0, 15, 0, 0, 60, 0, 0],  # three
        [0, 100, 0, 0, 0, 40, 0, 0, 0],  # four
        [0, 12, 0, 11, 0, 70, 0],
    ],
)
def test_batches_that_come_several_at_a_time_are_how_the_program_runs(waits_ms: list[float]) -> None:
    trace = loaded(waits_ms)
    found = diagnose(trace)
    assert (usual_steps(trace), found.bottleneck) == (None, Bottleneck.INPUT_PIPELINE)
    gain = found.findings[0][1].recoverable
    assert gain is not None
    assert gain.value == pytest.approx(sum(waits_ms) / len(waits_ms), rel=0.6)  # the ends of so few steps are unknown


@pytest.mark.parametrize("waits_ms", [[0, 0, 0, 90, 0, 0], [0, 2, 0, 90, 0, 0], [0, 0, 60, 0, 0, 0, 0]])
def test_one_step_that_waits_is_an_accident(waits_ms: list[float]) -> None:
    trace = loaded(waits_ms)
    assert usual_steps(trace) is not None
    assert diagnose(trace).statement.startswith("typical steps are fine; ")
