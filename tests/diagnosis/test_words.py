"""Times and savings are said in one phrase, which names what they are a part of.

What is left: each state, and a sentence that claims no more than was looked at.

What a program is told of kernels that only change a layout: channels last where convolutions convert, only there.
"""

import pytest
from tests.render.diagnoses import diagnosis
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.rule import Rule
from timesink.diagnosis.saving import LeftState, saving_text, what_is_left
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Diagnosis,
    Evidence,
    Finding,
    Found,
    OfPeriod,
    Quantity,
    Where,
)
from timesink.diagnosis.words import of_period, per_period, period_text, said_of_compilation, which_step
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import replace

LOG = """
| compile_events | rank | event | function | file | line | start_ns | end_ns | compilation | reason |
| one | 0 | compile | fn | a.py | 7 | 0 | 9 | 0 | |
"""
PRICED = Finding("m", Bottleneck.HOST_SYNC, Where(), (), "do", "check", of_ms=20.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "1 compilation, 0 graph breaks, 0 recompilations and no GPU work"),
        ("| failed | 0 | failure | fn | a.py | 7 | 9 | 9 | 0 | broken_backend raised: |",
         "fn runs uncompiled (failure: broken_backend raised). The log shows 1 compilation, 0 graph"),
    ],
)  # fmt: skip
def test_a_compilers_log_says_what_it_holds(more: str, said: str) -> None:
    assert said in said_of_compilation(trace_of(f"{LOG.strip()}\n{more}"))
    assert said_of_compilation(trace_of("| device_ops | name | start_us | end_us |\n| a | gemm | 0 | 9 |")) == ""


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Quantity(2.1, "ms", low=0.5, high=2.4), "saves 2.10 ms (10.5 % of the step), 500 us to 2.40 ms"),
        (Quantity(2.4, "ms", low=0.0, high=2.4), "saves at most 2.40 ms (12.0 % of the step)"),
        (Quantity(2.4, "ms", low=1.0, high=2.4), "saves at most 2.40 ms (12.0 % of the step), at least 1.00 ms"),
        (Quantity(2.4, "ms"), "saves 2.40 ms (12.0 % of the step)"),
        (Quantity(2.4, "ms", low=2.4, high=2.4), "saves 2.40 ms (12.0 % of the step), 2.40 ms to 2.40 ms"),
        (Quantity(0.0, "ms", low=0.0, high=1.0), "saves at most 1.00 ms (5.00 % of the step), perhaps nothing"),
        (Quantity(0.0, "ms", low=0.0, high=0.0), "saves nothing"),
        (None, "not priced"),
    ],
)
def test_a_saving_is_a_time_and_a_share_and_a_bound_is_called_one(quantity: Quantity | None, text: str) -> None:
    assert saving_text(replace(PRICED, recoverable=quantity)) == text


def test_a_finding_on_memory_is_priced_in_bytes() -> None:
    share = Evidence("logits", Quantity(0.4, "ratio"), "h")
    found = replace(PRICED, bottleneck=Bottleneck.LOGITS_PEAK, recoverable=Quantity(0.0, "ms"), evidence=(share,))
    assert saving_text(found) == "saves memory, not time"
    sized = (
        share,
        Evidence("peak, bytes", Quantity(9e9, "bytes"), "h"),
        Evidence("logits, bytes", Quantity(2e9, "bytes"), "h"),
    )
    assert saving_text(replace(found, evidence=sized)) == "concerns 2.00 GB of GPU memory"


def test_time_that_another_finding_has_is_said_and_not_added() -> None:
    none = replace(PRICED, recoverable=Quantity(0.0, "ms", low=0.0, high=0.0), counted_in=("IDL103", 1.0))
    assert saving_text(none) == "its time is counted in IDL103"
    part = replace(PRICED, recoverable=Quantity(1.0, "ms", low=0.5, high=2.0), counted_in=("IDL103", 0.4))
    assert saving_text(part) == (
        "saves 1.00 ms (5.00 % of the step), 500 us to 2.00 ms; 40.0 % of its time is counted in IDL103"
    )


def test_without_steps_a_saving_is_of_the_window() -> None:
    found = replace(PRICED, period="window", recoverable=Quantity(2.0, "ms", low=1.0, high=3.0))
    assert saving_text(found, interval=False) == "saves 2.00 ms (10.0 % of the window)"


