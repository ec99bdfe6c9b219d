"""Which profiler answers a question: a list of rules, each with the words that speak for it.

Of the rules whose words occur in the question, the one with most words wins: "bank conflict" are two, "idle" is one; of
equals the earlier in the list. No model is behind it, and the words that matched are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from timesink.capture.gauges import FEWER_STEPS, GAUGES, SLOW_STEP_MS

# Measured on an H200 with five programs; the figures are in docs/how-to/capture.md.
COSTS = {
    "torch": "one run of a few dozen steps; host-bound steps take a third to three quarters longer; 50 kB a step",
    "nsys": "one run and its export; host-bound steps take an eighth to a quarter longer; 100 kB a step",
    "ncu": "one run; each profiled kernel is replayed 20 times with --set detailed, 42 with full: a second or two",
}

_BUSY = GAUGES[0]


@dataclass(frozen=True, slots=True)
class CaptureAdvice:
    """The first capture to make: `options` of `timesink capture`, why, why not the others, cost, what to read first."""

    name: str
    tool: str
    options: tuple[str, ...]
    why: str
    not_others: str
    read_first: str
    words: str = ""

    @property
    def counts_steps(self) -> bool:
        """Whether it records steps, of which a program with slow ones had better record few."""
        return self.tool != "ncu" and "--whole" not in self.options and "--delay" not in self.options

    @property
    def patterns(self) -> list[str]:
        """Each word with any ending, as a regular expression that means the same in JavaScript."""
        # built from what people say: a word begins where no other goes on
        return [rf"(?<!\w){re.escape(word)}\w*" for word in self.words.split(", ")]


@dataclass(frozen=True, slots=True)
class CaptureChoice:
    """The answer, and the words of the question that led to it; without words nothing matched."""

    answer: CaptureAdvice
    matched: tuple[str, ...]


GAPS = CaptureAdvice(
    "gaps",
    "nsys",
    ("nsys", "--auto-ranges"),
    "the device waits, and nsys shows every process and system call beside it, at the least cost to the host",
    "torch.profiler slows the host and so widens the gaps; ncu replays kernels one by one and has no gaps",
    "idle time by cause: timesink idle",
    "utilis, utiliz, underutil, idle, gap, bubble, starv, cpu, host, wait for data, waits for data, waiting for "
    "data, wait for the data, waits for the data, waiting for the data, dataload, data load, data_load, loader, "
    "input pipeline, i/o, disk, h2d, d2h, host to device, device to host, pinned, pageable, copies, copy, transfer, "
    "synchron, sync, item, blocked, blocking, overhead, launch bound, launch-bound, overhead bound, overhead-bound, "
    "small kernels, tiny kernels, cuda graph, gil, garbage, python overhead, p99, p90, spike, jitter, outlier, "
    "hiccup, waiting, waits, critical, where does time go, where does the time go, where is time, nvtx, end-to-end, "
    "end to end, stall between, power, clock, throttl",
)
KERNEL = CaptureAdvice(
    "kernel",
    "ncu",
    ("ncu", "--set", "full", "--launch-count", "3"),
    "only counters tell why one kernel is slow: bandwidth, latency, occupancy, conflicts",
    "torch.profiler and nsys time a kernel and cannot look inside it",
    "limiter and most it could gain: timesink kernels",
    "one kernel, a kernel, this kernel, the kernel, my kernel, single kernel, hot kernel, top kernel, triton "
    "kernel, cuda kernel, occupancy, roofline, bank conflict, uncoalesced, coalesc, register, spill, tensor core, "
    "warp, kernel is slow, kernels are slow, kernel runs slow, kernel efficien, gemm, matmul, softmax, gemv, flash "
    "attention, of peak, bandwidth bound, bandwidth-bound, compute bound, compute-bound, memory bound, "
    "memory-bound, dram, hbm, l2, cache hit, shared memory, divergen, sectors, tflop, flop, intensity, long "
    "scoreboard, mio, wgmma, tma, barrier",
)
RANKS = CaptureAdvice(
    "ranks",
    "torch",
    ("torch",),
    "collectives carry sizes and groups in torch.profiler, and each rank has a file of its own",
    "nsys shows ranks of one machine only; ncu cannot replay collectives",
    "who is late and what is exposed: timesink ranks",
    "rank, nccl, all-reduce, all reduce, allreduce, all_reduce, all-gather, all gather, allgather, all_gather, "
    "reduce-scatter, reduce scatter, reducescatter, reduce_scatter, straggler, scales, scaling, multi-gpu, multi "
    "gpu, multigpu, multi-node, multi node, multinode, ddp, fsdp, tensor parallel, tensor-parallel, expert "
    "parallel, deepspeed, megatron, gpus, nodes, communicat, comm, collective, exchange, all-to-all, alltoall, "
    "nvlink, infiniband, load imbalance, imbalance",
)
MEMORY = CaptureAdvice(
    "memory",
    "torch",
    ("torch", "--memory"),
    "only the framework knows which tensor an allocation belongs to",
    "nsys --memory counts bytes without owners; ncu does not look at allocations",
    "what was alive at the peak: timesink memory show",
    "out of memory, oom, memory grow, memory leak, memory peak, peak memory, memory use, memory usage, gpu memory, "
    "leak, fragment, allocat, vram, does not fit, larger batch, activation, reserved",
)
SERVER = CaptureAdvice(
    "server",
    "nsys",
    ("nsys", "--delay", "60", "--duration", "10", "--unprofiled", "none"),
    "a server has no steps: nsys records ten seconds of it, once it is warm",
    "torch.profiler needs steps or an end; ncu would hold up every request",
    "idle time by cause: timesink idle",
    "server, serving, served, request, vllm, sglang, latenc, tokens per second, token per second, tokens/s, ttft, "
    "tpot, time to first token, prefill, decod, kv cache, inference",
)
COMPILE = CaptureAdvice(
    "compile",
    "torch",
    ("torch", "--stacks"),
    "graph breaks and recompilations are recorded by the framework, with the line that caused them",
    "nsys sees the time and not the reason; ncu sees neither",
    "graph breaks and recompilations with their reasons: timesink compile",
    "torch.compile, torch compile, torchcompile, compil, recompil, graph break, graph_break, dynamo, inductor, "
    "first step, first iteration, eager",
)
NATIVE = CaptureAdvice(
    "native",
    "nsys",
    ("nsys", "--whole", "--unprofiled", "none"),
    "nsys records any program, whatever it is written in",
    "torch.profiler needs PyTorch; ncu is for single kernels, once it is known which",
    "budget and kernels: timesink summary",
    "c++, cpp, fortran, jax, binary, not python, cupy, tensorrt, rust",
)
STAGES = CaptureAdvice(
    "stages",
    "nsys",
    ("nsys", "--auto-ranges"),
    "a range around each stage shows, within each process, which stages run at once and which wait",
    "torch.profiler and timers that synchronise change the overlap they should show; ncu runs kernels one by one",
    "what the stages' own clocks say of the period: timesink pipeline",
    "overlap, stage, period, pipelin, serialis, serializ, queue depth, depth, micro-batch, microbatch, 1f1b, fps, "
    "frames, gating",
)
STEP = CaptureAdvice(
    "step",
    "torch",
    ("torch",),
    "it names the operator and its shapes behind every kernel, without a change to the script",
    "nsys names no operators; ncu needs a kernel to look at",
    "the first finding of timesink diagnose",
    "step, slow, train, throughput, mfu, operator, layer, line",
)
ANSWERS = (MEMORY, KERNEL, RANKS, SERVER, COMPILE, NATIVE, STAGES, GAPS, STEP)
UNSURE = (
    "nothing in particular, so start broad. Ask yourself: which line is slow (torch)? where are the gaps (nsys)? "
    "why is this one kernel slow (ncu)?"
)
# The page that answers without Python looks for the same.
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?(?:%|percent)")
_SPEAKS_OF_USE = ("utilis", "utiliz", "busy", "gpu")


def choose(symptom: str, kernel: str | None = None, gauges: Mapping[str, float] | None = None) -> CaptureChoice:
    """The capture that answers a symptom. A kernel's name decides at once; figures (`gauges`, by the names in `GAUGES`)
    count with the words of the symptom; `step` is what is left where no other rule has a word in it.
    """
    if kernel is not None:
        return CaptureChoice(replace(KERNEL, options=(*KERNEL.options, "--kernels", re.escape(kernel))), (kernel,))
    text, known = symptom.lower(), dict(gauges or {})
    matches = {answer.name: _matched(answer, text) for answer in ANSWERS}
    if _BUSY.name not in known and (stated := _stated_percent(text)) is not None:
        known[_BUSY.name] = stated
    for gauge in GAUGES:
        if gauge.name in known:
            named, other = gauge.speaks(known[gauge.name])
            if named:
                matches[named] = (*matches[named], gauge.words(known[gauge.name]))
            if named and other:
                matches[other] = ()
    best = max(ANSWERS[:-1], key=lambda answer: _words(matches[answer.name]))
    answer = best if matches[best.name] else STEP
    matched = matches[answer.name]
    if known.get("step_ms", 0.0) >= SLOW_STEP_MS and answer.counts_steps:
        answer = replace(answer, options=(*answer.options, *FEWER_STEPS))
    return CaptureChoice(answer, matched)


def as_data() -> dict[str, Any]:
    """The rules of `choose` as plain data, for a page that answers without Python. `words` are regular expressions that
    mean the same in JavaScript.
    """
    return {
        "answers": [
            {
                "name": answer.name,
                "tool": answer.tool,
                "command": command_of(answer, ["python", "train.py"]),
                "why": answer.why,
                "not_others": answer.not_others,
                "cost": COSTS[answer.tool],
                "read_first": answer.read_first,
                "words": answer.patterns,
                "counts_steps": answer.counts_steps,
            }
            for answer in ANSWERS
        ],
        "gauges": [asdict(gauge) for gauge in GAUGES],
        "slow_step_ms": SLOW_STEP_MS,
        "fewer_steps": list(FEWER_STEPS),
        "percent": _PERCENT.pattern,
        "unsure": UNSURE,
        "speaks_of_use": list(_SPEAKS_OF_USE),
    }


def command_of(answer: CaptureAdvice, program: Sequence[str]) -> list[str]:
    """The exact command line."""
    return ["timesink", "capture", *answer.options, "--", *program]


def _words(matched: tuple[str, ...]) -> int:
    """How many words were matched: a phrase says more than one word of it."""
    return sum(len(phrase.split()) for phrase in matched)


def _matched(answer: CaptureAdvice, text: str) -> tuple[str, ...]:
    found = (re.search(pattern, text) for pattern in answer.patterns)
    return tuple(match.group() for match in found if match is not None)


def _stated_percent(text: str) -> float | None:
    """A percentage, if the text speaks of utilisation."""
    stated = _PERCENT.search(text)
    return float(stated.group(1)) if stated and any(word in text for word in _SPEAKS_OF_USE) else None


def tool_named(to_decide: str) -> str:
    """The tool that an undecided verdict asks for: torch, nsys, ncu, or none of them."""
    text = to_decide.lower()
    if "nsight compute" in text or "ncu" in text.split():
        return "ncu"
    if "capture torch" in text or "torch.profiler" in text:
        return "torch"
    return "nsys" if "nsight systems" in text or "nsys" in text.split() else ""
