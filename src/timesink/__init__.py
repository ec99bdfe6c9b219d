"""timesink finds the time a GPU program loses, proves it from the profile, and says what one change would win back.

The types of the public names stand in `__init__.pyi`, so that this module, which every other one imports by name,
imports none of them.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0"
__all__ = [
    "Trace",
    "__version__",
    "annotate",
    "compare",
    "diagnose",
    "gate",
    "handler",
    "idle",
    "kernels",
    "plan",
    "profile",
    "read",
    "recorder",
    "stages",
    "step",
    "summary",
    "try_",
    "verify_change",
    "what_if",
]

_HOMES = {
    "read": "timesink.notebook.trace",
    "diagnose": "timesink.notebook",
    "summary": "timesink.notebook",
    "idle": "timesink.notebook",
    "kernels": "timesink.notebook",
    "plan": "timesink.notebook",
    "what_if": "timesink.notebook",
    "try_": "timesink.notebook",
    "verify_change": "timesink.notebook",
    "gate": "timesink.notebook",
    "compare": "timesink.notebook.trace",
    "Trace": "timesink.notebook.trace",
    "step": "timesink.capture.in_program",
    "annotate": "timesink.capture.in_program",
    "profile": "timesink.capture.in_program",
    "stages": "timesink.capture.stage_log",
    "handler": "timesink.capture.trainer",
    "recorder": "timesink.capture.trainer",
}


# Names that were public before: what to use now, and the version that no longer knows them.
_FORMER = {"read_all": ("read", "0.3.0")}


def __getattr__(name: str) -> object:
    """Load the public names on first use, so that `import timesink` stays light."""
    if name in _FORMER:
        return _of_former_name(name)
    if name not in _HOMES:
        raise AttributeError(f"module 'timesink' has no attribute {name!r}")
    from importlib import import_module

    public = globals()[name] = getattr(import_module(_HOMES[name]), name)  # timesink.annotate is asked for in hot loops
    if not _HOMES[name].startswith("timesink.capture"):  # which runs inside programs, and shows nothing
        if not isinstance(public, type):
            public = globals()[name] = import_module("timesink.errors").told_briefly(public)
        display = import_module("timesink.notebook.display")
        display.attach()
        if "IPython" in sys.modules:
            display.offer()
    return public


def _of_former_name(name: str) -> object:
    """What that name is called now, with a warning that says so."""
    import warnings

    now, gone = _FORMER[name]
    message = f"timesink.{name} is timesink.{now} now, and goes with version {gone}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return __getattr__(now)


def __dir__() -> list[str]:
    return sorted(__all__)
