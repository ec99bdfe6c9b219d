"""What the change of a step comes from, in a sentence and in tables: the largest part first, then who could do it."""

from collections.abc import Iterator, Sequence
from typing import Final

from timesink.knowledge.kernel_names import short_names
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.units import NS_PER_S, time_text
from timesink.verify.outcomes import WITHOUT_PROFILER, ChangedWork, ChangeKind, GateResult, StepChange, summed_work
from timesink.views import Sheet, listed

_NAMED: Final = 3
_ALIKE, _ALIKE_STEP = 0.2, 0.02  # of the change, of the step: what two runs of one program differ by anyway
_SHOWN_WORKS: Final = 15
_WORDS: Final = {
    ChangeKind.SLOWER: ("the same kernels take longer", "the same kernels take less"),
    ChangeKind.OTHER_KERNELS: ("the same work takes other kernels", "the same work takes other kernels"),
    ChangeKind.LAUNCHES: ("more launches", "fewer launches"),
    ChangeKind.OTHER_SHAPES: ("the same operators have other shapes", "the same operators have other shapes"),
    ChangeKind.OTHER_OPERATORS: ("other operators", "other operators"),
    ChangeKind.WAITS: ("the program waits for the GPU longer", "the program waits for the GPU less"),
    ChangeKind.WAITING: ("the GPU waits longer", "the GPU waits less"),
    ChangeKind.COMMUNICATION: ("communication takes longer", "communication takes less"),
    ChangeKind.COPIES: ("copies take longer", "copies take less"),
}


def lead(result: GateResult) -> str:
    """``+3.40 ms a step. Largest part, +3.10 ms: more launches (aten::mul_ 0 → 250)``; "" of nothing taken apart.

    Where steps that were timed without the profiler change otherwise, it says by how much: the rest is the profiler's.
    """
    if not result.changes or result.changes[0].delta_ns == 0:
        return ""
    first, total_ns = result.changes[0], sum(one.delta_ns for one in result.changes)
    without = next((one for one in result.rows if one.name == WITHOUT_PROFILER), None)
    told = ""
    if without and without.before and without.after:
        timed_ns = round((without.after - without.before) * NS_PER_S)
        is_other = abs(timed_ns - total_ns) > max(_ALIKE * abs(total_ns), _ALIKE_STEP * without.before * NS_PER_S)
        told = f" ({_signed(timed_ns)} without the profiler)" if is_other else ""
    return f"{_signed(total_ns)} {per(result)}{told}. Largest part, {_signed(first.delta_ns)}: {words(first)}"


def start_up_lead(result: GateResult) -> str:
    """``+20.3 s before the first steady step: imports of torch +19.4 s``; "" where neither side tells of its start."""
    first = max(result.start_up, key=lambda part: abs(part.delta_ns), default=None)
    if first is None or not first.delta_ns:
        return ""
    total_ns = sum(part.delta_ns for part in result.start_up)
    return f"{_signed(total_ns)} before the first steady step: {_signed(first.delta_ns)} of {first.name}"


def per(result: GateResult) -> str:
    """What times are of: a step where both sides have steps, else each side's whole recording."""
    has_steps = all(row.before is not None and row.after is not None for row in result.rows[:1])
    return "a step" if has_steps else "in all that was recorded"


def words(change: StepChange) -> str:
    """The change in words, with what most of it is in."""
    told = _WORDS[change.kind][change.delta_ns < 0]
    if change.cause:
        told += f": {IDLE_WORDS.get(change.cause, change.cause)}"
    named = list(dict.fromkeys(text for one in _most(change.works, change.delta_ns) if (text := _work(change, one))))
    return f"{told} ({', '.join(named[:_NAMED])})" if named else told


def _most(works: Sequence[ChangedWork], delta_ns: int) -> Iterator[ChangedWork]:
    """Those that go the way of the change; of other operators both what came and what went."""
    return (one for one in works if one.delta_ns * delta_ns > 0)


