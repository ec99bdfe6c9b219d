"""The estimate of the step without a profiler takes off what records cost by count, and nothing else."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.profiles import swept
from tests.strategies import frame
from tests.whatif.programs import Host, Launch, Step, simulate

from timesink.diagnosis.engine import diagnose
from timesink.knowledge.assumptions import replay
from timesink.measures.timeline.replay import deflated_pricers, pricers
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.whatif import Case
from timesink.whatif.graph import Graph
from timesink.whatif.periods import StepWindows
from timesink.whatif.pricing import Pricer
from timesink.whatif.unprofiled import deflate, host_slowness, recording_us

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures"
CONTENDED = "cache_emptied.high.fault"  # under torch.profiler its calls wait for a lock: more goes than records cost
ROUNDING = 0.002
FAST = replay.QUICK_LAUNCH_US.high / replay.QUICK_LAUNCH_US.value  # as slow as launches of fast hosts are
LONG_NS, STEPS, LAUNCHES = 2_000_000, 12, 10


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(sorted(CAPTURES.glob("*.tar.xz"))), ids=lambda path: path.name)
def test_no_step_loses_more_than_its_records_cost(archive: Path, tmp_path: Path) -> None:
    unpacked(archive, tmp_path)
    for name, paths in captures_in(tmp_path).items():
        trace = read(paths, cache=False)
        for rank, pricer in pricers(trace).items():
            costs_us, slowness = recording_us(pricer.graph.table, rank), host_slowness(trace.get(API_CALLS), rank)
            counted = [Pricer(each, pricer.anchors.windows) for each in deflate(pricer.graph, same_cores=True)]
            for case, of_cores, estimated in zip(Case, counted, deflated_pricers(trace)[rank], strict=True):
                least_ns = pricer.step_ns - 1_000 * costs_us[case.value] / len(pricer.anchors.windows)
                if name != CONTENDED or archive.name.endswith(".nsys.tar.xz"):
                    assert of_cores.step_ns >= least_ns - ROUNDING * pricer.step_ns, name
                assert estimated.step_ns >= (1 - ROUNDING) * estimated.busy_ns, name
                kept = slowness ** -replay.QUICKER_AGAIN_POWER.at(case)  # of cores that others use, no more goes
                assert (kept - ROUNDING) * of_cores.step_ns <= estimated.step_ns, name
                assert estimated.step_ns <= (1 + ROUNDING) * of_cores.step_ns, name
                if slowness <= FAST or len(pricers(trace)) > 1:
                    assert estimated.step_ns == of_cores.step_ns, name


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
    for case, estimated in zip(Case, deflate(graph, same_cores=True), strict=True):
        cost_ns = 1_000 * recording_us(graph.table, 0)[case.value] / STEPS
        lost_ns = pricer.step_ns - Pricer(estimated, pricer.anchors.windows).step_ns
        assert calls > LAUNCHES
        assert 0 <= lost_ns <= 1.01 * cost_ns < LONG_NS / 5


@pytest.mark.parametrize("operators", [True, False])
@pytest.mark.parametrize("call_ns", [3_500, 4_000, 5_000, 7_000, 12_000])
def test_a_host_that_shares_its_cores_is_quicker_without_the_profiler_beside_what_was_recorded(
    call_ns: int, operators: bool
) -> None:
    """Launches of 4 us are those of a fast host; of 7 us, of one that is shared. 2 ms of Python stay what they are."""
    step = (Step(), Host(LONG_NS), *(Launch(500, call_ns=call_ns) for _ in range(LAUNCHES)))
    simulated = simulate([Launch(500), *(part for _ in range(STEPS) for part in step), Step()])
    tables = dict(simulated.trace().tables)
    if operators:
        launches = [call for call in simulated.calls if call["name"] == "cudaLaunchKernel"]
        fields = ("rank", "process", "thread", "start_ns", "end_ns")
        tables[HOST_OPS] = frame(HOST_OPS, [{f: call[f] for f in fields} | {"name": "aten::mm"} for call in launches])
    graph = Graph.from_trace(Trace("shared", tables))
    steps = [
        [Pricer(each, simulated.windows()).step_ns for each in deflate(graph, same_cores=same)]
        for same in (True, False)
    ]
    for case, of_cores, estimated in zip(Case, *steps, strict=True):
        slower = max(call_ns / 1_000 / replay.QUICK_LAUNCH_US.high, 1.0)
        least_ns = LONG_NS - 60_000 + slower ** -replay.QUICKER_AGAIN_POWER.at(case) * (of_cores - LONG_NS)
        assert least_ns <= estimated <= of_cores
        assert (estimated < of_cores) == (slower > 1.0)


FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ASKED_NS = 30_000  # what a fetch takes whose batch is there already


def fetching(waits_ns: list[int], name: str = FETCH, ahead_ns: int = 0) -> tuple[Graph, StepWindows, list[int]]:
    """Steps that fetch a batch so long, launch thirty kernels under operators, and do `ahead_ns` of the host's own
    work; the graph, its windows and when each step's first launch begins."""
    launches = [Launch(500) for _ in range(30)]
    program = [part for wait_ns in waits_ns for part in (Step(), Host(wait_ns), *launches, Host(ahead_ns + 1))]
    simulated = simulate([Launch(500), *program, Step()])
    calls = [call for call in simulated.calls if call["name"] == "cudaLaunchKernel"]
    fields = ("rank", "process", "thread", "start_ns", "end_ns")
    operators = [{name: call[name] for name in fields} | {"name": "aten::mm"} for call in calls]
    fetches = [
        {"rank": 0, "process": 1, "thread": 1, "start_ns": begin, "end_ns": begin + wait_ns, "name": name}
        | {"kind": "push_pop", "depth": 0}
        for begin, wait_ns in zip(simulated.marks_ns, waits_ns, strict=False)
    ]
    tables = {**simulated.trace().tables, HOST_OPS: frame(HOST_OPS, operators), RANGES: frame(RANGES, fetches)}
    first = [begin + wait_ns for begin, wait_ns in zip(simulated.marks_ns, waits_ns, strict=False)]
    return Graph.from_trace(Trace("fetching", tables)), simulated.windows(), first


