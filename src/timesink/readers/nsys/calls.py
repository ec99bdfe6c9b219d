"""What host threads did: CUDA calls, operating-system calls, the profiler's own work, and when threads ran."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, OS_CALLS, PROFILER_OVERHEAD, THREAD_STATES, THREADS
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import enums
from timesink.readers.nsys.export import CALLS, CUDA_OVERHEAD, OS_RUNTIME, OVERHEAD, SCHEDULING, THREAD_NAMES
from timesink.readers.nsys.processes import process_of
from timesink.readers.nsys.session import Session, joined, unsorted

# TRACE_PROCESS_EVENT_CUDA_RUNTIME and _DRIVER, and _OS_RUNTIME: rows of other classes are no calls. They repeat a call
# for its back trace, or mark that profiling began and ended.
CUDA_CALL_CLASSES = (0, 1)
OS_CALL_CLASSES = (27,)
# OVERHEAD_CUPTI_BUFFER_FLUSH, _INSTRUMENTATION and _RESOURCE; the other types are CUDA's own work.
_PROFILERS_OWN = (3, 4, 5)


def api_calls(session: Session) -> pl.DataFrame:
    """`api_calls`, named without CUPTI's version suffix."""
    frame = _of_class(session, session.rows(CALLS), CUDA_CALL_CLASSES, API_CALLS)
    columns = {
        **session.whose(frame["globalTid"]),
        "name": session.strings.call_names(frame["nameId"]),
        "start_ns": frame["start"],
        "end_ns": frame["end"],
        "correlation": frame["correlationId"],
    }
    del frame
    return joined(API_CALLS, [unsorted(API_CALLS, columns)])


def os_calls(session: Session) -> pl.DataFrame:
    """`os_calls`."""
    frame = _of_class(session, session.rows(OS_RUNTIME), OS_CALL_CLASSES, OS_CALLS)
    columns = {**session.whose(frame["globalTid"]), "name": session.strings.names(frame["nameId"])}
    return joined(OS_CALLS, [unsorted(OS_CALLS, {**columns, "start_ns": frame["start"], "end_ns": frame["end"]})])


def _of_class(session: Session, frame: pl.DataFrame, classes: tuple[int, ...], table: Table) -> pl.DataFrame:
    """The rows of these event classes, and those without one."""
    called = frame["eventClass"].is_in(classes).fill_null(True)
    if called.all():
        return frame
    message = f"rows beside the {table} that are no calls: repeats for back traces, marks of the profiler"
    session.notes.append(ImportNote(NoteKind.SKIPPED, message, int((~called).sum()), table.name))
    return frame.filter(called)


def profiler_overhead(session: Session) -> pl.DataFrame:
    """`profiler_overhead`: nsys's own rows, and those of CUPTI that are the profiler's work, not CUDA's."""
    frame = session.rows(OVERHEAD)
    parts = [unsorted(PROFILER_OVERHEAD, _overhead(session, frame))]
    if session.has(CUDA_OVERHEAD):
        every = session.rows(CUDA_OVERHEAD)
        own = every["overheadType"].is_in(_profiler_types(session))
        parts.append(unsorted(PROFILER_OVERHEAD, _overhead(session, every.filter(own))))
        for name, count in session.strings.names(every.filter(~own)["nameId"]).value_counts(sort=True).iter_rows():
            message = f"overhead of CUDA itself, not of the profiler: {name}"
            session.notes.append(ImportNote(NoteKind.SKIPPED, message, count, CUDA_OVERHEAD.name))
    return joined(PROFILER_OVERHEAD, parts)


def _overhead(session: Session, frame: pl.DataFrame) -> dict[str, pl.Series | None]:
    return {
        **session.whose(frame["globalTid"]),
        "name": session.strings.names(frame["nameId"]),
        "start_ns": frame["start"],
        "end_ns": frame["end"],
        "correlation": frame["correlationId"] if "correlationId" in frame.columns else None,
    }


def _profiler_types(session: Session) -> list[int]:
    labels = enums.labels(session.export, "ENUM_CUPTI_OVERHEAD_TYPE")
    return sorted(number for number, label in labels.items() if "(Profiler)" in label) or list(_PROFILERS_OWN)


def scheduled(session: Session) -> pl.DataFrame:
    """Part of `thread_states`: when each thread was on a processor, and what it did between two such intervals.

    An interval whose other end lies outside the capture is left out. In file order, unsorted.
    """
    events = session.rows(SCHEDULING).sort("globalTid", "start", maintain_order=True)
    same = pl.col("globalTid") == pl.col("globalTid").shift(-1)
    turns = pl.col("isSchedIn") != pl.col("isSchedIn").shift(-1)
    spans = events.with_columns(pl.col("start").shift(-1).alias("end")).filter(same & turns)
    states = {
        number: label for number, label in enums.labels(session.export, "ENUM_SAMPLING_THREAD_STATE").items() if number
    }
    away = spans["threadState"].replace_strict(states, default="Unscheduled", return_dtype=pl.String)
    running = pl.Series(["Running"]).new_from_index(0, spans.height)
    columns = {
        **session.whose(spans["globalTid"]),
        "state": running.zip_with(spans["isSchedIn"] == 1, away.fill_null("Unscheduled")),
        "start_ns": spans["start"],
        "end_ns": spans["end"],
    }
    return unsorted(THREAD_STATES, columns)


def threads(session: Session, processes: frozenset[int]) -> pl.DataFrame:
    """`threads` of the processes that were traced; nsys lists those of the whole machine.

    A thread with several names gets the one of the lowest priority number: the program's own before the system's.
    """
    frame = session.export.read(THREAD_NAMES)
    frame = frame.with_columns(process_of(frame["globalTid"]), session.strings.of(frame["nameId"]).alias("name"))
    frame = frame.filter(pl.col("process").is_in(sorted(processes)) & (pl.col("name").fill_null("") != ""))
    frame = frame.sort("priority", maintain_order=True).unique("globalTid", keep="first", maintain_order=True)
    return THREADS.build({**session.whose(frame["globalTid"]), "name": frame["name"]})
