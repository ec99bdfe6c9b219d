"""The lines from which a program called what torch.profiler recorded, added to the file that it wrote.

With stacks, a trace of torch.profiler names each Python function by the line of its definition. The line of the caller
is known to the profiler, too, but it does not write it: it stands in the tree of events, in memory, until the profiler
is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMBER = "timesinkCallLines"
"""The top-level member of the file: `start_ns` of calls, each as what it is later than the one before, and `line`."""
_LIBRARIES = ("site-packages/", "dist-packages/", "lib/python", "torch/", "<", "timesink/")
_MOST = 2_000_000  # events; a longer recording goes without
_TAIL_BYTES = 4096


def add_call_lines(profile: Any, path: Path) -> bool:
    """Add to the JSON file the line of every call that was made outside of libraries. Whether any was.

    Without effect on a file that does not end as JSON does, and where torch keeps no tree or one that cannot be read.
    """
    try:
        roots = profile.profiler.kineto_results.experimental_event_tree()
        calls = sorted(_calls(roots))
    except (AttributeError, UnicodeDecodeError):  # torch may hand over a name that is no UTF-8
        return False
    if not calls:
        return False
    starts = [start for start, _ in calls]
    later = [start - before for start, before in zip(starts, [0, *starts], strict=False)]
    text = json.dumps({"start_ns": later, "line": [line for _, line in calls]}, separators=(",", ":"))
    with path.open("r+b") as file:
        file.seek(0, 2)
        begin = max(file.tell() - _TAIL_BYTES, 0)
        file.seek(begin)
        tail = file.read().rstrip()
        if not tail.endswith(b"}"):
            return False
        file.seek(begin + len(tail) - 1)
        file.write(f',\n  "{MEMBER}": {text}\n}}\n'.encode())
    return True


def _calls(roots: list[Any]) -> Iterator[tuple[int, int]]:
    """Start in ns and line of each call that a file of the program itself made."""
    left, seen = list(roots), 0
    while left and seen < _MOST:
        event = left.pop()
        seen += 1
        left += event.children
        caller = getattr(event.typed[1], "caller", None)
        if caller is not None and caller.line_number > 0 and not _is_library(caller.file_name):
            yield event.start_time_ns, caller.line_number


def _is_library(file: str) -> bool:
    return any(mark in file for mark in _LIBRARIES[:3]) or file.startswith(_LIBRARIES[3:])
