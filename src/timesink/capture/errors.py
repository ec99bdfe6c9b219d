"""What goes wrong in a capture. The command line turns it into the errors of `timesink.errors`, which capture, standing
alone, does not import.
"""

from __future__ import annotations

from enum import Enum

A_STEP = (
    "timesink.step(), prof.step() of torch.profiler, an optimizer's step, a backward pass, a replay of a CUDA graph, "
    "a call of the outermost module, a DataLoader's batch"
)
"""What ends a step, where steps are found in a running program."""


class Fault(Enum):
    """Whose turn it is: the request's, a missing tool's, or a tool or program that failed."""

    REQUEST = "request"
    MISSING = "missing"
    FAILED = "failed"


class CaptureError(Exception):
    """`remedy` is one sentence that begins with a verb; `fault` decides the exit code."""

    def __init__(self, fault: Fault, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


def refused(message: str, remedy: str) -> CaptureError:
    """The error for a request that cannot be met."""
    return CaptureError(Fault.REQUEST, message, remedy=remedy)


def failure(message: str, remedy: str) -> CaptureError:
    """The error for a tool or a program that failed."""
    return CaptureError(Fault.FAILED, message, remedy=remedy)


def missing(message: str, remedy: str) -> CaptureError:
    """The error for a tool that is not there."""
    return CaptureError(Fault.MISSING, message, remedy=remedy)
