"""The manifest of a capture: what was recorded, whether it is what was asked for, and what a second person needs to
repeat it. What describes the machine and its environment comes from allow-lists, never the whole environment.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timesink.capture.errors import refused
from timesink.capture.recorded_run import MANIFEST, slowest_rank
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import profiler_texts
from timesink.untrusted.masking import kept_variables, masked_words, stored_command
from timesink.untrusted.nvidia_tools import ask
from timesink.untrusted.plain_json import document
from timesink.untrusted.protobuf import NUMBER, fields

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Capture:
    """One finished capture: its folder, the files to read, and what is known of it.

    `missing` has one sentence for each thing that was expected and is not there; empty where all is well.
    """

    folder: Path
    files: tuple[Path, ...]
    manifest: Mapping[str, Any]
    missing: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything expected is there."""
        return not self.missing

    @property
    def doubts(self) -> tuple[str, ...]:
        """What makes the recorded steps unlike the others, a sentence each."""
        return tuple(self.manifest.get("doubts", ()))

    @property
    def unprofiled_step_ms(self) -> float | None:
        """Median step without a profiler, the slowest rank's; None where no steps were timed."""
        return (slowest_rank(self.manifest, "unprofiled") or (None,))[0]

    @property
    def unprofiled_steps_ms(self) -> tuple[float, ...]:
        """The steps of the slowest rank without a profiler, in their order; none where they were not timed."""
        return (slowest_rank(self.manifest, "unprofiled") or (None, ()))[1]

    @property
    def profiled_step_ms(self) -> float | None:
        """Median step while it was recorded, the slowest rank's."""
        return (slowest_rank(self.manifest, "profiled") or (None,))[0]

    @property
    def overhead_ratio(self) -> float | None:
        """Profiled over unprofiled step, less one: 0.25 is a quarter longer."""
        before, while_recorded = self.unprofiled_step_ms, self.profiled_step_ms
        return while_recorded / before - 1 if before and while_recorded else None

    def read(self) -> Any:
        """The capture as one trace. Needs the readers, which profiled programs do without: loaded here."""
        from importlib import import_module

        return import_module("timesink").read(self.files)

    @classmethod
    def load(cls, folder: Path) -> Capture:
        """A capture made earlier, from its manifest."""
        place = folder / MANIFEST
        try:
            manifest = document(place)
            files = tuple(folder / str(entry["file"]) for entry in manifest["files"])
            return cls(folder, files, manifest, tuple(map(str, manifest["missing"])))
        except (OSError, ValueError, KeyError, TypeError) as broken:
            what = f"{place} is not a manifest of a capture: {broken!r}"
            raise refused(what, "name the folder of a capture") from broken


