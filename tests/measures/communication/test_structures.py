"""How exchanges stand among products tells tensor, context and expert parallel apart from data parallel."""

import pytest
from tests.strategies import frame

from timesink.diagnosis.judge import Row
from timesink.measures.communication.pipelines import exposed_transfers
from timesink.measures.communication.structures import structures
from timesink.measures.steps.per_step import per_step_ns
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.communication import exchanges

GEMM, FLASH = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "void pytorch_flash::flash_fwd_kernel<Traits>(Params)"
SUM = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SENT = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
KERNELS = {
    "p": (GEMM, 400), "q": ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", 350), "a": (FLASH, 300),
    "f": ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(AttentionKernel::Params)", 280), "o": ("elementwise_kernel", 20),
    "R": (SUM, 90), "C": ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(RankData*)", 20),
    "A": ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", 80), "X": (SENT, 200),
    "D": ("void deep_ep::internode::dispatch<false, 4>(int4*)", 150),
    "E": ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", 150),
    "G": ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 100),
    "S": ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 100),
}  # fmt: skip
"""A kernel by a letter: products small, exchanges large; its name, and how long it takes in us."""


def exposed(trace: Trace) -> list[Row]:
    found = exchanges._exposed(trace)
    assert isinstance(found, list)
    return found


def program(letters: str, slower: float = 1.0, ahead_us: int = 0, every: int = 1) -> Trace:
    """Kernels one after the other on a GPU; every second one takes `slower` times as long. Of messages after another
    kernel each of so many begins `ahead_us` before that ends."""
    rows, at, messages = [], 0, 0
    for number, letter in enumerate(letters):
        name, length_us = KERNELS[letter]
        if letter == "X" and ahead_us:
            messages += 1
            at -= 0 if messages % every else 1000 * ahead_us
        end = at + round(1000 * length_us * (slower if number % 2 else 1))
        row = {"rank": 0, "device": 0, "process": 1, "stream": 7, "kind": "kernel", "name": name, "grid_x": 64}
        rows.append({**row, "start_ns": at, "end_ns": end, "correlation": number})
        at = end + 1000
    return Trace("test", {DEVICE_OPS: frame(DEVICE_OPS, rows)})


TOLD = {
    "tensor parallel, forward": ("appRoppRo" * 6, "sums"),
    "with attention and a wide layer by turns": ("papRopppRo" * 6, "sums"),
    "served, with sums of its own": ("qfqCoqqCo" * 8, "sums"),
    "by an older library": ("qfqAoqqAo" * 8, "sums"),
    "trained, forward and back": ("appRoppRo" * 4 + "pppRoaapppRo" * 4 + "ooo", "sums"),
    "context parallel in line": ("ppXaXaXaopp" * 5, "ring"),
    "attending meanwhile": ("ppaXaoXaoXaopp" * 5, "ring"),
    "of two ranks": ("ppXfopp" * 10, "ring"),
    "heads to ranks and back": ("ppXaaaXpp" * 6, "messages"),
    "with attention to a prompt besides": ("ppaXaaaaaaaaXp" * 6, "messages"),
    "experts by a library": ("papDoppoEo" * 6, "messages"),
    "experts by sends": ("papXoppoXo" * 6, "messages"),
    "experts without attention": ("XpoXppo" * 8, "messages"),
}
UNTOLD = {
    "data parallel": "apapapapapapapap" + "ppRoppRo" * 8 + "oo",
    "two steps of it": ("papapapapapapapapap" + "ppRoppRo" * 5 + "oo") * 2,
    "sums after the backward pass": ("papapapp" + "RRRRRRRR" + "o") * 2,
    "sharded": ("GpapGpp" * 6) + "GpppSGpppS" * 6,
    "few sums": "ppRppRppRo",
    "figures reduced and read": ("papap" * 4 + "R" * 12) * 3,
    "no exchange": "papop" * 9,
    "nothing but exchanges": "RRRRRRRRRRRR",
}


@pytest.mark.parametrize("slower", [1.0, 1.2, 0.8])
@pytest.mark.parametrize("name", TOLD)
def test_parallelism_is_told_by_kernels_alone(name: str, slower: float) -> None:
    letters, how = TOLD[name]
    assert {device: told.name for device, told in structures(program(letters, slower)).items()} == {(0, 0): how}


@pytest.mark.parametrize("slower", [1.0, 1.2, 0.8])
@pytest.mark.parametrize("name", UNTOLD)
def test_what_shares_data_alone_is_none_of_it(name: str, slower: float) -> None:
    assert structures(program(UNTOLD[name], slower)) == {}


RINGS = [name for name, (_, how) in TOLD.items() if how == "ring"]


@pytest.mark.parametrize("slower", [1.0, 1.2, 0.8])
@pytest.mark.parametrize("name", RINGS)
def test_of_a_ring_little_is_won_beside_attention(name: str, slower: float) -> None:
    """Its messages begin with the last blocks of the attention that they are sent beside."""
    trace = program(TOLD[name][0], slower)
    (row,) = exposed(trace)
    lost_ms = per_step_ns(trace, (0, 0), exposed_transfers(trace)[0, 0]) / 1e6
    assert lost_ms > 0 and row.variant == "ring" and row.change is None and row.stated is not None
    assert (row.stated.low, row.stated.value, row.stated.high) == pytest.approx((0, 0.1 * lost_ms, 0.2 * lost_ms))


@pytest.mark.parametrize("ahead_us", [30, 60, 100, 150, 199])
@pytest.mark.parametrize("name", RINGS)
def test_messages_that_are_sent_ahead_win_nothing_by_that(name: str, ahead_us: int) -> None:
    """Of 200 us each: what the attention before them hides they were sent ahead for, and the rest may be won or not."""
    trace = program(TOLD[name][0], ahead_us=ahead_us)
    (row,) = exposed(trace)
    lost_ms = per_step_ns(trace, (0, 0), exposed_transfers(trace)[0, 0]) / 1e6
    assert row.variant == "ring" and row.stated is not None
    assert (row.stated.low, row.stated.value, row.stated.high) == pytest.approx((0, 0, 0.2 * lost_ms))
    (half,) = exposed(program(TOLD[name][0], ahead_us=ahead_us, every=2))
    assert half.stated is not None and 0 < half.stated.value < 0.1 * half.stated.most / 0.2


@pytest.mark.parametrize("name", ["tensor parallel, forward", "experts by sends", "data parallel"])
def test_what_is_no_ring_is_replayed(name: str) -> None:
    (row,) = exposed(program(TOLD[name][0] if name in TOLD else UNTOLD[name]))
    assert row.stated is None and row.change is not None
