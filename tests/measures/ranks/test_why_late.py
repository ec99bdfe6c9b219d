"""Why a rank is late: what it does beyond its peers, and nothing that they do as well."""

import operator
import re
from pathlib import Path

import pytest
from benchmarks.faults import pack, suite
from benchmarks.faults.adopt import archive
from benchmarks.ranks.score import CAPTURES as RANKS_CAPTURES
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.registry import all_rules, find
from timesink.diagnosis.verdicts import Finding, Found
from timesink.measures.ranks.why_late import why_device_is_late, why_host_is_late
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.render import Style
from timesink.render.brief import render_diagnosis
from timesink.views.ranks import page_of_trace

LOADER = "`enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`"


Kernels = list[tuple[str, int, int, int, int, int]]
"""Name, stream, blocks; when it is launched, begins and ends in a step, us."""


def job_of(kernels: dict[int, list[Kernels]], *more: str, count: int = 5) -> Trace:
    """Steps of 10 ms of every rank, which take turns at its kinds of steps."""
    steps = ["| ranges | name | rank | process | thread | start_ms | end_ms | times | every_ms |"]
    calls = ["| api_calls | name | rank | process | thread | correlation | start_us | end_us |"]
    heads = "name | process | rank | device | stream | grid_x | grid_y | grid_z | start_us | end_us | correlation"
    ops = [f"| device_ops | {heads} |"]
    for rank, of_rank in kernels.items():
        steps.append(f"| step | `step` | {rank} | {rank + 1} | {rank + 1} | 0 | 10 | {count} | 10 |")
        for step in range(count):
            host, zero = f"{rank} | {rank + 1} | {rank + 1}", 10_000 * step
            for at, (name, stream, blocks, launch, start, end) in enumerate(of_rank[step % len(of_rank)]):
                number = 100_000 * rank + 1000 * step + at + 1
                calls.append(f"| l | `cudaLaunchKernel` | {host} | {number} | {zero + launch} | {zero + launch + 1} |")
                device = f"{rank} | {rank} | {stream} | {blocks} | 1 | 1"
                ops.append(f"| k | `{name}` | {rank + 1} | {device} | {zero + start} | {zero + end} | {number} |")
            calls.append(f"| w | `cudaStreamSynchronize` | {host} | | {zero + launch + 10} | {zero + 9995} |")
    sources = ["| sources | rank | path | format | host |"]
    sources += [f"| rank | {rank} | r{rank}.json | kineto_json | a |" for rank in kernels]
    return trace_of("\n\n".join(["\n".join(block) for block in (sources, steps, calls, ops)] + [*more]))


def step_of(at: int) -> Kernels:
    """Work for 4 ms; the rest is launched at that time."""
    return [("gemm", 7, 132, 0, 10, 4000), ("gemm", 7, 132, at, at + 10, at + 1000),
            ("ncclDevKernel_AllReduce_Sum", 20, 8, at + 5, at + 1000, 9990)]  # fmt: skip


def late_host(*, table: str, what: str) -> Trace:
    """Three ranks, of which rank 1 does something for 3 ms before it launches the rest."""
    did = [f"| {table} | name | rank | process | thread | start_us | end_us | times | every_us |",
           f"| it | {what} | 1 | 2 | 2 | 4005 | 6995 | 5 | 10000 |"]  # fmt: skip
    steps = {0: [step_of(4000)], 1: [step_of(7000)], 2: [step_of(4000)]}
    return job_of(steps, *(["\n".join(did)] if table else []))


