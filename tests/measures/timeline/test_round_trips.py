"""Data that leaves the device and comes back, and pages of unified memory that kernels wait for."""

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Finding
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.timeline.copies import on_trips
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

STEP = 1000
KERNELS = "\n| k | kernel | solve | | | | 7 | | 400 | 500 | {times} | 1000 |"
COLUMNS = (
    "| device_ops | kind | name | copy_kind | src_memory | dst_memory | stream | bytes | start_us | end_us | times "
    "| every_us |"
)


def loop(*copies: tuple[str, str, str, int], times: int = 12) -> Trace:
    """Steps of a millisecond, each with a kernel from 400 to 500 us and these copies: (direction, host's memory, bytes,
    start in us), of 100 us."""
    rows = [
        f"| c{at} | copy | Memcpy | {way} | {host if way == 'h2d' else 'device'} "
        f"| {'device' if way == 'h2d' else host} | 7 | {size} | {start} | {start + 100} | {times} | {STEP} |"
        for at, (way, host, size, start) in enumerate(copies)
    ]
    return trace_of("\n".join([COLUMNS, *rows]) + KERNELS.format(times=times))


def exposed(trace: Trace) -> list[Finding]:
    return [finding for card, finding in diagnose(trace).findings if card.code == "CPY101"]


ROUND = {
    "sent first": (("h2d", "pageable", "5 MB", 100), ("d2h", "pageable", "5 MB", 600)),
    "read first": (("d2h", "pageable", "5 MB", 100), ("h2d", "pageable", "5 MB", 600)),
    "both before the kernel": (("d2h", "pinned", "5 MB", 100), ("h2d", "pinned", "5 MB", 200)),
    "pinned": (("h2d", "pinned", "5 MB", 100), ("d2h", "pinned", "5 MB", 600)),
    "one side pinned": (("h2d", "pageable", "5 MB", 100), ("d2h", "pinned", "5 MB", 600)),
    "two arrays": (
        ("h2d", "pinned", "5 MB", 100),
        ("h2d", "pinned", "7 MB", 200),
        ("d2h", "pinned", "7 MB", 600),
        ("d2h", "pinned", "5 MB", 700),
    ),
    "memory not said": (("h2d", "", "5 MB", 100), ("d2h", "", "5 MB", 600)),
}
ONE_WAY = {
    "other sizes": (("h2d", "pinned", "5 MB", 100), ("d2h", "pinned", "4 MB", 600)),
    "values": (("h2d", "pinned", "8 B", 100), ("d2h", "pinned", "8 B", 600)),
    "input alone": (("h2d", "pinned", "5 MB", 100),),
    "results alone": (("d2h", "pinned", "5 MB", 100),),
}


@pytest.mark.parametrize("copies", ROUND.values(), ids=ROUND)
def test_data_that_leaves_and_comes_back_each_step_could_stay(copies: tuple[tuple[str, str, str, int], ...]) -> None:
    whole, *_ = found = exposed(loop(*copies))
    assert "round-trip copies take" in whole.message
    assert "Keep the data on the GPU" in whole.advice
    assert whole.fix is not None
    assert whole.fix.name == "keep_on_device"
    assert whole.recoverable is not None
    assert whole.recoverable.low == 0
    assert sum("round-trip" in finding.message for finding in found) == 1


def waited(out_us: int, wait: str, back: str, host_us: int) -> Trace:
    """Steps of 4 ms: a kernel, 5 MB to the CPU with a wait behind it, so long on the host, as much back, a kernel."""
    ops, calls = [], []
    for step in range(8):
        now = 4_000 * step
        rows = [("solve", "", "", 100, 200), ("out", "d2h", "5 MB", 300, out_us)]
        rows += [("back", "h2d", back, 300 + out_us + 20 + host_us, 100)] if back else []
        rows += [("more", "", "", 3_000, 900)]
        for name, way, size, start, length in rows:
            kind, call = ("copy", "cudaMemcpyAsync") if way else ("kernel", "cudaLaunchKernel")
            asked = now + (120 if way == "d2h" else start - 10)
            place = f"{now + start} | {now + start + length} | {len(ops) + 1}"
            ops.append(f"| o | {kind} | `at::native::{name}` | {way} | {size} | {place} |")
            calls.append(f"| c | {call} | {asked} | {asked + 5} | {len(ops)} |")
            if way == "d2h" and wait:
                calls.append(f"| c | {wait} | {asked + 6} | {now + 300 + out_us + 5} | |")
    tables = "| device_ops | kind | name | copy_kind | bytes | start_us | end_us | correlation |"
    called = "| api_calls | name | start_us | end_us | correlation |"
    return trace_of("\n".join([tables, *ops]) + "\n\n" + "\n".join([called, *calls]))


