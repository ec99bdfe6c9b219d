"""What a file does not say is told as that: types that nobody knows, joins that are missing, unrecorded allocation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import GEMM, told

from timesink import diagnose, read
from timesink.diagnosis.verdicts import Bottleneck
from timesink.knowledge.operators import operand_type
from timesink.measures.timeline.attribution import launch_links
from timesink.model.tables import DEVICE_OPS


@pytest.mark.parametrize(
    ("recorded", "known"),
    [
        ("c10::BFloat16", "bf16"), ("c10::bfloat16", "bf16"), ("bfloat16", "bf16"), ("torch.bfloat16", "bf16"),
        ("at::Half", "fp16"), ("HALF", "fp16"), ("torch.float16", "fp16"), ("Float", "fp32"), ("torch.float32", "fp32"),
        ("c10::Float8_E4M3FN", "fp8"), ("c10::Float6_e3m2", "float6_e3m2"), ("posit16", "posit16"), ("long int", None),
        ("", None), ("Scalar", None),
    ],
)  # fmt: skip
def test_a_recorded_type_is_known_however_it_is_spelt_and_an_unknown_one_is_no_guess(
    recorded: str, known: str | None
) -> None:
    assert operand_type(json.dumps([recorded, recorded])) == known


@pytest.mark.parametrize("recorded", ["c10::bfloat16", "torch.bfloat16", "c10::Float6_e3m2"])
def test_no_kernel_is_fp32_whose_operands_are_recorded_as_something_else(recorded: str, tmp_path: Path) -> None:
    program, kernel = Program(gpu="AMD Instinct MI300X"), "Cijk_Alik_Bljk_SB_MT128x128x16_ISA942"
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            facts = {"Input Dims": [[1024, 2048], [2048, 4096]], "Input type": [recorded] * 2}
            with program.range("aten::mm", "cpu_op", **facts):
                program.launch(kernel, 900)
    _, found = told(program, "kineto", tmp_path)
    assert not any(card.name == "precision" for card, _ in found.findings)


def unjoined(path: Path, keep: Callable[[dict[str, Any], int], list[dict[str, Any]]]) -> Path:
    """The file without correlations; `keep` says what stands in place of each event, of its former correlation."""
    document = json.loads(path.read_text())
    events = []
    for event in document["traceEvents"]:
        number = event["args"].pop("correlation", 0)
        events += keep(event, number) if number else [event]
    path.write_text(json.dumps({**document, "traceEvents": events}))
    return path


def by_id(event: dict[str, Any], number: int) -> list[dict[str, Any]]:
    event["args"]["External id"] = 7_000 + number // 3  # three launches have one
    return [event]


def by_arrow(event: dict[str, Any], number: int) -> list[dict[str, Any]]:
    place = {name: event[name] for name in ("pid", "tid", "ts")} | {"id": number, "name": "ac2g", "cat": "ac2g"}
    if event["cat"] == "cuda_runtime":
        return [event, {**place, "ph": "s", "ts": event["ts"] + event["dur"] / 2}]
    return [event, {**place, "ph": "f", "bp": "e"}]


def by_nothing(event: dict[str, Any], _: int) -> list[dict[str, Any]]:
    return [event]


def looped() -> Program:
    program = Program()
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            for _ in range(6):
                with program.range("aten::mm", "cpu_op"):
                    program.launch(GEMM, 120)
                with program.range("aten::add", "cpu_op"):
                    program.launch("add", 30)
            program.copy("DtoH", 4096, 5)
            program.wait()
    return program


@pytest.mark.parametrize("how", [by_id, by_arrow])
def test_launches_are_joined_without_a_correlation(
    how: Callable[[dict[str, Any], int], list[dict[str, Any]]], tmp_path: Path
) -> None:
    path = looped().kineto(tmp_path)
    whole = diagnose(read(path, cache=False))
    trace = read(unjoined(path, how), cache=False)
    assert launch_links(trace).linked.all()
    found = diagnose(trace)
    assert found.statement == whole.statement
    assert any("the file has no correlation" in note.message for note in found.notes)


def test_where_nothing_joins_launches_it_is_said(tmp_path: Path) -> None:
    trace = read(unjoined(looped().kineto(tmp_path), by_nothing), cache=False)
    assert trace.get(DEVICE_OPS).height
    found = diagnose(trace)
    assert any("cannot be joined" in note.message for note in found.notes)
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert "holds no whole step" not in found.statement


@pytest.mark.parametrize("operator", ["aten::empty", "aten::empty_strided", "aten::resize_", "aten::new_empty"])
@pytest.mark.parametrize("grows_us", [800, 16_000])
def test_an_operator_that_only_allocates_is_the_allocator(operator: str, grows_us: float, tmp_path: Path) -> None:
    program = Program()
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            with program.range(operator, "cpu_op"):
                program.pause(grows_us)
            for _ in range(10):
                with program.range("aten::mm", "cpu_op"):
                    program.launch(GEMM, 100)
            program.wait()
    _, found = told(program, "kineto", tmp_path)
    assert found.bottleneck is Bottleneck.ALLOCATOR
    assert "were not recorded" in found.statement
