"""Files that hold several ranks: some servers and scripts write the traces of all ranks as one.

A rank stands in the process ids: in words before the number (``[TP01-DP00] 4242``, ``rank1/4242``, ``Rank 1: 4242``) or
as a great number added to it (1004242, and GPU 0 as process 1000000); or each is a process of its own, whose calls and
GPU work bear numbers of their own. Such a file is split, and each rank read by itself. Where nothing tells the ranks
apart, nothing true can be said of them, and the file is refused.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Self

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge.profiler_texts import (
    BETWEEN_EVENTS,
    DIGITS,
    EVENTS_BEGIN,
    LAST_NUMBER,
    PROCESS_OF_EVENT,
    RANK_IN_BRACKETS,
    RANK_NAMED,
)
from timesink.model.tables import API_CALLS, DEVICE_OPS, SOURCES
from timesink.model.trace import NoteKind, Trace, noted
from timesink.readers.kineto.decoded import decode
from timesink.readers.kineto.tables import to_trace
from timesink.readers.ranks import join_traces
from timesink.records import Record, replace
from timesink.untrusted import shortened
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.unpack import UnpackedFile, unpacked_whole

_ONE_EACH: Final = "give the file of each rank: timesink diagnose rank0.json rank1.json"
_HELD_BYTES: Final = 1 << 30  # such a file is held as text
_LEAST_OFFSET: Final = 1000  # no machine has as many GPUs
_LONGEST, _BY_CHANCE = 40, 8
_BETWEEN = re.compile(BETWEEN_EVENTS.strip("^$"))
_AROUND: Final = " \t/:;,.-_|#@="
_ON_DEVICE: Final = ("kernel", "memcpy", "memset")
_CALLS: Final = ("runtime", "driver")


def read_merged(path: Path, limits: ReadLimits, whole: Trace) -> Trace:
    """The trace of all ranks in the file; `whole`, which is the file read as of one rank, where it holds one.

    `UnreadableTrace` where it holds several and nothing tells them apart.
    """
    calls = whole.get(API_CALLS)
    if not whole.get(DEVICE_OPS).height or not calls.height:
        return whole
    if seems_shared(calls["process"].unique().to_list()) and (merged := _Merged.read(path, limits)):
        return merged.split(path, limits)
    if _stand_twice(calls):
        message = "it holds the GPU work of several ranks, and nothing tells whose is whose"
        raise UnreadableTrace(path, message, remedy=_ONE_EACH)
    return whole


def seems_shared(callers: Collection[int]) -> bool:
    """Whether processes that call the GPU are several, or one's number is none: it has words before it."""
    return len(callers) > 1 or 0 in callers


def _stand_twice(calls: pl.DataFrame) -> bool:
    """Whether most numbers that link a call to GPU work are given to two calls of one name."""
    if 2 * calls["correlation"].n_unique() > calls.height + 1:
        return False
    each = calls.drop_nulls("correlation").group_by("correlation", "name").len()["len"]
    return int((each > 1).sum()) > max(len(each) / 2, _BY_CHANCE)


class _Event(Record):
    """One event: its text; its process as written; whether it is a call that launches or work of a GPU; that GPU; the
    number that links a call to its work."""

    text: str
    owner: str | int | None
    is_call: bool
    is_work: bool
    device: int
    correlation: int | None


_Marked = list[tuple[_Event, str, str | int]]
"""Events with the mark of their rank, and with the process id that is theirs without it."""


class _Merged(Record):
    """The events of a file of several ranks, and what stands before and behind them."""

    events: _Marked
    head: str
    tail: str

    @classmethod
    def read(cls, path: Path, limits: ReadLimits) -> Self | None:
        """The file, where its process ids tell ranks apart; else None."""
        smaller = replace(limits, held_bytes=min(limits.held_bytes, _HELD_BYTES))
        text = unpacked_whole(path, smaller, _ONE_EACH)[0].decode("utf-8", "replace")
        if not (begun := EVENTS_BEGIN.search(text)):
            return None
        events, end = _events(text, begun.end())
        marked = _by_words(events, _all_words) or _by_words(events, _mark) or _by_offsets(events) or _by_calls(events)
        return cls(marked, text[: begun.end()], text[end:]) if marked else None

    def split(self, path: Path, limits: ReadLimits) -> Trace:
        """Each rank's events read by themselves, as one trace."""
        marks = sorted({mark for _, mark, _ in self.events}, key=_in_order)
        stated = [int(found[1]) for mark in marks if (found := RANK_NAMED.fullmatch(mark))]
        ranks = stated if len(set(stated)) == len(marks) else list(range(len(marks)))
        traces = []
        for mark, rank in zip(marks, ranks, strict=True):
            own = (_named(event.text, number) for event, its, number in self.events if its == mark)
            text = f"{self.head}{','.join(own)}{self.tail}".encode()
            traces.append(to_trace(decode(UnpackedFile(path, limits, text)), "kineto_json").with_rank(rank))
        trace = replace(join_traces(traces, [path] * len(traces)), source=str(path))
        told = ", ".join(f"{rank} is {shortened(mark, _LONGEST)}" for mark, rank in zip(marks, ranks, strict=True))
        message = f"{len(marks)} ranks in one file, told apart by process ids: {shortened(told, 4 * _LONGEST)}"
        several = len(marks) if len(marks) > 1 else 0
        return trace.with_notes(*noted(NoteKind.ASSUMED, message, several, SOURCES, whole=True))


