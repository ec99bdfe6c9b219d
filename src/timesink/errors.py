"""Every error timesink raises on purpose, and the import of libraries that only some people need.

The command line catches :class:`TimesinkError` and nothing else; anything else is a bug of ours. A message says what is
wrong, with the value, and `remedy` says what to do next.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_LINUX_ALONE: Final = {
    "win32": frozenset(("capture", "verify", "gate", "try", "fix", "try_", "verify_change", "profile", "recorder")),
    "darwin": frozenset(("try", "fix", "try_")),
}.get(sys.platform, frozenset())
"""What runs programs and cannot here: it needs locks, signals or sandboxes of Linux, which alone is tested."""


def missing_here(name: str) -> str:
    """Why a command or a public name does not work on this system; "" where it does."""
    works = "diagnose, show, kernels, plan, compare, ranks, memory, query and report read recordings here"
    return f"timesink {name} runs on Linux alone, not on {sys.platform}; {works}" if name in _LINUX_ALONE else ""


class TimesinkError(Exception):
    """Base of the tree. `remedy` is one sentence that begins with a verb."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback: where timesink noticed a wrong path helps nobody."""
        return [f"{type(self).__name__}: {self}"]


def told_briefly(function: Callable[..., Any]) -> Callable[..., Any]:
    """The public function, whose errors show the line that called it and none of ours."""

    @wraps(function)
    def door(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except TimesinkError as error:
            raise error.with_traceback(None) from None

    return door


class UsageError(TimesinkError):
    """The request makes no sense as asked: an unknown option value, code or column."""


class UnreadableTrace(TimesinkError):
    """A file that no reader can turn into a trace. `place` is a byte offset, a line or a table."""

    def __init__(self, path: Path | str, message: str, *, place: str = "", remedy: str = "") -> None:
        at = f" at {place}" if place else ""
        super().__init__(f"{path}{at}: {message}", remedy=remedy)
        self.path = Path(path)
        self.place = place


def cannot_read(path: Path, error: OSError) -> TimesinkError:
    """What to raise of an error that came while `path` was read: that of the file it names, which may be one of ours,
    such as one in a cache that somebody else empties."""
    what = error.strerror or str(error)
    named = error.filename if isinstance(error.filename, str) else str(path)
    if Path(named).absolute() != path.absolute():
        return UsageError(f"cannot read {named}: {what}", remedy="run it again; is the disk full?")
    return UnreadableTrace(path, what, remedy="check the path")


class SchemaViolation(TimesinkError):
    """A reader produced a frame that its table's declaration forbids: a bug in the reader."""


class MissingTool(TimesinkError):
    """A program timesink drives (nsys, ncu, nvidia-smi) is not on this machine."""


class ToolFailed(TimesinkError):
    """A program timesink drives ran and failed; the message carries its exit status."""


_FEW = 8


def unknown(kind: str, given: str, known: Mapping[str, str] | Iterable[str], listing: str = "") -> UsageError:
    """The error for a name that nothing has: it asks for the nearest ones, else lists them, else says what lists them.

    `known` are the names, or names with what is shown of each; `listing` is the command that lists all of them.
    """
    shown = dict(known) if isinstance(known, Mapping) else {name: name for name in known}
    every = list(dict.fromkeys(shown.values()))
    if question := did_you_mean(given, shown):
        remedy = f"{question} `{listing}` lists all" if listing else question
    elif len(every) <= _FEW or not listing:
        remedy = f"choose one of: {', '.join(every)}" if every else "there is none"
    else:
        remedy = f"`{listing}` lists all {len(every)}"
    return UsageError(f"no {kind} is called {given!r}", remedy=remedy)


def did_you_mean(given: str, known: Mapping[str, str]) -> str:
    """`did you mean A, B or C?`, of names that begin like the one given or are spelled much like it; else empty.

    `known` has what is shown of each name.
    """
    from difflib import get_close_matches

    lowered = {name.lower(): shown for name, shown in known.items()}
    wanted = given.strip().lower()
    begin_so = [name for name in lowered if wanted and name.startswith(wanted)]
    near = [*begin_so, *get_close_matches(wanted, lowered, n=3)]
    *others, last = list(dict.fromkeys(lowered[name] for name in near))[:3] or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def extra(module: str, name: str) -> ModuleType:
    """The module, or `UsageError` with the `pip` line for the libraries of that extra, which works from any install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise UsageError(
            f"this needs the library {missing}, which is not installed", remedy=f"pip install {_libraries(name)}"
        ) from error


def _libraries(extra_name: str) -> str:
    """What the installed package's extra of that name lists, quoted for a shell."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires("timesink") or []
    except PackageNotFoundError:
        listed = []
    wanted = [line.partition(";")[0].strip() for line in listed if f'extra == "{extra_name}"' in line.replace("'", '"')]
    return " ".join(f"'{line}'" for line in wanted) or f"'timesink[{extra_name}]'"