def surroundings(
    program: Sequence[str], config_files: Iterable[Path], facts: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What is known before the run: program, commit, machine, GPUs, variables, configuration, the user's facts."""
    return {
        "timesink_manifest": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "program": stored_command(program),
        "git": git_state(Path.cwd()),
        "machine": machine(),
        "gpus": gpus(),
        "cuda_of_driver": cuda_version(),
        "environment": kept_variables(os.environ),
        "config_files": {path.name: sha256(path) for path in config_files},
        "facts": {name: masked_words([f"{name}={fact}"])[0].partition("=")[2] for name, fact in (facts or {}).items()},
    }


def files_entry(checked: Iterable[Checked]) -> list[dict[str, Any]]:
    """One entry per artefact: name, size, hash, counts."""
    return [
        {"file": one.path.name, "bytes": one.size_bytes, "sha256": sha256(one.path) if one.path.is_file() else None,
         "counts": dict(one.counts)}
        for one in checked
    ]  # fmt: skip


def sha256(path: Path) -> str:
    """The hash of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_KINETO = {kind: re.compile(pattern.encode()) for kind, pattern in profiler_texts.KINETO_EVENTS.items()}
_STEP = re.compile(profiler_texts.KINETO_STEP.encode())
_LONGEST_MATCH = 64
_SQLITE = {
    "steps": "SELECT COUNT(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
    "WHERE COALESCE(text, value) LIKE 'step %'",
    "CUDA API calls": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "kernels": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "whole CUDA graphs": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "NVTX ranges": "SELECT COUNT(*) FROM NVTX_EVENTS WHERE end IS NOT NULL",
    "OS runtime calls": "SELECT COUNT(*) FROM OSRT_API",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What an artefact holds: counts by kind; `wrong` says why it cannot be read at all, or is empty."""

    path: Path
    size_bytes: int
    counts: Mapping[str, int]
    wrong: str = ""

    def missing(self, expected: tuple[str, ...]) -> list[str]:
        """One sentence per kind of record that was expected and is not there. Replayed graphs run no operators."""
        if self.wrong:
            return [f"{self.path.name}: {self.wrong}"]
        absent = [kind for kind in expected if not self.counts.get(kind)]
        replayed = self.counts.get("launches of CUDA graphs", 0)
        return [f"{self.path.name} holds no {kind}" for kind in absent if not (replayed and kind == "operators")]


def check(path: Path) -> Checked:
    """Count what a torch.profiler trace, an nsys SQLite export or an ncu report holds."""
    if not path.is_file():
        return Checked(path, 0, {}, "it was not written")
    size = path.stat().st_size
    if not size:
        return Checked(path, 0, {}, "it is empty")
    try:
        return Checked(path, size, _counts(path))
    except (OSError, sqlite3.Error, ValueError) as broken:
        return Checked(path, size, {}, f"it is damaged ({broken})")


def _counts(path: Path) -> Mapping[str, int]:
    if path.suffix == ".sqlite":
        return _sqlite_counts(path)
    if path.suffix in (".ncu-rep", ".ncu-repz"):
        return {"kernel profiles": _profiles(path)} if path.suffix == ".ncu-rep" else {"kernel profiles": 1}
    return _kineto_counts(path)


def _kineto_counts(path: Path) -> Mapping[str, int]:
    """Counts by pattern, in chunks: quick, and as exact as the profiler's own spelling.

    Steps count by name, as each is recorded once for the host and once for the device.
    """
    counts = dict.fromkeys(_KINETO, 0)
    steps: set[bytes] = set()
    rest = b""
    unpacked = Unpacked(path)
    for chunk in unpacked.raw():
        text = rest + chunk
        steps.update(_STEP.findall(text))
        for kind, pattern in _KINETO.items():
            counts[kind] += sum(1 for found in pattern.finditer(text) if found.end() > len(rest))
        rest = text[-_LONGEST_MATCH:]
    if unpacked.damage:
        raise ValueError(unpacked.damage)
    return {"steps": len(steps), **counts}


def _sqlite_counts(path: Path) -> Mapping[str, int]:
    counts = {}
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for kind, query in _SQLITE.items():
            table = query.partition("FROM ")[2].split()[0]
            counts[kind] = int(db.execute(query).fetchone()[0]) if table in tables else 0
    return counts


def _profiles(path: Path) -> int:
    """Results in an ncu report: ``NVR\\0``, a header, then blocks whose header counts results in field 2."""
    with path.open("rb") as file:
        if file.read(4) != b"NVR\0":
            raise ValueError("it does not begin as an ncu report")
        file.seek(int.from_bytes(file.read(4), "little"), 1)
        total = 0
        while size := file.read(4):
            header = file.read(int.from_bytes(size, "little"))
            numbers = {field.number: field.value for field in fields(header, 0, len(header)) if field.wire == NUMBER}
            total += numbers.get(2, 0)
            file.seek(numbers.get(5, 0), 1)
    return total


GPU_FIELDS = (
    "index", "name", "driver_version", "memory.total", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit",
    "power.draw", "utilization.gpu", "temperature.gpu", "persistence_mode", "compute_mode", "mig.mode.current",
    "compute_cap",
)  # fmt: skip


def gpus() -> list[dict[str, str]]:
    """One entry per GPU that nvidia-smi lists; none where it is absent."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    text = ask([tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(GPU_FIELDS)]


def cuda_version() -> str:
    """The newest CUDA the driver can run, as nvidia-smi states it; empty where it does not."""
    tool = shutil.which("nvidia-smi")
    lines = ask([tool, "-q", "-d", "COMPUTE"]).splitlines() if tool else []
    stated = (line.partition(":") for line in lines)
    return next((version.strip() for name, _, version in stated if name.strip() == "CUDA Version"), "")


def git_state(folder: Path) -> dict[str, object]:
    """Commit and whether tracked files differ from it; empty outside a repository."""
    tool = shutil.which("git")
    if tool is None:
        return {}
    commit = ask([tool, "-C", str(folder), "rev-parse", "HEAD"]).strip()
    if not commit:
        return {}
    changed = ask([tool, "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "is_dirty": bool(changed.strip()), "changed_files": len(changed.splitlines())}


def machine() -> dict[str, object]:
    """System, processor and memory; no host name."""
    found: dict[str, object] = {"system": f"{platform.system()} {platform.release()}", "cpus": os.cpu_count() or 0}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {**found, "processor": model} if model else found
