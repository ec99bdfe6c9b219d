"""Each kind of wrong English is seen in variants that no capture showed, and right sentences are left alone."""

import pytest
from tests.gate.words import unplain

from timesink.diagnosis.verdicts import Note

WRONG = {
    "one of many": ("1 launches without", "1 blocks on 132 SMs", "and 1 steps", "1 ranks wait", "over 1 channels"),
    "many of one": ("12 kernel run", "2 launch per step", "it makes 40 call", "16 block wait", "3 step are slow"),
    "a count below nothing": ("-1 launches", "by -20 kernels", "(-3 calls)", "-1,024 blocks", "change -2 steps"),
    "two remarks in a row": (
        "of the step of 19.4 ms (median 2.45 ms) (78.3 %)", "(12 of 14) (3.1 ms)", "saved (52.3 %) (rank 3)",
        "11 kernels (2 kinds) (at most 4 us)", "(1.2 GB) (9 % of it)",
    ),
    "or after or": (
        "spills or atomics or uncoalesced or latency bound", "a or b or c or d", "late or slow or idle or gone",
        "copies or sends or waits or blocks", "one or two or three or four",
    ),
    "two ends of a sentence": ("is late.. It", "waits; ; a fix", "done.; next", "what it is:. To", "so it goes;: no"),
    "a word twice": ("of of the step", "the the GPU", "waits for for it", "is is idle", "in in range"),
    "a power of ten": ("has 3.5e+03 kernels", "1e6 calls", "takes 2.1e-05 ms", "of 9.99e+12 bytes", "4e+00 x"),
    "a number before a sentence": (
        "lost: 9 no calls of the GPU's runtime", "12 the file holds no events", "note: 3 several files claim rank 0",
        "500 launches and GPU work cannot be joined", "lost: 96 Nsight Systems warned: x", "2 3 ranks in one file",
    ),
    "a number told twice": (
        "5 values of steps.period_ns outside 0 to 1: not used (5 times)", "2 processes used GPUs (2 rows)",
        "1 rank is late (1 row)", "9,000 copies are lost: left out (9,000 times)", "7 kernels of GPU 0 (7 rows)",
    ),
    "a sentence about that": (
        "prepares input. That takes 69.4 ms of each step", "for the CPU. This is the profiler's", "This has 4 steps",
        "take 1.2 ms on GPU 0. That is 1.4 ms in the step", "waits. That costs 3 us",
    ),
    "a quality as a cause": (
        "compute bound may limit it instead", "The next cause, latency bound (long scoreboard), takes 25.8 %",
        "The next cause, uncoalesced, takes 9 %", "limited by register spills, uncoalesced or compute",
        "may be limited by atomics or latency bound",
    ),
    "a note cut short": (
        "lost: graph replays as a who…r each", "note: the profiler slo…x", "lost: 3 rows whi…", "note: steps are gue…",
        "lost: nsys wa… (96 times)",
    ),
}  # fmt: skip
RIGHT = (
    "GPU 0 waits 1.08 ms of the 1.99 ms step (54.4 %) after blocking calls, 1 per step; saves 534 us (37.5 %)",
    "takes 15.2 ms of the 19.4 ms mean step (78.3 %) on GPU 0: 6 copies, 201 MB in all at 2.2 GB/s",
    "1 kernel takes 50.0 % longer; rank 1 streams data; launch 12, gemm 128x96; GPU 1 runs 25 regions of 2 graphs",
    "register spills, atomics, uncoalesced or latency bound (its L2 is 9.43 % busy)",
    "lost: graph replays were recorded as a whole… (-v)",
    "gemm_e4m3 128x64_1e, fp8 e5m2, libcudart.so.1e3, 0x1e5",
    "The next cause, uncoalesced accesses, takes 28.4 %. That time is 2 ms. It may be limited by latency or compute",
    "-1 launch, +88 launches, -21 points, -3.11 ms per step",
)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in WRONG.items() for text in texts])
def test_a_variant_of_each_kind_is_seen(kind: str, text: str) -> None:
    assert any(fault.startswith(f"{kind}: ") for fault in unplain(text))


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_sentence_is_left_alone(text: str) -> None:
    assert list(unplain(text)) == []


@pytest.mark.parametrize(
    ("note", "counted"),
    [
        (Note("GPU-side copies of user ranges", "skipped", 3), "3 GPU-side copies of user ranges"),
        (Note("NVTX ranges that were still open", "data_loss", 1200), "1,200 NVTX ranges that were still open"),
        (Note("rows of GPU work end early", "data_loss", 1), "rows of GPU work end early"),
        (Note("launches and GPU work cannot be joined", "data_loss", 500, whole=True),) * 2,
        (Note("no GPU work was recorded, though 5 CUDA runtime calls", "data_loss", 5, whole=True),) * 2,
        (Note("Nsight Systems warned 96 times: events were lost", "data_loss", 96, whole=True),) * 2,
    ],
    ids=lambda one: str(one)[:30],
)
def test_a_note_says_whether_a_number_goes_before_it(note: Note, counted: Note | str) -> None:
    assert note.counted == (counted.message if isinstance(counted, Note) else counted)
    assert list(unplain(note.counted)) == list(unplain(str(note))) == []
