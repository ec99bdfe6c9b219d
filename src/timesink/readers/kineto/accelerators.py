"""Work of accelerators that are no GPU. It is not read; where a file holds no GPU work, people are told what it holds.

Their profilers write categories of their own (``mtia_ccp_events``), which `decoded` counts, or events without one, on
tracks of a process that is named after the device (``Ascend Hardware``, labelled NPU).
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import Final

import numpy as np

from timesink.errors import UnreadableTrace
from timesink.knowledge.vendors import NO_GPU
from timesink.model.intervals import Intervals
from timesink.model.schema import CLOCK
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import ImportNote, NoteKind, noted
from timesink.readers.kineto.decoded import DecodedTrace
from timesink.startup import regex
from timesink.units import NS_PER_US, time_text
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import unpacked_whole

_LOOKED_THROUGH: Final = ReadLimits(held_bytes=64 << 20)  # of a larger file the tracks are not named
_IS_ACCELERATOR: Final = regex(NO_GPU)


def other_work(decoded: DecodedTrace) -> tuple[ImportNote, ...]:
    """Tracks of such devices, in words, with their tasks counted; none where the file has none."""
    found = _tracks(decoded) if decoded.counts["no_category"] else []
    said = f"work of an accelerator that timesink does not read: {', '.join(text for text, _ in found)}"
    return noted(NoteKind.SKIPPED, said, sum(count for _, count in found), DEVICE_OPS)


def _tracks(decoded: DecodedTrace) -> list[tuple[str, int]]:
    """``90 tasks of 'Ascend Hardware' (NPU), busy for 10.8 ms``, and how many, of each process named after a device."""
    try:
        document = parsed(unpacked_whole(decoded.path, _LOOKED_THROUGH, "")[0], strict=False)
    except (UnreadableTrace, ValueError):
        return []
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    names, tasks = defaultdict[str, list[str]](list), defaultdict[str, list[tuple[float, float]]](list)
    for event in listed if isinstance(listed, list) else ():
        match event:
            case {"name": "process_name" | "process_labels", "pid": process, "args": {**args}}:
                names[str(process)] += [str(value)[:60] for value in args.values()]
            case {"ph": "X", "pid": process, "ts": start, "dur": length} if not event.get("cat"):
                with suppress(TypeError, ValueError):
                    tasks[str(process)].append((float(start), float(start) + float(length)))
    return [
        (f"{len(own):,} tasks of {names[process][0]!r}{_labels(names[process])}, busy for {_busy_text(own)}", len(own))
        for process, own in sorted(tasks.items())
        if any(map(_IS_ACCELERATOR.search, names[process]))
    ]


def _labels(names: list[str]) -> str:
    return f" ({', '.join(names[1:])})" if names[1:] else ""


def _busy_text(times_us: list[tuple[float, float]]) -> str:
    """How long any of the tasks ran."""
    first_us = min(start for start, _ in times_us)
    times_ns = np.clip((np.array(times_us) - first_us) * NS_PER_US, 0, CLOCK[1]).round().astype(np.int64)
    return time_text(Intervals.union_of(times_ns[:, 0], times_ns[:, 1]).total_ns)