@pytest.mark.parametrize(
    "waits_ns",
    [
        [2_000_000] * 6,  # one worker
        [4_000_000, ASKED_NS] * 3,  # two give two batches at a time
        [ASKED_NS, ASKED_NS, 6_000_000] * 2,  # three
        [300_000, 5_000_000, 700_000, 2_000_000, ASKED_NS, 900_000],  # as they come
        [50_000_000, 400_000, 400_000, 400_000, 400_000, 400_000],  # started anew
        [400_000, 400_000, 400_000, 400_000, 400_000, 80_000_000],
    ],
)
@pytest.mark.parametrize("ahead_ns", [0, 400_000])
def test_a_batch_of_another_process_comes_when_it_came(waits_ns: list[int], ahead_ns: int) -> None:
    """Whoever asks for it sooner, because nothing was recorded, waits for it longer."""
    graph, _, first = fetching(waits_ns, ahead_ns=ahead_ns)
    points = graph.program.points
    after = [int(np.searchsorted(points.time_ns, begin)) for begin in first]
    arrived = [at for at, wait_ns in zip(after, waits_ns, strict=True) if wait_ns > ASKED_NS]
    for estimated in deflate(graph):
        sooner = points.time_ns - estimated.replay().time_ns[: len(points)]
        assert np.ptp(sooner[arrived[1:]]) <= ROUNDING * sum(waits_ns)
        assert sooner[-1] > sooner[arrived[-1]]  # what comes after the last of them is sooner


def test_a_batch_that_the_program_makes_itself_comes_sooner() -> None:
    graph, windows, _ = fetching([2_000_000] * 6, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    one, two = (Pricer(each, windows).step_ns for each in (graph, deflate(graph)[Case.EXPECTED.value]))
    assert two < one - 50_000


@pytest.mark.parametrize("crowded", [2, 4, 8, 12, 20])
def test_what_records_cost_is_taken_where_there_is_time(crowded: int) -> None:
    """Operators that nest crowd the edges of a few launches; what they cost beyond that is taken elsewhere."""
    simulated = simulate([Launch(500), *(part for _ in range(30) for part in (Step(), *(Launch(500),) * 10)), Step()])
    calls = [call for call in simulated.calls if call["name"] == "cudaLaunchKernel"]
    fields = ("rank", "process", "thread", "start_ns", "end_ns")
    rows = [
        {name: call[name] for name in fields} | {"name": "aten::mm"}
        for at, call in enumerate(calls)
        for _ in range(crowded if at % 10 == 3 else 1)
    ]
    graph = Graph.from_trace(Trace("crowded", {**simulated.trace().tables, HOST_OPS: frame(HOST_OPS, rows)}))
    pricer = Pricer(graph, simulated.windows())
    cost_ns = 1_000 * recording_us(graph.table, 0)[Case.EXPECTED.value] / 30
    most_ns = (1 - replay.KEPT_AT_LEAST.value) * pricer.step_ns
    lost_ns = pricer.step_ns - Pricer(deflate(graph, same_cores=True)[Case.EXPECTED.value], simulated.windows()).step_ns
    assert 0.9 * min(cost_ns, 0.5 * most_ns) <= lost_ns <= 1.02 * cost_ns


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
