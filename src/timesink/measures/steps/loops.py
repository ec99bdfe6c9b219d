"""The outermost loop of a sequence of GPU operations: what repeats, from where to where, and how surely.

A *kind* is a kernel's name and grid, or a copy's direction and size. Programs nest loops: layers within micro-batches
within steps. The kernels of a layer come back more often than those of the step, so the most frequent repetition is an
inner loop. What tells the loops apart are the *rare* kinds: an optimizer, an embedding or a loss occurs once in a step
and not once in a layer. Every kind therefore counts alike here, however often it occurs.

A loop is at home everywhere: at its own pace nearly every kind that comes back at all occurs in nearly every round,
equally often. At the pace of an inner loop the rare kinds of the outer one are absent from most rounds; at twice the
pace of the loop, rounds are as alike but fewer. So the loop sought is the one with the most rounds among those whose
share of kinds at home is the highest.

    kinds  E L L L O E L L L O E L L L O      E: embedding, L: layer, O: optimizer
    L      9 rounds, E and O in 3 of 8 only   1 of 3 kinds at home
    O      3 rounds, E, L and O in each       3 of 3 kinds at home: the step

(FALCON, arXiv 2410.12588, asks of the sequence of communication calls at which lag it repeats.)
"""

from typing import Final

import numpy as np

from timesink.knowledge.assumptions import steps as assumed
from timesink.model.arrays import BoolArray, Int64Array, median
from timesink.records import Record, replace

_CELLS_PER_OPERATION: Final = 4  # up to which counting in a table is quicker than sorting, and takes little memory
_PACES_TRIED: Final = 48  # a budget: those that most kinds return at
_KINDS_TRIED: Final = 8  # a budget: kinds whose occurrences may begin rounds


class OperationLoop(Record, eq=False):
    """One pace at which a sequence repeats.

    `starts`: where each round begins, as positions in the sequence, ascending; the last round may be cut off.
    `home_share`: of the kinds that come back, the share that occurs in nearly every round equally often, 0 to 1.
    `exact_share`: of the rounds of those kinds, the share in which they occur exactly as often as usual.
    """

    starts: Int64Array
    home_share: float
    exact_share: float

    @property
    def rounds(self) -> int:
        """How many rounds begin, the last one included."""
        return int(self.starts.size)


def loop_of(kinds: Int64Array, gaps_ns: Int64Array, rounds: int) -> OperationLoop | None:
    """The loop of about so many rounds (one more or less, for those cut off); None where nothing repeats so often."""
    near = [loop for loop in loops(kinds) if abs(loop.rounds - rounds) <= 1]
    if not near:
        return None
    loop = min(near, key=lambda loop: (abs(loop.rounds - rounds), -loop.exact_share))
    return replace(loop, starts=_begun(kinds, gaps_ns, loop.starts))


def candidates(kinds: Int64Array) -> list[OperationLoop]:
    """The loops that could be the outermost one, most rounds first: kinds are at home in them nearly as surely as in
    the best."""
    found = loops(kinds)
    best = max((loop.home_share for loop in found), default=0.0)
    least = max(best - assumed.NEARLY_AT_HOME.value, assumed.NEARLY_AT_HOME.value)
    return [loop for loop in found if loop.home_share >= least]


def outermost_loop(
    kinds: Int64Array, gaps_ns: Int64Array | None = None, updates: Int64Array | None = None
) -> OperationLoop | None:
    """The outermost loop of a sequence of kinds (small non-negative integers); None where nothing repeats surely.

    `updates` are positions of optimizers' work. A loop that has some in nearly every round is outermost even where a
    few kinds, a checkpoint's say, come in every third of its rounds.

    A round begins where the recording does, if the operation there comes back at the same place of every round. Else,
    with `gaps_ns`, the time before each operation in which nothing was launched, it begins with the operation that
    waits longest of those that occur once in a round: programs pause between steps, to fetch a batch or to read a loss.
    """
    found = [loop for loop in loops(kinds) if loop.exact_share >= assumed.EXACT_SHARE.value]
    best = max((loop.home_share for loop in found), default=0.0)
    if best < assumed.KINDS_AT_HOME.value:
        return None
    alike = [
        loop
        for loop in found
        if loop.home_share >= best - assumed.PACES_ALIKE.value
        or (loop.home_share >= assumed.KINDS_AT_HOME.value and _holds_most(loop.starts, updates))
    ]
    close = [loop for loop in alike if loop.rounds * assumed.PACES_CLOSE.value >= alike[0].rounds]
    loop = max(close, key=lambda loop: (loop.exact_share, loop.rounds))
    return replace(loop, starts=_begun(kinds, gaps_ns, loop.starts))


