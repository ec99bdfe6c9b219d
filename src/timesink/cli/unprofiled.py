"""The step time without a profiler: as the user gives it, else as the capture that made the traces measured it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from timesink.capture.captured import MANIFEST, step_ms
from timesink.plain_json import document

StepMs = Annotated[
    float | None,
    typer.Option(
        "--unprofiled-step-ms",
        metavar="MS",
        min=0.0,
        help="The step without a profiler, to price host work against [default: as `timesink capture` timed it].",
        show_default=False,
    ),
]


def unprofiled_step_ms(given: float | None, paths: Sequence[Path]) -> float | None:
    """The value given, else the slowest of the manifests beside the traces; None where neither says."""
    if given is not None:
        return given or None
    found = [ms for path in paths if (ms := _stored_ms(path)) is not None]
    return max(found) if found else None


def _stored_ms(path: Path) -> float | None:
    """What the manifest of the trace's folder says, if it is one of timesink's and names the trace."""
    place = path / MANIFEST if path.is_dir() else path.parent / MANIFEST
    try:
        manifest = document(place)
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or "timesink_manifest" not in manifest:
        return None
    listed = manifest.get("files", ())
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = path.is_dir() or any(entry.get("file") == path.name for entry in entries)
    return step_ms(manifest, "unprofiled") if named else None
