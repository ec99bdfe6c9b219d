"""An export folder: one Parquet or Arrow file per table (`nsys export --type parquetdir` or `arrowdir`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from timesink.errors import UnreadableTrace, extra
from timesink.knowledge.nsys_tables import ExportTable
from timesink.knowledge.profiler_texts import EVENT_TABLE
from timesink.model.trace import ImportNote
from timesink.readers.nsys import export as declared
from timesink.readers.nsys.export import KNOWN, POLARS_TYPE, Keep
from timesink.records import Record, field
from timesink.untrusted.budget import TEXT_CHARACTERS, ReadLimits, way_out

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".parquet", ".arrow")
_BATCH_ROWS = 65_536


class Folder(Record):
    """An export folder. `files` names the file of each known table, `tables` its columns."""

    path: Path
    files: Mapping[str, Path]
    tables: Mapping[str, frozenset[str]]
    limits: ReadLimits
    notes: list[ImportNote] = field(default_factory=list)

    def read(self, source: ExportTable, keep: Keep | None = None) -> pl.DataFrame:
        """All rows of the table, or those to keep; damaged rows become notes, a damaged file `UnreadableTrace`."""
        columns = self.tables.get(source.name, frozenset())
        if not declared.readable(self.path, source, columns, self.notes):
            return declared.no_rows(source)
        wanted = [name for name in source.columns if name in columns]
        parts, size, damaged_cells = [], 0, 0
        with _blamed(self.files[source.name]):
            for batch in _batches(self.files[source.name], wanted):
                batch.validate(full=True)
                size += batch.get_total_buffer_size()  # `nbytes` knows no string views before Arrow 22
                if size > (most := self.limits.unpacked_bytes):
                    what = f"it unpacks to more than {most:,} bytes"
                    raise UnreadableTrace(self.files[source.name], what, remedy=way_out(size, most))
                frame = pl.DataFrame(_bare(batch))
                typed = _typed(frame, source)
                damaged_cells += _nulls(typed) - _nulls(frame)
                parts.append(declared.kept_rows(typed, source, keep))
        self.notes.extend(declared.spoiled_note(source, damaged_cells))
        return declared.complete_columns(
            pl.concat(parts, rechunk=True) if parts else declared.no_rows(source), source, self.notes
        )


def table_files(path: Path) -> dict[str, Path]:
    """The file of each table in a folder, whether we know the table or not."""
    return {file.stem: file for file in sorted(path.iterdir()) if file.suffix in SUFFIXES and file.is_file()}


def is_export_folder(path: Path) -> bool:
    """Whether the folder holds at least one table that only Nsight Systems writes."""
    return path.is_dir() and bool(KNOWN & set(table_files(path)))


def open_folder(path: Path, limits: ReadLimits) -> Folder:
    """Look at the schema of every known table. `UnreadableTrace` where a file is damaged, `UsageError` without pyarrow,
    which alone holds up on damaged files: Polars takes what they say of their own layout on trust."""
    extra("pyarrow", "arrow")
    every = table_files(path)
    files = {name: file for name, file in every.items() if name in KNOWN}
    if not files:
        raise UnreadableTrace(
            path,
            "no table of an Nsight Systems export in this folder",
            remedy="export the report: nsys export --type parquetdir REPORT.nsys-rep",
        )
    tables = {name: _columns(file) for name, file in files.items()}
    unread = [name for name in every if name not in KNOWN and EVENT_TABLE.fullmatch(name)]
    return Folder(path, files, tables, limits, list(declared.unread_note(unread)))


def _columns(file: Path) -> frozenset[str]:
    import pyarrow.parquet

    with _blamed(file):
        if file.suffix == ".parquet":
            names = pyarrow.parquet.read_schema(file).names
        else:
            with file.open("rb") as stream:
                names = _arrow_reader(stream).schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UnreadableTrace(file, f"damaged: two columns are named {twice[0]}", remedy="export the report again")
    return frozenset(names)


def _batches(file: Path, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow.parquet

    if file.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(_BATCH_ROWS, columns=columns)
        return
    with file.open("rb") as stream:
        reader = _arrow_reader(stream)
        if isinstance(reader, pyarrow.ipc.RecordBatchStreamReader):
            yield from (batch.select(columns) for batch in reader)
        else:
            yield from (reader.get_batch(at).select(columns) for at in range(reader.num_record_batches))


def _bare(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Without what Arrow allows and Polars takes on trust, which a damaged file can make it crash on.

    The notes other programs attach to columns need not be UTF-8; what a view or a dictionary's index holds where the
    value is null need not point anywhere, and Arrow's own check leaves it out.
    """
    import pyarrow

    return pyarrow.RecordBatch.from_arrays([_owned(column) for column in batch.columns], names=batch.schema.names)


def _owned(column: pyarrow.Array) -> pyarrow.Array:
    """The column with nothing where it is null."""
    import pyarrow

    values = column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column
    if not values.null_count or not _is_view(values.type):
        return values
    validity, views, *texts = values.buffers()
    cleared = np.frombuffer(views, np.uint64).reshape(-1, 2).copy()  # a view is 16 bytes: length, prefix, place
    cleared[values.offset : values.offset + len(values)][values.is_null().to_numpy(zero_copy_only=False)] = 0
    buffers = [validity, pyarrow.py_buffer(cleared), *texts]
    return pyarrow.Array.from_buffers(values.type, len(values), buffers, values.null_count, values.offset)


def _is_view(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string_view(kind) or pyarrow.types.is_binary_view(kind))


def _arrow_reader(stream: object) -> pyarrow.ipc.RecordBatchFileReader | pyarrow.ipc.RecordBatchStreamReader:
    """A reader of either Arrow layout: the file one begins with its magic word."""
    import pyarrow

    source = pyarrow.PythonFile(stream, mode="r")
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return pyarrow.ipc.open_file(source) if is_file else pyarrow.ipc.open_stream(source)


def _typed(frame: pl.DataFrame, source: ExportTable) -> pl.DataFrame:
    """Our types. A number that does not fit, or a word where a number belongs, becomes null."""
    return frame.select(_as(name, frame.schema[name], source) for name in frame.columns)


def _nulls(frame: pl.DataFrame) -> int:
    return sum(frame.null_count().row(0))


def _as(name: str, dtype: pl.DataType, source: ExportTable) -> pl.Expr:
    wanted = POLARS_TYPE[source.columns[name]]
    if dtype.is_nested() or dtype == pl.Binary:  # casting would reach into the parts
        return pl.repeat(None, pl.len(), dtype=wanted).alias(name)
    if wanted == pl.String:
        return pl.col(name).cast(pl.String, strict=False).str.slice(0, TEXT_CHARACTERS)
    if dtype == pl.UInt64 and wanted == pl.Int64:
        return pl.col(name).reinterpret(signed=True)  # serialized ids and addresses use the top bit
    return pl.col(name).cast(wanted, strict=False)


@contextmanager
def _blamed(file: Path) -> Iterator[None]:
    """Turn what the Arrow library says of a damaged file into an error that names it."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableTrace(file, f"damaged: {reason[:200]}", remedy="export the report again") from error
