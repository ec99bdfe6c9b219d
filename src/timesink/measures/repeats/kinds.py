"""What kind a repetition is, as far as a trace tells: no trace says which tensor an operator was given.

What tells, in this order: ranges of loaders and optimizers; shapes of parameters (those whose gradients are gathered)
and how often one pass has each; an operand that grows; a state that is read and left; an index that rises from unit to
unit, a split before or a join behind; values that are read.
"""

import json
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.op_class import communicates
from timesink.knowledge.ranges import OPTIMIZER_STEP
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.repeats.order import BACKWARD, HOST, IDLE, INSIDE, CallOrder
from timesink.measures.repeats.search import LEAST, LONGEST, UnitRun
from timesink.measures.repeats.states import CALLS_READ, CUTS, Call, Shape, carried, shapes_of
from timesink.measures.timeline.attribution import push_pop_ranges, range_nesting
from timesink.model.arrays import Float64Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.records import Record


class Kind(StrEnum):
    """What a unit repeats over, in the words of an answer."""

    LOADER = "a loader in the program's own process"
    PER_PARAMETER = "one parameter at a time"
    LAYERS = "layers, each with weights of its own"
    STEPS = "steps of an optimizer"
    EXCHANGES = "exchanges between ranks"
    SIDE_BY_SIDE = "alike models side by side"
    GROWS = "a sequence, over what grows"
    MAY_DEPEND = "a sequence, it may be"
    ONE_AT_A_TIME = "one sample, head or expert at a time"
    MICRO_BATCHES = "one micro-batch at a time"
    READS = "a value that the CPU reads each time"
    PYTHON = "Python, with hardly any operators"
    UNTOLD = "untold"


class KindTold(Record):
    """A kind, and what showed it."""

    kind: Kind
    because: str


_WEIGHTED: Final = ("linear", "conv", "addmm", "matmul", "::mm", "bmm", "embedding", "_norm", "einsum", "lstm", "gru")
_SPLITS, _JOINS = ("unbind", "split", "chunk"), ("::cat", "stack")
_READS: Final = ("item", "Synchronize", "is_nonzero", "_local_scalar_dense")
_LOOKED_BEFORE, _LOOKED_BEHIND = 40, 12  # events around a run in which a split or a join is looked for
_OWN_WEIGHTS: Final = 1.5  # times that a weight is used in a row: about once where each unit has its own
_FEW: Final = 3  # units or steps of a number: fewer show no trend
_HARDLY: Final = 0.25  # of the CPU's time
_SIZES: Final = 3  # of grids for each kernel of a unit, where each unit has another parameter
_LEAST_PARTS: Final = 4  # that a dimension is split into
_JOINED: Final = 8  # of so many units one may lack where their results are joined
_MOSTLY: Final = 0.8  # of the changes of a number that rises
_UNITS_READ: Final = 24  # of a run
_OF_PARAMETERS: Final = 0.5  # of the shapes that a unit was given


