"""Captures as calls: each is what `timesink capture` runs, and returns a `Capture`.

Options are the fields of `Settings` and of the tool's own (`TorchOptions`, `NsysOptions`, `NcuOptions`), by name.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from timesink.capture.captured import Capture
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.ncu_flags import NcuOptions
from timesink.capture.nsys import NsysOptions
from timesink.capture.running import Settings
from timesink.capture.schedule import Steps
from timesink.capture.tool_runs import capture_ncu, capture_nsys
from timesink.capture.tools import installed
from timesink.capture.torch_run import TorchOptions, capture_torch


def torch(program: Sequence[str], *, steps: int | Steps = 6, out: Path | None = None, **options: Any) -> Capture:
    """Record `steps` steps of a PyTorch program with torch.profiler, one file per rank.

    Raises
    ------
    CaptureError
        Nothing was recorded; the message says why and the remedy what to do.
    """
    chosen, settings = _split("torch", TorchOptions, steps, out, options)
    return capture_torch(program, TorchOptions(**chosen), settings)


def nsys(
    program: Sequence[str],
    *,
    steps: int | Steps = 6,
    out: Path | None = None,
    tool: Path | None = None,
    **options: Any,
) -> Capture:
    """Record `steps` steps of any program with Nsight Systems; `tool` is the nsys to use. Raises `CaptureError`."""
    chosen, settings = _split("nsys", NsysOptions, steps, out, options)
    return capture_nsys(program, installed("nsys", tool), NsysOptions(**chosen), settings)


def ncu(
    program: Sequence[str],
    *,
    steps: int | Steps = 1,
    out: Path | None = None,
    tool: Path | None = None,
    **options: Any,
) -> Capture:
    """Profile kernels of `steps` steps with Nsight Compute; `tool` is the ncu to use. Raises `CaptureError`."""
    chosen, settings = _split("ncu", NcuOptions, steps, out, options)
    return capture_ncu(program, installed("ncu", tool), NcuOptions(**chosen), settings)


def _split(
    tool: str, kind: type, steps: int | Steps, out: Path | None, options: dict[str, Any]
) -> tuple[dict[str, Any], Settings]:
    """Options of the tool, and the settings; `CaptureError` for a name that is neither's."""
    own = {field.name for field in fields(kind)}
    shared = {field.name for field in fields(Settings)}
    unknown = sorted(set(options) - own - shared)
    if unknown:
        raise CaptureError(
            Fault.REQUEST,
            f"{tool} has no option {unknown[0]!r}",
            remedy=f"choose from: {', '.join(sorted(own | shared))}",
        )
    tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    where = out if out is not None else default_folder(tool)
    wanted = steps if isinstance(steps, Steps) else replace(Steps(), active=steps)
    common: dict[str, Any] = {name: value for name, value in tuples.items() if name in shared}
    return {name: value for name, value in tuples.items() if name in own}, Settings(where, wanted, **common)


def default_folder(tool: str, root: Path = Path("captures")) -> Path:
    """A folder that is not there yet, named by time and tool."""
    return root / f"{time.strftime('%Y%m%d-%H%M%S')}-{tool}"
