"""What the change of a step comes from, joined by the work that asked for it; the parts sum to it to the nanosecond.

Work is the same where operator, shapes and place (module, else range) are the same, and where a kernel without operator
stands where another stood; what is left over is joined by operator and shapes, by operator, by kernel, and last by
family or place. A joined work that launches more often costs the new launches at their price; the rest is what each
launch costs more. Waiting for launches is split likewise.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from timesink.knowledge.kernels import KernelFamily, decode
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.steps import work
from timesink.measures.steps.work import BETWEEN_KERNELS, StepWork
from timesink.verify.apportioning import apportion
from timesink.verify.by_place import places
from timesink.verify.outcomes import ChangedWork, ChangeKind, Contribution, StepChange


class WorkName(NamedTuple):
    """Work as one side names it: of kernels without an operator `op` is empty and `shapes` the launch size."""

    op: str
    shapes: str
    place: str


class Side(NamedTuple):
    """What a work costs on one side, per step: time, runs of its operator, launches, and time by kernel."""

    total_ns: int
    calls: float
    launches: float
    kernels: Mapping[str, int]

    @property
    def kernel(self) -> str:
        """The kernel with most of the time."""
        return max(self.kernels, key=lambda name: (self.kernels[name], name), default="")


class Joined(NamedTuple):
    """One work on both sides; `level` is the join that found it: 0 by its place in the step, past the last where one
    side has none."""

    name: WorkName
    before: Side
    after: Side
    level: int

    @property
    def delta_ns(self) -> int:
        """What it adds to the change of the step."""
        return self.after.total_ns - self.before.total_ns


_NOTHING: Final = Side(0, 0.0, 0.0, {})
Sides = dict[WorkName, Side]
_PLACED, _SAME, _SHAPES, _KERNEL = 0, 2, 4, 5
"""Levels up to which work is joined by place, is the same, has other shapes, has the same kernel."""


def _family(name: WorkName, side: Side) -> object:
    family = decode(side.kernel).family
    return None if family is KernelFamily.OTHER else (family, name.place)


def _by_operator(*parts: str) -> Callable[[WorkName, Side], object]:
    """Those parts of the name of work; of kernels without an operator the kernel in its place."""
    return lambda name, side: (name.op or side.kernel, *(getattr(name, part) for part in parts))


LEVELS: Final[Sequence[Callable[[WorkName, Side], object]]] = (
    _by_operator("shapes", "place"), _by_operator("shapes"), _by_operator("place"), _by_operator(),
    lambda _, side: side.kernel, _family, lambda name, _: name.place or None,
)  # fmt: skip


_ALONE: Final = len(LEVELS) + 1
Places = Mapping[WorkName, int]
"""A number for each work that is joined by its place in the step."""
_UNPLACED: Final[tuple[Places, Places]] = ({}, {})


def _by_place(placed: Places) -> Callable[[WorkName, Side], object]:
    return lambda name, _: placed.get(name)


def join_work(before: Sides, after: Sides, placed: tuple[Places, Places] = _UNPLACED) -> Iterator[Joined]:
    """Each work of either side once, by its place, else by the first of `LEVELS` that has it on both; what several
    share is one work."""
    left = dict(before), dict(after)
    for level in range(len(LEVELS) + 1):
        keys = (LEVELS[level - 1], LEVELS[level - 1]) if level else (_by_place(placed[0]), _by_place(placed[1]))
        found: tuple[dict[object, list[WorkName]], ...] = (defaultdict(list), defaultdict(list))
        for side, names, key in zip(left, found, keys, strict=True):
            for name, cost in side.items():
                if (of_name := key(name, cost)) is not None:
                    names[of_name].append(name)
        for shared in [one for one in found[0] if one in found[1]]:
            sides = [_sum(side.pop(name) for name in names[shared]) for side, names in zip(left, found, strict=True)]
            largest = found[1][shared][0]
            yield Joined(largest, sides[0], sides[1], level)
    for name, cost in left[0].items():
        yield Joined(name, cost, _NOTHING, _ALONE)
    for name, cost in left[1].items():
        yield Joined(name, _NOTHING, cost, _ALONE)


def _sum(sides: Iterable[Side]) -> Side:
    total_ns, calls, launches, kernels = 0, 0.0, 0.0, defaultdict[str, int](int)
    for side in sides:
        total_ns, calls, launches = total_ns + side.total_ns, calls + side.calls, launches + side.launches
        for name, spent_ns in side.kernels.items():
            kernels[name] += spent_ns
    return Side(total_ns, calls, launches, kernels)


class PartOfStep(NamedTuple):
    """One work on both sides, of a kind of `measures.steps.work`; of idle time `cause` is why, and `name.op` who."""

    kind: str
    cause: str
    joined: Joined


class Explanation(NamedTuple):
    """The change of the mean step, taken apart once: `changes` by what it comes from, `contributions` by work, `budget`
    by kind of time; each sums to it. `joined_ratio` is the share of both sides' compute joined by operator or kernel,
    and shapes, or by place; `placed_ratio` that by place alone; `alone_ratio` what one side only has. None where no
    compute is recorded."""

    changes: tuple[StepChange, ...]
    contributions: tuple[Contribution, ...]
    budget: tuple[Contribution, ...]
    joined_ratio: float | None
    placed_ratio: float | None
    alone_ratio: float | None


def explained_change(before: StepWork, after: StepWork) -> Explanation:
    """Every view of a comparison reads this."""
    parts = list(_parts(before, after))
    by_level = Counter[int]()
    for part in parts:
        if part.kind == work.COMPUTE:
            by_level[part.joined.level] += part.joined.before.total_ns + part.joined.after.total_ns
    compute_ns, of_shares = by_level.total(), (range(_SAME + 1), (_PLACED,), (_ALONE,))
    ratios = [sum(by_level[level] for level in levels) / compute_ns if compute_ns else None for levels in of_shares]
    contributions, budget = (
        _summed((named(part), part.joined) for part in parts) for named in (_name, lambda part: _KINDS[part.kind])
    )
    return Explanation(_changes(parts), contributions, tuple(sorted(budget, key=lambda one: one.name)), *ratios)


def _parts(before: StepWork, after: StepWork) -> Iterator[PartOfStep]:
    """Everything that a step is made of on either side, once; what took no time on both is left out."""
    rows = [_per_step(side) for side in (before, after)]
    in_order = places(before.order, after.order)
    numbered = [{_work_name(*one): number for one, number in side.items()} for side in in_order]
    for kind in (work.COMPUTE, work.COMMUNICATION, work.COPY):
        old, new = (_works(side, kind) for side in rows)
        placed = (numbered[0], numbered[1]) if kind == work.COMPUTE else _UNPLACED
        yield from (PartOfStep(kind, "", joined) for joined in join_work(old, new, placed))
    yield from _idle(rows, [side.launches / max(side.step_count, 1) for side in (before, after)])


def _changes(parts: Iterable[PartOfStep]) -> tuple[StepChange, ...]:
    """All kinds of change, those that go the way of the step first, the largest first."""
    found: dict[tuple[ChangeKind, str], list[ChangedWork]] = defaultdict(list)
    for part in parts:
        for kind, cause, one in _OF_KIND.get(part.kind, _whole)(part):
            found[kind, cause].append(one)
    made = [
        StepChange(kind, cause, sum(one.delta_ns for one in works), tuple(sorted(works, key=_size)))
        for (kind, cause), works in found.items()
        if any(one.delta_ns for one in works)
    ]
    sign = 1 if sum(one.delta_ns for one in made) >= 0 else -1
    return tuple(sorted(made, key=lambda one: (-sign * one.delta_ns, one.kind, one.cause)))


def _size(one: ChangedWork) -> tuple[int, str, str]:
    return -abs(one.delta_ns), one.op, one.shapes


def _summed(named: Iterable[tuple[str, Joined]]) -> tuple[Contribution, ...]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, one in named:
        sums[name][0] += one.before.total_ns
        sums[name][1] += one.after.total_ns
    return tuple(Contribution(name, *both) for name, both in sums.items() if any(both))


_KINDS: Final = {
    work.COMPUTE: "compute", work.COMMUNICATION: "exposed communication", work.COPY: "exposed copy", work.IDLE: "idle",
}  # fmt: skip


def _name(part: PartOfStep) -> str:
    """``compute: aten::mm [[8,8],[8,8]] in model.head``, or ``idle: input pipeline``."""
    (op, shapes, place), before, after, _ = part.joined
    if part.kind == work.IDLE:
        return f"idle: {place}"
    fate = " (new)" if not (before.launches or before.total_ns) else ""
    fate = fate or (" (vanished)" if not (after.launches or after.total_ns) else "")
    told = f"{op} {shapes}".strip() if op else shapes.strip()
    return f"{_KINDS[part.kind]}: {told}{f' in {place}' if place else ''}{fate}".removesuffix(": ")


Row = tuple[str, str, str, str, str, str, str, int, float, float]


def _per_step(side: StepWork) -> list[Row]:
    """kind, cause, op, shapes, place, kernel, grid, whole nanoseconds, runs of the operator and launches per step."""
    frame, steps = side.frame, max(side.step_count, 1)
    shares = apportion(frame["total_ns"].to_list(), steps)
    counts = [(frame[name] / steps).to_list() for name in ("calls", "count")]
    texts = frame.drop("total_ns", "count", "calls").rows()
    return [(*row, *figures) for row, *figures in zip(texts, shares, *counts, strict=True)]


def _work_name(kernel: str, grid: str, place: str) -> WorkName:
    """A kernel without an operator is work of its own."""
    return WorkName("", f"{kernel} {grid}", place)


def _works(rows: Iterable[Row], wanted: str) -> Sides:
    gathered: dict[WorkName, list[Side]] = defaultdict(list)
    for kind, _, op, shapes, place, kernel, grid, total_ns, calls, launches in rows:
        if kind == wanted:
            name = WorkName(op, shapes, place) if op else _work_name(kernel, grid, place)
            gathered[name].append(Side(total_ns, calls, launches, {kernel: total_ns}))
    return {name: _sum(sides) for name, sides in gathered.items()}


def _idle(rows: Sequence[list[Row]], calls: Sequence[float]) -> Iterator[PartOfStep]:
    """Idle time by cause and by who waits; `calls` launch on each side."""
    spent: list[dict[tuple[str, str], int]] = [defaultdict(int), defaultdict(int)]
    for side, own in zip(spent, rows, strict=True):
        for kind, cause, op, *_, total_ns, _, _ in own:
            if kind == work.IDLE:
                side[cause, op] += total_ns
    kernels = [sum(row[-1] for row in side if row[0] != work.IDLE) for side in rows]
    for cause, op in dict.fromkeys([*spent[0], *spent[1]]):
        counts = calls if cause in LAUNCHING_CAUSES else kernels if cause in BETWEEN_KERNELS else (0.0, 0.0)
        before, after = (
            Side(side.get((cause, op), 0), count, count, {}) for side, count in zip(spent, counts, strict=True)
        )
        yield PartOfStep(work.IDLE, cause, Joined(WorkName(op, "", IDLE_WORDS.get(cause, cause)), before, after, 1))


Piece = tuple[ChangeKind, str, ChangedWork]


def _whole(part: PartOfStep) -> Iterator[Piece]:
    """Communication and copies, by what they do."""
    kind = ChangeKind.COMMUNICATION if part.kind == work.COMMUNICATION else ChangeKind.COPIES
    yield kind, "", _changed(part.joined, part.joined.delta_ns)


def _taken_apart(part: PartOfStep) -> Iterator[Piece]:
    """Runs of the operator more or fewer at their price, and what each of the others costs more: of the same shapes
    launches more or fewer in a run are other kernels, and so is all of it where they share none of weight, or where one
    stands in another's place."""
    joined = part.joined
    _, before, after, level = joined
    if level > _KERNEL:
        is_kernel = level == _KERNEL + 1 and not joined.name.op
        kind = ChangeKind.OTHER_KERNELS if is_kernel else ChangeKind.OTHER_OPERATORS
        yield kind, "", _changed(joined, joined.delta_ns)
        return
    calls = before.calls, after.calls
    called_ns = more_cost(before, after, calls, calls)
    pieces = {ChangeKind.LAUNCHES: called_ns}
    left_ns = joined.delta_ns - called_ns
    if _SAME < level <= _SHAPES:
        pieces[ChangeKind.OTHER_SHAPES] = left_ns
    else:
        same, in_common = level > _PLACED and same_kernels(before, after), min(before.calls, after.calls)
        launched = [side.launches * in_common / side.calls if side.calls else 0.0 for side in (before, after)]
        of_all = before.launches, after.launches
        pieces[ChangeKind.OTHER_KERNELS] = more_cost(before, after, launched, of_all) if same else left_ns
        pieces[ChangeKind.SLOWER] = left_ns - pieces[ChangeKind.OTHER_KERNELS]
    yield from ((kind, "", _changed(joined, time_ns)) for kind, time_ns in pieces.items() if time_ns)