class KindTeller:
    """Tells kinds of the repetitions of one trace."""

    def __init__(self, trace: Trace, order: CallOrder) -> None:
        self._trace, self._order, ops = trace, order, trace.get(HOST_OPS)
        self._columns = [ops[name].cast(pl.String) for name in ("name", "input_shapes", "concrete_inputs")]
        self._weights = self._gathered()
        ranges = push_pop_ranges(trace)
        self._optimizer_ns = np.sort(ranges.filter(matches(ranges["name"], OPTIMIZER_STEP))["start_ns"].to_numpy())
        self._is_alone = not communicates(trace.get(DEVICE_OPS)["name"]).any()

    def tell(self, run: UnitRun, names: tuple[str, ...], share: Float64Array) -> KindTold:
        """The kind of a unit of these names, by its longest run, and why."""
        said = " ".join(("", *names))
        reads = any(map(said.__contains__, _READS))
        where = self._range_around(run).lower()
        seen = max(_FEW, min(_UNITS_READ, CALLS_READ // len(names)))
        edges = pairwise(run.starts[: seen + 1].tolist())
        units = [self._calls(low, min(high, low + LONGEST)) for low, high in edges]
        usual = Counter(map(len, units)).most_common(1)[0][0]
        units = [unit for unit in units if len(unit) == usual]
        if plain := self._by_names(run, said, where):
            return plain
        if not usual:
            return self._of_launches(run, names, reads, where)
        if share[INSIDE] + share[BACKWARD] < _HARDLY * share[HOST] and share[HOST] > 2 * share[IDLE]:
            return KindTold(Kind.PYTHON, "hardly any of the CPU's time is in operators and calls")
        return self._of_operators(units, run, reads, where)

    def _gathered(self) -> Counter[Shape]:
        """How many gradients of each shape one backward pass gathers. A pass begins where the program's own thread has
        recorded an operator since the gradient before."""
        gathered, order = (self._columns[0] == "torch::autograd::AccumulateGrad").to_numpy(), self._order
        if not gathered.any():
            return Counter()
        ops = self._trace.get(HOST_OPS)
        recorded = (order.op >= 0) & ~np.isin(order.line, order.line[order.is_autograd])
        recorded[recorded] = (ops["sequence_number"].fill_null(-1).to_numpy() >= 0)[order.op[recorded]]
        times = ops["start_ns"].to_numpy()[gathered]
        passes = np.unique(np.searchsorted(np.sort(order.start_ns[recorded]), times)).size
        counts = self._columns[1].filter(pl.Series(gathered)).value_counts().rows()
        return Counter({shapes_of(text)[0]: count / passes for text, count in counts if shapes_of(text)})

    def _calls(self, low: int, high: int) -> list[Call]:
        rows = self._order.op[low:high]
        name, shapes, given = self._columns
        return [(name[row] or "", shapes[row] or "", given[row] or "") for row in rows[rows >= 0].tolist()]

    def _range_around(self, run: UnitRun) -> str:
        """The innermost range of the run's thread that holds all of its units."""
        ranges, order, at = push_pop_ranges(self._trace), self._order, int(run.starts[1])
        if not ranges.height:
            return ""
        table = self._trace.get(HOST_OPS if order.op[at] >= 0 else API_CALLS)
        thread = table.select("rank", "process", "thread").row(int(max(order.op[at], order.call[at])))
        nesting = range_nesting(self._trace)
        row = int(nesting.innermost(thread, [int(order.start_ns[at])])[0])
        while row >= 0 and nesting.end_ns[row] < order.start_ns[run.stop - 1]:
            row = int(nesting.parent[row])
        return str(ranges["name"][row]) if row >= 0 else ""

    def _by_names(self, run: UnitRun, said: str, where: str) -> KindTold | None:
        """What the range around the run and the names in it, each after a space, tell alone."""
        if "dataloader" in where:
            return KindTold(Kind.LOADER, where)
        if "ddp.reducer" in said:
            return KindTold(Kind.PER_PARAMETER, "views of DDP's buckets")
        if " c10d::" in said:
            return KindTold(Kind.EXCHANGES, "collectives are among the operators")
        begun = np.searchsorted(self._optimizer_ns, self._order.start_ns[[run.starts[0], run.stop - 1]])
        return KindTold(Kind.STEPS, "an optimizer's step begins in each") if begun[1] > begun[0] else None

    def _of_launches(self, run: UnitRun, names: tuple[str, ...], reads: bool, where: str) -> KindTold:
        if "optimizer" in where:
            return KindTold(Kind.PER_PARAMETER, "within a range of an optimizer")
        if reads:
            return KindTold(Kind.READS, "the CPU waits in each")
        of_event = pl.Series(self._order.of_device_op)
        own = self._trace.get(DEVICE_OPS).select("grid_x", "bytes", event=of_event).with_row_index("row")
        own = own.filter(pl.col("event").is_between(int(run.starts[0]), run.stop - 1))
        kernels = kernel_facts(self._trace).frame.join(own, "row", "semi")  # copies have no family
        sizes = own.unique(["grid_x", "bytes"]).height
        if not kernels["family"].is_in(["gemm", "convolution", "attention"]).any() and sizes >= _SIZES * len(names):
            return KindTold(Kind.PER_PARAMETER, f"{sizes} sizes of grids, and no matmul")
        return KindTold(Kind.UNTOLD, "no operators were recorded")

    def _of_operators(self, units: list[list[Call]], run: UnitRun, reads: bool, where: str) -> KindTold:
        names, count, known = [name for name, _, _ in units[0]], run.starts.size, self._weights
        places = list(zip(*units, strict=True))
        tensors = [[shapes_of(shapes) for _, shapes, _ in place] for place in places]
        flat = [shape for place in tensors for given in place for shape in given if shape]
        several = max(len({given[0] for given in place if given}) for place in tensors)
        of_weights = sum(map(known.__contains__, flat)) / len(flat) if flat and known else 0.0
        of_parameters = "optimizer" in where or (several >= 2 and of_weights > _OF_PARAMETERS)
        if of_parameters and not any(map(_is_weighted, names)):
            return KindTold(Kind.PER_PARAMETER, f"{several} shapes, {of_weights:.0%} those of parameters")
        used = self._uses(names, tensors)
        times = float(np.median([uses / known[shape] for shape, uses in used.items()])) if used else 0.0
        times *= max(count / len(units), 1.0)
        split, wholes, along = self._given(places, run, count)
        is_own = 0 < times < _OWN_WEIGHTS
        state = [] if is_own and not along else carried(units[min(1, len(units) - 1)], known, split, wholes)
        if is_own:
            other = f"{sum(known[shape] for shape in used):.0f} parameters, each used once"
            return KindTold(Kind.SIDE_BY_SIDE if along and not state else Kind.LAYERS, f"{other}; {along}".strip("; "))
        grows = any(map(_grows, tensors))
        of_pipeline = not self._is_alone  # whose micro-batches cannot be one pass
        said = (
            (grows, Kind.GROWS, "an operand grows by the same from unit to unit"),
            (bool(state), Kind.MAY_DEPEND, f"a state of {state[:1]} is read and left"),
            (bool(along), Kind.ONE_AT_A_TIME, along),
            (times >= LEAST and not of_pipeline, Kind.MICRO_BATCHES, f"the same weights {times:.0f} times"),
            (reads, Kind.READS, "a value is read in each"),
            (True, Kind.UNTOLD, "over what is not told"),
        )
        return next(KindTold(kind, why) for is_told, kind, why in said if is_told)

    def _uses(self, names: list[str], tensors: list[list[tuple[Shape, ...]]]) -> Counter[Shape]:
        """How often the units that were read use weights of each shape."""
        used = Counter[Shape]()
        for name, place in zip(names, tensors, strict=True):
            if _is_weighted(name):
                shapes = (shape for given in place for shape in set(given))
                used.update(shape for shape in shapes if shape in self._weights and len(shape) > 1)
        return used

    def _given(self, places: list[tuple[Call, ...]], run: UnitRun, count: int) -> tuple[set[Shape], list[Shape], str]:
        """Shapes of what a split before gave each unit, what was split into parts of several sizes, and what says that
        units go along something."""
        rises = [
            place[0][1] for place in places if place[0][0].startswith(CUTS) and _rises(given for _, _, given in place)
        ]
        split, wholes = set[Shape](), list[Shape]()
        for name, shapes, given in self._calls(max(int(run.starts[0]) - _LOOKED_BEFORE, 0), int(run.starts[0])):
            full, numbers = (shapes_of_first(shapes), _numbers(given))
            if full and numbers and any(map(name.__contains__, _SPLITS)) and -len(full) <= numbers[-1] < len(full):
                along = numbers[-1] % len(full)
                size = full[along]
                if size >= _LEAST_PARTS and round(count / size) and abs(round(count / size) * size - count) <= 2:
                    split.add(tuple(n for at, n in enumerate(full) if n != 1 and at != along))
                if name.endswith("split_with_sizes") and _are_parts(places, full, along):
                    wholes.append(tuple(n for n in full if n != 1))
        said = [f"an index rises over {rises[0]}"] if rises else []
        said += [f"after a split into {sorted(split)}"] if split else []
        said += ["after a split into parts of several sizes"] * bool(wholes)
        return split, wholes, ", ".join(said + ["results are joined"] * self._is_joined(run, count))

    def _is_joined(self, run: UnitRun, count: int) -> bool:
        """Whether results of all units are joined behind them: a list of as many, or, where no list was recorded, next
        a tensor of as many."""
        after, least = self._calls(run.stop, run.stop + _LOOKED_BEHIND), min(count // _JOINED, 2)
        for at, (name, shapes, _) in enumerate(after):
            if any(map(name.__contains__, _JOINS)):
                known = shapes_of(shapes)
                is_untold = shapes.startswith("[[],")
                sizes = [first[0] for first in _firsts(after[at + 1 : at + 3])] if is_untold else [len(known)]
                if any(abs(size - count) <= least for size in sizes):
                    return True
        return False


def _firsts(calls: list[Call]) -> list[list[int]]:
    """The dimensions of the first tensors, of those that have any."""
    return [first for _, shapes, _ in calls if (first := shapes_of_first(shapes))]


def _are_parts(places: list[tuple[Call, ...]], full: list[int], along: int) -> bool:
    """Whether units were given tensors that differ from what was split in that dimension only, and in several sizes."""
    for place in places:
        given = [first for _, shapes, _ in place if len(first := shapes_of_first(shapes)) == len(full)]
        sizes = {first[along] for first in given if [*first[:along], full[along], *first[along + 1 :]] == full}
        if len(given) == len(place) and len(sizes) >= _LEAST_PARTS and max(sizes) < full[along]:
            return True
    return False


def shapes_of_first(text: str) -> list[int]:
    """All dimensions of the first tensor that an operator was given; none where that is unknown."""
    try:
        first = json.loads(text or "[[]]")[0]
    except (ValueError, IndexError):
        return []
    return first if isinstance(first, list) and all(isinstance(size, int) for size in first) else []


def _numbers(text: str) -> list[int]:
    """The whole numbers that an operator was given, in order."""
    try:
        given = json.loads(text or "[]")
    except ValueError:
        return []
    return [int(one) for one in given if isinstance(one, str) and one.lstrip("-").isdecimal()]


@lru_cache(1 << 12)
def _is_weighted(name: str) -> bool:
    return "vector_norm" not in name and any(word in name for word in _WEIGHTED)


def _grows(given: list[tuple[Shape, ...]]) -> bool:
    """Whether a dimension of the first tensor gets larger by the same from unit to unit."""
    firsts = [shapes[0] for shapes in given if shapes]
    if len(firsts) < max(len(given), _FEW) or len({len(shape) for shape in firsts}) != 1 or not firsts[0]:
        return False
    changes = np.diff(np.array(firsts), axis=0)
    return bool(((changes == changes[0]).all(axis=0) & (changes[0] > 0)).any())


def _rises(given: Iterable[str]) -> bool:
    """Whether one of the numbers that an operator was given, after the first, rises from unit to unit."""
    numbers = [_numbers(text) for text in given]
    if len(numbers) < _FEW or len({len(one) for one in numbers}) != 1 or len(numbers[0]) < 2:
        return False
    return bool(((np.diff(np.array(numbers, np.float64), axis=0) > 0).mean(axis=0)[1:] > _MOSTLY).any())
