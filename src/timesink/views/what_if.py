"""The tables of `timesink what-if`: prices, what limits the step next, and the paths behind the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timesink.errors import UsageError
from timesink.measures.timeline.replay import calibrated_pricers, pricers
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.views.page import RANK, Field, Fields, Page, Sheet, sheet_of
from timesink.whatif.changes import GRAMMAR, Change, Together
from timesink.whatif.critical_path import PathShare
from timesink.whatif.pricing import Price, Pricer

_PATH = (
    RANK,
    Field("per_step_ns", "per step", unit="ns"),
    Field("kind", "on the path", is_name=True),
    Field("name", "name", is_name=True),
)
_NEXT_ROWS, _PATH_ROWS = 5, 20


def grammar_page() -> Page:
    """What can be changed."""
    rows = tuple((verb, text.partition(" — ")[0], text.partition(" — ")[2]) for verb, text in GRAMMAR.items())
    columns = (Field("verb", "change", is_name=True), Field("form", "written"), Field("doc", "prices"))
    return Page("Changes that can be priced", (Sheet("changes", "Changes", columns, rows),))


def what_if_page(trace: Trace, changes: Sequence[Change], unprofiled_step_ms: float | None, explain_cost: bool) -> Page:
    """Prices per rank, of each change and of all together. `UsageError` where no step was found."""
    if unprofiled_step_ms is None:
        by_rank = pricers(trace)
    else:
        by_rank = calibrated_pricers(trace.with_unprofiled_step(unprofiled_step_ms * NS_PER_MS))
    if not by_rank:
        raise UsageError(
            f"no complete step was found in {trace.source}, and a price is per step",
            remedy="mark steps with prof.step() or an NVTX range, and record at least three",
        )
    together = changes[0] if len(changes) == 1 else Together(tuple(changes))
    priced = [*changes, together] if len(changes) > 1 else list(changes)
    sheets = [_prices(by_rank, priced), _paths(by_rank, together, "next", "What limits the step then", _NEXT_ROWS)]
    if explain_cost:
        sheets.append(_paths(by_rank, None, "path_before", "The path that bounds the step as it is", _PATH_ROWS))
        sheets.append(_paths(by_rank, together, "path_after", "The path after the change", _PATH_ROWS))
        sheets.append(_trust(by_rank))
    return Page(f"What if, in {trace.source}", tuple(sheets))


def _prices(by_rank: Mapping[int, Pricer], changes: Sequence[Change]) -> Sheet:
    columns = (
        RANK,
        Field("change", "change", is_name=True),
        Field("step_ns", "step", unit="ns"),
        Field("new_step_ns", "new step", unit="ns"),
        Field("gain_ns", "gain", unit="ns"),
        Field("low_ns", "low", unit="ns"),
        Field("high_ns", "high", unit="ns"),
        Field("remark", "remark"),
    )
    rows = []
    for rank, pricer in sorted(by_rank.items()):
        for change in changes:
            price = pricer.price(change)
            figures = (price.new_step_ns, price.gain_ns, price.low_ns, price.high_ns)
            shown = (None,) * 4 if price.refused else figures
            rows.append((rank, price.label, price.step_ns, *shown, _remark(price)))
    note = "a replay of the dependency graph; gains of several changes overlap, so only the last row adds them up"
    return Sheet("prices", "What each change wins per step", columns, tuple(rows), note if len(changes) > 1 else "")


def _remark(price: Price) -> str:
    if price.refused:
        return f"refused: {price.refused}"
    if not price.matched:
        return "nothing in these steps matches"
    return f"bounded: {price.bounded}" if price.bounded else ""


def _paths(by_rank: Mapping[int, Pricer], change: Change | None, key: str, title: str, count: int) -> Sheet:
    rows = []
    for rank, pricer in sorted(by_rank.items()):
        shares: tuple[PathShare, ...] = pricer.path() if change is None else pricer.next_path(change)
        rows += [(rank, share.ns, share.kind, share.name or None) for share in shares[:count]]
    return Sheet(key, title, _PATH, tuple(rows), "critical path: shares of the chain of events that sets the pace")


def _trust(by_rank: Mapping[int, Pricer]) -> Sheet:
    columns: Fields[tuple[int, Pricer]] = (
        (RANK, lambda item: item[0]),
        (Field("steps", "steps replayed", unit="1"), lambda item: len(item[1].anchors.windows)),
        (Field("residual_ratio", "unexplained", unit="ratio"), lambda item: item[1].residual_ratio),
        (Field("kappa", "host time left by calibration", unit="1"), lambda item: round(item[1].graph.kappa, 3)),
        (Field("inferred", "waits inferred", unit="1"), lambda item: _inferred_waits(item[1])),
        (Field("dropped", "edges dropped", unit="1"), lambda item: item[1].graph.network.dropped),
    )
    note = "above 5 % unexplained, nothing is priced"
    return sheet_of("trust", "What the replay rests on", sorted(by_rank.items()), columns, note)


def _inferred_waits(pricer: Pricer) -> int:
    program = pricer.graph.program
    return int(program.releases.inferred.sum() + program.events.inferred.sum())
