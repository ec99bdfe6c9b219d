"""What a capture returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timesink.capture.errors import CaptureError, Fault
from timesink.untrusted.plain_json import document

MANIFEST = "manifest.json"


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
        return step_ms(self.manifest, "unprofiled")

    @property
    def profiled_step_ms(self) -> float | None:
        """Median step while it was recorded, the slowest rank's."""
        return step_ms(self.manifest, "profiled")

    @property
    def overhead_ratio(self) -> float | None:
        """Profiled over unprofiled step, less one: 0.25 is a quarter longer."""
        before, while_recorded = self.unprofiled_step_ms, self.profiled_step_ms
        return while_recorded / before - 1 if before and while_recorded else None

    def read(self) -> Any:
        """The capture as one trace. Needs the readers, which profiled programs do without: loaded here."""
        from importlib import import_module

        return import_module("timesink.readers").read_all(self.files)

    @classmethod
    def load(cls, folder: Path) -> Capture:
        """A capture made earlier, from its manifest."""
        place = folder / MANIFEST
        try:
            manifest = document(place)
            files = tuple(folder / str(entry["file"]) for entry in manifest["files"])
            return cls(folder, files, manifest, tuple(map(str, manifest["missing"])))
        except (OSError, ValueError, KeyError, TypeError) as broken:
            raise CaptureError(
                Fault.REQUEST, f"{place} is no manifest of a capture: {broken!r}", remedy="name the folder of a capture"
            ) from broken


def step_ms(manifest: Mapping[str, Any], what: str) -> float | None:
    """Median step of the slowest rank, `what` being "unprofiled" or "profiled"; None where none says."""
    try:
        return max((float(rank[what]["step_ms"]) for rank in manifest.get("ranks", ()) if rank.get(what)), default=None)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None  # a manifest that somebody else wrote
