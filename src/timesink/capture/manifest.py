"""The manifest beside a capture: what a second person needs to repeat it, and nothing that is nobody's business."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timesink.capture import environment
from timesink.capture.artefacts import Checked
from timesink.capture.captured import MANIFEST
from timesink.kept_variables import kept_variables
from timesink.masking import stored_command
from timesink.whole_file import write_whole

FORMAT = 1
_CHUNK_BYTES = 1 << 20


def surroundings(program: Sequence[str], config_files: Iterable[Path]) -> dict[str, Any]:
    """What is known before the run: program, commit, machine, GPUs, variables, configuration."""
    return {
        "timesink_manifest": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "program": stored_command(program),
        "git": environment.git_state(Path.cwd()),
        "machine": environment.machine(),
        "gpus": environment.gpus(),
        "cuda_of_driver": environment.cuda_version(),
        "environment": kept_variables(os.environ),
        "config_files": {path.name: sha256(path) for path in config_files},
    }


def files_entry(checked: Iterable[Checked]) -> list[dict[str, Any]]:
    """One entry per artefact: name, size, hash, counts."""
    return [
        {
            "file": one.path.name,
            "bytes": one.size_bytes,
            "sha256": sha256(one.path) if one.path.is_file() else None,
            "counts": dict(one.counts),
        }
        for one in checked
    ]


def write(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Store it in the capture's folder, all of it or nothing."""
    path = folder / MANIFEST
    write_whole(path, json.dumps(manifest, indent=1))
    return path


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
