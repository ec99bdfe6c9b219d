"""timesink finds the time a GPU program loses, proves it from the profile, and says what one change would win back.

The types of the public names stand in `__init__.pyi`, so that this module, which every other one imports by name,
imports none of them.
"""

import sys

__version__ = "0.1.0"
_NAMES = {
    "timesink.notebook": "diagnose gate idle kernels plan summary try_ verify_change what_if",
    "timesink.notebook.trace": "Trace compare read",
    "timesink.capture.in_program": "annotate profile step",
    "timesink.capture.stage_log": "stages",
    "timesink.capture.trainer": "handler recorder",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  # all of them texts


def __getattr__(name: str) -> object:
    """Load the public names on first use, so that `import timesink` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'timesink' has no attribute {name!r}")
    from importlib import import_module

    if sys.platform != "linux" and (why := import_module("timesink.errors").missing_here(name)):
        raise ImportError(why)
    public = globals()[name] = getattr(import_module(_HOMES[name]), name)  # timesink.annotate is asked for in hot loops
    if not _HOMES[name].startswith("timesink.capture"):  # which runs inside programs, and shows nothing
        if not isinstance(public, type):
            public = globals()[name] = import_module("timesink.errors").told_briefly(public)
        display = import_module("timesink.notebook.display")
        display.attach()
        if "IPython" in sys.modules:
            display.offer()
    return public


def __dir__() -> list[str]:
    return sorted(__all__)
