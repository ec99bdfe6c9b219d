"""A trace: checked tables on one clock, and notes on what was lost on the way to them.

Measures build on measures: `remembered` takes each once per trace, however many others ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from functools import wraps
from threading import Lock
from typing import Any, Final, Self, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from timesink.errors import UsageError
from timesink.model.alignment import launching_calls
from timesink.model.presentable import Presentable
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, SETTINGS, SOURCES
from timesink.model.window import Window, cut, extent_ns
from timesink.records import Record, field, replace
from timesink.untrusted import shortened

_SHOWN: Final = 80  # characters of a path in a prompt


class NoteKind(StrEnum):
    """DAMAGE: the file is cut off or damaged, and only part of it was read. DATA_LOSS: it held something we could not
    keep. ASSUMED: we had to choose. SKIPPED: known and left out.
    """

    DAMAGE = "damage"
    DATA_LOSS = "data_loss"
    ASSUMED = "assumed"
    SKIPPED = "skipped"

    @property
    def is_loss(self) -> bool:
        """Whether the trace holds less than was recorded."""
        return self in (NoteKind.DAMAGE, NoteKind.DATA_LOSS)


class ImportNote(Record):
    """One thing the reader has to say about the import: `count` rows of `table` are concerned, `of` so many: those that
    were left out too, or those of a kind; 0 for all that the table has. No number goes before a message that is
    `whole`; any other begins with what is counted."""

    kind: NoteKind
    message: str
    count: int = 0
    table: str = ""
    of: int = 0
    whole: bool = False


def noted(
    kind: NoteKind, message: str, count: int, table: Table | str = "", of: int = 0, *, whole: bool = False
) -> tuple[ImportNote, ...]:
    """The note on so many rows of the table; none where it concerns none."""
    return (ImportNote(kind, message, count, str(table), of, whole),) if count else ()


class StepChoice(Record):
    """How the user wants steps told apart: by ranges, or else kernels, whose names match `pattern`; by the outermost
    loop of the kernels where that is None. `count` is how many steps there are, None where that is to be found."""

    pattern: str | None = None
    count: int | None = None


class LinkTime(Record):
    """A collective of `kind` over `ranks`, alone on the machine: `bytes` by nccl-tests' count, and its time."""

    kind: str
    ranks: int
    bytes: int
    time_ns: float


