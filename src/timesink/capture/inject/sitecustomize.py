"""Python imports this at start-up because `timesink capture` put its folder on PYTHONPATH: it wakes the agent.

It adds nothing to `sys.path`: where the program's interpreter has no timesink, the package is loaded from its files.
The interpreter's own sitecustomize, which this one hides, is run afterwards. Python 3.10 and later wake the agent; the
syntax here is older, as any Python 3 may come along.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - any Python 3, and quick
PACKAGE = os.path.dirname(os.path.dirname(HERE))  # noqa: PTH120


def _load_timesink() -> None:
    """Make `import timesink` work by its files alone."""
    if importlib.util.find_spec("timesink") is not None:
        return
    init = os.path.join(PACKAGE, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location("timesink", init, submodule_search_locations=[PACKAGE])
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["timesink"] = module
    spec.loader.exec_module(module)


def _run_hidden() -> None:
    """Run the sitecustomize that Python would have found without this one."""
    elsewhere = [place for place in sys.path if os.path.abspath(place) != HERE]  # noqa: PTH100
    finder = importlib.machinery.PathFinder
    spec = finder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


try:
    if os.environ.get("TIMESINK_AHEAD") and sys.version_info >= (3, 10):
        _load_timesink()
        from timesink.trials import ahead

        ahead.stand_ready(int(os.environ.pop("TIMESINK_AHEAD")))
    if os.environ.get("TIMESINK_TRY") and sys.version_info >= (3, 10):
        _load_timesink()
        from timesink.trials import agent

        agent.begin(os.environ["TIMESINK_TRY"])
    elif os.environ.get("TIMESINK_CAPTURE") and sys.version_info >= (3, 10):
        _load_timesink()
        from timesink.capture import agent as recorder

        recorder.begin()
finally:
    _run_hidden()
