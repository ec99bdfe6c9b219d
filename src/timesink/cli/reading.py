"""From paths on the command line to the trace that was asked for, and to its step time without a profiler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.capture.manifest import MANIFEST, step_ms
from timesink.cli.output import answer_is_partial, working
from timesink.errors import UnreadableTrace
from timesink.untrusted.plain_json import document
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.model.trace import Trace


def read_traces(
    paths: Sequence[Path],
    *,
    ranks: Sequence[int] | None = None,
    cache: bool = True,
    linked_only: bool = False,
    window: str | None = None,
) -> Trace:
    """The files as one trace, cut down to the window, the ranks and the GPU work asked for.

    Of a damaged file what could be read is returned, and the command's answer is marked as partial.
    """
    from timesink.model.window import Span

    span = None if window is None else Span.parse(window)
    names = scrub(paths[0].name) if len(paths) == 1 else f"{len(paths)} files"
    with working(f"reading {names}"):
        from timesink.readers import read

        trace = read(paths, ranks=ranks, linked_only=linked_only, cache=cache, window=span)
    for damage in trace.damage:
        answer_is_partial(UnreadableTrace(trace.source, damage, remedy="record or copy the file again"))
    return trace


def unprofiled_step_ms(given: float | None, paths: Sequence[Path]) -> float | None:
    """Milliseconds of a step without a profiler: as given, else as the capture measured it; None where neither says.

    Of the manifests next to several traces the slowest counts.
    """
    if given is not None:
        return given or None
    return max((ms for path in paths if (ms := _stored_ms(path)) is not None), default=None)


def _stored_ms(path: Path) -> float | None:
    """What the manifest of the trace's folder says, if it is one of timesink's and names the trace."""
    try:
        manifest = document((path if path.is_dir() else path.parent) / MANIFEST)
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or "timesink_manifest" not in manifest:
        return None
    listed = manifest.get("files", ())
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = path.is_dir() or any(entry.get("file") == path.name for entry in entries)
    return step_ms(manifest, "unprofiled") if named else None