def stepped(*lengths_ms: int) -> Trace:
    """One rank with steps of these lengths, each with a kernel all along, launched as it begins."""
    begins = [sum(lengths_ms[:number]) * 1000 for number in range(len(lengths_ms))]
    steps = list(zip(begins, lengths_ms, strict=True))
    marks = [f"| s | ProfilerStep#{n} | {at} | {at + ms * 1000} |" for n, (at, ms) in enumerate(steps)]
    calls = [f"| c | cudaLaunchKernel | {n} | {at + 1} | {at + 2} |" for n, (at, _) in enumerate(steps)]
    ops = [f"| k | kernel | {n} | {at + 10} | {at + ms * 900} |" for n, (at, ms) in enumerate(steps)]
    heads = {"ranges": "name", "api_calls": "name | correlation", "device_ops": "name | correlation"}
    tables = zip(heads.items(), (marks, calls, ops), strict=True)
    return trace_of("\n\n".join(f"| {t} | {h} | start_us | end_us |\n" + "\n".join(rows) for (t, h), rows in tables))


def test_the_step_is_the_mean_and_says_so_where_the_median_is_another() -> None:
    assert period_text(stepped(10, 10, 10, 10), (0, 0)) == "the 10.0 ms step"
    assert of_period(stepped(10, 10, 10, 10), (0, 0), 2e6) == "2.00 ms of the 10.0 ms step (20.0 %)"
    # one slow step in six, of which the mean of the kept five would make one in five
    assert period_text(stepped(10, 10, 10, 10, 70, 10), (0, 0)) == "the 20.0 ms mean step"


def test_nothing_is_per_step_where_there_are_no_steps() -> None:
    trace = trace_of("| device_ops | name | start_us | end_us |\n| k | kernel | 0 | 4000 |")
    assert period_text(trace, (0, 0)) == "the 4.00 ms window"
    assert per_period(trace, 3) == "3 in the window"
    assert per_period(stepped(10, 10, 10), 3) == "3 per step"


def test_a_share_of_a_mean_that_is_not_the_usual_step_says_so() -> None:
    found = replace(PRICED, which="mean", recoverable=Quantity(2.0, "ms"))
    assert saving_text(found) == "saves 2.00 ms (10.0 % of the mean step)"
    of_window = replace(found, period="window", which="longest")
    assert saving_text(of_window) == "saves 2.00 ms (10.0 % of the longest window, 20.0 ms)"
    assert which_step(stepped(10, 10, 90, 10, 10, 10), None) == "mean"
    assert which_step(stepped(10, 10, 10, 10, 10), None) == ""


def test_a_share_of_the_step_without_the_profiler_says_so() -> None:
    found = replace(PRICED, which="unprofiled", recoverable=Quantity(2.0, "ms"))
    assert saving_text(found) == "saves 2.00 ms (10.0 % of the unprofiled step)"
    assert [which_step(stepped(10, 10, 10, 10, 10), step_ms) for step_ms in (10.0, 9.96, 9.7)] == ["", "", "unprofiled"]
    assert which_step(stepped(10, 10, 90, 10, 10, 10), 8.0) == "unprofiled"


@pytest.mark.parametrize(
    ("unprofiled_ms", "share"), [(None, " (20.0 %)"), (10.0, " (20.0 %)"), (9.96, " (20.0 %)"), (9.7, ""), (6.0, "")]
)
def test_a_share_stands_only_beside_savings_of_the_same_step(unprofiled_ms: float | None, share: str) -> None:
    trace = stepped(10, 10, 10, 10, 10)
    part = of_period(trace, (0, 0), 2e6)
    claim = Claim({(0, 0): Intervals.one(0, 2_000_000)})
    found = Finding(f"{part} go", Bottleneck.HOST_SYNC, Where(), (), "do", "check", claim, parts=(part,))
    rule = Rule("AAA101", lambda _trace, _limits: Found((found,)), (DEVICE_OPS,))
    ((_, told),) = diagnose(trace, rules=[rule], unprofiled_step_ms=unprofiled_ms).findings
    assert told.message == f"2.00 ms of the 10.0 ms step{share} go"


