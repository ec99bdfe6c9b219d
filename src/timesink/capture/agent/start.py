"""Begins in every Python process of the profiled program, and stays out of those that do no work of their own."""

from __future__ import annotations

import os
import sys

from timesink.capture import steps_file
from timesink.capture.agent.import_hook import when_imported
from timesink.capture.schedule import VARIABLE, Plan

# Launchers, compile workers and data-loading workers: they import torch too, and make no steps.
_BYSTANDERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch._inductor.compile_worker",
    "compile_worker/__main__.py",
    "multiprocessing.resource_tracker",
    "accelerate",
    "deepspeed",
)


def begin() -> None:
    """Read the plan, and wait for the program to import torch or to call ``timesink.step()``."""
    if is_bystander(sys.orig_argv):
        return
    from timesink.capture.agent.recording import Agent

    agent = Agent(Plan.from_json(os.environ[VARIABLE]))
    steps_file.listeners.append(agent.explicit_step)
    when_imported("torch", agent.torch_is_here)


def is_bystander(arguments: list[str]) -> bool:
    """Whether a process with this command line only launches or helps those that make the steps."""
    program = next((n for n, word in enumerate(arguments[1:], 1) if not word.startswith("-")), len(arguments))
    looked_at = arguments[1 : program + 1]
    return any(word.endswith(name) for word in looked_at for name in _BYSTANDERS) or any(
        name in word for word in looked_at for name in ("resource_tracker", "compile_worker")
    )