class Trace(Presentable, Record, eq=False, weakref=True):
    """Tables of one or more ranks. An absent table was not recorded; an empty table recorded that nothing happened.

    `source` names the file or files for people; times in every table are int64 nanoseconds on one clock. `cut_to` is
    what the trace was cut to, None for a whole recording. `step_choice` is how steps are told apart where the
    user says so. `unprofiled_step_ns` is how long a step takes without a
    profiler, as `timesink capture` or a person measured it and not as the files say; None where nobody did. The slowest
    rank sets it, as in a synchronous job; `unprofiled_steps_ns` are its steps, where each was timed. `facts` are what
    the run was, by name (resolution: 512), as its author said. `settings` are what no profiler records and the manifest
    of the capture has (threads: 16); none without a manifest. `start_up` is what the program spent its time on before
    the first steady step, as the manifest says: rank, kind, detail, nanoseconds. `link_times` are what collectives
    take on the machine of the run, as `timesink capture nccl-bench` measured them. `left_out` are numbers of steps that
    are not steady.
    """

    source: str
    tables: Mapping[Table, pl.DataFrame]
    notes: tuple[ImportNote, ...] = ()
    cut_to: Window | None = None
    unprofiled_step_ns: float | None = None
    step_choice: StepChoice | None = None
    unprofiled_steps_ns: tuple[float, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    start_up: tuple[tuple[int, str, str, int], ...] = ()
    link_times: tuple[LinkTime, ...] = ()
    left_out: frozenset[int] = frozenset()

    def __contains__(self, table: Table | str) -> bool:
        return any(own.name == table for own in self.tables) if isinstance(table, str) else table in self.tables

    def __getitem__(self, table: Table | str) -> pl.DataFrame:
        """The rows of a table, given by its declaration or its name; `KeyError` names those that were recorded."""
        if not isinstance(table, str):
            return self.tables[table]
        for own, frame in self.tables.items():
            if own.name == table:
                return frame
        raise KeyError(f"{table!r} is not recorded; the trace holds {', '.join(own.name for own in self.tables)}")

    def __repr__(self) -> str:
        rows = sum(frame.height for frame in self.tables.values())
        ranks = len(self.rank_numbers)
        what = f"{ranks} rank{'s' * (ranks != 1)}, {len(self.tables)} tables, {rows:,} rows"
        return f"<Trace {shortened(self.source, _SHOWN)}: {what}>"

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def get(self, table: Table) -> pl.DataFrame:
        """The table, or an empty one where it was not recorded: for measures that need no distinction."""
        frame = self.tables.get(table)
        return table.empty() if frame is None else frame

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        """The ranks in the trace, ascending; from `sources`, and from every table where there is none."""
        frames = [self[SOURCES]] if SOURCES in self else self.tables.values()
        return tuple(sorted({rank for frame in frames for rank in frame["rank"].unique()}))

    @property
    def holds_rows(self) -> bool:
        """Whether it tells of anything that happened, beside what the run was and where."""
        return any(own.height for table, own in self.tables.items() if table not in (SOURCES, SETTINGS, DEVICES))

    @property
    def passed_over(self) -> tuple[ImportNote, ...]:
        """What the reader counted and does not read."""
        return tuple(note for note in self.notes if note.kind is NoteKind.SKIPPED and note.count)

    @property
    def damage(self) -> tuple[str, ...]:
        """What is wrong with the files themselves, so that only part of them was read; empty for whole files."""
        return tuple(note.message for note in self.notes if note.kind is NoteKind.DAMAGE)

    @property
    def extent_ns(self) -> tuple[int, int] | None:
        """First and last moment of what was recorded, or None where nothing has a time (see `model.window`)."""
        if self.cut_to is not None:
            return self.cut_to.first_ns, self.cut_to.last_ns
        return extent_ns(self.tables)

    def between(self, start_ns: int, end_ns: int) -> Self:
        """The rows of the half-open window [start_ns, end_ns), each kept whole: device work that touches it, and the
        host's from the launch of the first kernel in it on (`model.window` says which and why). Steps it cuts count as
        truncated, and GPU time outside of it as neither busy nor idle.
        """
        first_ns, last_ns = self.extent_ns or (start_ns, end_ns)
        return self.within(Window(start_ns, end_ns, first_ns, last_ns))

    def within(self, window: Window) -> Self:
        """As `between`, where the window also says how long the recording is: as long as that of all ranks, say."""
        return replace(self, tables=cut(self.tables, window.start_ns, window.end_ns), cut_to=window)

    def of_ranks(self, ranks: Collection[int]) -> Self:
        """The rows of these ranks. `UsageError` for a rank that the trace does not hold."""
        absent = sorted(set(ranks) - set(self.rank_numbers))
        if absent:
            listed = ", ".join(map(str, self.rank_numbers))
            raise UsageError(f"no rank {', '.join(map(str, absent))}", remedy=f"choose from {listed}")
        chosen = pl.col("rank").is_in(list(ranks))
        return replace(self, tables={table: frame.filter(chosen) for table, frame in self.tables.items()})

    def with_rank(self, rank: int) -> Self:
        """The same rows under another rank. `UsageError` if the trace holds several ranks."""
        if len(self.rank_numbers) > 1:
            listed = ", ".join(map(str, self.rank_numbers))
            message = f"{self.source} holds ranks {listed}; one rank cannot stand for them"
            raise UsageError(message, remedy="leave rank out")
        return self.with_ranks_from(rank)

    def with_ranks_from(self, first: int) -> Self:
        """The same rows with the lowest rank called `first`, and each other one as far above it as before."""
        column = pl.col("rank") + (first - min(self.rank_numbers, default=first))
        return replace(self, tables={table: frame.with_columns(column) for table, frame in self.tables.items()})

    def linked_only(self) -> Self:
        """Without the device operations whose launch is not in the trace; a note says how many those are."""
        if DEVICE_OPS not in self:
            return self
        ops = self[DEVICE_OPS]
        linked = ops.filter(pl.Series(launching_calls(ops, self.get(API_CALLS)) >= 0))
        message = "GPU operations whose launch is not in the trace are left out (linked_only)"
        note = ImportNote(NoteKind.SKIPPED, message, ops.height - linked.height, DEVICE_OPS.name)
        return replace(self, tables={**self.tables, DEVICE_OPS: linked}).with_notes(note)

    def with_steps(self, choice: StepChoice) -> Self:
        """The same tables, with steps told apart as the user says."""
        return replace(self, step_choice=choice)

    def with_unprofiled_step(self, step_ns: float, steps_ns: tuple[float, ...] = ()) -> Self:
        """The same tables, to be held against that step time. Measures remember each of the two traces on its own."""
        return replace(self, unprofiled_step_ns=step_ns, unprofiled_steps_ns=steps_ns)

    def with_facts(self, facts: Mapping[str, str]) -> Self:
        """The same tables, with what else is known of the run."""
        return replace(self, facts={**self.facts, **facts})

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """The same tables, with what the run was set to."""
        return replace(self, settings=dict(settings))

    def with_start_up(self, parts: tuple[tuple[int, str, str, int], ...]) -> Self:
        """The same tables, with what the program spent its start on."""
        return replace(self, start_up=parts)

    def with_link_times(self, times: tuple[LinkTime, ...]) -> Self:
        """The same tables, with what collectives take on that machine."""
        return replace(self, link_times=times)

    def with_notes(self, *notes: ImportNote) -> Self:
        """The same trace with more to say about its import."""
        return replace(self, notes=(*self.notes, *notes))


Result = TypeVar("Result")


_RESULTS: Final[dict[Callable[[Trace], Any], WeakKeyDictionary[Trace, Any]]] = {}
_RELEASED: Final[dict[str, list[Callable[[Trace], Any]]]] = {}
MEASURES_AHEAD: Final[list[Callable[[Trace], Any]]] = []


def remembered(measure: Callable[[Trace], Result]) -> Callable[[Trace], Result]:
    """`measure`, computed at most once per trace and forgotten with it: of threads that ask at once one computes, and
    the others wait. A result must not hold the trace itself."""
    known: WeakKeyDictionary[Trace, Result] = WeakKeyDictionary()
    asked: WeakKeyDictionary[Trace, Lock] = WeakKeyDictionary()

    @wraps(measure)
    def recall(trace: Trace) -> Result:
        if trace not in known:
            with asked.setdefault(trace, Lock()):
                if trace not in known:
                    known[trace] = measure(trace)
        return known[trace]

    _RESULTS[recall] = known
    return recall


def release_after(topic: str) -> Callable[[Callable[[Trace], Result]], Callable[[Trace], Result]]:
    """Declares that rules after those of a topic (`KRN`) hardly ask for a `remembered` measure whose result weighs."""

    def declare(measure: Callable[[Trace], Result]) -> Callable[[Trace], Result]:
        _RELEASED.setdefault(topic, []).append(measure)
        return measure

    return declare


def release(topic: str, trace: Trace) -> None:
    """Let go of what weighs and no later topic of rules needs; it is computed again for whoever asks again. Not while
    another thread may ask."""
    for measure in _RELEASED.get(topic, ()):
        _RESULTS[measure].pop(trace, None)


def compute_ahead(measure: Callable[[Trace], Result]) -> Callable[[Trace], Result]:
    """Declares that a `remembered` measure takes long and most rules need it: it is begun before anybody asks."""
    MEASURES_AHEAD.append(measure)
    return measure
