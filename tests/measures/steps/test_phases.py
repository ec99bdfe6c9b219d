"""Busy time belongs to the program's ranges, backward work included, and sums; micro-batches need accumulation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.tables import trace_of

from timesink.measures.steps.parts import pacing_windows, range_labels
from timesink.measures.steps.phases import host_phases, micro_batches, phases
from timesink.measures.timeline import device_timeline
from timesink.model.trace import Trace

MAIN, AUTOGRAD = 1, 2
KINDS = st.sampled_from(["gemm", "ncclKernel", "copy"])


def training(
    steps: int = 4,
    passes: int = 1,
    *,
    ranges: tuple[str, ...] = ("forward", "backward", "optimizer"),
    linked: bool = True,
    sizes: tuple[int, ...] = (3,),
) -> Trace:
    """Steps of 1000 us: `passes` times forward on the main thread and backward on autograd's, then the optimizer.

    Of `ranges`, those named are open on the main thread meanwhile; with `linked`, operators carry sequence numbers. A
    forward kernel takes 40 us, a backward one 80 us, the optimizer's 60 us; `sizes` are the operators of each pass.
    """
    marks, host, calls, ops = [], [], [], []
    number, op = 0, 0

    def run(at: int, us: int, thread: int) -> None:
        nonlocal op
        op += 1
        calls.append(f"| c | cudaLaunchKernel | {op} | {thread} | {at + 1} | {at + 2} |")
        ops.append(f"| k | gemm | {op} | {at + 3} | {at + 3 + us} |")

    for step in range(steps):
        at = step * 1000
        marks.append(f"| s | ProfilerStep#{step} | {MAIN} | {at} | {at + 999} |")
        each = 900 // passes
        for number_of_pass in range(passes):
            size = sizes[number_of_pass % len(sizes)]
            begin, turn = at + number_of_pass * each, at + number_of_pass * each + each // 3
            marks.append(f"| f | forward | {MAIN} | {begin} | {turn} |")
            marks.append(f"| b | backward | {MAIN} | {turn} | {begin + each} |")
            for n in range(size):
                forward, backward = begin + n * 5, turn + 1 + (size - n) * 5
                host += [
                    f"| f | aten::mm | {MAIN} | {forward} | {forward + 4} | {number + n} | 0 |",
                    f"| b | MmBackward0 | {AUTOGRAD} | {backward} | {backward + 4} | {number + n} | 1 |",
                ]
            number += size
            run(begin, 40, MAIN)
            run(turn + 1 + size * 5, 80, AUTOGRAD)
        marks.append(f"| o | optimizer | {MAIN} | {at + 905} | {at + 990} |")
        run(at + 906, 60, MAIN)
    kept = [mark for mark in marks if mark.split(" | ")[1] in ranges or "ProfilerStep" in mark]
    text = [
        "| ranges | name | thread | start_us | end_us |\n" + "\n".join(kept),
        "| api_calls | name | correlation | thread | start_us | end_us |\n" + "\n".join(calls),
        "| device_ops | name | correlation | start_us | end_us |\n" + "\n".join(ops),
    ]
    if linked:
        heads = "| host_ops | name | thread | start_us | end_us | sequence_number | forward_thread |\n"
        text.append(heads + "\n".join(host))
    return trace_of("\n\n".join(text))


def shares(trace: Trace) -> dict[str | None, float]:
    found = phases(trace)
    return {name: round(ns / found.busy_ns, 3) for name, ns in found.frame.iter_rows()}


@pytest.mark.parametrize("linked", [True, False])
def test_what_autograd_launches_belongs_to_the_range_that_waits_for_it(linked: bool) -> None:
    trace = training(linked=linked)
    assert shares(trace) == {
        "backward": round(80 / 180, 3),
        "optimizer": round(60 / 180, 3),
        "forward": round(40 / 180, 3),
    }


def test_backward_is_known_by_sequence_numbers_where_no_range_names_it() -> None:
    found = shares(training(ranges=("optimizer",)))
    assert found == {"backward": 0.444, "optimizer": 0.333, None: 0.222}


def test_another_thread_s_work_is_nobody_s_without_a_link() -> None:
    found = shares(training(ranges=("optimizer",), linked=False))
    assert found == {None: 0.667, "optimizer": 0.333}


def test_the_host_s_phases_are_its_outermost_ranges_within_the_steps() -> None:
    found = host_phases(training())
    assert {name: round(ns / found.busy_ns, 2) for name, ns in found.frame.iter_rows()} == {
        "backward": 0.6,
        "forward": 0.3,
        "optimizer": 0.09,
    }


@settings(max_examples=examples(25), derandomize=True)
@given(
    ops=st.lists(
        st.tuples(
            st.integers(0, 400), st.integers(1, 90), st.sampled_from(["gemm", "ncclKernel", "copy"]), st.booleans()
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_times_sum_to_the_busy_time(ops: list[tuple[int, int, str, bool]]) -> None:
    calls = [
        f"| c | cudaLaunchKernel | {n} | {150 if inside else 50 + n % 40} | 200 |" for n, (*_, inside) in enumerate(ops)
    ]
    rows = [
        f"| k | {name} | {'copy' if name == 'copy' else 'kernel'} | {n} | {n % 3} | {at} | {at + length} |"
        for n, (at, length, name, _) in enumerate(ops)
    ]
    trace = trace_of(
        "| ranges | name | start_us | end_us |\n| r | forward | 100 | 160 |\n\n"
        "| api_calls | name | correlation | start_us | end_us |\n" + "\n".join(calls) + "\n\n"
        "| device_ops | name | kind | correlation | stream | start_us | end_us |\n" + "\n".join(rows)
    )
    found = phases(trace)
    (line,) = device_timeline(trace).by_device.values()
    windows = pacing_windows(trace)
    busy_ns = line.busy.covered_ns(windows["start_ns"], windows["end_ns"]).sum()
    assert found.busy_ns == busy_ns == found.frame["time_ns"].sum()


def test_generated_ranges_and_steps_name_no_phase_and_a_range_around_all_is_taken_apart() -> None:
    names = ("train", "step 3", "## Call CompiledFxGraph fabc ##", "Torch-Compiled Region: 0/0", "embed", "head")
    opens = ((0, 1000), (1, 999), (2, 300), (3, 290), (310, 600), (610, 990))
    marks = [f"| r | {name} | {a} | {b} |" for name, (a, b) in zip(names, opens, strict=True)]
    calls = [f"| c | cudaLaunchKernel | {n} | {at} | {at + 1} |" for n, at in enumerate((10, 400, 700))]
    ops = [f"| k | gemm | {n} | {n * 100 + 20} | {n * 100 + 70} |" for n in range(3)]
    trace = trace_of(
        "\n".join(["| ranges | name | start_us | end_us |", *marks]) + "\n\n"
        + "\n".join(["| api_calls | name | correlation | start_us | end_us |", *calls]) + "\n\n"
        + "\n".join(["| device_ops | name | correlation | start_us | end_us |", *ops])
    )  # fmt: skip
    assert shares(trace) == {"embed": 0.333, "head": 0.333, None: 0.333}


def test_numbers_that_tell_ranges_apart_stay_and_running_ones_go() -> None:
    lines = ["| ranges | name | start_us | end_us |"]
    for step in range(4):
        at = step * 100
        lines += [f"| s | ProfilerStep#{step} | {at} | {at + 99} |", f"| a | stage0 | {at} | {at + 40} |"]
        lines += [f"| b | stage1 | {at + 41} | {at + 80} |", f"| c | batch {step} of 9 | {at + 81} | {at + 90} |"]
    assert set(range_labels(trace_of("\n".join(lines)))) == {"", "stage0", "stage1", "batch # of #"}


@pytest.mark.parametrize("ranges", [("backward", "optimizer"), ("optimizer",)])
@pytest.mark.parametrize("passes", [1, 3])
def test_micro_batches_are_backward_passes_to_an_optimizer_step(ranges: tuple[str, ...], passes: int) -> None:
    assert micro_batches(training(passes=passes, ranges=ranges)) == passes


def test_passes_of_different_sizes_are_no_micro_batches() -> None:
    assert micro_batches(training(passes=2, ranges=("optimizer",), sizes=(3, 5))) is None


def test_without_an_optimizer_or_a_backward_pass_nothing_is_claimed() -> None:
    assert micro_batches(training(passes=3, ranges=("backward",))) is None
    assert micro_batches(training(passes=3, ranges=("optimizer",), linked=False)) is None
