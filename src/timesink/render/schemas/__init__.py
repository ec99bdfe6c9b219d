"""The JSON Schemas (draft 2020-12) of everything that `--format json` writes: a file each, whole by itself.

All begin with one envelope: `schema_version`, `command`, `source`.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

ENVELOPE: Final = ("schema_version", "command", "source")
# Schemas that the answers of a command obey, those of its options last; every other command writes pages.
OF_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "diagnose": ("diagnosis",),
    "capture --loop": ("diagnosis",),
    "loop": ("diagnosis",),
    "gate": ("gate",),
    "gate --limits": ("gate",),
    "verify": ("gate",),
    "compare": ("gate",),
    "kernels": ("kernels", "kernel_comparison", "page"),
    "explain": ("rule", "page"),
    "demo": ("demo",),
}
NAMES: Final = ("diagnosis", "page", "gate", "kernels", "kernel_comparison", "rule", "demo", "error")


def schemas_of(command: str) -> tuple[str, ...]:
    """The names of the schemas one of which each answer of a command obeys; refusals obey `error`."""
    return OF_COMMANDS.get(command, ("page",))


def schema(name: str) -> dict[str, Any]:
    """The schema of that name."""
    text = files("timesink.render.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