def _events(text: str, at: int) -> tuple[list[_Event], int]:
    """The events of an array that begins there, up to its end or to what is no JSON; and where that is."""
    read = json.JSONDecoder(strict=False).raw_decode
    found: list[_Event] = []
    while True:
        begin = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        try:
            event, at = read(text, begin)
        except (ValueError, RecursionError):
            return found, at
        if isinstance(event, dict):
            category, arguments, owner = str(event.get("cat")).lower(), event.get("args"), event.get("pid")
            facts = arguments if isinstance(arguments, dict) else {}
            device, correlation = facts.get("device"), facts.get("correlation")
            found.append(
                _Event(
                    text[begin:at],
                    owner if isinstance(owner, (str, int)) else None,
                    category.endswith(_CALLS),
                    category.endswith(_ON_DEVICE),
                    device if isinstance(device, int) else 0,
                    correlation if isinstance(correlation, int) else None,
                )
            )


def _by_words(events: list[_Event], mark: Callable[[str], tuple[str, str | int]]) -> _Marked | None:
    """Events by the words in their process ids that `mark` finds; None where those are not what tells ranks apart:
    every rank calls the GPU and has work on it."""
    marked = [(event, *mark(event.owner)) for event in events if isinstance(event.owner, str)]
    callers, workers = ({mark for event, mark, _ in marked if getattr(event, of)} for of in ("is_call", "is_work"))
    if not callers or callers != workers or "" in callers:
        return None
    if any(isinstance(event.owner, int) and (event.is_call or event.is_work) for event in events):
        return None
    return [row for row in marked if row[1] in callers]


def _all_words(owner: str) -> tuple[str, str | int]:
    """All words of a process id, where a rank stands among them (``node1 rank0 4242``), and the rest as in `_mark`."""
    mark, rest = _mark(owner)
    parts = "".join(char if char.isalnum() or char == "_" else " " for char in owner).split()
    words = " ".join(word for word in parts if word != str(rest))
    return (words if RANK_NAMED.search(owner) else mark), rest


def _mark(owner: str) -> tuple[str, str | int]:
    """The words of a process id that stand for a rank ("" where there are none), and the rest: its last number."""
    in_brackets = RANK_IN_BRACKETS.search(owner)
    if found := in_brackets or RANK_NAMED.search(owner):
        mark, rest = found[1] if in_brackets else f"rank {found[1]}", owner[: found.start()] + owner[found.end() :]
    else:
        last = LAST_NUMBER.search(owner)
        mark, rest = owner[: last.start()].strip(_AROUND) if last else "", owner
    number = LAST_NUMBER.search(rest)
    return mark.strip(), int(number[1][-9:]) if number else rest.strip()


def _by_offsets(events: list[_Event]) -> _Marked | None:
    """Events by what was added to their process ids, as those of GPU work show, which are else the numbers of GPUs."""
    added = {event.owner - event.device for event in events if event.is_work and isinstance(event.owner, int)}
    offsets = sorted(offset for offset in added if offset == 0 or offset >= _LEAST_OFFSET)
    if len(offsets) < 2 or len(offsets) < len(added):
        return None
    marked: _Marked = []
    for event in events:
        if isinstance(event.owner, int) and event.owner >= 0:
            rank = max(bisect_right(offsets, event.owner) - 1, 0)
            marked.append((event, f"rank {rank}", event.owner - offsets[rank]))
    callers = {mark for event, mark, _ in marked if event.is_call}
    return marked if len(callers) == len(offsets) else None


def _by_calls(events: list[_Event]) -> _Marked | None:
    """Events by the process that calls the GPU, where each is linked to work of its own; None where processes share
    numbers of calls. Work without a call is of the process that calls its GPU."""
    callers: dict[int | None, str | int | None] = {}
    for event in events:
        if event.is_call and callers.setdefault(event.correlation, event.owner) != event.owner:
            return None
    work = [event for event in events if event.is_work and event.correlation in callers]
    ranks, of_gpu = {callers[event.correlation] for event in work}, {e.device: callers[e.correlation] for e in work}
    marked: _Marked = []
    for event in events:
        at_gpu = callers.get(event.correlation, of_gpu.get(event.device))
        if (owner := at_gpu if event.is_work else event.owner) in ranks:
            marked.append((event, str(owner), event.owner or 0))
    return marked if len(ranks) > 1 else None


def _named(text: str, number: str | int) -> str:
    """The text of an event under another process id."""
    return PROCESS_OF_EVENT.sub(lambda _: f'"pid": {json.dumps(number)}', text, 1)


def _in_order(mark: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in words by their value."""
    return [(int(part[:9]) if part.isdigit() else -1, part) for part in re.split(DIGITS, mark)]
