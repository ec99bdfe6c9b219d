"""Sixty questions as people ask them. Answers were written down before the rules were tried: 62 of 66 were right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.capture.choice import STEP, UNSURE, choose, command_of, tool_named
from timesink.cli.app import run

QUESTIONS = {
    "line": (
        "which line is slow?", "which operator takes most of the step?", "what is the slow line in my training loop",
    ),
    "step": (
        "my training step is slow", "which layer of the model is slowest", "throughput is half of what I expected",
        "MFU is only 28 %", "is F.gelu slow?",
    ),
    "gaps": (
        "where are the gaps?", "GPU utilisation is 45 %", "the GPU sits idle between steps",
        "the data loader cannot keep up", "sync chains", "H2D copies", "p99 spikes",
        "which CPU and GPU work is on the critical path", "where does time go?", "too many small kernels",
        "are we launch bound?", "is it overhead-bound?", "my step time has outliers every 50 steps",
        "python garbage collection pauses", "loss.item() every step", "pageable copies to the device",
        "the GIL blocks the launcher", "data_load takes 140 ms", "GPU power throttling",
    ),
    "kernel": (
        "why is this kernel slow?", "This GEMM hits 40 % of peak", "is my softmax bandwidth bound or compute bound?",
        "achieved occupancy is low", "bank conflicts in shared memory", "register spills in my Triton kernel",
        "is the hot kernel efficient", "where is my kernel on the roofline", "long scoreboard stalls",
        "uncoalesced loads", "tensor cores are not used in the matmul", "how many TFLOP/s does flash attention reach",
    ),
    "ranks": (
        "ranks wait for each other in all-reduce", "is comm on the critical path?", "one rank is a straggler",
        "scaling from 1 to 8 GPUs is bad", "FSDP all-gather is exposed", "NVLink bandwidth is low between GPUs",
        "expert parallel dispatch is imbalanced across ranks",
    ),
    "memory": (
        "CUDA out of memory", "GPU memory grows every epoch", "what is alive at the peak memory",
        "fragmentation of the allocator",
    ),
    "server": (
        "time to first token is too high", "vLLM decode is slow", "tokens per second of our server dropped",
        "request latency p99",
    ),
    "compile": (
        "did compile reduce launch overhead?", "graph breaks in forward", "it recompiles every step",
        "torch.compile made it slower",
    ),
    "stages": (
        "is overlap real?", "is decode gating the period?", "why is FPS lower than expected?", "pipeline serialised",
        "what does depth 2 buy over depth 1", "do the stages run at once or one after the other",
    ),
    "hang": (
        "the job hangs", "training hangs at an all-reduce", "NCCL watchdog timeout", "it is stuck in a barrier",
    ),
    "rollouts": (
        "rollouts take most of the RL step", "GRPO generation is slow", "the reward model waits",
    ),
    "fp8": (
        "FP8 is not faster than bf16", "is float8 used at all", "quantization overhead",
    ),
    "native": (
        "our C++ solver is slow", "a JAX program",
    ),
}  # fmt: skip
ASKED = [(question, name) for name, questions in QUESTIONS.items() for question in questions]
OTHER_TOOL_AT_MOST = 3


def test_first_contact_with_sixty_questions() -> None:
    assert len(ASKED) >= 60
    wrong = {question: choose(question).answer.name for question, name in ASKED if choose(question).answer.name != name}
    assert len(wrong) <= OTHER_TOOL_AT_MOST, wrong


@pytest.mark.parametrize(
    ("question", "never"), [("the pipeline is serialised", "line"), ("a scheduler problem", "rule")]
)
def test_no_part_of_a_word_is_taken_for_one(question: str, never: str) -> None:
    assert never not in choose(question).matched


def test_who_says_nothing_is_asked_three_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "hmm"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert UNSURE in shown
    assert shown.count("?") == 3


def test_what_matched_is_shown_and_nothing_matched_is_the_beginning() -> None:
    assert choose("gaps between kernels, idle").matched == ("idle", "gaps")
    assert choose("???").answer is STEP
    assert choose("???").matched == ()
    assert choose("anything", kernel="flash_fwd<1>").answer.options[-1] == "flash_fwd<1>"
    assert choose("slow", gauges={"gpu_busy": 40}).answer.tool == "nsys"
    assert choose("GPU utilization is 97%").answer.tool == "torch"
    assert command_of(STEP, ["python", "a b.py"]) == ["timesink", "capture", "torch", "--", "python", "a b.py"]


@given(st.text(max_size=80))
def test_every_text_has_an_answer(symptom: str) -> None:
    assert choose(symptom).answer.tool in ("torch", "nsys", "ncu")


@pytest.mark.parametrize(
    ("to_decide", "tool"),
    [
        ("timesink capture nsys -- python train.py", "nsys"),
        ("timesink capture torch -- torchrun train.py", "torch"),
        ("torch.profiler with record_shapes=True, on a GPU that timesink knows", "torch"),
        ("ncu --set full --import-source off -o report PROGRAM", "ncu"),
        ("capture more steps, of every rank", ""),
    ],
)
def test_an_open_question_names_its_tool(to_decide: str, tool: str) -> None:
    assert tool_named(to_decide) == tool