def _work(change: StepChange, one: ChangedWork) -> str:
    """What is worth a name: work of the GPU, and who waits; idle time of a cause is named by that."""
    if change.kind is ChangeKind.WAITING or not (name := _name(one)):
        return ""
    if change.kind is ChangeKind.LAUNCHES:
        return f"{name} {_counts(one)}" if one.kernel_after or one.kernel_before else f"{_counts(one)} in all"
    if change.kind is ChangeKind.OTHER_OPERATORS:
        return f"{name} is new" if not one.before_ns else f"{name} is gone" if not one.after_ns else name
    return name


def _name(one: ChangedWork) -> str:
    kernel = one.kernel_after or one.kernel_before
    return one.op or (short_names([kernel])[kernel] if kernel else one.place)


def changes(result: GateResult) -> Sheet:
    """What the change comes from: every kind once, with its share of the whole."""
    total_ns = sum(one.delta_ns for one in result.changes)
    rows = [(words(one), one.delta_ns, one.delta_ns / total_ns if total_ns else None) for one in result.changes]
    unexplained_ns = sum(one.delta_ns for one in result.changes if one.cause == "unexplained")
    first = result.changes[0] if result.changes else None
    is_blind = first is not None and first.kind is ChangeKind.SLOWER and not any(one.op for one in first.works)
    doubt = "; no operator is recorded: other data of one launch size would look the same" if is_blind else ""
    note = f"sum: {_signed(total_ns)} {per(result)}, of which {_signed(unexplained_ns)} unexplained"
    return listed("gate.changes", rows, "; ".join([note, *_joined(result)]) + doubt)


def _joined(result: GateResult) -> Iterator[str]:
    """How much of both sides' compute is the same work, and why the rest is not."""
    if result.joined_ratio is None:
        return
    placed = round(100 * (result.placed_ratio or 0))
    if placed:
        yield f"{placed} % of compute is joined by its place in the step, since no operator is recorded"
    if (by_shapes := round(100 * result.joined_ratio) - placed) or not placed:
        yield f"{by_shapes} % of compute is joined by shapes"
    if alone := round(100 * (result.alone_ratio or 0)):
        yield f"{alone} % of compute is work of one side only"


def works(result: GateResult) -> Sheet:
    """The works that change most, whatever the kind; the last row is all others, so that the column sums to all."""
    found = [(one.kind.value, work) for one in result.changes for work in one.works]
    found.sort(key=lambda pair: (-abs(pair[1].delta_ns), pair[1].op, pair[1].shapes))
    shown, rest = found[:_SHOWN_WORKS], [work for _, work in found[_SHOWN_WORKS:]]
    if rest:
        shown.append(("", summed_work(rest)))
    short = short_names(name for _, work in shown for name in (work.kernel_before, work.kernel_after) if name)
    rows = [
        (work.op or short.get(work.kernel_after or work.kernel_before, ""), work.shapes, work.place, kind,
         _counts(work), work.before_ns, work.after_ns, work.delta_ns)
        for kind, work in shown
    ]  # fmt: skip
    if rest:
        rows[-1] = (f"{len(rest)} others", *rows[-1][1:])
    return listed("gate.works", rows)


def _counts(work: ChangedWork) -> str:
    if not (work.count_before or work.count_after):
        return ""
    before, after = f"{work.count_before:.4g}", f"{work.count_after:.4g}"
    return before if before == after else f"{before} → {after}"


def suspects(result: GateResult) -> Sheet:
    """Settings that the captures do not share, those that could make the first change first."""
    rows = ((one.name, one.before, one.after, "yes" if one.can_cause else "") for one in result.suspects)
    return listed("gate.suspects", rows)


def _signed(time_ns: int) -> str:
    return f"{'-' if time_ns < 0 else '+'}{time_text(abs(time_ns))}"
