"""What the numbers in an export stand for: threads, processes and their ranks, texts, members of enumerations.

A serialized id packs hardware id, virtual machine, process and thread: the process is in bits 24 to 47, the thread in
bits 0 to 23 (NVIDIA's export documentation, "Serialized process and thread identifiers"). Every text is kept once, in
`StringIds`, and referred to by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.knowledge import nsys_tables, profiler_texts
from timesink.knowledge.nsys_tables import ExportTable
from timesink.model.arrays import Int64Array
from timesink.model.schema import nulls
from timesink.model.tables import CopyKind, MemoryKind, SyncKind
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import Export
from timesink.records import Record

UNNAMED = "<unnamed>"
_DENSE_UP_TO = 1 << 24


class Strings(Record):
    """Distinct strings. Position 0 stands for a number that the export does not explain."""

    texts: tuple[str, ...]
    positions: npt.NDArray[np.uint32]
    ids: Int64Array

    @classmethod
    def read(cls, export: Export) -> Strings:
        """The strings of an export; where two rows claim one id, the first counts."""
        frame = export.read(nsys_tables.STRINGS).unique("id", keep="first", maintain_order=True).sort("id")
        distinct = dict.fromkeys((UNNAMED, *frame["value"].fill_null(UNNAMED)))
        at = {text: position for position, text in enumerate(distinct)}
        positions = np.array([at[text] if text else 0 for text in frame["value"].fill_null("")], dtype=np.uint32)
        return cls(tuple(distinct), positions, frame["id"].to_numpy())

    def names(self, ids: pl.Series) -> pl.Series:
        """Categorical text of each id; `<unnamed>` where the export has none."""
        return pl.Series(self.texts, dtype=pl.Categorical())[self._positions_of(ids)]

    def call_names(self, ids: pl.Series) -> pl.Series:
        """As `names`, without the API version that CUPTI appends: `cudaLaunchKernel_v7000` is `cudaLaunchKernel`.

        Driver symbols keep their suffix (`cuMemcpyHtoDAsync_v2`), because it is part of their name.
        """
        texts = [profiler_texts.API_VERSION.sub("", text) for text in self.texts]
        return pl.Series(texts, dtype=pl.Categorical())[self._positions_of(ids)]

    def of(self, ids: pl.Series) -> pl.Series:
        """Plain text of each id; null where the export has none."""
        return pl.Series([None, *self.texts[1:]], dtype=pl.String)[self._positions_of(ids)]

    def own_or_of(self, own: pl.Series, ids: pl.Series) -> pl.Series:
        """Each text that an event carries itself, else that of its id; null where there is neither."""
        return own.replace("", None).fill_null(self.of(ids)) if len(own) else own

    def unexplained(self, ids: pl.Series) -> int:
        """How many of the ids are null or explained by no row of `StringIds`."""
        return int((self._positions_of(ids) == 0).sum())

    def _positions_of(self, ids: pl.Series) -> npt.NDArray[np.uint32]:
        """Position of each id, 0 where it is unknown. Small ids look themselves up in a table of all ids."""
        values = ids.fill_null(-1).to_numpy()
        if not len(self.ids) or not len(values):
            return np.zeros(len(values), dtype=np.uint32)
        largest = int(self.ids[-1])
        if self.ids[0] >= 0 and largest < _DENSE_UP_TO:
            table = np.zeros(largest + 3, dtype=np.uint32)  # one unknown place before the ids and one after
            table[self.ids + 1] = self.positions
            return table.take(values + 1, mode="clip")
        at = np.minimum(np.searchsorted(self.ids, values), len(self.ids) - 1)
        return np.where(self.ids[at] == values, self.positions[at], 0).astype(np.uint32)


_BITS = 24
_MASK = (1 << _BITS) - 1
_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def process_of(ids: pl.Series) -> pl.Series:
    """Process of each serialized id; 0 where it is missing."""
    return pl.Series("process", (ids.fill_null(0).to_numpy() >> _BITS) & _MASK)


def thread_of(ids: pl.Series) -> pl.Series:
    """Thread of each serialized id; 0 where it is missing."""
    return pl.Series("thread", ids.fill_null(0).to_numpy() & _MASK)


class Ranks(Record):
    """The rank of each process that used a GPU. Other processes count as the lowest rank."""

    of_process: Mapping[int, int]

    @property
    def all(self) -> tuple[int, ...]:
        """Every rank, ascending; 0 where no process used a GPU."""
        return tuple(sorted(set(self.of_process.values()))) or (0,)

    def of(self, processes: pl.Series) -> pl.Series:
        """Rank of each process."""
        if len(self.all) == 1:
            return pl.Series("rank", [self.all[0]], dtype=pl.Int32).new_from_index(0, len(processes))
        known = np.array(sorted(self.of_process), dtype=np.int64)
        ranks = np.array([self.of_process[int(process)] for process in known], dtype=np.int32)
        values = processes.to_numpy()
        at = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return pl.Series("rank", np.where(known[at] == values, ranks[at], np.int32(self.all[0])).astype(np.int32))


def ranks_of(export: Export, strings: Strings, gpu_users: Sequence[tuple[int, int]], notes: list[ImportNote]) -> Ranks:
    """Ranks of the processes that used GPUs; `gpu_users` holds (process, lowest device it used).

    In this order: MPI's own table, the names MPI threads carry, for a single process its captured environment (only
    the number is taken), else the order of first device and process number, which a note states.
    """
    processes = [process for process, _ in sorted(gpu_users, key=lambda user: (user[1], user[0]))]
    by_process = _ranks_by_mpi(export, strings)
    stated = {process: by_process[process] for process in processes if process in by_process}
    if processes and len(set(stated.values())) == len(processes):
        return Ranks(stated)
    if len(processes) == 1:
        rank, variable = _rank_by_environment(export)
        if variable:
            message = f"rank {rank} is what {variable} said in the environment nsys was started in"
            notes.append(ImportNote(NoteKind.ASSUMED, message, 1))
        return Ranks({processes[0]: rank})
    if processes:
        listed = ", ".join(f"process {process} is rank {rank}" for rank, process in enumerate(processes))
        message = f"{len(processes)} processes used GPUs and the file names no ranks: {listed}, by first device"
        notes.append(ImportNote(NoteKind.ASSUMED, message, len(processes), whole=True))
    return Ranks({process: rank for rank, process in enumerate(processes)})


def _ranks_by_mpi(export: Export, strings: Strings) -> dict[int, int]:
    table = export.read(nsys_tables.MPI_RANKS)
    by_process = dict(zip(process_of(table["globalTid"]), table["rank"], strict=True))
    if not by_process:
        names = export.read(nsys_tables.THREAD_NAMES)
        texts = strings.of(names["nameId"])
        for process, text in zip(process_of(names["globalTid"]), texts, strict=True):
            if text and (match := profiler_texts.MPI_RANK.fullmatch(text)):
                by_process[process] = int(match[1])
    return by_process


def _rank_by_environment(export: Export) -> tuple[int, str]:
    """Rank and the variable that says it, or 0 and nothing. No other variable is kept."""
    ranks: dict[str, int] = {}
    for name, value in export.read(nsys_tables.CAPTURE_META).iter_rows():
        if name.endswith(":ENVIRONMENT_VARIABLE") and (match := profiler_texts.RANK_VARIABLE.fullmatch(value or "")):
            ranks.setdefault(match[1], int(match[2]))
    return next(((ranks[variable], variable) for variable in _VARIABLES if variable in ranks), (0, ""))


class Enumeration(Record):
    """What the numbers of a kind mean. `words` hold our word by NVIDIA's symbol, in the order of their numbers in
    exports of 2021 to 2026; an export's own table outranks them, whose symbols begin as `prefix` says."""

    source: ExportTable
    prefix: str
    words: Mapping[str, str]
    dtype: pl.Enum

    def words_of(self, export: Export, numbers: pl.Series) -> pl.Series:
        """The word of each number: an unknown one is `unknown`, a missing one null."""
        meanings = dict(enumerate(self.words.values()))
        for number, symbol in symbols(export, self.source).items():
            if (word := self.words.get(symbol.partition(self.prefix)[2])) is not None:
                meanings[number] = word
        words = numbers.replace_strict(meanings, default="unknown", return_dtype=self.dtype)
        return words.zip_with(numbers.is_not_null(), nulls(self.dtype, len(numbers)))


