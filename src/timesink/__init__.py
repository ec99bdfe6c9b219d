"""timesink finds the time a GPU program loses, proves it from the profile, and says what one change would win back.

The types of the public names stand in `__init__.pyi`, so that this module, which every other one imports by name,
imports none of them.
"""

from __future__ import annotations

import sys
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "Trace",
    "__version__",
    "annotate",
    "compare",
    "diagnose",
    "idle",
    "kernels",
    "profile",
    "read",
    "stages",
    "step",
    "summary",
    "what_if",
]

_HOMES = {
    "read": "timesink.readers",
    "diagnose": "timesink.notebook",
    "summary": "timesink.notebook",
    "idle": "timesink.notebook",
    "kernels": "timesink.notebook",
    "what_if": "timesink.notebook",
    "compare": "timesink.notebook",
    "Trace": "timesink.model.trace",
    "step": "timesink.capture.in_program",
    "annotate": "timesink.capture.in_program",
    "profile": "timesink.capture.in_program",
    "stages": "timesink.capture.stage_log",
}


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that `import timesink` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'timesink' has no attribute {name!r}")
    from importlib import import_module

    public = globals()[name] = getattr(import_module(_HOMES[name]), name)  # timesink.annotate is asked for in hot loops
    if not _HOMES[name].startswith("timesink.capture"):  # which runs inside programs, and shows nothing
        notebook = import_module("timesink.notebook")
        notebook.attach()
        if "IPython" in sys.modules:
            notebook.offer()
    return public


def __dir__() -> list[str]:
    return sorted(__all__)
