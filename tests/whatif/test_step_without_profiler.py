"""The estimate of the step without a profiler takes off what records cost by count, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.profiles import swept
from tests.strategies import frame
from tests.whatif.programs import Host, Launch, Step, simulate

from timesink.diagnosis.engine import diagnose
from timesink.measures.timeline.replay import deflated_pricers, pricers
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.whatif.change import Case
from timesink.whatif.graph import Graph
from timesink.whatif.pricing import Pricer
from timesink.whatif.unprofiled import deflate, recording_us

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures"
CONTENDED = "cache_emptied.high.fault"  # under torch.profiler its calls wait for a lock: more goes than records cost
ROUNDING = 0.002
LONG_NS, STEPS, LAUNCHES = 2_000_000, 12, 10


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(sorted(CAPTURES.glob("*.tar.xz"))), ids=lambda path: path.name)
def test_no_step_loses_more_than_its_records_cost(archive: Path, tmp_path: Path) -> None:
    unpacked(archive, tmp_path)
    for name, paths in captures_in(tmp_path).items():
        trace = read(paths, cache=False)
        for rank, pricer in pricers(trace).items():
            costs_us = recording_us(pricer.graph.table, rank)
            for estimated, cost_us in zip(deflated_pricers(trace)[rank], costs_us, strict=True):
                least_ns = pricer.step_ns - 1_000 * cost_us / len(pricer.anchors.windows)
                if name != CONTENDED or archive.name.endswith(".nsys.tar.xz"):
                    assert estimated.step_ns >= least_ns - ROUNDING * pricer.step_ns, name
                assert estimated.step_ns >= (1 - ROUNDING) * estimated.busy_ns, name


def step_of(stretch: str, *, operators: bool) -> tuple[Trace, Graph, Pricer]:
    """Steps of ten launches and 2 ms in which a call, a range or nothing was recorded; every fifth of them 3 us."""
    step = (Step(), Host(LONG_NS), *(Launch(500) for _ in range(LAUNCHES)))
    simulated = simulate([Launch(500), *(part for _ in range(STEPS) for part in step), Step()])
    tables = dict(simulated.trace().tables)
    if operators:
        launches = [call for call in simulated.calls if call["name"] == "cudaLaunchKernel"]
        fields = ("rank", "process", "thread", "start_ns", "end_ns")
        tables[HOST_OPS] = frame(
            HOST_OPS, [{name: call[name] for name in fields} | {"name": "aten::mm"} for call in launches]
        )
    rows: list[dict[str, object]] = []
    for number, mark_ns in enumerate(simulated.marks_ns[:-1]):
        start_ns = mark_ns + 10_000
        end_ns = start_ns + (3_000 if number % 5 == 0 else LONG_NS - 20_000)
        rows.append({"rank": 0, "process": 1, "thread": 1, "start_ns": start_ns, "end_ns": end_ns})
    if stretch.startswith("range:"):
        name = stretch.removeprefix("range:")
        tables[RANGES] = frame(RANGES, [row | {"name": name, "kind": "push_pop", "depth": 0} for row in rows])
    elif stretch:
        calls = [*simulated.calls, *(row | {"name": stretch, "correlation": 10_000} for row in rows)]
        tables[API_CALLS] = frame(API_CALLS, sorted(calls, key=lambda call: int(str(call["start_ns"]))))
    trace = Trace("stretch", tables)
    graph = Graph.from_trace(trace)
    return trace, graph, Pricer(graph, simulated.windows())


@pytest.mark.parametrize("operators", [True, False])
@pytest.mark.parametrize(
    "stretch",
    [
        "", "range:garbage_collection", "range:enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "cudaFree", "cudaMalloc", "cuMemUnmap", "cudaFreeHost", "hipFree", "hipMalloc", "cudaHostAlloc",
        "cudaStreamCreate", "cudaEventCreateWithFlags", "cudaMemcpy", "cudaGraphInstantiate",
    ],
)  # fmt: skip
def test_a_long_stretch_keeps_its_time(stretch: str, operators: bool) -> None:
    trace, graph, pricer = step_of(stretch, operators=operators)
    calls = trace.get(API_CALLS).height / STEPS
    for case, estimated in zip(Case, deflate(graph), strict=True):
        cost_ns = 1_000 * recording_us(graph.table, 0)[case.value] / STEPS
        lost_ns = pricer.step_ns - Pricer(estimated, pricer.anchors.windows).step_ns
        assert calls > LAUNCHES
        assert 0 <= lost_ns <= 1.01 * cost_ns < LONG_NS / 5


@pytest.mark.parametrize(
    ("case", "least_ms", "most_ms"),
    [("04_frees_short_and_long_hip.json", 95, 101), ("free_in_loop.sqlite", 0.125, 0.144)],
)
def test_memory_freed_each_step_is_worth_what_the_device_waits_for_it(
    case: str, least_ms: float, most_ms: float, shared_data: Path
) -> None:
    diagnosis = diagnose(read(shared_data / "cases" / case, cache=False))
    card, finding = diagnosis.findings[0]
    assert card.name == "allocator"
    assert finding.recoverable is not None
    assert least_ms <= finding.recoverable.value <= most_ms
    assert (finding.recoverable.low or 0.0) <= finding.recoverable.value <= finding.recoverable.most
