"""Questions of five guides to profiling, in their words, each with the profiler that the guide takes for it."""

import pytest

from timesink.capture.choice import QUESTIONS, choose, command_of
from timesink.cli.app import run

ASKED = {
    "torch": (
        "map framework-level operations to lower-level GPU work", "which line is slow", "Op-level attribution",
        "This F.gelu call is the slow one", "My training step is slow", "Memory snapshots", "CUDA time / op",
        "CPU time / op", "find a specific allocation", "which op is expensive", "did compile reduce launch overhead?",
        "is comm on the critical path?", "graph breaks", "Python op stack", "CUDA kernels per op", "flame graph",
        "memory allocations", "graph break around a collective",
    ),
    "nsys": (
        "where time goes", "where are the gaps", "Idle gaps", "sync chains", "multi-GPU overlap", "dataloader stalls",
        "NCCL kernel duration", "GPU active %", "Which kernels take the most time?", "CPU/GPU gaps (GPU idle)",
        "Is NCCL communication overlapped?", "CPU call stacks", "kernels one after another on the same stream",
        "many tiny kernels", "cudaMemcpy operations visible in timeline", "why is my GPU idle between ops",
        "why is FPS lower than expected?", "is overlap real?", "is decode gating the period?", "NVLink",
        "kernel launches", "Kernel Serialization", "NCCL gaps", "across all processes", "batch N+1 was not ready",
        "the gap between kernels", "which CPU/GPU work is on the critical path", "nvidia-smi shows 40 percent",
        "is it limited by bandwidth or by compute", "bandwidth or compute",
    ),
    "ncu": (
        "why one kernel behaves the way it does", "why is this kernel slow", "This GEMM hits 40 % of peak, why?",
        "Achieved occupancy", "Warp stall reasons", "Register / Thread", "DRAM throughput", "SM throughput",
        "Is kernel efficient?", "is it compute-bound or memory-bound?", "tensor core utilization", "roofline",
        "memory throughput", "register pressure", "what is the achieved bandwidth?", "bank conflicts",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("question", "tool"), [(text, tool) for tool, texts in ASKED.items() for text in texts])
def test_a_question_of_a_guide_leads_to_the_profiler_that_the_guide_names(question: str, tool: str) -> None:
    assert choose(question).answer.tool == tool


@pytest.mark.parametrize(
    ("question", "option"),
    [
        ("which line is slow", "--stacks"),
        ("time per function", "--stacks"),
        ("This F.gelu call is the slow one", "--stacks"),
        ("Memory snapshots", "--memory"),
        ("peak memory of the step", "--memory"),
        ("multi-GPU overlap", "--auto-ranges"),
        ("do my streams run concurrently", "--auto-ranges"),
        ("is my program limited by bandwidth or by compute", "--gpu-metrics"),
        ("where is memory going", "--memory"),
    ],
)
def test_the_capture_records_what_the_question_needs(question: str, option: str) -> None:
    assert option in command_of(choose(question).answer, ["python", "train.py"])


@pytest.mark.parametrize("question", ["this kernel", "This GEMM hits 40 % of peak", "warp stalls"])
def test_a_kernel_without_a_name_is_said_to_have_none(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", question]) == 0
    assert "no kernel is named" in capsys.readouterr().out
    assert run(["doctor", question, "--kernel", "rmsnorm_fwd"]) == 0
    assert "no kernel is named" not in capsys.readouterr().out


@pytest.mark.parametrize("question", ["banana", "hmm", "it is weird", "???", "quantum flux"])
def test_what_no_rule_knows_gets_questions_and_no_default(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", question]) == 0
    said = capsys.readouterr().out
    assert not said.startswith("timesink capture")
    assert all(asked in said for asked in QUESTIONS)
    assert {choose(asked).answer.tool for asked in QUESTIONS} == {"torch", "nsys", "ncu"}
