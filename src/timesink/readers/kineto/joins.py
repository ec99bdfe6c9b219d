"""Launches joined to what they ran in files that give neither side a correlation.

Some tools write Kineto's events without it. Two other things join them: arrows of the timeline, which go from a launch
to its work under one number, and the external id, which a launch and its work have in common; where several launches
have one, the first ran what began first, and so on. Such a file is read once more, whole.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge.calls import LAUNCH, CallKind, call_kinds
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import ImportNote, NoteKind, noted
from timesink.readers.kineto.decoded import DecodedTrace
from timesink.units import NS_PER_US
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.plain_json import parsed
from timesink.untrusted.unpack import unpacked_whole

_HELD: Final = ReadLimits(held_bytes=256 << 20)  # of a larger file the events are not joined
_Place = tuple[int, int, int]  # process, thread, start_ns; of device work: device, stream, start_ns


def join_launches(
    decoded: DecodedTrace, calls: pl.DataFrame, ops: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[ImportNote, ...]]:
    """Calls and device work with correlations, where the file has none, and a note on how they were found; as they are
    where it has some, or nothing joins them."""
    if not calls.height or not ops.height or ops["correlation"].null_count() < ops.height:
        return calls, ops, ()
    events = _events(decoded)
    called = dict(zip(calls.select("process", "thread", "start_ns").rows(), range(calls.height), strict=True))
    ran = dict(zip(ops.select("device", "stream", "start_ns").rows(), range(ops.height), strict=True))
    launching = _launching(calls)
    pairs, how = _by_arrow(decoded, events, calls, called, ran), "arrows"
    if not pairs:
        pairs, how = _by_external_id(decoded, events, called, ran, launching), "external id"
    if not pairs:
        what = "launches and GPU work cannot be joined: neither correlation nor external id nor arrow is in the file"
        return calls, ops, noted(NoteKind.DATA_LOSS, what, ops.height, DEVICE_OPS, whole=True)
    number: dict[int, int] = {}
    for call, _ in pairs:
        number.setdefault(call, len(number) + 1)
    of_call: list[int | None] = [number.get(row) for row in range(calls.height)]
    of_op: list[int | None] = [None] * ops.height
    for call, op in pairs:
        of_op[op] = number[call]
    said = f"launches are joined to GPU work by {how}: the file has no correlation"
    return (
        calls.with_columns(pl.Series("correlation", of_call, pl.Int64)),
        ops.with_columns(pl.Series("correlation", of_op, pl.Int64)),
        noted(NoteKind.ASSUMED, said, len(pairs), DEVICE_OPS),
    )


def _events(decoded: DecodedTrace) -> list[Mapping[str, Any]]:
    """The file's events; none where it is too large, or cut off."""
    with suppress(UnreadableTrace, ValueError):
        value = parsed(unpacked_whole(decoded.path, _HELD, "")[0], strict=False)
        events = value.get("traceEvents") if isinstance(value, dict) else value
        return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    return []


def _launching(calls: pl.DataFrame) -> set[int]:
    """Rows of calls that put work onto a device."""
    copies = pl.Series([kind in (CallKind.COPY, CallKind.COPY_BLOCKING) for kind in call_kinds(calls["name"])])
    return set((matches(calls["name"], LAUNCH) | copies).arg_true().to_list())


def _start_ns(decoded: DecodedTrace, event: Mapping[str, Any]) -> int | None:
    ts = event.get("ts")
    return decoded.base_ns + round(ts * NS_PER_US) if isinstance(ts, int | float) else None


def _place(event: Mapping[str, Any], start_ns: int | None) -> _Place | None:
    """Where an event stands: on a thread of a process, or on a stream of a device."""
    args = event.get("args")
    own = args if isinstance(args, dict) else {}
    track, lane = own.get("device", event.get("pid")), own.get("stream", event.get("tid"))
    if not isinstance(track, int) or not isinstance(lane, int) or start_ns is None:
        return None
    return track, lane, start_ns


def _by_external_id(
    decoded: DecodedTrace,
    events: Iterable[Mapping[str, Any]],
    called: Mapping[Any, int],
    ran: Mapping[Any, int],
    launching: set[int],
) -> list[tuple[int, int]]:
    """Pairs of rows of calls and of device work that have one external id, in order of time."""
    sides: tuple[defaultdict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
    for event in events:
        args = event.get("args")
        place = _place(event, _start_ns(decoded, event)) if event.get("ph") == "X" else None
        external = args.get("External id", args.get("external id")) if isinstance(args, dict) else None
        if place is None or not isinstance(external, int):
            continue
        if (op := ran.get(place)) is not None and isinstance(args, dict) and "stream" in args:
            sides[1][external].append(op)
        elif (call := called.get(place)) is not None and call in launching:
            sides[0][external].append(call)
    calls, ops = sides
    return [
        pair
        for external in sorted(calls.keys() & ops.keys())
        for pair in zip(sorted(calls[external]), sorted(ops[external]), strict=False)
    ]


def _by_arrow(
    decoded: DecodedTrace,
    events: Iterable[Mapping[str, Any]],
    calls: pl.DataFrame,
    called: Mapping[Any, int],
    ran: Mapping[Any, int],
) -> list[tuple[int, int]]:
    """Pairs of rows that an arrow of one number leaves and reaches: it leaves within the call, and reaches the work
    where that begins."""
    heads: dict[Any, list[int]] = {}
    tails: dict[Any, int] = {}
    by_thread: defaultdict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, (process, thread, start, end) in enumerate(
        calls.select("process", "thread", "start_ns", "end_ns").rows()
    ):
        by_thread[process, thread].append((start, end, number))
    for event in events:
        phase, arrow = event.get("ph"), event.get("id")
        if phase not in ("s", "f") or arrow is None or (place := _place(event, _start_ns(decoded, event))) is None:
            continue
        if phase == "f" and (op := ran.get(place)) is not None:
            heads.setdefault(arrow, []).append(op)
        elif phase == "s":
            own = by_thread[place[0], place[1]]
            within = (row for start, end, row in reversed(own) if start <= place[2] <= end)
            if (call := called.get(place, next(within, None))) is not None:
                tails[arrow] = call
    return sorted((tails[arrow], op) for arrow in heads.keys() & tails.keys() for op in heads[arrow])
