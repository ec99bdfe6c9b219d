"""What was planted in captures from real GPUs is found: slow steps, graph breaks, guards, and the price of a break.

Eager islands: kernels between compiled graphs, and no others.
"""

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.measures.compile import eager_islands
from timesink.measures.compile.summary import compile_counters, compile_summary
from timesink.measures.steps.spikes import Spike, spikes
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace
from timesink.verify.counters import captured_metrics, gate_counters
from timesink.verify.outcomes import How, Outcome

DATA = Path(__file__).resolve().parents[2] / "data" / "compile"
MEASURED = json.loads((DATA / "measured.json").read_text())
Unpacked = Callable[[str], Path]
PROGRAMS = "benchmarks/compiling/programs.py"


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    def open_one(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
        return path

    return open_one


@pytest.mark.parametrize(
    ("capture", "kind"),
    [
        ("allocator_retry.1.rank0", Spike.ALLOCATOR_RETRY),
        ("checkpoint.1.rank0", Spike.CHECKPOINT),
        ("recompile.1.rank0", Spike.RECOMPILATION),
        ("slow_batch.1.rank0", Spike.SLOW_DATA),
        ("late_peer.1.rank0", Spike.COMMUNICATION),
        ("late_peer.1.rank1", Spike.UNRECORDED_PAUSE),  # the late rank slept, and nothing records that
        ("gc.1.rank0", Spike.UNRECORDED_PAUSE),  # the profiler recorded no collection: no name is better than a guess
        ("captured_gc.0.rank0", Spike.GARBAGE_COLLECTION),
        ("captured_gc_again.1.rank0", Spike.GARBAGE_COLLECTION),
        ("captured_checkpoint.0.rank0", Spike.CHECKPOINT),
        ("captured_recompile.0.rank0", Spike.RECOMPILATION),
        ("captured_slow_batch.0.rank0", Spike.SLOW_DATA),
    ],
)
def test_a_planted_step_is_named(unpacked: Unpacked, capture: str, kind: Spike) -> None:
    planted, found = MEASURED[capture], spikes(read(unpacked(f"{capture}.json"))).found
    worst = max(found, key=lambda spike: spike.excess_ns)
    first_recorded = 2  # the profiler numbers the two steps before it recorded
    assert (worst.kind, worst.label) == (kind, f"ProfilerStep#{planted + first_recorded}")
    assert worst.carried_ns > 0.9 * worst.excess_ns


def test_a_healthy_loop_has_no_slow_step(unpacked: Unpacked) -> None:
    assert spikes(read(unpacked("none.0.rank0.json"))).found == ()


BREAKS = {
    "print_break": (60, "Failed to trace builtin operator"),
    "item_break": (72, "Unsupported Tensor.item() call with capture_scalar_outputs=False"),
    "layer_breaks": (161, "Skip calling `torch.compiler.disable()`d function"),
    "collective_break": (128, "Skip calling `torch.compiler.disable()`d function"),
}


@pytest.mark.parametrize("form", ["trace", "text"])
@pytest.mark.parametrize("name", sorted(BREAKS))
def test_a_break_is_named_with_its_line_and_reason(name: str, form: str) -> None:
    found = compile_summary(read(DATA / f"{name}.{form}.log")).breaks[0]
    line, reason = BREAKS[name]
    assert (found.line, str(found.file).endswith(PROGRAMS)) == (line, True)
    assert str(found.reason).startswith(reason)


@pytest.mark.parametrize("form", ["trace", "text"])
@pytest.mark.parametrize(
    ("name", "function", "guard"),
    [("int_argument", "scaled", "number == "), ("dynamic_shape", "activated", "tensor 'hidden' size mismatch")],
)
def test_a_guard_that_fails_again_is_one_guard(name: str, function: str, guard: str, form: str) -> None:
    frame = compile_summary(read(DATA / f"{name}.{form}.log")).frames[0]
    assert (frame.function, frame.recompilations, frame.guard_failures) == (function, 7, 7)
    assert str(frame.guard).startswith(guard)


def counted(trace: Trace) -> dict[str, float]:
    return dict(compile_counters(trace))


def test_counters_join_the_log_and_the_trace(unpacked: Unpacked) -> None:
    trace = read([unpacked("layer_breaks.broken.json"), DATA / "layer_breaks.trace.log"])
    known = counted(trace)
    assert known["regions_per_step"] == 25
    assert (known["graph_breaks"], known["recompilations"], known["steady_compilations"]) == (2, 0, 0)


def test_compilations_inside_steady_steps_are_counted(unpacked: Unpacked) -> None:
    assert counted(read(unpacked("int_argument.broken.json")))["steady_compilations"] >= 1


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("print_break", 0.0),
        ("item_break", 0.0),
        ("layer_breaks", 0.0),
        ("layer_breaks_training", 0.0),
        ("reduce_overhead", 0.0),
        ("layer_breaks_wide", 0.02),  # two points of the step above the interval: kernels get faster too
    ],
)
def test_the_measured_win_of_whole_graphs_lies_in_the_predicted_interval(
    unpacked: Unpacked, name: str, within: float
) -> None:
    broken, fixed = (MEASURED[f"{name}.{variant}.rank0"] for variant in ("broken", "fixed"))
    diagnosis = diagnose(read(unpacked(f"{name}.broken.json")), unprofiled_step_ms=broken)
    (worth,) = (finding.recoverable for card, finding in diagnosis.findings if card.code == "CMP101")
    assert worth is not None and worth.low is not None and worth.high is not None
    assert worth.low - within * broken <= broken - fixed <= worth.high + within * broken
    assert worth.value == pytest.approx(broken - fixed, rel=0.5)


