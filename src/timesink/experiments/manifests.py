"""What two captures do not share: their manifests, their files, their GPUs. One change at a time can be judged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timesink.errors import UsageError
from timesink.experiments.environment import differences
from timesink.plain_json import document

if TYPE_CHECKING:
    from timesink.model.trace import Trace

# What differs between any two captures and says nothing: when, which process, where the output went, how long it took.
_INCIDENTAL = re.compile(
    r"(^|[. _])(date|time|started|finished|ended|duration|seconds|pid|output|outputs|path|paths|file|files|sha256"
    r"|digest|size|bytes|uuid|id|session|created)([. _\d]|$)",
    re.IGNORECASE,
)
# Without these two captures are no measurements of the same thing.
HARD = ("trace format", "ranks", "gpus", "gpu")


def find_manifest(capture: Path) -> Path | None:
    """The manifest beside a capture: ``<capture>.manifest.json``, or ``manifest.json`` in its folder."""
    near = [capture.with_name(f"{capture.name}.manifest.json"), capture.with_suffix(".manifest.json")]
    near.append((capture if capture.is_dir() else capture.parent) / "manifest.json")
    return next((path for path in near if path.is_file()), None)


def read_manifest(path: Path) -> dict[str, str]:
    """Its facts as flat text, without what is incidental."""
    try:
        content = document(path)
    except (OSError, ValueError) as broken:
        raise UsageError(
            f"{path} is no readable manifest: {broken}", remedy="leave it away or make it anew"
        ) from broken
    return {name: value for name, value in _flat(content).items() if not _INCIDENTAL.search(name)}


def trace_facts(trace: Trace) -> dict[str, str]:
    """What the trace itself says of how and where it was made."""
    from timesink.model.tables import DEVICES, SOURCES

    sources, devices = trace.get(SOURCES), trace.get(DEVICES)
    formats, tools = sources["format"].unique().sort(), sources["tool_version"].drop_nulls().unique().sort()
    names = devices["name"].drop_nulls().unique().sort()
    facts = {
        "trace format": ", ".join(formats),
        "profiler version": ", ".join(tools),
        "ranks": str(sources["rank"].n_unique()),
        "gpus": str(devices.height),
        "gpu": ", ".join(names),
    }
    return {name: value for name, value in facts.items() if value}


def capture_facts(paths: tuple[Path, Path], traces: tuple[Trace, Trace]) -> tuple[dict[str, str], dict[str, str]]:
    """What is known of both captures: what the traces say, and their manifests where each has one of its own."""
    before, after = trace_facts(traces[0]), trace_facts(traces[1])
    one, other = find_manifest(paths[0]), find_manifest(paths[1])
    if one is None or other is None or one == other:
        return before, after
    return {**read_manifest(one), **before}, {**read_manifest(other), **after}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Facts that differ; those that one side does not state are left out unless they are in a manifest of both."""
    return differences(before, after)


def _flat(content: Any, prefix: str = "") -> dict[str, str]:
    match content:
        case dict():
            parts = [_flat(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in content.items()]
            return {name: value for part in parts for name, value in part.items()}
        case list():
            return {prefix: json.dumps(content, sort_keys=True)}
        case _:
            return {prefix: str(content)}
