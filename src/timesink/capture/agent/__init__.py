"""What runs inside the profiled program. Standard library, and torch where the program itself has imported it.

The agent starts in every Python process of the profiled program, except in those that make no steps themselves. It
hooks into torch, which the program imports when it likes: `when_imported` waits for that.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

from timesink.capture import in_program
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

    plan = AgentPlan.from_json(os.environ[VARIABLE])
    agent = StepTimer(plan) if plan.mode is Mode.STEPS else Agent(plan)
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


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` right after the import of module `name`; now, if it is there already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module once, by asking the other finders, and wraps its loader."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec with a loader that calls back; None for every other module."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, with a call after it has run."""

    def __init__(self, wrapped: importlib.abc.Loader, then: Callable[[], None]) -> None:
        self._wrapped = wrapped
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._wrapped.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, put its own loader back, call."""
        self._wrapped.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._wrapped
        module.__loader__ = self._wrapped
        self._then()
