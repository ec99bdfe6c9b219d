"""What a thread sends again within a step, in variants."""

import pytest
from tests.tables import trace_of

from timesink.measures.habits.repeated_kernels import sent_constants
from timesink.measures.idle.sends import sent_again
from timesink.model.trace import Trace

STEPS = 4


def sending(step: str, bytes_: str = "4096", marked: bool = True) -> Trace:
    """Steps of 10 ms that launch one thing each 500 us: `s` sends, `k` is a kernel, `r` reads as much, `b` a kernel of
    a backward pass; a capital sends twice as much."""
    ops, calls, host = [], [], []
    for number in range(STEPS):
        for place, what in enumerate(step):
            at, key = 10_000 * number + 500 * place, 100 * number + place + 1
            kind, copy = ("kernel", "") if what in "kb" else ("copy", "d2h" if what == "r" else "h2d")
            size = "" if kind == "kernel" else str(int(bytes_) * (2 if what.isupper() else 1))
            ops.append(f"| o | {kind} | {'gemm' if kind == 'kernel' else 'Memcpy'} | {copy} | {size} | {key} "
                       f"| {at + 20} | {at + 40} |")  # fmt: skip
            name = "cudaLaunchKernel" if kind == "kernel" else "cudaMemcpyAsync"
            calls.append(f"| c | {name} | {2 if what == 'b' else 1} | {key} | {at + 5} | {at + 10} |")
            if what == "b":
                host.append(f"| b | `autograd::engine::evaluate_function: MmBackward0` | 2 | {at + 2} | {at + 12} |")
    lines, mark = "\n".join, f"| the step | ProfilerStep#{{n}} | 1 | 0 | 9900 | {STEPS} | 10000 |"
    return trace_of(f"""
| device_ops | kind | name | copy_kind | bytes | correlation | start_us | end_us |
|---|---|---|---|---|---|---|---|
{lines(ops)}

| api_calls | name | thread | correlation | start_us | end_us |
|---|---|---|---|---|---|
{lines(calls)}

| host_ops | name | thread | start_us | end_us |
|---|---|---|---|---|
{lines(host) or "| f | aten::mm | 1 | 0 | 1 |"}

| ranges | name | thread | start_us | end_us | times | every_us |
|---|---|---|---|---|---|---|
{mark if marked else "| other | forward | 1 | 0 | 9900 | 1 | 10000 |"}
""")


@pytest.mark.parametrize(
    ("step", "times"),
    [("kskskskk", 3), ("kksksks", 3), ("kskkkskkkskkksk", 4), ("Skkskskskk", 3), ("kskskskbbb", 3)],
)
def test_one_size_between_kernels_of_a_pass_comes_again(step: str, times: int) -> None:
    trace = sending(step)
    again = sent_again(trace)
    assert set(again["times"]) == {times}
    assert (again.height, int(again["is_first"].sum())) == (times * STEPS, STEPS)
    works, most = sent_constants(trace)
    assert most == times
    assert works[0].rows.size == (times - 1) * STEPS


@pytest.mark.parametrize(
    ("step", "marked"),
    [
        ("kskskk", True),  # twice: a batch and its labels
        ("ssskkkk", True),  # three tensors of one batch
        ("skbskbskb", True),  # micro-batches
        ("rskrskrskk", True),  # answers to what was read
        ("skSkssk", True),  # sizes differ
        ("kskskskk", False),  # nothing tells a step: batches may look so
    ],
)
def test_what_is_sent_as_batches_are_is_none(step: str, marked: bool) -> None:
    assert not sent_again(sending(step, marked=marked)).height
    assert sent_constants(sending(step, marked=marked)) == ((), 0)
