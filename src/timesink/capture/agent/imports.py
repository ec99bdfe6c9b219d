"""Calls back when the program has really imported a module, however it comes to it.

A program may ask where a module is long before it imports it, or never import it (`importlib.util.find_spec("torch")`).
So a finder wraps the module's loader each time it is asked, and is done only once such a loader has run the module.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` once, right after the import of module `name`; now, if it is there already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module by asking the other finders, and wraps its loader."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then, self._is_done = name, then, False
        self._here = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec with a loader that calls back; None for every other module."""
        if fullname != self._name or self._is_done or getattr(self._here, "asks", False):
            return None
        self._here.asks = True  # another finder may do as this one does, and ask this one in turn
        try:
            others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
            found = (finder.find_spec(fullname, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._here.asks = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._executed)
        return spec

    def _executed(self) -> None:
        """The module has run. Another thread may be going through `sys.meta_path`: that list stays as it is."""
        if not self._is_done:
            self._is_done = True
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
            self._then()


class _Loader(importlib.abc.Loader):
    """The module's own loader, with a call after it has run the module to its end."""

    def __init__(self, wrapped: Any, then: Callable[[], None]) -> None:
        self._wrapped, self._then = wrapped, then

    def __getattr__(self, name: str) -> Any:
        if name == "_wrapped":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._wrapped.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Put the module's own loader back, run it, call."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._wrapped
        module.__loader__ = self._wrapped
        self._wrapped.exec_module(module)
        self._then()
