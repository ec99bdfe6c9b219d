"""Siblings of minimal inputs that are about the file and not the program: engines' frames, NPUs, pages of ncu."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import GEMM, steps

from timesink import diagnose, read
from timesink.cli.app import run
from timesink.errors import UsageError

ENGINES = [
    ("sglang/srt/managers/scheduler.py", "sglang/srt/models/llama.py"),
    ("/usr/local/lib/python3.12/dist-packages/vllm/v1/worker/gpu_worker.py", "torch/nn/modules/module.py"),
    ("/opt/conda/lib/python3.11/site-packages/sglang/srt/model_executor/model_runner.py", "triton/runtime/jit.py"),
    ("transformers/generation/utils.py", "transformers/models/llama/modeling_llama.py"),
    ("threading.py", "deepspeed/inference/engine.py"),
    ("diffusers/pipelines/flux/pipeline_flux.py", "torch/nn/functional.py"),
]


@pytest.mark.parametrize(("outer", "inner"), ENGINES)
@pytest.mark.parametrize(
    ("gpu", "call"), [("NVIDIA A10G", "cudaLaunchKernel"), ("AMD Instinct MI300X", "hipLaunchKernel")]
)
def test_frames_of_an_engine_alone_are_its_lines(
    outer: str, inner: str, gpu: str, call: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(gpu)

    def step() -> None:
        with (
            program.range(f"{outer}(242): run", "python_function", **{"Python id": 1}),
            program.range(f"{inner}(374): forward", "python_function", **{"Python id": 2, "Python parent id": 1}),
        ):
            for _ in range(10):
                program.launch(GEMM, 300, call=call)

    path = steps(program, step).kineto(tmp_path)
    assert run(["show", "lines", str(path), "--format", "csv"]) == 0
    said = capsys.readouterr().out
    nearest = outer if inner.startswith(("torch/", "triton/")) else inner
    assert nearest in said
    assert "no stacks were recorded" not in said


NPUS = [
    ([("process_name", "Ascend Hardware"), ("process_labels", "NPU")], "'Ascend Hardware' (NPU)"),
    ([("process_labels", "NPU"), ("process_name", "Ascend Hardware")], "Ascend Hardware"),
    ([("process_name", "NPU 3")], "'NPU 3'"),
    ([("process_name", "/device:TPU:0")], "'/device:TPU:0'"),
    ([("process_name", "HPU"), ("process_labels", "Gaudi2")], "'HPU' (Gaudi2)"),
    ([("process_name", "neuron_rt")], "'neuron_rt'"),
    ([("process_name", "MLU"), ("process_labels", "Cambricon")], "'MLU' (Cambricon)"),
]


@pytest.mark.parametrize(("names", "told"), NPUS)
@pytest.mark.parametrize("bare", [True, False])
def test_work_of_an_accelerator_that_is_no_gpu_is_counted(
    names: list[tuple[str, str]], told: str, bare: bool, tmp_path: Path
) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": name, "pid": 800, "tid": 0, "args": {name.removeprefix("process_"): text}}
        for name, text in names
    ]
    at = 1704161511420000
    for number in range(90):
        times = {"ts": f"{at + 100 * number}.000", "dur": 40.0}
        events.append({"ph": "X", "name": "MatMulV2", "pid": 800, "tid": 3, "args": {"Stream Id": 3}, **times})
    events.append({"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 11, "tid": 11, "ts": at, "dur": 9000.0})
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events if bare else {"traceEvents": events}))
    with pytest.raises(UsageError) as said:
        diagnose(read(path, cache=False))
    assert f"90 tasks of {told}" in str(said.value) or (told in str(said.value) and "90 tasks of" in str(said.value))
    assert "busy for 3.60 ms" in str(said.value)
    assert "on a machine with a GPU" not in str(said.value.remedy)


HEAD = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC"
LAUNCH = '0,1,a.out,h,"fold(float *, int)",1,7,"(256, 1, 1)","(4096, 1, 1)",0,{cc}'
NEW = {"mem": "Memory Throughput", "dram": "DRAM Throughput", "l1": "L1/TEX Cache Throughput",
       "l2": "L2 Cache Throughput", "sm": "Compute (SM) Throughput"}  # fmt: skip
OLD = {"mem": "SOL Memory", "dram": "SOL DRAM", "l1": "SOL L1/TEX Cache", "l2": "SOL L2 Cache", "sm": "SOL SM"}
MIDDLE = {**NEW, "mem": "Memory [%]", "sm": "SM [%]"}


def details(
    path: Path, section: str, labels: dict[str, str], cc: str, length: tuple[str, str], **shares: float
) -> Path:
    rows = [(labels[name], "%", str(share)) for name, share in shares.items()] + [("Duration", *length)]
    lines = [f"{HEAD},Section Name,Metric Name,Metric Unit,Metric Value"]
    lines += [f'{LAUNCH.format(cc=cc)},{section},{label},{unit},"{value}"' for label, unit, value in rows]
    path.write_text("==PROF== Connected to process 1\n" + "\n".join(lines) + "\n==PROF== Disconnected\n")
    return path


def raw(path: Path, metrics: dict[str, tuple[str, str]]) -> Path:
    units, values = (",".join(cells) for cells in zip(*metrics.values(), strict=True))
    empty = "," * 10
    path.write_text(f"{HEAD},{','.join(metrics)}\n{empty},{units}\n{LAUNCH.format(cc='8.0')},{values}\n")
    return path


@pytest.mark.parametrize(
    ("section", "labels", "cc", "length"),
    [
        ("GPU Speed Of Light Throughput", NEW, "8.6", ("us", "889.31")),
        ("GPU Speed Of Light Throughput", NEW, "9.0", ("nsecond", "889,312")),
        ("GPU Speed Of Light", MIDDLE, "8.0", ("usecond", "889.31")),
        ("GPU Speed Of Light", OLD, "7.0", ("msecond", "0.889")),
        ("GPU Speed Of Light", OLD, "7.5", ("second", "0.000889")),
    ],
)
def test_a_page_of_percentages_is_at_its_dram_share(
    section: str, labels: dict[str, str], cc: str, length: tuple[str, str], tmp_path: Path
) -> None:
    shares = {"mem": 91.0, "dram": 91.0, "l1": 30.1, "l2": 35.2, "sm": 20.4}
    told = diagnose(read(details(tmp_path / "page.csv", section, labels, cc, length, **shares), cache=False))
    assert told.bottleneck.value == "memory_bound_kernel"
    assert ", 889 us, spends" in told.statement
    assert "moving bytes through DRAM" in told.statement
    roofs = [one.measured.value for one in told.findings[0][1].evidence if one.label == "nearest roof: DRAM"]
    assert roofs == [pytest.approx(0.91)]


SHARE = ".avg.pct_of_peak_sustained_elapsed"
UNDECIDED = [
    ({"l1tex__throughput.avg.pct_of_peak_sustained_active": ("%", "92.1"), f"lts__t_sectors{SHARE}": ("%", "20")},
     "its L1 is 92.1 % busy"),
    ({f"gpu__compute_memory_throughput{SHARE}": ("%", "92.1"), f"sm__throughput{SHARE}": ("%", "20.4")},
     "its memory is 92.1 % busy"),
    ({f"sm__throughput{SHARE}": ("%", "93.4"), f"dram__throughput{SHARE}": ("%", "12.1")}, "its SMs are 93.4 % busy"),
    ({f"dram__throughput{SHARE}": ("%", "12.1")}, "12.1 % busy"),
    ({}, "no unit's throughput was collected"),
]  # fmt: skip


@pytest.mark.parametrize(("metrics", "why"), UNDECIDED)
def test_units_that_were_not_collected_decide_nothing(
    metrics: dict[str, tuple[str, str]], why: str, tmp_path: Path
) -> None:
    page = raw(tmp_path / "page.csv", {"gpu__time_duration.sum": ("us", "310.2"), **metrics})
    with pytest.raises(UsageError) as said:
        diagnose(read(page, cache=False))
    assert "1 profiled kernel without the counters" in str(said.value) and why in str(said.value)
    assert "--page raw" not in str(said.value.remedy)