def test_a_time_and_share_that_were_told_are_not_told_again() -> None:
    bound = replace(PRICED, recoverable=Quantity(2.0, "ms", low=0.0, high=2.0))
    for ratio, told in ((0.1, ""), (0.101, ""), (0.105, " (10.0 % of the step)"), (0.0, " (10.0 % of the step)")):
        part = OfPeriod("2.00 ms of the 20.0 ms step", ratio)
        of_part = replace(bound, parts=(part,))
        assert saving_text(of_part, after=f"it waits {part}") == f"saves at most 2.00 ms{told}"
        assert saving_text(of_part, after="it waits") == "saves at most 2.00 ms (10.0 % of the step)"


def test_windows_of_unlike_length_are_told_apart() -> None:
    def windows(*end_us: int) -> Trace:
        rows = (f"| k | kernel | {rank} | 0 | {end} |" for rank, end in enumerate(end_us))
        return trace_of("\n".join(["| device_ops | name | rank | start_us | end_us |", *rows]))

    assert which_step(windows(4000, 3000), 4.0) == "longest"
    assert which_step(windows(4000, 3900), 4.0) == ""
    assert which_step(windows(4000), 4.0) == ""


ONE = diagnosis()  # 2.1 ms, 2.4 ms at most, of 12 ms


def priced(gain: Quantity | None, of_ms: float | None = 12.0) -> Diagnosis:
    card, finding = ONE.findings[0]
    return replace(ONE, findings=((card, replace(finding, recoverable=gain, of_ms=of_ms)),))


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (ONE, LeftState.WORTH_FIXING),
        (priced(Quantity(0.1, "ms", high=2.4)), LeftState.WORTH_FIXING),  # the upper end counts
        (priced(Quantity(0.1, "ms", high=2.2)), LeftState.NOTHING_ABOVE),
        (replace(ONE, findings=()), LeftState.NOTHING_ABOVE),
        (priced(None), LeftState.NOT_PRICED),
        (priced(Quantity(2.4, "ms"), of_ms=None), LeftState.NOT_PRICED),
        (replace(ONE, findings=(), partial="cut at byte 7"), LeftState.UNKNOWN),
        (replace(ONE, findings=(), rulings=ONE.rulings[2:]), LeftState.UNKNOWN),  # no rule looked
    ],
)
def test_the_state_is_that_of_the_costliest_finding(found: Diagnosis, state: LeftState) -> None:
    left = what_is_left(found, 0.19)
    assert left.state is state
    assert f"{left.looked} rules looked, {left.blind} could not" in left.sentence
    assert ("nothing above 19.0 % of the step is left" in left.sentence) == (state is LeftState.NOTHING_ABOVE)


CAST = "at::native::direct_copy_kernel_cuda(c10::BFloat16)"
STRIDED = f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{CAST}>>"
PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
CONVOLUTION = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x64"
CONVERTERS = (
    "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>",
    "void cudnn::ops::nhwcToNchwKernel<__half, __half, float>",
    "batched_transpose_16x64_pack_4x4_ediv_1x2_half",
)


def advice(*names: str) -> str:
    """Of KRN102, for kernels of a millisecond each beside one of six."""
    rows = "\n".join(f"| k | `{name}` | {1000 * at} | {1000 * (at + 1)} |" for at, name in enumerate(names))
    end = 1000 * len(names)
    found = diagnose(
        trace_of(
            f"| device_ops | name | start_us | end_us |\n|-|-|-|-|\n{rows}\n"
            f"| k | `{PRODUCT}` | {end} | {end + 6000} |\n"
            "\n| host_ops | name | thread | start_us | end_us |\n|-|-|-|-|-|\n| o | `aten::copy_` | 1 | 0 | 10 |"
        )
    )
    return next(finding.advice for card, finding in found.findings if card.code == "KRN102")


@pytest.mark.parametrize("converter", CONVERTERS)
def test_a_network_that_converts_for_convolutions_is_told_of_channels_last(converter: str) -> None:
    assert advice(converter, CONVOLUTION).startswith("Use channels_last end to end")
    assert advice(converter, CONVOLUTION, converter, STRIDED).startswith("Use channels_last end to end")


@pytest.mark.parametrize("names", [(STRIDED,), (STRIDED, PRODUCT, STRIDED), (STRIDED, CONVERTERS[2], STRIDED)])
def test_other_programs_are_told_of_contiguous(names: tuple[str, ...]) -> None:
    assert "channels_last" not in advice(*names)
    assert advice(*names).startswith("Drop contiguous() before operators that take strides")
