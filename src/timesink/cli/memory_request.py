"""From files and options to the configuration that is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timesink.errors import UsageError
from timesink.memory_plan.config import Configuration, configuration
from timesink.plain_json import document


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for; None leaves a setting as the file or the default has it."""

    train: Mapping[str, Any]
    parallel: Mapping[str, Any]
    serve_context: int | None
    gpu_memory_gb: float | None


def requested(path: Path | None, hub_path: Path | None, wanted: Request) -> Configuration:
    """The configuration, options replacing what the files say."""
    given = _read(path) if path else {}
    if hub_path is not None:
        from timesink.memory_plan.hugging_face import read_model

        given["model"] = asdict(read_model(hub_path))
        given.setdefault("name", hub_path.parent.name if hub_path.name == "config.json" else hub_path.stem)
    train = {name: value for name, value in wanted.train.items() if value is not None}
    if wanted.serve_context is not None:
        given.pop("train", None)
        prompt = train.get("sequence", wanted.serve_context)
        given["serve"] = {"batch": train.get("batch", 1), "prompt": prompt, "context": wanted.serve_context}
    elif "serve" not in given:
        given["train"] = {"batch": 1, "sequence": 2048, **given.get("train", {}), **train}
    elif "batch" in train:
        given["serve"] = {**given["serve"], "batch": train["batch"]}
    for section, changes in (("parallel", wanted.parallel), ("gpu", _gpu(wanted))):
        kept = {name: value for name, value in changes.items() if value is not None}
        if kept:
            given[section] = {**given.get(section, {}), **kept}
    return configuration(given)


def _gpu(wanted: Request) -> dict[str, Any]:
    return {"memory_bytes": None if wanted.gpu_memory_gb is None else int(wanted.gpu_memory_gb * 1e9)}


def _read(path: Path) -> dict[str, Any]:
    try:
        given = document(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy="check the path") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}", remedy="see docs/how-to/memory.md for an example") from error
    if not isinstance(given, dict) or not all(isinstance(part, (dict, str)) for part in given.values()):
        raise UsageError(f"{path} is no configuration: a JSON object of objects")
    return given
