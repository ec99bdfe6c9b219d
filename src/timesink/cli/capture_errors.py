"""Errors of captures, which stand alone, as the errors that the command line shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from timesink.capture.errors import CaptureError, Fault
from timesink.errors import MissingTool, TimesinkError, ToolFailed, UsageError

_KINDS: dict[Fault, type[TimesinkError]] = {
    Fault.REQUEST: UsageError,
    Fault.MISSING: MissingTool,
    Fault.FAILED: ToolFailed,
}


@contextmanager
def translated() -> Iterator[None]:
    """A `CaptureError` in the block leaves it as the error of that kind."""
    try:
        yield
    except CaptureError as error:
        raise _KINDS[error.fault](error.message, remedy=error.remedy) from error