@pytest.mark.parametrize(
    ("out_us", "wait", "host_us", "share"),
    [
        (400, "cudaStreamSynchronize", 0, 0.5),
        (400, "cudaStreamSynchronize", 300, 0.5),
        (900, "cudaEventSynchronize", 0, 0.6),
        (900, "cudaDeviceSynchronize", 300, 0.6),
    ],
)
def test_what_the_waits_of_round_trips_cost_is_theirs(out_us: int, wait: str, host_us: int, share: float) -> None:
    """A fix may win the copies and what the device waits by them: a bound that leaves it out is none."""
    whole, *_ = exposed(waited(out_us, wait, "5 MB", host_us))
    copied = (out_us + 100) / 4_000
    assert "round-trip copies and their waits take" in whole.message
    assert copied < whole.evidence[0].measured.value < share + host_us / 4_000


def test_without_a_wait_round_trips_take_what_their_copies_do() -> None:
    whole, *_ = exposed(waited(400, "", "5 MB", 0))
    assert "round-trip copies take" in whole.message
    assert whole.evidence[0].measured.value == pytest.approx(500 / 4_000, rel=0.05)


@pytest.mark.parametrize(("back", "stretches"), [("5 MB", False), ("7 MB", True), ("4 MB", True)])
def test_what_comes_back_is_no_input(back: str, stretches: bool) -> None:
    """Of another size it is something else: what the CPU made of a result, or a batch of more than was read."""
    prepared = input_pipeline(waited(400, "cudaStreamSynchronize", back, 900)).frame
    assert bool(prepared.height) is (stretches and back == "7 MB")


@pytest.mark.parametrize(
    ("ways", "trips"),
    [
        (("d2h", "h2d"), 2),
        (("h2d", "d2h"), 2),  # all but the first and the last
        (("d2h",), 0),
        (("d2h", "d2h", "h2d"), 2),
        (("h2d", "h2d"), 0),
    ],
)
def test_copies_on_trips_are_rows_of_their_table(ways: tuple[str, ...], trips: int) -> None:
    trace = loop(*((way, "pinned", "5 MB", 150 * at) for at, way in enumerate(ways)))
    found = on_trips(trace)
    assert found.size == trace[DEVICE_OPS].height
    assert not found[(trace[DEVICE_OPS]["kind"] != "copy").to_numpy()].any()
    assert trips * 12 - 2 <= found.sum() <= trips * 12 if trips else not found.any()


@pytest.mark.parametrize("copies", ONE_WAY.values(), ids=ONE_WAY)
def test_data_that_goes_one_way_has_to_be_moved(copies: tuple[tuple[str, str, str, int], ...]) -> None:
    assert not any("round-trip" in finding.message for finding in exposed(loop(*copies)))


@pytest.mark.parametrize(("steps", "told"), [(3, False), (4, True)])
def test_three_round_trips_are_a_habit(steps: int, told: bool) -> None:
    """The data of the last step does not come back any more."""
    copies = ROUND["sent first"]
    assert any("round-trip" in finding.message for finding in exposed(loop(*copies, times=steps))) is told


MIGRATED = "Unified memory Memcpy HtoD (Managed -> Device)"


@pytest.mark.parametrize(
    ("name", "way", "start", "waits"),
    [
        (MIGRATED, "h2d", 400, True),
        (MIGRATED, "h2d", 450, True),
        ("Unified memory Memcpy HtoD (Unknown -> Unknown)", "h2d", 380, True),
        ("Unified memory Memcpy HtoD", "h2d", 420, True),
        (MIGRATED.replace("Memcpy", "Prefetch"), "h2d", 400, False),
        (MIGRATED.replace("HtoD (Managed -> Device)", "DtoH (Device -> Managed)"), "d2h", 400, False),
        ("Memcpy HtoD (Pinned -> Device)", "h2d", 400, False),
    ],
)
def test_a_kernel_waits_for_the_pages_that_it_touches(name: str, way: str, start: int, waits: bool) -> None:
    """Copies that the program asked for, and pages that the host takes, do not hold a kernel."""
    row = f"| m | copy | {name} | {way} | | | 20 | 1 MB | {start} | {start + 100} | 12 | {STEP} |"
    messages = [finding.message for finding in exposed(trace_of(f"{COLUMNS}\n{row}" + KERNELS.format(times=12)))]
    assert (
        any("Kernels may also wait for pages, for at most 100 % of their time" in message for message in messages)
        is waits
    )