@pytest.mark.parametrize(
    ("what", "other", "words"),
    [
        (
            LOADER,
            "",
            ", which prepares input at enumerate(",
        ),
        ("`aten::sort`", "", ", which computes on its CPU at aten::sort"),
        (LOADER, "`aten::sort`", ""),
    ],
)
def test_ranks_that_are_late_in_turn_by_one_cause_are_named_with_it(what: str, other: str, words: str) -> None:
    did = ["| host_ops | name | rank | process | thread | start_us | end_us | times | every_us |",
           f"| it | {what} | 0 | 1 | 1 | 4005 | 6995 | 5 | 20000 |",
           f"| it | {other or what} | 1 | 2 | 2 | 14005 | 16995 | 4 | 20000 |"]  # fmt: skip
    turns = [step_of(7000), step_of(4000)]
    trace = job_of({0: turns, 1: turns[::-1]}, "\n".join(did), count=9)
    verdict = find("ranks-imbalanced").verdict(trace)
    assert isinstance(verdict, Found)
    (finding,) = verdict.findings
    said = finding.message.partition("mostly on the CPU")[2].partition(", and hold")[0]
    assert said.startswith(words) if words else said == ""
    assert ("same work" in finding.advice) is not bool(words)


@pytest.mark.parametrize(
    ("table", "what", "reason"),
    [
        ("host_ops", LOADER, "loader"),
        ("frames", "`json/decoder.py(343): raw_decode`", "python"),
        ("frames", "`torch/serialization.py(100): save`", "checkpoint"),
        ("os_calls", "`write`", "os_call"),
        ("host_ops", "`aten::sort`", "operators"),
        ("host_ops", "`aten::add`", "operators"),
        ("", "", "python"),
    ],
)
def test_a_late_cpu_is_late_by_what_its_peers_do_not_do(table: str, what: str, reason: str) -> None:
    found = why_host_is_late(late_host(table=table, what=what), (1, 1))
    assert found is not None
    assert found.reason == reason
    assert found.excess_ns == pytest.approx(3e6, rel=0.05)


def test_what_all_do_makes_nobody_late() -> None:
    """Of three ranks that are as late, none has anything beyond the others."""
    trace = late_host(table="host_ops", what="`aten::sort`")
    for device in ((0, 0), (2, 2)):
        found = why_host_is_late(trace, device)
        assert found is None or found.excess_ns < 50_000


def late_device(own: str, peers: str = "gemm 132 10 700, relu 64 10 60") -> Trace:
    """Two ranks. Kernels by name, blocks, runs a step and us of all of them together."""
    kernels: dict[int, list[Kernels]] = {}
    for rank, text in ((0, peers), (1, own)):
        at, of_rank = 100, kernels.setdefault(rank, [[]])[0]
        for name, blocks, count, us in map(str.split, text.split(", ")):
            for _ in range(int(count)):
                of_rank.append((name, 7, int(blocks), len(of_rank), at, at + int(us) // int(count)))
                at += int(us) // int(count)
        of_rank.append(("ncclDevKernel_AllReduce_Sum", 20, 8, len(of_rank), at, 9900))
    return job_of(kernels)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ("gemm 132 20 1400, relu 64 20 120", "more"),
        ("gemm 132 10 1400, relu 128 10 120", "larger"),
        ("wide 132 10 1400, relu 128 10 120", "larger"),
        ("gemm 132 10 1400, relu 64 10 120", "slower"),
        ("gemm 132 10 700, relu 64 10 60, eval 132 1 300", "other"),  # nothing of a pass but one kernel
        ("gemm 132 90 6300, relu 64 10 60", "other"),  # matmuls alone: a load beside the step
        ("gemm 132 10 700, relu 64 10 60, lerp 9 64 640", "other"),  # no matmul: averages of weights
        ("gemm 132 10 700, relu 64 10 60, gemm 16 8 400, gelu 9 8 80", "more"),  # a pass of another size
        ("gemm 132 14 980, relu 64 10 60, gelu 64 1 60", "more"),
        ("gemm 132 10 700, relu 64 40 240", "other"),
    ],
)
def test_a_late_gpu_runs_more_kernels_or_larger_or_slower_ones(own: str, reason: str) -> None:
    found = why_device_is_late(late_device(own), (1, 1))
    assert found is not None
    assert found.reason == reason


def test_a_gpu_that_runs_no_more_than_its_peers_is_late_by_none_of_it() -> None:
    assert why_device_is_late(late_device("gemm 132 10 700, relu 64 10 60"), (1, 1)) is None


