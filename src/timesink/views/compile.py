"""The tables of `timesink compile`: exact counts, graph breaks, functions, phases."""

from __future__ import annotations

from timesink.measures.compile.summary import CompileSummary, FrameSummary, compile_counters, compile_summary
from timesink.model.tables import COMPILE_EVENTS
from timesink.model.trace import Trace
from timesink.views.page import RANK, Field, Fields, Page, Sheet, figures, first_rows, sheet_of

FILE = Field("file", "file", is_name=True)
LINE = Field("line", "line", unit="1")
FUNCTION = Field("function", "function", is_name=True)
REASON = Field("reason", "reason")
COUNT = Field("count", "times", unit="1")
TIME = Field("time_ns", "time", unit="ns")


def compile_page(trace: Trace, top: int) -> Page:
    """Counts first; then what the log says, where there is one."""
    sheets = [_counts(trace)]
    if COMPILE_EVENTS in trace:
        log = compile_summary(trace)
        sheets += [_breaks(log, top), _functions(log, top), _caches(log), _phases(log, top)]
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count})" for note in trace.notes)
    return Page(f"Compilation in {trace.source}", tuple(sheets), notes)


def _counts(trace: Trace) -> Sheet:
    rows = tuple(compile_counters(trace).known().items())
    note = "" if COMPILE_EVENTS in trace else "no log beside the trace: TORCH_TRACE=folder names every break and guard"
    return Sheet("counts", "Counts", (Field("name", "count of"), Field("value", "value", unit="1")), rows, note)


def _breaks(log: CompileSummary, top: int) -> Sheet:
    rows = tuple((at.rank, at.file, at.line, at.function, at.reason, at.count) for at in log.breaks)
    return first_rows(Sheet("breaks", "Graph breaks", (RANK, FILE, LINE, FUNCTION, REASON, COUNT), rows), top)


def _functions(log: CompileSummary, top: int) -> Sheet:
    columns: Fields[FrameSummary] = (
        *(RANK, FUNCTION, FILE, LINE),
        *figures(compilations="compiled"),
        (TIME, lambda frame: frame.compile_ns),
        *figures(recompilations="again", late_recompilations="late"),
        *(Field("guard", "guard that failed most"), *figures(guards="guards"), Field("eager", "runs eagerly")),
    )
    note = "late: after every function had been compiled once"
    return first_rows(sheet_of("functions", "Functions", log.frames, columns, note), top)


def _caches(log: CompileSummary) -> Sheet:
    rows = tuple((name.removeprefix("cache_"), count) for name, count in log.caches.items())
    return Sheet("caches", "Compiler caches", (Field("event", "event"), COUNT), rows)


def _phases(log: CompileSummary, top: int) -> Sheet:
    columns = (Field("phase", "phase", is_name=True), TIME, COUNT)
    rows = tuple(log.phases)
    return first_rows(Sheet("phases", "Phases of compilation", columns, rows, "phases lie inside each other"), top)
