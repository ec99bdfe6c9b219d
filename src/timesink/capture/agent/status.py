"""What a rank tells the capture's parent, as one small JSON file that is replaced at every change of phase."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

RANKS = "ranks"


class Status:
    """The status file of one rank. The first process that claims a rank has it."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.path = folder / RANKS / f"{rank}.json"
        self.facts: dict[str, Any] = {"rank": rank, "world": world, "pid": os.getpid(), "phase": "settle", "notes": []}

    def claimed(self) -> bool:
        """Whether this process is the first of its rank."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.open("x", encoding="utf-8").close()
        except FileExistsError:
            return False
        self.tell()
        return True

    def tell(self, **facts: object) -> None:
        """Store more facts. A full disk is the parent's to report; the program goes on."""
        self.facts.update(facts)
        beside = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            beside.write_text(json.dumps(self.facts), encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            sys.stderr.write(f"timesink: cannot write {self.path}: {error.strerror}\n")

    def note(self, text: str) -> None:
        """One more sentence for the manifest, told once."""
        if text not in self.facts["notes"]:
            self.facts["notes"].append(text)


def software() -> dict[str, str]:
    """Versions of what the program has loaded, and its GPU."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "triton", "jax", "cupy", "numba", "deepspeed", "transformers", "lightning"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    torch = sys.modules.get("torch")
    if torch is not None:
        found["cuda (of torch)"] = str(torch.version.cuda)
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found
