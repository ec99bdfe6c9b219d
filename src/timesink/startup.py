"""What makes a command begin sooner, in one place: each is a stand-in for something plain that is slower to load.

| stand-in | for | why |
|---|---|---|
| `regex` | `re.compile` | of hundreds of expressions most traces need a few |
| `start_small` | NumPy and Polars as they come | idle threads spin; both load what no command uses |
| `collect_rarely` | the garbage collector's own thresholds | modules, rules and tables live until a command ends |

`TIMESINK_PLAIN_IMPORTS=1` switches all of them off: answers are the same, and a command takes about a fifth of a second
more CPU time.
"""

import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from timesink._native import may_match

__all__ = ["RARE_COLLECTIONS", "collect_rarely", "regex", "start_small"]

PLAIN: Final = os.environ.get("TIMESINK_PLAIN_IMPORTS") == "1"
"""Whether everything is loaded and made as if this module were not there."""

# Looking for cycles among modules, rules and tables took a sixth of the diagnosis of a small trace. A server still
# collects, less often.
RARE_COLLECTIONS: Final = (200_000, 2, 2)
_OPENBLAS: Final = "OPENBLAS_NUM_THREADS"
# These alone import a sixth of all modules that a diagnosis would, among them all that reads mail.
_NOT_USED: Final = ("polars.catalog.unity", "polars.io.delta", "polars.io.iceberg")
_MASKED: Final = "numpy.ma"
_DOCUMENTS: Final = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")  # texts for help() alone
_SMALL_BYTES: Final = 4_000_000  # a trace of 40 MB, packed


def collect_rarely() -> None:
    """Look for cycles of garbage less often, for as long as the process lives."""
    if not PLAIN:
        gc.set_threshold(*RARE_COLLECTIONS)


def start_small(paths: Sequence[Path], *, apart: bool = False) -> None:
    """Let NumPy and Polars, where they are not loaded yet, begin with as few threads as pay, and Polars without parts
    that no command uses.

    NumPy's for products of matrices, of which there are none, spin as they begin. Polars gets one for small files and
    two for others: a diagnosis asks hundreds of questions of small tables, and to wake others for a part of one takes
    longer than it. Files are decoded on threads of their own. Of files that are read `apart`, side by side, each has
    one thread for all of that, where they are enough for every core.
    """
    if PLAIN:
        return
    if _OPENBLAS not in os.environ and not {"numpy", "polars"} & sys.modules.keys():
        os.environ[_OPENBLAS] = "1"
        sys.modules.update({name: ModuleType(name) for name in _DOCUMENTS})
        importlib.import_module("numpy")
        del os.environ[_OPENBLAS]  # a program that this command begins may want them
    if "polars" in sys.modules:
        return
    sys.modules.update({name: _NotUsed(name) for name in _NOT_USED})
    if _MASKED not in sys.modules and (numpy := sys.modules.get("numpy")):
        numpy.ma = sys.modules[_MASKED] = _Unmasked(_MASKED, numpy.False_)  # type: ignore[attr-defined]
    if apart and sum(map(_files_at, paths)) >= (os.cpu_count() or 1):
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    elif all(path.is_file() for path in paths):
        is_small = sum(path.stat().st_size for path in paths) <= _SMALL_BYTES
        os.environ.setdefault("POLARS_MAX_THREADS", "1" if is_small else "2")


def _files_at(path: Path) -> int:
    """How many files lie in a folder; what is no folder, or cannot be listed, counts as one."""
    try:
        return sum(1 for _ in path.iterdir())
    except OSError:
        return 1


class _NotUsed(ModuleType):
    """A part of Polars in which every name stands for nothing; what lies inside of it is the real one."""

    def __getattr__(self, name: str) -> list[str] | None:
        if name == "__path__":
            within = self.__name__.split(".")[1:]
            return [str(Path(place, *within)) for place in importlib.import_module("polars").__path__]
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class _Unmasked(ModuleType):
    """What Polars asks of NumPy's arrays with masks, of which there are none; all else the real module answers, which
    from then on stands in its place. `nomask` is the same object as there: another thread may ask for it in between."""

    def __init__(self, name: str, nomask: object) -> None:
        super().__init__(name)
        self.nomask = nomask
        self._loading = RLock()

    def getmask(self, values: object) -> object:
        """That of an array without one."""
        return self.nomask

    def is_masked(self, values: object) -> bool:
        """Whether it has one, as `numpy.unique` asks."""
        return False

    def getdata(self, values: object) -> object:
        """An array without a mask is its own data."""
        return values

    def __getattr__(self, name: str) -> Any:
        with self._loading:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return getattr(importlib.import_module(self.__name__), name)


class _Late:
    """A regular expression that is compiled when it is first used: of hundreds, most traces need a few."""

    def __init__(self, regex: str, flags: int = 0) -> None:
        self._of = regex, flags
        self._words_of = "" if flags else regex  # what must stand in a text that matches is known for plain ones

    def search(self, text: str, *place: int) -> re.Match[str] | None:
        """As of the compiled one, which is made for the first text that may match."""
        return self._search(text, *place) if may_match(self._words_of, text) else None

    @cached_property
    def _search(self) -> Callable[..., re.Match[str] | None]:
        return re.compile(*self._of).search

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        found = getattr(re.compile(*self._of), method)
        setattr(self, method, found)  # where it is found from now on
        return found


if TYPE_CHECKING:
    from re import compile as regex
else:
    regex = re.compile if PLAIN else _Late
