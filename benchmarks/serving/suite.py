"""The registry: thirteen servers with a planted fault each, their fixes, three healthy ones, and who is set aside."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

SEED = "serving:"
STEPS = 30
"""Engine steps in a capture."""


@dataclass(frozen=True, slots=True)
class Setting:
    """`requests` want to run, `cap` of them may; prompts of `prompt` tokens are read in chunks, `output` tokens made;
    steps of `sizes` requests are prepared; a step is launched while the tokens of `ahead` steps are not read."""

    fault: str = ""
    requests: int = 32
    cap: int = 32
    prompt: int = 256
    output: int = 128
    chunk: int = 256
    sizes: tuple[int, ...] = (8, 16, 24, 32)
    graphed: int = 16
    ahead: int = 1


@dataclass(frozen=True, slots=True)
class Program:
    """`causes`: bottlenecks that name the fault, none of a healthy program. `marks`: how steps are annotated: as vLLM
    does with requests and tokens, `execute_model`, or not at all. `figure`: what the fix makes better: the time of an
    output token over all requests (`token`), or the longest per cent of the waits for a token (`late`)."""

    name: str
    causes: tuple[str, ...]
    setting: Setting
    fixed: Setting
    marks: str
    figure: str = "token"

    @property
    def healthy(self) -> bool:
        return not self.causes

    @property
    def aside(self) -> bool:
        return self.name in SET_ASIDE


BASE = Setting()
LONG = Setting(requests=8, cap=8, prompt=8192, output=256, chunk=1024, sizes=(8,))
MARKS = ("vllm", "model", "")


def _faults() -> list[Program]:
    plain = {
        "graph_missed": ("launch_bound",),
        "sampling_on_host": ("device_to_host_copy", "host_sync", "host_python", "unrecorded_code"),
        "item_per_token": ("host_sync",),
        "detokenised_in_line": ("host_python", "unrecorded_code"),
        "scheduler_slow": ("host_python", "unrecorded_code"),
        "tokens_awaited": ("host_sync",),
        "tables_rebuilt": ("host_to_device_copy", "host_sync", "host_python", "unrecorded_code"),
        "cache_emptied": ("allocator",),
        "logprobs_to_host": ("device_to_host_copy",),
        "tokenizer_thread": ("interpreter_lock", "host_python", "unrecorded_code"),
        "cache_copied": ("device_copies",),
    }
    found = [
        Program(name, causes, replace(BASE, fault=name, ahead=int(name != "tokens_awaited")), BASE, MARKS[place % 3])
        for place, (name, causes) in enumerate(plain.items())
    ]
    found.append(
        Program("prefill_in_one_piece", ("prefill_blocks",), replace(LONG, chunk=8192), LONG, "vllm", figure="late")
    )
    small = replace(BASE, cap=8, output=96)
    found.append(Program("batch_cap_small", ("batch_small",), small, replace(small, cap=16), "vllm"))
    return found


def _healthy() -> list[Program]:
    settings = {
        "steady": BASE,
        "many_prompts": replace(BASE, prompt=1024, output=64, chunk=256),
        "long_context": replace(LONG, prompt=4096, chunk=512, output=512),
    }
    return [Program(name, (), one, one, MARKS[place % 3]) for place, (name, one) in enumerate(settings.items())]


PROGRAMS = (*_faults(), *_healthy())


def _order(name: str) -> str:
    return hashlib.sha256((SEED + name).encode()).hexdigest()


SET_ASIDE = frozenset(sorted((program.name for program in PROGRAMS if not program.healthy), key=_order)[:4])


def find(name: str) -> Program:
    return next(program for program in PROGRAMS if program.name == name)
