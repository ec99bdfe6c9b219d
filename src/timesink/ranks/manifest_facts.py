"""What `timesink capture` wrote beside a trace of its machine: clocks, drivers and variables, for comparing hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl

from timesink.kept_variables import kept_variables
from timesink.measures.parity import OF_ONE_RANK, PARITY
from timesink.plain_json import document

_NAME: Final = "manifest.json"
_MOST_BYTES: Final = 1 << 20
_LONGEST: Final = 40
_OF_GPUS: Final = {
    "driver_version": "GPU driver", "clocks.max.sm": "highest SM clock", "clocks.mem": "memory clock",
    "power.limit": "power limit", "compute_mode": "compute mode", "mig.mode.current": "MIG",
}  # fmt: skip


def facts_beside(path: Path, ranks: tuple[int, ...]) -> pl.DataFrame:
    """rank, fact, value as in `Job.parity`, from the manifest in the trace's folder; nothing where there is none."""
    said = _read(path.parent / _NAME)
    listed = said.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    facts = {fact: sorted({str(gpu[key])[:_LONGEST] for gpu in gpus if key in gpu}) for key, fact in _OF_GPUS.items()}
    rows = [(fact, " and ".join(values)) for fact, values in facts.items() if values]
    if isinstance(said.get("cuda_of_driver"), str) and said["cuda_of_driver"]:
        rows.append(("CUDA of the driver", said["cuda_of_driver"][:_LONGEST]))
    variables = said.get("environment")
    if isinstance(variables, dict):
        texts = {str(name): str(value) for name, value in variables.items() if name not in OF_ONE_RANK}
        rows += kept_variables(texts).items()
    return pl.DataFrame([(rank, *row) for rank in ranks for row in rows], schema=PARITY, orient="row")


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = document(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and "timesink_manifest" in found else {}
