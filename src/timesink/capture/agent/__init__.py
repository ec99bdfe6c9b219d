"""What runs inside the profiled program. Standard library, and torch where the program itself has imported it.

The agent starts in every Python process of the profiled program, except in those that make no steps themselves. It
hooks into torch, which the program imports when it likes: `when_imported` waits for that.
"""

from __future__ import annotations

import os
import sys

from timesink.capture import in_program
from timesink.capture.agent.imports import when_imported
from timesink.capture.schedule import VARIABLE, AgentPlan, Mode

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
    from timesink.capture.agent import torch_hooks
    from timesink.capture.agent.recording import Agent, StepTimer
    from timesink.capture.agent.start_up import StartUpWatch

    plan = AgentPlan.from_json(os.environ[VARIABLE])
    watch = StartUpWatch() if plan.mode in (Mode.TORCH, Mode.RANGE) else None
    agent = StepTimer(plan) if plan.mode is Mode.STEPS else Agent(plan, watch)
    in_program.listeners.append(agent.explicit_step)
    when_imported("torch", lambda: torch_hooks.install(agent))
    if plan.mode is Mode.TORCH:
        when_imported("nvtx", torch_hooks.mirror_package)


def is_bystander(arguments: list[str]) -> bool:
    """Whether a process with this command line only launches or helps those that make the steps."""
    program = next((n for n, word in enumerate(arguments[1:], 1) if not word.startswith("-")), len(arguments))
    looked_at = arguments[1 : program + 1]
    return any(word.endswith(name) for word in looked_at for name in _BYSTANDERS) or any(
        name in word for word in looked_at for name in ("resource_tracker", "compile_worker")
    )
