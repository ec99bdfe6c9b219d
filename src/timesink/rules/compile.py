"""Rules on compiled code: graphs in pieces, guards that fail again and again, time spent compiling."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.verdicts import Claim, Evidence, NotApplicable, Quantity, Where
from timesink.diagnosis.words import number, period_text
from timesink.fixes.advised import JOIN_GRAPHS
from timesink.measures.compile import broken_graphs, eager_islands
from timesink.measures.compile.summary import GraphBreak, compile_summary, compile_time
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps.per_step import per_step_ns, share_of_step
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.rules.kernels.waste import kernel_row
from timesink.whatif import Case

_SHOWN: Final = 3  # as many as fit in a sentence
_NOT_PRICED: Final = Quantity(0.0, "ms", low=0.0, high=None)


def _pieces(trace: Trace) -> Rows:
    """What joining the pieces of a device saves: memory passes, and idle time before the first kernel after a break."""
    devices = broken_graphs(trace)
    if not devices and not len(kernel_facts(trace).frame["fused"].drop_nulls()):
        return NotApplicable("no compiled region and no generated kernel is recorded")
    rows = []
    for graphs in devices:
        device, change = graphs.device, JOIN_GRAPHS.change(graphs)
        row = kernel_row(
            trace,
            change,
            change.launches_saved.at(Case.EXPECTED) * per_step_ns(trace, device, graphs.entry_idle),
            pieces=f"{graphs.in_a_row:.0f} generated pointwise kernels in a row"
            if graphs.regions is None
            else f"{graphs.regions:.0f} compiled regions of {graphs.graphs} graphs",
            period=period_text(trace, device),
        )
        saved = change.saved(trace, Case.HOPEFUL)
        claim = Claim({device: saved | graphs.idle}, expected={device: saved | graphs.entry_idle})
        rows.append(replace(row, claim=claim, fix=JOIN_GRAPHS))
    return rows


def _name_breaks(trace: Trace, row: Row, _: object) -> tuple[Mapping[str, Any], tuple[Evidence, ...]]:
    """What to do about the breaks, which are named where the compiler's log was read with the trace."""
    breaks = [
        f"{logged.file}:{logged.line} ({logged.reason})" for logged in compile_summary(trace).breaks if logged.file
    ]
    named = "; ".join(dict.fromkeys(breaks[:_SHOWN]))
    advice = "Remove the graph breaks that TORCH_LOGS=graph_breaks names; fullgraph=True makes a break an error."
    return {"advice": f"Remove the graph breaks that the log names: {named}." if named else advice}, ()


def _logged_breaks(trace: Trace) -> Rows:
    """A place is a place in the program here, on the first rank that has it; each has the breaks of all."""
    summary = compile_summary(trace)
    by_place = {(one.file, one.line, one.reason): one for one in reversed(summary.breaks)}
    return [
        Row(
            (one.rank, -1),
            {
                "breaks": float(summary.graph_breaks),
                "place": f"{one.file}:{one.line}" if one.file else "a place the log does not name",
                "count": one.count,
                "breaks_text": number(summary.graph_breaks, "graph break"),
                "share": one.count / max(summary.graph_breaks, 1),
                "are": "is" if one.count == 1 else "are",
                "reason": one.reason or "no reason logged",
            },
            stated=_NOT_PRICED,
            where=Where(rank=one.rank, file=one.file, line=one.line, op=one.function),
        )
        for one in by_place.values() or (GraphBreak(0, None, None, None, None, 0),)
    ]


def _guards(trace: Trace) -> Iterator[Row]:
    """A place is a function on a rank here; one that the compiler gave up is found in any case."""
    for function in compile_summary(trace).frames:
        given_up = function.eager is not None and function.eager.startswith("limit")
        late = min(function.guard_failures, function.late_recompilations)
        figures = {
            "failures": float(late),
            "function": function.function,
            "times": number(function.recompilations, "time"),
            "share": function.guard_failures / function.recompilations if function.recompilations else 0.0,
            "guard": function.guard or "not logged",
            "spent_ns": function.compile_ns or None,
            "given_up": function.eager if given_up else None,
        }
        where = Where(rank=function.rank, file=function.file, line=function.line, op=function.function)
        yield Row((function.rank, -1), figures, stated=_NOT_PRICED, where=where, verdict=given_up or None)


def _islands(trace: Trace) -> Iterator[Row]:
    given_up = [f"{frame.function} ({frame.eager})" for frame in compile_summary(trace).frames if frame.eager]
    logged = f"By the log, these run eagerly: {'; '.join(dict.fromkeys(given_up))}."
    advice = "Set TORCH_TRACE to see which functions run eagerly: timesink show compile lists them, with the reasons."
    for islands in eager_islands(trace):
        figures = {
            "kernel_ratio": islands.share,
            "idle_ratio": share_of_step(trace, islands.device, islands.idle),
            "per_step": islands.per_step,
            "operators": ", ".join(islands.operators),
            "advice": logged if given_up else advice,
        }
        where = Where(*islands.device, op=islands.operators[0] if islands.operators else None)
        yield Row(islands.device, figures, islands.idle, where=where, rows=tuple(islands.rows.tolist()))


def _compiling(trace: Trace) -> Rows:
    """A place is a rank here."""
    return [
        Row(
            (rank.rank, -1),
            {"compile_ratio": rank.share, "rank": rank.rank, "compile_ns": rank.compile_ns, "span_ns": rank.span_ns},
            stated=_NOT_PRICED,
            where=Where(rank=rank.rank),
        )
        for rank in compile_time(trace)
        if rank.compile_ns
    ]


RULES: Final = (
    declare("graph-breaks", _pieces, details=_name_breaks),
    declare("graph-breaks-logged", _logged_breaks),
    declare("recompilation-logged", _guards),
    declare("eager-islands", _islands),
    declare("compile-dominates", _compiling),
)