# What was planted in each, as the program's text says it.
PLANTED = {
    "batches_uneven": "larger inputs",
    "long_sequences_on_one_rank": "larger inputs",
    "tokens_routed_to_one_expert": "larger inputs",
    "evaluated_each_second_step": "kernels to run in a step where the others have",
    "pieces_accumulated_by_one_rank": "kernels to run in a step where the others have",
    "loader_short_of_workers": "prepares input",
    "half_as_many_workers": "prepares input",
    "pageable_on_one_rank": "waits for copies to its GPU",
    "saved_by_one_rank": "waits for copies from its GPU",
    "saved_each_second_step": "waits for copies from its GPU",
    "collected_by_one_rank": "runs code that launches nothing",
    "words_counted_by_one_rank": "runs code that launches nothing",
    "augmented_more_by_one_rank": "runs code that launches nothing",
    "tokens_packed_by_one_rank": "runs code that launches nothing",
    "records_parsed_by_one_rank": "runs code that launches nothing",
    "one_thread_on_one_rank": "computes on its CPU|runs code that launches nothing",  # nsys
}
CAPTURES = [(name, tool) for name in PLANTED for tool in ("torch", "nsys") if archive(name, tool).exists()]


def straggler_of(name: str, tool: str, folder: Path) -> tuple[Finding | None, list[tuple[str, Finding]], Trace]:
    pack.unpacked(archive(name, tool), folder)
    own = [fault for fault in suite.FAULTS if fault.name == name]
    assert all(fault.split.endswith("_tune") for fault in own)
    trace = read(sorted(folder.glob(f"{name}.high.fault*")), cache=False)
    named = [(card.name, finding) for card, finding in diagnose(trace).findings]
    return next((finding for card, finding in named if card == "straggler"), None), named, trace


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tool"), CAPTURES)
def test_a_straggler_s_cause_is_said_with_it_and_promised_once(name: str, tool: str, tmp_path: Path) -> None:
    """Where a straggler is named and a reason is, it is the planted one; its own finding is left nothing to promise.
    `ranks` gives the same reason."""
    late, found, late_trace = straggler_of(name, tool, tmp_path)
    if late is None or ", which" not in late.message:
        return
    assert re.search(PLANTED[name], late.message)
    assert late.message.partition(", which")[2].partition(", and holds")[0] in page_of_trace(late_trace, 3).title
    parts = [one for card, one in found if card == late.cause and one.where.rank == late.where.rank]
    assert all(part.recoverable is None or part.recoverable.value <= 0.02 * (part.of_ms or 0) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tool"), CAPTURES)
def test_a_straggler_and_its_cause_are_one_step_of_the_plan(name: str, tool: str, tmp_path: Path) -> None:
    late, _, trace = straggler_of(name, tool, tmp_path)
    rungs = [set(rung.findings) for rung in plan(trace).rungs]
    causes = {card.code for card in map(operator.attrgetter("card"), all_rules()) if late and card.name == late.cause}
    assert {"COM103"} not in rungs or causes not in rungs


@pytest.mark.slow
def test_most_stragglers_are_named_with_their_cause(tmp_path: Path) -> None:
    said = []
    for at, (name, tool) in enumerate(CAPTURES):
        (folder := tmp_path / str(at)).mkdir()
        late, *_ = straggler_of(name, tool, folder)
        said += [", which" in late.message] if late else []
    assert len(said) >= 25
    assert sum(said) >= 0.85 * len(said)


@pytest.mark.slow
def test_one_screen_tells_a_straggler_and_its_cause_as_one(tmp_path: Path) -> None:
    pack.unpacked(RANKS_CAPTURES / "two/straggler_host.fault.torch.tar.xz", tmp_path)
    lines = render_diagnosis(diagnose(read(sorted(tmp_path.glob("*.json")), cache=False)), Style(100)).splitlines()
    rows = [line.split("%")[1].split()[0] for line in lines if " us " in line and line.count("%") == 1]
    assert {"straggler", "communication-exposed"} <= {*rows} and "input-pipeline" not in rows
    assert "1 more (-v): input-pipeline (counted above)" in lines
