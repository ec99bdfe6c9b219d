"""The start of a program, in which CUDA sets itself up, is no step of it and is not diagnosed."""

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Undecided
from timesink.measures.timeline.start_up import start_up
from timesink.model.trace import Trace


def begun(name: str, start_us: int, end_us: int, *busy: tuple[int, int]) -> Trace:
    """One call beside kernels at 0 and at 10 ms, and at the places of `busy`."""
    places = [(0, 10), *busy, (10_000, 10_100)]
    return trace_of(
        "\n".join(
            [
                "| device_ops | name | start_us | end_us |",
                *(f"| k | a | {start} | {end} |" for start, end in places),
                "",
                "| api_calls | name | start_us | end_us |",
                f"| c | {name} | {start_us} | {end_us} |",
            ]
        )
    )


@pytest.mark.parametrize(
    ("name", "end_us", "idle_us"),
    [
        ("cudaLaunchKernel", 4_000, 3_500),
        ("hipLaunchKernel", 4_000, 3_500),
        ("cudaLaunchKernel", 3_499, 0),  # long, and not that long
        ("cudaStreamSynchronize", 9_000, 0),  # waits for the device
        ("cudaMemcpyAsync", 9_000, 0),  # of pageable memory it waits, too
        ("cudaMalloc", 9_000, 0),  # memory is slow to come
    ],
)
def test_a_launch_of_milliseconds_sets_up_and_a_wait_does_not(name: str, end_us: int, idle_us: int) -> None:
    assert start_up(begun(name, 500, end_us)).idle_ns == idle_us * 1_000


def test_only_time_in_which_the_device_waits_counts() -> None:
    found = start_up(begun("cudaLaunchKernel", 1_000, 9_000, (2_000, 5_000)))
    assert (found.count, found.idle_ns, found.span_ns, found.longest_ns) == (1, 5_000_000, 10_100_000, 5_000_000)
    assert found.share == pytest.approx(5 / 10.1)
    assert start_up(begun("cudaLaunchKernel", 1_000, 9_000, (500, 9_500))).count == 0


@pytest.mark.parametrize(
    ("names", "busy", "told_us"),
    [
        (("hipLaunchKernel", "hipLaunchKernel"), (600, 900), (5_700, 3_000)),
        (("cudaLaunchKernel", "cudaLaunchKernel"), (500, 3_000), (3_500, 3_000)),
        (("cuLaunchKernel", "cudaLaunchKernel"), (5_000, 5_500), (5_500, 3_000)),
        (("cuLaunchKernelEx", "cudaLaunchKernel"), (3_100, 9_000), (2_600, 2_600)),
        (("cudaLaunchKernel", "cudaLaunchKernel"), (7_900, 8_500), (5_900, 3_000)),
    ],
)
def test_no_call_alone_keeps_the_device_waiting_for_longer_than_all(
    names: tuple[str, str], busy: tuple[int, int], told_us: tuple[int, int]
) -> None:
    """Two calls of 3 ms, the first at 0.5 and the second at 5 ms, beside one kernel more."""
    ops = zip("abc", sorted([(0, 10), busy, (10_000, 10_100)]), strict=True)
    places = "\n".join(f"| k | {name} | {start} | {end} |" for name, (start, end) in ops)
    calls = "\n".join(f"| c | {name} | {at} | {at + 3_000} |" for name, at in zip(names, (500, 5_000), strict=True))
    head = "name | start_us | end_us |\n"
    found = start_up(trace_of(f"| device_ops | {head}{places}\n\n| api_calls | {head}{calls}"))
    assert (found.idle_ns, found.longest_ns) == tuple(1_000 * time for time in told_us)


def launched(first_us: int, later_us: int) -> Trace:
    """Two launches of one kernel, each that long and with an idle device before it."""
    return trace_of(
        f"""
        | device_ops | name | start_us | end_us | correlation |
        | before | a | 0 | 10 | |
        | first | k | 2000 | 2010 | 1 |
        | later | k | 4000 | 4010 | 2 |

        | api_calls | name | start_us | end_us | correlation |
        | c | cudaLaunchKernel | 1000 | {1000 + first_us} | 1 |
        | d | cudaLaunchKernel | 3000 | {3000 + later_us} | 2 |
        """
    )


@pytest.mark.parametrize(("first_us", "later_us", "idle_us"), [(100, 10, 100), (99, 10, 0), (10, 900, 0)])
def test_the_first_launch_of_a_kernel_loads_it_and_a_later_one_does_not(
    first_us: int, later_us: int, idle_us: int
) -> None:
    assert start_up(launched(first_us, later_us)).idle_ns == idle_us * 1_000


def test_an_allocation_sets_up_only_where_it_takes_tens_of_milliseconds() -> None:
    rows = "| api_calls | name | start_us | end_us |\n| c | cudaMalloc | 500 | 60000 |"
    trace = trace_of(
        f"| device_ops | name | start_us | end_us |\n| k | a | 0 | 10 |\n| k | a | 70000 | 70010 |\n\n{rows}"
    )
    assert start_up(trace).idle_ns == 59_500_000


def test_a_trace_of_the_start_is_not_diagnosed_and_says_what_to_record() -> None:
    diagnosis = diagnose(begun("hipLaunchKernel", 500, 7_000))
    assert diagnosis.statement == (
        "64.4 % of the 10.1 ms capture is start-up, which happens once: hipLaunchKernel keeps the GPU waiting for "
        "6.50 ms. To decide: record later steps, as timesink capture does (nsys: --delay)."
    )
    assert all(isinstance(ruling.verdict, Undecided) for ruling in diagnosis.rulings)
    shorter = diagnose(begun("hipLaunchKernel", 500, 5_000))
    assert "start-up" not in shorter.statement
