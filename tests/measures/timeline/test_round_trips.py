"""Data that leaves the device and comes back, and pages of unified memory that kernels wait for."""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Finding
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
    ("name", "way", "start", "share"),
    [
        (MIGRATED, "h2d", 400, "100 %"),
        (MIGRATED, "h2d", 450, "50.0 %"),
        ("Unified memory Memcpy HtoD (Unknown -> Unknown)", "h2d", 380, "80.0 %"),
        ("Unified memory Memcpy HtoD", "h2d", 420, "80.0 %"),
        (MIGRATED.replace("Memcpy", "Prefetch"), "h2d", 400, None),
        (MIGRATED.replace("HtoD (Managed -> Device)", "DtoH (Device -> Managed)"), "d2h", 400, None),
        ("Memcpy HtoD (Pinned -> Device)", "h2d", 400, None),
    ],
)
def test_a_kernel_waits_for_the_pages_that_it_touches(name: str, way: str, start: int, share: str | None) -> None:
    """Copies that the program asked for, and pages that the host takes, do not hold a kernel."""
    row = f"| m | copy | {name} | {way} | | | 20 | 1 MB | {start} | {start + 100} | 12 | {STEP} |"
    messages = [finding.message for finding in exposed(trace_of(f"{COLUMNS}\n{row}" + KERNELS.format(times=12)))]
    assert any("kernels wait for the pages" in message for message in messages) is (share is not None)
    assert share is None or f"run for {share} of kernel time" in messages[0]