def _holds_most(starts: Int64Array, updates: Int64Array | None) -> bool:
    """Whether nearly every round holds one of these positions."""
    if updates is None:
        return False
    held = np.diff(np.searchsorted(updates, starts)) > 0
    return bool(held.mean() >= assumed.ROUNDS_AT_HOME.value)


def home_share(kinds: Int64Array, starts: Int64Array) -> float:
    """Of the kinds that come back the share that is at home in rounds that begin there; 0 where they do not span the
    sequence or are not about equally long."""
    if starts.size < assumed.REPEATS.whole or not _spans(starts, kinds.size) or not _is_regular(starts):
        return 0.0
    recurring = np.flatnonzero(np.bincount(kinds) >= assumed.REPEATS.whole)
    return _home_shares(kinds, recurring, starts)[0] if recurring.size else 0.0


def loops(kinds: Int64Array) -> list[OperationLoop]:
    """Every pace at which the whole sequence could repeat, most rounds first."""
    if kinds.size < 2 * assumed.REPEATS.whole:
        return []
    counts = np.bincount(kinds)
    first_at = np.zeros(counts.size, np.int64)
    first_at[kinds[::-1]] = np.arange(kinds.size)[::-1]
    recurring = np.flatnonzero(counts >= assumed.REPEATS.whole)
    recurring = recurring[np.argsort(first_at[recurring])]  # how kinds are numbered decides nothing
    found = []
    for rounds in _paces(counts[recurring]):
        starts = _steadiest(kinds, recurring[counts[recurring] == rounds])
        if _spans(starts, kinds.size) and _is_regular(starts):
            found.append(OperationLoop(starts, *_home_shares(kinds, recurring, starts)))
    return found


def _paces(counts: Int64Array) -> Int64Array:
    """Numbers of rounds worth trying, most first: counts of which the counts of many kinds are about a multiple."""
    rounds = np.unique(counts)[::-1]
    values, weight = np.unique(counts, return_counts=True)
    times = np.rint(values / rounds[:, None])
    off = np.abs(values - times * rounds[:, None])
    fits: BoolArray = (times >= 1) & (off <= times)
    best = np.argsort(-(fits * weight).sum(axis=1), kind="stable")[:_PACES_TRIED]
    return np.asarray(rounds[np.sort(best)], np.int64)


def _steadiest(kinds: Int64Array, candidates: Int64Array) -> Int64Array:
    """Positions of that of the first few candidates whose distances vary least; of equally steady ones the earliest."""
    best, least = np.empty(0, np.int64), (np.inf, 0)
    for kind in candidates[:_KINDS_TRIED]:
        positions = np.flatnonzero(kinds == kind)
        distances = np.diff(positions)
        variation = (float(distances.std() / distances.mean()), int(positions[0]))
        if variation < least:
            best, least = positions, variation
    return best


def _spans(starts: Int64Array, length: int) -> bool:
    """Whether rounds cover the recording: the ends may cut one round off on each side."""
    rounds = starts.size
    return bool((starts[-1] - starts[0]) * rounds >= assumed.SPAN.value * length * (rounds - 1))


def _is_regular(starts: Int64Array) -> bool:
    """Whether most rounds are about equally long, in operations."""
    distances = np.diff(starts)
    usual = median(distances)
    alike = np.abs(distances - usual) <= assumed.DISTANCE_TOLERANCE.value * usual
    return bool(alike.mean() >= assumed.ROUNDS_AT_HOME.value)


