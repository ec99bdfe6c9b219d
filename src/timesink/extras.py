"""Libraries that only some people need: asked for when used, and named with the command that installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from timesink.errors import UsageError


def extra(module: str, name: str) -> ModuleType:
    """The module, or `UsageError` that says which extra of timesink holds it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise UsageError(
            f"this needs the library {missing}, which is not installed", remedy=f"pip install 'timesink[{name}]'"
        ) from error
