"""What is expected of a gain where nobody told the step without a profiler, and when work begins in that step."""

from pathlib import Path

import numpy as np
import pytest
from tests.gate.programs import Program

from timesink import diagnose, read
from timesink.diagnosis.gains import to_be_expected
from timesink.diagnosis.pricing import likely_ms, price_change
from timesink.measures.timeline.replay import deflated_pricers, pricers
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.whatif import EVERYTHING, Case, Change
from timesink.whatif.changes.host import CaptureGraph, RemoveSyncs, ScaleHost
from timesink.whatif.network import EdgeKind


def test_of_a_figure_three_four_and_three_tenths_of_its_percentiles_are_expected() -> None:
    assert to_be_expected(1.0, 2.0, 4.0) == pytest.approx(0.3 * 1.0 + 0.4 * 2.0 + 0.3 * 4.0)


def loop(profiler: str, folder: Path, call_us: float = 10.6, late_us: float = 1.0, wait_us: float = 5.3) -> Trace:
    """Steps of an OpenACC loop: memory is taken, a kernel launched, a value sent, and that is waited for."""
    program = Program(call_us=call_us, late_us=late_us)
    for _ in range(400):
        program.call("cuMemAlloc_v2", 0.6 * call_us)
        program.pause(3.5)
        program.launch("__pgi_uacc_cuda_fill_42_gpu", 2.3, call="cuLaunchKernel")
        program.pause(2.4)
        program.copy("HtoD", 1024, 1.2, call="cuMemcpyHtoDAsync_v2")
        program.pause(0.9)
        program.call("cuStreamSynchronize", wait_us)
        program.pause(4.5)
    return read(getattr(program, profiler)(folder), cache=False)


@pytest.mark.parametrize(
    ("call_us", "late_us", "wait_us"),
    [(10.6, 1.0, 5.3), (14.0, 0.8, 6.0), (8.5, 1.5, 6.0), (12.0, 2.0, 7.0), (20.0, 1.0, 5.0)],
)
def test_a_wait_of_the_step_without_a_profiler_is_no_longer_than_work_follows_its_launch(
    call_us: float, late_us: float, wait_us: float, tmp_path: Path
) -> None:
    """A kernel that begins as its launch ends was waited for as long as that launch took under the profiler: 46 % of a
    step, of which a wait took 12 % as recorded and takes 25 to 31 % without."""
    trace = loop("nsys", tmp_path, call_us, late_us, wait_us)
    findings = {card.name: finding.recoverable for card, finding in diagnose(trace).findings}
    wait = findings["host-sync"]
    assert wait is not None and wait.value <= 1.3e-3 * wait_us
    assert findings["launch-bound"] is not None


@pytest.mark.parametrize("profiler", ["nsys", "kineto"])
def test_work_begins_sooner_by_what_its_launch_loses(profiler: str, tmp_path: Path) -> None:
    """Under Nsight Systems; torch.profiler, which records operators, writes its records behind the launch."""
    trace = loop(profiler, tmp_path)
    if profiler == "kineto":
        program = Program()
        with program.range("aten::add", "cpu_op"):
            for _ in range(400):
                program.launch("add", 5)
                program.wait()
        trace = read(program.kineto(tmp_path), cache=False)
    graph, sooner = pricers(trace)[0].graph, deflated_pricers(trace)[0][Case.EXPECTED.value].graph
    launches = graph.edges_of(EdgeKind.LAUNCH)
    lost = graph.network.edges.weight_ns[launches] - sooner.network.edges.weight_ns[launches]
    assert (lost >= 0).all() and (sooner.network.edges.weight_ns[launches] > 0).all()
    assert bool(np.median(lost) > 1000) is (profiler == "nsys")


@pytest.mark.parametrize(
    "change", [RemoveSyncs(), CaptureGraph(), ScaleHost(EVERYTHING, 0.5)], ids=["waits", "graph", "host"]
)
def test_of_a_gain_under_nsight_systems_every_cost_of_recording_is_expected(change: Change, tmp_path: Path) -> None:
    """But never more than leaves the device its work; one replay of each says the same."""
    trace = loop("nsys", tmp_path)
    cases = deflated_pricers(trace)[0]
    cautious, expected, hopeful = (each.gain_ns(change) for each in cases)
    room_ns = cases[Case.EXPECTED.value].step_ns - cases[Case.EXPECTED.value].busy_ns
    worth = min(0.3 * cautious + 0.4 * expected + 0.3 * hopeful, max(room_ns, expected)) / NS_PER_MS
    assert likely_ms(change, 0, trace) == pytest.approx(worth)
    priced = price_change(change, 0, trace)
    assert priced is not None and priced.gain.value == pytest.approx(worth)
    assert (priced.gain.low or 0.0) <= priced.gain.value <= priced.gain.most
