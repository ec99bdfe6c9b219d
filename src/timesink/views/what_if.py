"""The tables of `timesink plan --change`: prices, what limits the step next, and the paths behind the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timesink.diagnosis.pricing import price_change
from timesink.errors import UsageError
from timesink.fixes.words import GRAMMAR, Asked
from timesink.measures.timeline.replay import calibrated_pricers, step_without_profiler_ns
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.views.page import Page, Sheet, declare, sheet_of
from timesink.whatif.change import Change, Together
from timesink.whatif.critical_path import PathShare
from timesink.whatif.pricing import Pricer

_PATH = declare("rank, per_step_ns: per step, kind: on the path [name], name [name]")
_NOTHING: tuple[float, ...] = (0.0, 0.0, 0.0)
_NEXT_ROWS, _PATH_ROWS = 5, 20  # as many as people try; a screenful


def grammar_page() -> Page:
    """What can be changed."""
    rows = tuple((name, verb.form, verb.prices) for name, (_, verb) in GRAMMAR.items())
    columns = declare("verb: change [name], form: written [text], doc: prices [text]")
    return Page("Changes that can be priced", (Sheet("changes", "Changes", columns, rows),))


def what_if_page(trace: Trace, changes: Sequence[Asked], unprofiled_step_ms: float | None, explain_cost: bool) -> Page:
    """Prices per rank, of each change and of all together. `UsageError` where no step was found."""
    if unprofiled_step_ms is not None:
        trace = trace.with_unprofiled_step(unprofiled_step_ms * NS_PER_MS)
    ranks = calibrated_pricers(trace)
    if not ranks:
        raise UsageError(
            f"no complete step was found in {trace.source}, and a price is per step",
            remedy="mark steps with prof.step() or an NVTX range, and record at least three",
        )
    made = {rank: [(change.label, change.changes(trace, rank)) for change in changes] for rank in ranks}
    together = {rank: Together(tuple(part for _, parts in named for part in parts)) for rank, named in made.items()}
    sheets = [_prices(trace, made), _paths(ranks, together, "next", "What limits the step then", _NEXT_ROWS)]
    if explain_cost:
        sheets.append(_paths(ranks, {}, "path_before", "The path that bounds the step as it is", _PATH_ROWS))
        sheets.append(_paths(ranks, together, "path_after", "The path after the change", _PATH_ROWS))
        sheets.append(_trust(ranks))
    return Page(f"What if, in {trace.source}", tuple(sheets))


def _prices(trace: Trace, made: Mapping[int, Sequence[tuple[str, Sequence[Change]]]]) -> Sheet:
    columns = declare(
        "rank, change [name], step_ns: step, new_step_ns: new step, gain_ns: gain, low_ns: low, high_ns: high, "
        "priced_by [text], remark [text]"
    )
    rows = []
    for rank, named in sorted(made.items()):
        pricer = calibrated_pricers(trace)[rank]
        step_ns, best = step_without_profiler_ns(trace, rank), _NOTHING
        every = Together(tuple(change for _, changes in named for change in changes))
        whole = ("all together: " + ", ".join(label for label, _ in named), (every,))
        for label, changes in [*named, whole] if len(named) > 1 else named:
            gain, by, remark = _gain(trace, pricer, rank, changes)
            if changes == (every,):  # no less than the best of them, which may have been priced without a replay
                gain = gain and tuple(map(max, gain, best))
            best = tuple(map(max, gain or _NOTHING, best))
            known = (step_ns - gain[0], *gain) if gain else (None,) * 4  # one per column
            rows.append((rank, label, step_ns, *known, by, remark))
    note = "gains of several changes overlap, so only the last row adds them up"
    several = any(len(named) > 1 for named in made.values())
    return Sheet("prices", "What each change wins per step", columns, tuple(rows), note if several else "")


def _gain(
    trace: Trace, pricer: Pricer, rank: int, changes: Sequence[Change]
) -> tuple[tuple[float, ...] | None, str, str]:
    """What a change wins (gain, low and high in ns, None where the trace cannot be replayed), how that was found, and a
    remark. Of a fix on several devices, what it wins on the one where that is most."""
    priced = [worth for change in changes if (worth := price_change(change, rank, trace)) is not None]
    replays = [pricer.price(change) for change in changes]
    if not any(replay.matched for replay in replays):
        return _NOTHING, "", "nothing in these steps matches"
    if not priced:
        return None, "", f"refused: {replays[0].refused}"
    most, replay = max(priced, key=lambda worth: worth.gain.value), replays[0]
    gain = most.gain.value, most.gain.low or 0.0, most.gain.high or most.gain.value
    doubt = f"doubtful: {replay.refused}" if replay.refused else f"bounded: {replay.bounded}" if replay.bounded else ""
    return tuple(ms * NS_PER_MS for ms in gain), most.by, doubt if most.by == "replay" else ""


def _paths(ranks: Mapping[int, Pricer], changes: Mapping[int, Change], key: str, title: str, count: int) -> Sheet:
    rows = []
    for rank, pricer in sorted(ranks.items()):
        shares: tuple[PathShare, ...] = pricer.next_path(changes[rank]) if changes else pricer.path()
        rows += [(rank, share.ns, share.kind, share.name or None) for share in shares[:count]]
    return Sheet(key, title, _PATH, tuple(rows), "critical path: shares of the chain of events that sets the pace")


def _trust(by_rank: Mapping[int, Pricer]) -> Sheet:
    columns = (
        "rank, steps: steps replayed, residual_ratio: unexplained, kappa: host time left by calibration, "
        "inferred: waits inferred, dropped: edges dropped"
    )
    rows = []
    for rank, pricer in sorted(by_rank.items()):
        graph = pricer.graph
        inferred = int(graph.program.releases.inferred.sum() + graph.program.events.inferred.sum())
        known = (len(pricer.anchors.windows), pricer.residual_ratio, round(graph.kappa, 3), inferred)
        rows.append((rank, *known, graph.network.dropped))
    note = "above 5 % unexplained, nothing is priced"
    return sheet_of("trust", "What the replay rests on", rows, columns, note)
