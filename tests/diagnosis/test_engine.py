"""The engine asks every rule once, prices what they find, ranks it, and never counts the same time twice."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.measures.idle.test_blamed_time import STEPPED
from tests.measures.steps.spike_traces import KINDS, simulated
from tests.tables import trace_of

from timesink.diagnosis import headline
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.rule import Limit, Limits, Rule
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Diagnosis,
    Finding,
    Found,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.diagnosis.words import which_step
from timesink.errors import UsageError
from timesink.measures.steps import steps
from timesink.measures.steps.spikes import spikes
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, GPU_METRICS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.records import replace
from timesink.units import time_text

MS = 1_000_000


def trace() -> Trace:
    """One device, 100 ms: two runs of five kernels of 8 ms each with 20 ms between them; no steps."""
    start_ns = [at * MS for run in (0, 60) for at in range(run, run + 40, 8)]
    ops = DEVICE_OPS.build(
        {
            "rank": 0, "device": 0, "process": 1, "stream": 7, "kind": "kernel",
            "name": [*"abcdefghij"], "start_ns": start_ns, "end_ns": [start + 8 * MS for start in start_ns],
        }
    )  # fmt: skip
    return Trace("t", {DEVICE_OPS: ops}, (ImportNote(NoteKind.DATA_LOSS, "lines lost", 3),))


def finding(bottleneck: Bottleneck, start_ms: int, end_ms: int) -> Finding:
    claim = Claim({(0, 0): Intervals.one(start_ms * MS, end_ms * MS)})
    return Finding(f"{bottleneck} costs time", bottleneck, Where(device=0), (), "do", "check", claim)


def rule(code: str, verdict: Verdict, **more: object) -> Rule:
    return Rule(code, lambda trace, limits: verdict, more.pop("needs", (DEVICE_OPS,)), **more)  # type: ignore[arg-type]


def test_findings_are_ranked_by_the_time_they_claim_and_the_first_is_the_verdict() -> None:
    small = rule("AAA101", Found((finding(Bottleneck.HOST_PYTHON, 40, 45),)))
    large = rule("BBB101", Found((finding(Bottleneck.HOST_SYNC, 45, 60),)))
    diagnosis = diagnose(trace(), rules=[small, large])
    assert [(card.code, f.recoverable.value) for card, f in diagnosis.findings if f.recoverable] == [
        ("BBB101", 15.0),
        ("AAA101", 5.0),
    ]
    assert diagnosis.bottleneck is Bottleneck.HOST_SYNC
    once = "All of that may be start-up"
    assert diagnosis.statement == f"host_sync costs time. {once}. A fix saves at most 15.0 ms (15.0 % of the window)"


def test_time_claimed_twice_is_counted_once() -> None:
    whole = rule("AAA101", Found((finding(Bottleneck.HOST_SYNC, 40, 60),)))
    part = rule("BBB101", Found((finding(Bottleneck.HOST_PYTHON, 50, 60),)))
    diagnosis = diagnose(trace(), rules=[whole, part])
    worth = [f.recoverable.value for _, f in diagnosis.findings if f.recoverable]
    assert worth == [20.0, 0.0]


def test_a_finding_under_one_percent_of_the_step_is_reported_but_is_not_the_bottleneck() -> None:
    diagnosis = diagnose(trace(), rules=[rule("AAA101", Found((finding(Bottleneck.HOST_SYNC, 59, 60),)))])
    assert diagnosis.bottleneck is Bottleneck.HOST_SYNC
    nearly = Found(
        (Finding("m", Bottleneck.HOST_SYNC, Where(), (), "", "", Claim({(0, 0): Intervals.one(0, MS - 1)})),)
    )
    diagnosis = diagnose(trace(), rules=[rule("AAA101", nearly)])
    assert len(diagnosis.findings) == 1
    assert diagnosis.statement == (
        "The GPU is busy 80.0 % of the 100 ms window. 20.0 % of the window is not explained: the capture has "
        "GPU work and no CUDA calls. To decide: timesink capture nsys -- ./program."
    )


def full(start_us: int, each_us: int, last_us: int = 0) -> Trace:
    """Ten kernels of ten names, one after the other, each with its launch; and a call that ends later."""
    at = [start_us + each_us * i for i in range(10)]
    ops = "".join(
        f"| {n} | 7 | reduce_kernel_{n} | {i} | {t} | {t + each_us} |\n"
        for i, (n, t) in enumerate(zip("abcdefghij", at, strict=True))
    )
    calls = "".join(
        f"| {i} | cudaLaunchKernel | {i} | {start_us - 20 + i} | {start_us - 19 + i} |\n" for i in range(10)
    )
    last = f"| last | cudaGetDevice | 99 | {start_us - 10} | {last_us} |\n" if last_us else ""
    head = "stream | name | correlation | start_us | end_us |"
    return trace_of(f"| device_ops | {head}\n{ops}\n| api_calls | {head[9:]}\n{calls}{last}")


@pytest.mark.parametrize(
    ("bound_ms", "priced_ms", "said"),
    [
        (19.0, 0.0, "a bound. A fix saves at most 19.0 ms (19.0 % of the window), perhaps nothing"),
        (19.0, 5.0, "a bound. A fix saves at most 19.0 ms (19.0 % of the window), perhaps nothing"),
        (19.0, 6.0, "a price. A fix saves 6.00 ms (6.00 % of the window)"),
        (10.8, 1.61, "a bound. A fix saves at most 10.8 ms (10.8 % of the window), perhaps nothing"),
        (8.0, 1.61, "a price. A fix saves 1.61 ms (1.61 % of the window)"),
        (
            4.94,
            0.0,
            "No finding surely saves 1 % of a step: host-sync saves at most 4.94 ms (4.94 % of the window), perhaps",
        ),
        (0.9, 0.0, "No finding is worth 1 % of a step"),
    ],
)
def test_a_bound_is_the_headline_where_no_price_is_more_than_what_is_expected_of_it(
    bound_ms: float, priced_ms: float, said: str
) -> None:
    def stated(message: str, *ends_ms: float) -> Finding:
        worth = Quantity(ends_ms[1], "ms", low=ends_ms[0], high=ends_ms[2])
        return Finding(message, Bottleneck.HOST_SYNC, Where(), (), "", "", stated=worth)

    rules = [rule("BBB101", Found((stated("a bound", 0.0, 0.0, bound_ms),)))]
    if priced_ms:
        rules.append(rule("AAA101", Found((stated("a price", 0.5, priced_ms, 7.0),))))
    assert said in diagnose(full(20, 10_000), rules=rules).statement


def test_without_a_finding_the_verdict_is_none_only_where_a_step_was_seen_to_be_full() -> None:
    clear = [rule("AAA101", Clear(()))]
    assert diagnose(trace(), rules=clear).bottleneck is Bottleneck.UNDECIDED  # idle 20 %, and nobody knows why
    assert diagnose(full(20, 10_000), rules=clear).bottleneck is Bottleneck.NONE
    assert diagnose(trace_of("| host_ops | name | start_us | end_us |\n| a | a | 0 | 9 |"), rules=clear).statement == (
        "The trace holds no GPU work, so no GPU bottleneck can be named."
    )


def test_a_device_that_works_for_a_moment_of_what_was_recorded_is_not_called_healthy() -> None:
    found = diagnose(full(1000, 100, 2981), rules=[rule("AAA101", Clear(()))])
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert found.statement == (
        "The GPU is busy 100 % of the 1.00 ms window. The rest of the recorded 2.00 ms has no GPU work: "
        "cudaGetDevice takes 991 us of it."
    )
    assert diagnose(full(1000, 100, 2979), rules=[rule("AAA101", Clear(()))]).bottleneck is Bottleneck.NONE


_UNKNOWN = ", and what fills most of it is not known"


@pytest.mark.parametrize(
    ("table", "rows", "said"),
    [
        ("api_calls", "cuModuleUnload 100 590, cuModuleUnload 600 1100", ": cuModuleUnload takes 990 us of it"),
        ("api_calls", "cudaFree 100 500, cudaFree 490 700, cuInit 700 1200", ": cudaFree takes 600 us of it"),
        ("api_calls", "cudaFree 100 200, cuInit 1990 2000", _UNKNOWN),
        ("host_ops", "aten::sort 100 1900", ": aten::sort takes 1.80 ms of it"),
        ("host_ops", "aten::sort 100 900, aten::add 1890 1900", _UNKNOWN),
        ("api_calls", "cudaDeviceSynchronize -90 -40, cuInit 1990 2000", _UNKNOWN),  # beside the work
    ],
)
def test_what_fills_a_recording_without_gpu_work_is_named(table: str, rows: str, said: str) -> None:
    """Ten kernels within 100 us, and what was recorded after them."""
    named = [row.split() for row in rows.split(", ")]
    lines = "".join(f"| {n} | 1 | {name} | {start} | {end} |\n" for n, (name, start, end) in enumerate(named))
    ops = "".join(f"| {n} | 7 | {n} | reduce_kernel_{n} | {10 * n - 100} | {10 * n - 90} |\n" for n in range(10))
    named = [(f"cudaLaunchKernel {n - 120} {n - 119}").split() for n in range(10)]
    calls = "".join(f"| {n} | {n} | 1 | {name} | {start} | {end} |\n" for n, (name, start, end) in enumerate(named))
    parts = [f"| device_ops | stream | correlation | name | start_us | end_us |\n{ops}"]
    parts.append(f"| api_calls | correlation | thread | name | start_us | end_us |\n{calls}")
    if table == "api_calls":
        lines = lines.replace("| 1 |", "| 99 | 1 |")
        parts[1] += lines
    else:
        parts.append(f"| {table} | thread | name | start_us | end_us |\n{lines}")
    given = trace_of("\n".join(parts))
    length = time_text(given.extent_ns[1] - given.extent_ns[0])
    assert diagnose(given, rules=[rule("AAA101", Clear(()))]).statement.endswith(
        f"The rest of the recorded {length} has no GPU work{said}."
    )


@pytest.mark.parametrize(
    ("steps_marked", "rest", "is_clear"),
    [
        (2, "a b", True),  # the other steps are as they are
        (2, "b a", True),
        (1, "a b", True),
        (2, "a c", False),  # c runs in no step
        (2, "a -", False),  # idle for as long as b took
        (4, "a c", True),  # the steps hold two thirds
    ],
)
def test_few_steps_are_a_clean_bill_where_the_rest_is_as_they_are(steps_marked: int, rest: str, is_clear: bool) -> None:
    """Six steps of 10 ms, of kernels a and b; the last ones have no mark, and kernels as `rest` says."""
    names = "ab" * steps_marked + rest.replace(" ", "") * (6 - steps_marked)
    ran = [(n, 5_000 * n, f"reduce_kernel_{name}") for n, name in enumerate(names) if name != "-"]
    ops = "".join(f"| {n} | 7 | {name} | {n} | {at + 20} | {at + 5_020} |\n" for n, at, name in ran)
    calls = "".join(f"| {n} | cudaLaunchKernel | {n} | {at} | {at + 5} |\n" for n, at, _ in ran)
    ranges = f"| step | ProfilerStep#{{n}} | 0 | 10000 | {steps_marked} | 10000 |"
    ranges = f"| ranges | name | start_us | end_us | times | every_us |\n{ranges}"
    head = "name | correlation | start_us | end_us |"
    tables = f"{ranges}\n\n| device_ops | stream | {head}\n{ops}\n| api_calls | {head}\n{calls}"
    found = diagnose(trace_of(tables), rules=[rule("AAA101", Clear(()))])
    assert found.bottleneck is (Bottleneck.NONE if is_clear else Bottleneck.UNDECIDED), found.statement


def test_what_recording_costs_is_the_bottleneck_and_no_saving() -> None:
    found = diagnose(slowed(frames=40_000))
    (card, finding), *_ = found.findings
    assert found.bottleneck is Bottleneck.PROFILER_OVERHEAD
    assert found.statement == finding.message
    assert card.code == "PRF101"
    assert "Recording 4,000 Python frames" in finding.message
    assert finding.recoverable is None
    assert saving_text(finding) == "saves nothing without the profiler"


def slowed(frames: int) -> Trace:
    """Ten steps of 1 ms of which the device works half, and so many frames in them."""
    return trace_of(f"""
        | device_ops | name   | correlation | start_us | end_us | times | every_us |
        | kernel     | `gemm` | 1           | 10       | 500    | 10    | 1000     |

        | api_calls  | name             | correlation | start_us | end_us | times | every_us |
        | launch     | cudaLaunchKernel | 1           | 0        | 3      | 10    | 1000     |

        | host_ops   | name       | start_us | end_us | times | every_us |
        | operator   | `aten::mm` | -500     | 8      | 10    | 1000     |

        | ranges     | name           | start_us | end_us | times | every_us |
        | step       | ProfilerStep#1 | -510     | 489    | 10    | 1000     |

        | frames     | name    | start_us | end_us | times    | every_us |
        | a function | forward | -500     | -499   | {frames} | 1        |
    """)


@pytest.mark.parametrize(("kept", "of_ms", "which"), [(0.8, 0.8, "unprofiled"), (0.99, 1.0, "")])
def test_without_the_profiler_a_step_is_that_part_of_the_recorded_one(
    kept: float, of_ms: float, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headline, "kept_ratio", lambda trace: (kept, kept, kept))
    steady = slowed(frames=1)
    assert headline.step_ms(steady) == pytest.approx(of_ms)
    assert which_step(steady, headline.step_ms(steady)) == which


def test_a_marked_step_without_its_device_work_is_neither_healthy_nor_planned() -> None:
    marked = trace_of("""
        | ranges | name           | start_us | end_us   |
        | s      | ProfilerStep#0 | 0        | 13300000 |

        | device_ops | stream | name | start_us | end_us   |
        | a          | 7      | a    | 13300010 | 13300012 |
    """)
    found = diagnose(marked)
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert found.statement == (
        "The trace marks 1 step of 13.3 s, but holds GPU work for 2.00 us only; "
        "the capture has GPU work and no CUDA calls. To decide: "
        "timesink capture nsys -- python train.py."
    )
    assert plan(marked).refused == "no complete step was found, and a plan is per step"


def test_a_missing_table_makes_the_rule_undecided_with_the_capture_that_decides_it() -> None:
    asked = rule("AAA101", Clear(()), needs=(DEVICE_OPS, GPU_METRICS), capture="capture counters")
    verdict = diagnose(trace(), rules=[asked]).rulings[0].verdict
    assert verdict == Undecided("the trace has no table gpu_metrics", "capture counters", elsewhere=True)


def test_every_rule_has_a_ruling_and_notes_are_kept() -> None:
    diagnosis = diagnose(trace(), rules=[rule("AAA101", Clear(())), rule("BBB101", NotApplicable("one device"))])
    assert [ruling.card.code for ruling in diagnosis.rulings] == ["AAA101", "BBB101"]
    assert tuple(map(str, diagnosis.notes)) == (
        "data_loss: lines lost (3 rows)",
        "no steps found: figures are of the whole window",
    )


def test_an_override_reaches_its_rule_and_an_unknown_one_is_refused_with_the_alternatives() -> None:
    seen: list[float] = []

    def check(trace: Trace, limits: Limits) -> Verdict:
        seen.append(limits["share"])
        return Clear(())

    asked = Rule("AAA101", check, (DEVICE_OPS,), limits={"share": Limit(0.1, "ratio", "why", "source")})
    diagnose(trace(), rules=[asked], overrides={"AAA101.share": 0.5})
    assert seen == [0.5]
    with pytest.raises(UsageError, match=r"AAA101\.share"):
        diagnose(trace(), rules=[asked], overrides={"AAA101.shore": 0.5})


def test_device_figures_sum_to_the_span() -> None:
    device = diagnose(trace(), rules=[]).devices[0]
    assert device.compute_ns + device.exposed_comm_ns + device.exposed_copy_ns + device.idle_ns == device.span_ns
    assert (device.busy_ns, device.idle_ns) == (80 * MS, 20 * MS)


def test_where_the_profiler_lengthens_the_step_the_device_is_held_against_both() -> None:
    stepped = trace_of(STEPPED)
    source = SOURCES.build({"rank": [0], "path": "t.json", "format": "t"})
    stepped = replace(stepped, tables={**stepped.tables, SOURCES: source})
    as_profiled = diagnose(stepped, rules=[]).statement
    assert "of the 9.00 ms step" in as_profiled
    assert "without the profiler" not in as_profiled
    shorter = diagnose(stepped, rules=[], unprofiled_step_ms=6.0).statement
    assert "of the 9.00 ms step as profiled," in shorter
    assert "of the 6.00 ms it takes without the profiler" in shorter
    alike = diagnose(stepped, rules=[], unprofiled_step_ms=8.9).statement
    assert "without the profiler" not in alike


APART = "typical steps are fine; "


def usual_headline(found: Diagnosis) -> Bottleneck:
    """What a diagnosis says of the usual step."""
    return Bottleneck.NONE if found.statement.startswith(APART) else found.bottleneck


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(5, 13), st.booleans())
@example(14356, "gc", 11, False)  # a full queue of launches makes the host stand still as long in other steps
@example(3828, "gc", 7, True)  # each fourth step reads, and the next one's batch is late for it
@example(69573, "gc", 10, True)
@example(372, "gc", 7, False)  # its waits are 1.9 % of six steps, 2.2 % of five: the limit is 2 %
@settings(max_examples=12)
def test_one_slow_step_is_never_the_usual_steps_headline(seed: int, kind: str, count: int, loses: bool) -> None:
    """Of 3 to 12 steady steps one is slow: the headline is that of the same loop without it, or said to be apart.

    A loop whose batches take longer than all its kernels loses most of each step to them; one whose kernels are long
    loses nothing.
    """
    load_ns, long = (2 * MS, 1) if loses else (1_000, 20)
    slow, at = simulated(seed, kind, count, load_ns=load_ns, kernels=long)
    alike, _ = simulated(seed, None, count, load_ns=load_ns, kernels=long)
    expected = Bottleneck.INPUT_PIPELINE if loses else Bottleneck.NONE
    found = diagnose(slow)
    by_half_a_limit = diagnose(alike, overrides={"IDL102.idle_ratio": 0.01})
    assume(usual_headline(by_half_a_limit) is expected)  # its waits are no finding, nor with a step fewer to share them
    assert usual_headline(found) is expected
    periods = steps(alike).windows["period_ns"].to_numpy()
    long_without = periods[periods > 1.4 * np.median(periods)]
    for spike in spikes(slow).found:
        assert spike.label == f"ProfilerStep#{at}" or np.isclose(long_without, spike.period_ns, rtol=0.01).any(), spike


def test_a_slow_step_of_many_is_said_apart_from_the_usual_one() -> None:
    found = diagnose(simulated(2, "gc")[0])
    assert found.statement.startswith(APART)
    assert found.bottleneck is found.findings[0][1].bottleneck is Bottleneck.GARBAGE_COLLECTION


@pytest.mark.parametrize(("load_ns", "expected"), [(1_000, Bottleneck.UNDECIDED), (2 * MS, Bottleneck.INPUT_PIPELINE)])
def test_two_steps_do_not_tell_which_is_the_usual_one(load_ns: int, expected: Bottleneck) -> None:
    """Three steps, of which the last has no end: the second is long."""
    found = diagnose(simulated(3, "gc", 3, load_ns=load_ns, kernels=1 if load_ns > MS else 20)[0])
    assert (found.steps.count, found.bottleneck) == (2, expected)
    assert found.statement.startswith("only two steady steps, of ")
    assert any("is an outlier: findings are for the other steps" in note.message for note in found.notes)
    assert "garbage" not in found.statement.partition("; ")[2]