@pytest.mark.parametrize("name", ["print_break", "item_break", "layer_breaks", "reduce_overhead"])
def test_breaks_are_the_verdict_where_the_host_sets_the_pace(unpacked: Unpacked, name: str) -> None:
    trace = read(unpacked(f"{name}.broken.json"))
    assert diagnose(trace).findings[0][0].code == "CMP101"


def test_counts_of_the_compiler_are_gated_exactly(unpacked: Unpacked) -> None:
    both = [unpacked("layer_breaks.broken.json"), DATA / "layer_breaks.trace.log"]
    counters = captured_metrics(read(both))
    gated = {name: counter.value for name, counter in counters.items() if counter.how is How.EXACT}
    assert gated["regions per step"] == 25
    assert (gated["graph breaks"], gated["recompilations"], gated["launches per step"]) == (2, 0, 121)
    unbroken = {name: replace(counter, value=1.0) for name, counter in counters.items() if name == "regions per step"}
    (row,) = gate_counters(unbroken, {name: counters[name] for name in unbroken})
    assert row.verdict.outcome is Outcome.SLOWER


def test_a_trace_without_a_compiler_has_no_counts_of_one(unpacked: Unpacked) -> None:
    assert not captured_metrics(read(unpacked("none.0.rank0.json"))).keys() & {"graph breaks", "regions per step"}


STEPS = 4


def steps_of(order: str) -> Trace:
    """Steps of one launch after another: `g` in a compiled graph, `e` eagerly."""
    ranges, calls, ops = [], [], []
    for step in range(STEPS):
        at = step * 1000
        ranges.append(f"| s | ProfilerStep#{step} | {at} | {at + 990} |")
        for place, kind in enumerate(order):
            begin, number = at + 10 * place + 5, step * 100 + place + 1
            if kind == "g":
                ranges.append(f"| g | ## Call CompiledFxGraph f{place} ## | {begin} | {begin + 9} |")
            calls.append(f"| l | cudaLaunchKernel | {number} | {begin + 1} | {begin + 3} |")
            ops.append(f"| k | gemm | {number} | {begin + 4} | {begin + 12} |")
    heads = ("ranges | name", "api_calls | name | correlation", "device_ops | name | correlation")
    tables = (
        "\n".join([f"| {head} | start_us | end_us |", *rows])
        for head, rows in zip(heads, (ranges, calls, ops), strict=True)
    )
    return trace_of("\n\n".join(tables))


@pytest.mark.parametrize(("order", "per_step"), [("gegeg", 2), ("ggg", 0), ("eggee", 0), ("eegeeege", 3)])
def test_only_what_stands_between_graphs_is_an_island(order: str, per_step: int) -> None:
    (found,) = eager_islands(steps_of(order))
    assert found.per_step == per_step
    assert found.share == pytest.approx(per_step / len(order))


@pytest.mark.parametrize("order", ["eee", "egee"])
def test_one_graph_or_none_has_no_between(order: str) -> None:
    assert eager_islands(steps_of(order)) == ()
