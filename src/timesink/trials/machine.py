"""The machine's file: what a host and its GPU take, whatever program runs, and what was run there for traces before.

It lies in the user's cache folder, one for each GPU, driver, version of PyTorch and CPU; its name comes from these, so
that another driver asks everything anew. A plan reads it without running anything.
"""

import hashlib
import json
import platform
import shutil
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from timesink.untrusted.nvidia_tools import ask
from timesink.untrusted.plain_json import document
from timesink.untrusted.whole_file import write_whole

Answers = dict[str, dict[str, Any]]
"""By what tells a question from others (`asked.identity`)."""
_GPU_QUERY: Final = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
_VERSION: Final = "from importlib import metadata; print(metadata.version('torch'))"


@dataclass(frozen=True, slots=True)
class Bench:
    """Where operators are run: the Python that has PyTorch, its version, the GPU ('' for none) and its driver."""

    python: str
    torch: str
    gpu: str
    driver: str

    @property
    def key(self) -> str:
        """What its prices hold for."""
        parts = (self.torch, self.gpu, self.driver, platform.processor(), platform.machine(), platform.node())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def find_bench() -> Bench | str:
    """This machine's bench, or why it has none."""
    python, version = next(
        ((one, said) for one in _pythons() if (said := ask([one, "-c", _VERSION]).strip())), ("", "")
    )
    if not python:
        return "no Python here has PyTorch: install timesink beside it, or put that Python first on PATH"
    name, _, driver = ask(_GPU_QUERY).partition("\n")[0].partition(", ")
    return Bench(python, version, name.strip(), driver.strip())


def _pythons() -> list[str]:
    found = [sys.executable, shutil.which("python"), shutil.which("python3")]
    return list(dict.fromkeys(one for one in found if one))


@dataclass(frozen=True, slots=True)
class MachineFile:
    """What is kept of a bench in a folder, by default the user's."""

    path: Path

    @classmethod
    def of(cls, bench: Bench, folder: Path | None = None) -> Self:
        """The file of a bench, which may not be there yet."""
        return cls((folder or prices_folder()) / f"{bench.key}.json")

    @classmethod
    def of_gpu(cls, names: list[str], folder: Path | None = None) -> Self | None:
        """The newest file of one of these GPUs, of this host before others."""
        with suppress(OSError):
            told = [(file, file.machine) for file in map(cls, (folder or prices_folder()).glob("*.json"))]
            own = [
                (machine.get("host") == platform.node(), file.path.stat().st_mtime_ns, file)
                for file, machine in told
                if machine.get("gpu") in names
            ]
            return max(own, key=lambda found: found[:2], default=(None, 0, None))[2]
        return None

    def _document(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found = document(self.path)
            if isinstance(found, dict):
                return found
        return {}

    @property
    def machine(self) -> dict[str, Any]:
        """What it holds for: `gpu`, `driver`, `torch` and `host`; nothing where it cannot be read."""
        found = self._document().get("machine")
        return found if isinstance(found, dict) else {}

    @property
    def answers(self) -> Answers:
        """All that is known; nothing where it cannot be read."""
        found = self._document().get("answers")
        return {key: one for key, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}

    def add(self, answers: Answers, bench: Bench) -> None:
        """Keep these, too; where nothing can be written nothing is kept."""
        machine = {name: value for name, value in asdict(bench).items() if name != "python"}
        kept = {"machine": {**machine, "host": platform.node()}, "answers": {**self.answers, **answers}}
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.path, json.dumps(kept))


def prices_folder() -> Path:
    """Where machines' files lie."""
    from platformdirs import user_cache_path

    return user_cache_path("timesink") / "prices"
