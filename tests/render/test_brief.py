"""A diagnosis in one screen: never more than 24 lines of 80 columns, and what is needed to act is on it."""

import pytest
from tests.render.diagnoses import card, diagnosis, healthy

from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis, Note, Quantity, StepBudget, StepPart, Where
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.brief import short_advice

LONG = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int) " * 20


def lines_of(found: Diagnosis, width: int = 80) -> list[str]:
    return render(found, Format.TEXT, width=width).rstrip("\n").split("\n")


def with_findings(count: int, name: str = "data_load") -> Diagnosis:
    (entry,) = diagnosis(name).findings
    rules = all_rules()
    findings = tuple(
        (card(rules[at % len(rules)].code, f"rule-{at}"), replace(entry[1], advice=f"{at}: {entry[1].advice}"))
        for at in range(count)
    )
    parts = (
        StepPart("compute", 60.0),
        *(StepPart(kind, 8.0) for kind in ("sync", "dispatch", "loader", "python", "x")),
    )
    budget = StepBudget(0, 0, 3, 100.0, parts)
    return replace(diagnosis(name), findings=findings, budgets=(budget,))


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("count", [0, 1, 4, 30])
@pytest.mark.parametrize("name", ["data_load", LONG])
def test_whatever_the_trace_it_is_one_screen(count: int, width: int, name: str) -> None:
    """First contact defect 8."""
    notes = (*(Note(name, "data_loss", 3),) * 3, *(Note(f"--unprofiled-step-ms {name}"),) * 4)
    found = replace(with_findings(count, name), notes=notes, sources=({"path": "run.json"},))
    lines = lines_of(found, width)
    assert sum(-(-max(len(line), 1) // width) for line in lines) <= 24
    assert max(map(len, lines)) <= width


def test_verdict_bar_findings_counts_and_next_command_follow_each_other() -> None:
    text = "\n".join(lines_of(with_findings(2)))
    marks = (
        "input pipeline: data_load", "10 steps, the usual 3 of 100 ns", "█",
        "█ compute 60.0 %  ░ idle 40.0 %: host sync 8.00 %", "what to do", "2.10 ms", "input-pipeline  ", "data_load:7",
        "1 clear · 1 n/a · 1 undecided (-v)", "lost: 3 data_load", "next: timesink explain",
        "timesink report data_load.json",
    )  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("steps", "usual", "period_ms", "median_ms", "said"),
    [
        (10, 10, 12.4, 12.3, "10 steps of 12.4 ms"),
        (1, 1, 13.0, 13.0, "1 step of 13.0 ms"),
        (10, 8, 2.53, 2.67, "10 steps, the usual 8 of 2.53 ms"),
        (4, 4, 136.0, 128.0, "4 steps, mean 136 ms, median 128 ms"),
        (1, 0, 0.002, 13_300.0, "1 step of 13.3 s"),
        (3, 0, 0.002, 13_300.0, "3 steps, median 13.3 s"),
    ],
)
def test_the_head_names_the_length_that_the_bar_is_of(
    steps: int, usual: int, period_ms: float, median_ms: float, said: str
) -> None:
    found = with_findings(1)
    budget = replace(found.budgets[0], steps=usual, period_ns=period_ms * 1e6)
    figures = replace(found.steps, count=steps, p50_ms=median_ms, least_ms=None, most_ms=None)
    text = "\n".join(lines_of(replace(found, budgets=(budget,), steps=figures, sources=()), 100))
    assert f"{said} ·" in text


def test_a_saving_that_is_counted_says_where() -> None:
    found = with_findings(2)
    (first, one), (second, other) = found.findings
    none = Quantity(0.0, "ms", low=0.0, high=0.0)
    counted = replace(other, bottleneck=Bottleneck.HOST_SYNC, recoverable=none, counted_in=(first.code, 1.0))
    text = "\n".join(lines_of(replace(found, findings=((first, one), (second, counted))), 100))
    assert "  no more  " in text and f"counted in {one.name}" in text


def test_findings_without_room_are_named() -> None:
    lines = lines_of(with_findings(30))
    (more,) = [line for line in lines if "more (-v): input-" in line]
    assert int(more.split()[0]) + sum(line.startswith("  2.10 ms") for line in lines) == 30


def test_a_command_is_never_shortened() -> None:
    path = "/data/" + "run/" * 40 + "trace.json.gz"
    lines = lines_of(replace(with_findings(1), sources=({"path": path},)))
    assert f"      timesink report {path}" in lines
    assert sum(-(-max(len(line), 1) // 80) for line in lines) <= 24


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (Where(rank=0, device=0, thread=710), ""),
        (Where(op="aten::item", range="forward", thread=7), "aten::item in forward"),
        (Where(range="data"), "range data"),
        (Where(file="train.py", line=12, op="aten::item"), "train.py:12"),
        (Where(kernel="nvjet_tst_128x128_64x6_1x2_h_bz_NTT"), "gemm bf16 128×128 (nvjet)"),
    ],
)
def test_at_is_a_place_to_open_and_a_thread_alone_is_none(where: Where, shown: str) -> None:
    """First contact defect 11."""
    (entry,) = diagnosis().findings
    lines = lines_of(replace(diagnosis(), findings=((entry[0], replace(entry[1], where=where)),)))
    begin = next(at for at, line in enumerate(lines) if "what to do" in line)
    place = lines[begin + 2][22:48].strip() if lines[begin + 2] else ""
    assert place == shown


@pytest.mark.parametrize(
    ("gain", "shown"),
    [
        (Quantity(3.15, "ms", low=2.9, high=3.4), "3.15 ms"),
        (Quantity(3.15, "ms", low=0.0, high=3.15), "≤ 3.15 ms"),
        (Quantity(0.0, "ms", low=0.0, high=0.0), "nothing"),
        (Quantity(0.0, "ms", low=0.0, high=1.0), "≤ 1.00 ms"),
        (None, "not known"),
    ],
)
def test_a_bound_is_shown_as_one(gain: Quantity | None, shown: str) -> None:
    (entry,) = diagnosis().findings
    lines = lines_of(replace(diagnosis(), findings=((entry[0], replace(entry[1], recoverable=gain)),)))
    row = next(line for line in lines if "input-pipeline" in line)
    assert row.strip().startswith(shown)


def test_what_costs_memory_is_not_said_to_save_no_time() -> None:
    """First contact defect 27."""
    (entry,) = diagnosis().findings
    held = replace(entry[1], bottleneck=Bottleneck.LOGITS_PEAK, recoverable=Quantity(0.0, "ms", low=0.0, high=0.0))
    assert any(
        line.strip().startswith("memory ") for line in lines_of(replace(diagnosis(), findings=((entry[0], held),)))
    )


def test_profiled_kernels_are_not_called_no_gpu_work() -> None:
    """First contact defect 18."""
    text = "\n".join(lines_of(replace(healthy(), profiled_kernels=18)))
    assert "18 profiled kernels" in text
    assert "no GPU work" not in text
    assert "next: timesink kernels run.sqlite" in text


@pytest.mark.parametrize(
    ("advice", "short"),
    [
        ("Capture the step in a CUDA graph: torch.compile; fuse.", "Capture the step in a CUDA graph"),
        ("Pass fused=True to Adam, SGD or Adagrad; compile it.", "Pass fused=True to Adam, SGD or Adagrad"),
        ('Allow TF32: torch.set_float32_matmul_precision("high").', "Allow TF32"),
        ("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; or keep sizes.",
         "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    ],
)  # fmt: skip
def test_what_to_do_is_the_first_clause_of_the_advice(advice: str, short: str) -> None:
    assert short_advice(advice) == short
