"""Which thread works on whose behalf does not depend on where a recording begins or ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import frame

from timesink.model.tables import API_CALLS, HOST_OPS
from timesink.model.trace import Trace
from timesink.whatif.host import find_bursts

OWNER, WORKER = (1, 1), (1, 2)
STEP_NS = 100  # the owner works from 0 to 40, autograd's thread from 50 to 90
NODE = "autograd::engine::evaluate_function: MulBackward0"


def _recorded(start_ns: int, end_ns: int) -> Trace:
    """What ten steps leave in a recording of that stretch: calls of both threads, and autograd's nodes."""
    spans = [(at + first, at + first + 10) for at in range(0, 1_000, STEP_NS) for first in (0, 30, 50, 80)]
    kept = [(s, e) for s, e in spans if s >= start_ns and e <= end_ns]
    rows = [
        {"rank": 0, "process": 1, "thread": 1 if s % STEP_NS < 50 else 2, "start_ns": s, "end_ns": e} for s, e in kept
    ]
    calls = [row | {"name": "cudaLaunchKernel", "correlation": n} for n, row in enumerate(rows)]
    nodes = [row | {"name": NODE} for row in rows if row["thread"] == 2]
    return Trace((), {API_CALLS: frame(API_CALLS, calls), HOST_OPS: frame(HOST_OPS, nodes)})


@given(st.integers(0, 400), st.integers(600, 1_000))
def test_autograds_thread_works_for_the_other_wherever_a_recording_begins_and_ends(start_ns: int, end_ns: int) -> None:
    found = find_bursts(_recorded(start_ns, end_ns), 0, (OWNER, WORKER))
    assert set(found.worker.tolist()) == {1}
    assert set(found.owner.tolist()) == {0}
    whole = find_bursts(_recorded(0, 1_000), 0, (OWNER, WORKER))
    assert set(found.fork_ns.tolist()) <= set(whole.fork_ns.tolist())


def test_what_lies_outside_all_that_a_thread_did_is_no_proof_that_it_waited() -> None:
    rows = [{"rank": 0, "process": 1, "thread": 2, "start_ns": at, "end_ns": at + 50} for at in range(0, 1_000, 100)]
    rows += [{"rank": 0, "process": 1, "thread": 1, "start_ns": at, "end_ns": at + 10} for at in (480, 560)]
    calls = [row | {"name": "cudaLaunchKernel", "correlation": n} for n, row in enumerate(rows)]
    nodes = [row | {"name": NODE} for row in rows if row["thread"] == 2]
    trace = Trace((), {API_CALLS: frame(API_CALLS, calls), HOST_OPS: frame(HOST_OPS, nodes)})
    assert len(find_bursts(trace, 0, (OWNER, WORKER))) == 0


@pytest.mark.parametrize("asks", ["cudaEventQuery", "hipEventQuery", "cuStreamQuery"])
@pytest.mark.parametrize("also", ["cudaThreadExchangeStreamCaptureMode", "cudaLaunchKernel", ""])
def test_nobody_waits_for_a_watcher(asks: str, also: str) -> None:
    """It asks in the silences of the thread that launches, as NCCL's watchdog does, and disturbs no capture by that;
    one that launches is a worker, and one that only asks may pin a loader's memory."""
    spans = [(at + first, at + first + 10) for at in range(0, 20_000, STEP_NS) for first in (0, 30, 50, 80)]
    rows = [
        {"rank": 0, "process": 1, "thread": 1 if s % STEP_NS < 50 else 2, "start_ns": s, "end_ns": e} for s, e in spans
    ]
    names = [asks if row["thread"] == 2 else "cudaLaunchKernel" for row in rows]
    names[2] = also or asks
    calls = [row | {"name": one, "correlation": n} for n, (row, one) in enumerate(zip(rows, names, strict=True))]
    found = find_bursts(Trace((), {API_CALLS: frame(API_CALLS, calls)}), 0, (OWNER, WORKER))
    assert set(found.worker.tolist()) == (set() if "CaptureMode" in also else {1})