# What CUPTI calls the values of each enumeration, and the kinds that they are here.
_MEMORY: Final = {
    "PAGEABLE": "pageable", "PINNED": "pinned", "DEVICE": "device", "ARRAY": "array", "MANAGED": "managed",
    "DEVICE_STATIC": "device", "MANAGED_STATIC": "managed", "UNKNOWN": "unknown",
}  # fmt: skip
_COPY: Final = {
    "UNKNOWN": "unknown", "HTOD": "h2d", "DTOH": "d2h", "HTOA": "h2d", "ATOH": "d2h", "ATOA": "d2d", "ATOD": "d2d",
    "DTOA": "d2d", "DTOD": "d2d", "HTOH": "h2h", "PTOP": "p2p", "UVM_HTOD": "h2d", "UVM_DTOH": "d2h",
    "UVM_DTOD": "d2d",
}  # fmt: skip
_SYNC: Final = {
    "UNKNOWN": "unknown", "EVENT_SYNCHRONIZE": "event", "STREAM_WAIT_EVENT": "stream_wait_event",
    "STREAM_SYNCHRONIZE": "stream", "CONTEXT_SYNCHRONIZE": "device",
}  # fmt: skip
# CUDA_MEMOPR_MEMORY_KIND: 0 is pageable, 1 is pinned.
MEMORY = Enumeration(nsys_tables.MEMORY_KINDS, "MEMORY_KIND_", _MEMORY, MemoryKind)
# CUDA_MEMCPY_KIND. Arrays live on the device; unified-memory migrations count as what they move.
COPY = Enumeration(nsys_tables.COPY_KINDS, "MEMCPY_KIND_", _COPY, CopyKind)
SYNC = Enumeration(nsys_tables.SYNC_KINDS, "SYNCHRONIZATION_TYPE_", _SYNC, SyncKind)


def migrations(export: Export) -> frozenset[int]:
    """Numbers of copies that the driver made to migrate unified memory."""
    numbers = {number for number, symbol in symbols(export, nsys_tables.COPY_KINDS).items() if "_UVM_" in symbol}
    return frozenset(numbers or {number for number, word in enumerate(COPY.words) if word.startswith("UVM")})


def labels(export: Export, enumeration: ExportTable) -> dict[int, str]:
    """The labels of an enumeration, or its symbols where it has none; empty where the export has no such table."""
    return {number: label or name or "" for number, name, label in _members(export, enumeration).iter_rows()}


def symbols(export: Export, enumeration: ExportTable) -> dict[int, str]:
    """The symbols of an enumeration, empty where the export has none."""
    return {number: name for number, name, _ in _members(export, enumeration).iter_rows() if name}


def _members(export: Export, enumeration: ExportTable) -> pl.DataFrame:
    """Number, symbol and label of each member. The columns that refer to them hold 32 bits."""
    return export.read(enumeration).filter(pl.col("id").is_between(-(1 << 31), (1 << 31) - 1))