def _begun(kinds: Int64Array, gaps_ns: Int64Array | None, starts: Int64Array) -> Int64Array:
    """Where rounds of the same pace begin: with the recording's first operation, else after their longest pause.

    Work of some rounds only, a checkpoint say, shifts what follows it in them. So where a round begins is counted back
    from the first operation that occurs once in each.
    """
    rounds = starts.size - 1
    inside = kinds[starts[0] : starts[-1]]
    round_of = np.repeat(np.arange(rounds), np.diff(starts))
    once = [
        np.flatnonzero(kinds == kind)
        for kind in np.flatnonzero(np.bincount(inside) == rounds)
        if np.unique(round_of[inside == kind]).size == rounds
    ]
    first = min((at for at in once if at.size == starts.size), key=lambda at: int(at[0]), default=starts)
    moved: Int64Array = first - first[0] % int(median(np.diff(first)))
    if (kinds[moved] == kinds[0]).all():
        return moved
    if gaps_ns is None:
        return starts
    return max(once, key=lambda at: (median(gaps_ns[at[1:]]), -at[0]), default=starts)


def _home_shares(kinds: Int64Array, recurring: Int64Array, starts: Int64Array) -> tuple[float, float]:
    """Of the kinds seen in at least three rounds, the share that occurs in nearly all as often as usual; and of the
    rounds of these, the share in which they occur exactly as often.

    Cells are pairs of a kind and a round in which it occurs, held is how often:

        kind   round 0  1  2  3     usual   alike    at home
        E            1  1  1  1         1   4 of 4   yes
        O            1  0  0  1         1   2 of 4   no
    """
    rounds, pieces = starts.size - 1, starts.size + 1  # the pieces before the first and after the last round included
    index = np.full(int(kinds.max()) + 1, -1, np.int64)
    index[recurring] = np.arange(recurring.size)
    kind, piece = index[kinds], np.repeat(np.arange(pieces), np.diff(starts, prepend=0, append=kinds.size))
    cells, held = _counted((kind * pieces + piece)[kind >= 0], recurring.size * pieces)
    comes_back = np.bincount(cells // pieces, minlength=recurring.size) >= assumed.REPEATS.whole
    whole = (cells % pieces > 0) & (cells % pieces <= rounds)
    cells, held = cells[whole], held[whole]
    kind_of_cell = cells // pieces
    order = np.lexsort((held, kind_of_cell))
    kind_of_cell, held = kind_of_cell[order], held[order]
    present = np.bincount(kind_of_cell, minlength=recurring.size)
    first = np.cumsum(present) - present
    usual = np.zeros(recurring.size, np.int64)
    seen = np.flatnonzero(present)
    usual[seen] = held[first[seen] + present[seen] // 2]
    alike = np.bincount(kind_of_cell[held == usual[kind_of_cell]], minlength=recurring.size)
    at_home = comes_back & (alike >= assumed.ROUNDS_AT_HOME.value * rounds)
    if not at_home.any():
        return 0.0, 0.0
    rarest = at_home & (usual == usual[at_home].min())
    round_of_cell = (cells % pieces)[order]
    doubled = rarest[kind_of_cell] & (held >= 2 * usual[kind_of_cell])
    in_round = np.bincount(round_of_cell[doubled], minlength=pieces)
    if (2 * in_round > rarest.sum()).any():  # a round of two steps: this kind is not in every step
        return 0.0, 0.0
    in_round = np.bincount(round_of_cell[at_home[kind_of_cell]], minlength=pieces)[1 : rounds + 1]
    if (
        in_round < assumed.KINDS_IN_ROUND.value * at_home.sum()
    ).any():  # this kind comes without steps too, in an evaluation say
        return 0.0, 0.0
    return float(at_home.sum() / comes_back.sum()), float(alike[at_home].mean() / rounds)


def _counted(cells: Int64Array, cell_count: int) -> tuple[Int64Array, Int64Array]:
    """The distinct cells in order, and how often each occurs: by counting where a table of all cells is no larger than
    a few times the sequence, else by sorting."""
    if cell_count > _CELLS_PER_OPERATION * cells.size:
        return np.unique(cells, return_counts=True)
    held = np.bincount(cells, minlength=cell_count)
    occupied = np.flatnonzero(held)
    return occupied, held[occupied]