def more_cost(before: Side, after: Side, counts: Sequence[float], of_all: Sequence[float]) -> int:
    """Nanoseconds of what one side has more of, at what one of all that this side has costs there."""
    more = counts[1] - counts[0]
    dearer, every = (after, of_all[1]) if more > 0 else (before, of_all[0])
    return round(more * dearer.total_ns / every) if every else 0


def same_kernels(before: Side, after: Side) -> bool:
    """Whether kernels that both sides run take most of the time of both."""
    shared = before.kernels.keys() & after.kernels.keys()
    return all(2 * sum(side.kernels[name] for name in shared) >= side.total_ns for side in (before, after))


def _changed(joined: Joined, delta_ns: int) -> ChangedWork:
    name, before, after, _ = joined
    shapes = name.shapes if name.op else ""
    return ChangedWork(
        name.op, shapes, name.place, before.kernel, after.kernel, before.calls, after.calls,
        before.total_ns, after.total_ns, delta_ns,
    )  # fmt: skip


_IDLE_KINDS: Final = {
    "sync": ChangeKind.WAITS,
    "copy_staging": ChangeKind.COPIES,
    "dependency_copy": ChangeKind.COPIES,
    "dependency_communication": ChangeKind.COMMUNICATION,
}


def _of_idle(part: PartOfStep) -> Iterator[Piece]:
    """Blocking waits by who waits; waiting for launches by how many there are; other waiting by cause."""
    joined, (before, after) = part.joined, part.joined[1:3]
    counts = before.launches, after.launches
    if launched_ns := more_cost(before, after, counts, counts):
        yield ChangeKind.LAUNCHES, "", _changed(joined, launched_ns)
    kind = _IDLE_KINDS.get(part.cause, ChangeKind.WAITING)
    yield kind, part.cause if kind is ChangeKind.WAITING else "", _changed(joined, joined.delta_ns - launched_ns)


_OF_KIND: Final = {work.COMPUTE: _taken_apart, work.IDLE: _of_idle}
