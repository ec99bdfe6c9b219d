"""Exposed communication of one rank alone: waiting for a late rank and transfer look alike, so all of it is a bound."""

import re
from collections.abc import Iterator

import pytest
from tests.gate.prices import unlike_what_if
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Bottleneck
from timesink.model.trace import Trace

STEP_US = 15_010


def rows_of_step(
    begin: int, first: int, *, shared: bool = False, wait: str = "cudaStreamWaitEvent", vendor: str = "cuda",
    collective: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", end: str = "DeviceSynchronize",
) -> Iterator[tuple[str, int, str]]:  # fmt: skip
    """(table, start, row) of ten kernels of 1 ms, four collectives of 1 ms, and the optimizer behind them."""
    at, launch, number = begin + 20, begin + 10, first
    for place in range(15):
        stream = 20 if 10 <= place < 14 and not shared else 7
        name, length = ("gemm", 1000) if place < 10 else (collective, 1000) if place < 14 else ("adam", 900)
        if place == 14 and "Synchronize" in wait:
            yield "calls", launch, f"| wait | {wait} | | {launch} | {at + 10} |"
            launch, at = at + 15, at + 20
        elif place >= 10 and wait and not shared:
            yield "calls", launch - 4, f"| wait | {wait} | | {launch - 4} | {launch - 2} |"
        yield "calls", launch, f"| launch | {vendor}LaunchKernel | {number} | {launch} | {launch + 5} |"
        yield "ops", at, f"| op | {name} | {stream} | {number} | {at} | {at + length} |"
        at, launch, number = at + length, launch + 20, number + 1
    yield "calls", launch, f"| end | {vendor}{end} | | {launch} | {at + 5} |"


def made(*, calls: bool = True, **variant: object) -> Trace:
    """Eight steps of a rank whose collectives nothing hides."""
    rows = [
        row
        for step in range(8)
        for row in rows_of_step(step * STEP_US, 15 * step, **variant)  # type: ignore[arg-type]
    ]
    tables = {
        table: "\n".join(row for _, row in sorted((at, row) for kind, at, row in rows if kind == table))
        for table in ("ops", "calls")
    }
    host = f"\n\n| api_calls | name | correlation | start_us | end_us |\n{tables['calls']}" if calls else ""
    return trace_of(f"""
| device_ops | name | stream | correlation | start_us | end_us |
{tables["ops"]}{host}

| ranges | name     | start_us | end_us    | times | every_us  |
| step   | step {{n}} |        0 | {STEP_US} |     8 | {STEP_US} |
""")


VARIANTS = {
    "the optimizer waits for their event": {},
    "no wait is recorded": {"wait": ""},
    "one stream for all": {"shared": True},
    "the CPU waits for them": {"wait": "cudaStreamSynchronize"},
    "ROCm": {"wait": "hipStreamWaitEvent", "vendor": "hip", "collective": "ncclDevKernel_Generic"},
    "ROCm without waits": {"wait": "", "vendor": "hip", "collective": "ncclDevKernel_Generic"},
    "the driver's calls": {"wait": "cuStreamWaitEvent", "vendor": "cu", "end": "CtxSynchronize"},
    "gathered": {"collective": "ncclKernel_AllGather_RING_LL_Sum_int8_t"},
    "the CPU waits for an event": {"collective": "ncclDevKernel_ReduceScatter_RING_LL", "wait": "cudaEventSynchronize"},
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_all_of_it_may_be_won_and_nothing_more_is_said(name: str) -> None:
    trace = made(**VARIANTS[name])  # type: ignore[arg-type]
    found = diagnose(trace)
    card, finding = found.findings[0]
    assert (card.code, found.bottleneck) == ("COM101", Bottleneck.COMMUNICATION_EXPOSED), found.statement
    assert re.match(r"saves at most (3\.9\d|4\.00) ms \(26\.\d % of the step\)", saving_text(finding)), finding
    assert list(unlike_what_if(trace, finding)) == []


def test_without_calls_no_price_is_of_a_step() -> None:
    """Steps of the CPU that no call links to the GPU's work: message and saving are parts of one window."""
    found = diagnose(made(calls=False, wait=""))
    _, finding = found.findings[0]
    assert "32.0 ms of the 120 ms window (26.7 %)" in finding.message
    assert saving_text(finding) == "saves at most 32.0 ms (26.7 % of the window)"
