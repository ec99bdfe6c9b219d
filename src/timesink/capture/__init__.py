"""Drive the profilers. Standard library only, importable inside the profiled program.

from timesink import capture
done = capture.nsys(["python", "train.py"], steps=6)
done.files, done.overhead_ratio, done.read()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timesink.capture.errors import CaptureError
    from timesink.capture.manifest import Capture
    from timesink.capture.profilers import ncu, nsys, torch

__all__ = ["Capture", "CaptureError", "ncu", "nsys", "torch"]

_HOMES = dict.fromkeys(("nsys", "ncu", "torch"), "profilers") | {"Capture": "manifest", "CaptureError": "errors"}


def __getattr__(name: str) -> Any:
    """Load what runs tools only where it is used: the profiled program imports this package too."""
    if name not in _HOMES:
        raise AttributeError(f"module 'timesink.capture' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"timesink.capture.{_HOMES[name]}"), name)
