"""Time by call path: who called whom, and how long it took, as one tree for device work, one for idle time, one for the
host.

Three kernels launched in `step > aten::mm`, `step > aten::mm` and `step` make this tree of device time:

    node  name      parent  total
    0     step      none    30
    1     aten::mm  0       25
    2     gemm      1       25
    3     relu      0       5

`tree_change` lays two trees over each other: what each path took before and after.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink._native import summed
from timesink.knowledge.kernel_names import short_names
from timesink.knowledge.ranges import NUMBERED_STEP
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.idle.blame import idle_places
from timesink.measures.kernels.classification import modules
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import Device, covered_by_device, device_timeline
from timesink.measures.timeline.attribution import asked_at, attribution, push_pop_ranges
from timesink.model.arrays import Float64Array, Int64Array, distinct, found_at
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.nesting import Nesting, thread_slices
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record, State, field

NOWHERE: Final = "no range, no operator"
NO_MODULE: Final = "no module, no range"
NO_OPERATOR: Final = "no operator"
_ROOT: Final = -1


class CallTree(Record, eq=False):
    """A tree of call paths: per node its name, its parent's number (-1 for a root, always smaller than its own) and the
    time in ns of it and all below it. Names are untrusted text.

    The totals of the roots sum to the time that was measured; a node's is at least the sum of its children's.
    """

    names: tuple[str, ...]
    parent: Int64Array
    total_ns: Int64Array

    def __len__(self) -> int:
        return len(self.names)


class _Growing(State):
    """Nodes by parent and name, and the time of each by itself."""

    number: dict[tuple[int, str], int] = field(default_factory=dict)
    own_ns: list[int] = field(default_factory=list)

    def node(self, parent: int, name: str) -> int:
        key = (parent, name)
        if key not in self.number:
            self.number[key] = len(self.own_ns)
            self.own_ns.append(0)
        return self.number[key]

    def nodes(self, parent: Int64Array, names: Sequence[str], name: Int64Array) -> Int64Array:
        """The node of each pair of a parent and a place in `names`."""
        if not parent.size:
            return parent
        pairs, at = distinct((parent + 1) * len(names) + name)
        numbers = [self.node(pair // len(names) - 1, names[pair % len(names)]) for pair in pairs.tolist()]
        return np.array(numbers, np.int64)[at]

    def add(self, node: Int64Array, time_ns: Int64Array) -> None:
        self.own_ns = (np.array(self.own_ns, np.int64) + summed(node, time_ns, len(self.own_ns))).tolist()

    def tree(self) -> CallTree:
        parent = np.array([above for above, _ in self.number], np.int64)
        total = np.array(self.own_ns, np.int64)
        for at in range(total.size - 1, -1, -1):
            if parent[at] >= 0:
                total[parent[at]] += total[at]
        return CallTree(tuple(name for _, name in self.number), parent, total)


class _Host(Record, eq=False):
    """Ranges and operators of every thread, nested in one another: names as places in `names`."""

    nesting: Nesting
    names: list[str]
    name: Int64Array


@remembered
def _host(trace: Trace) -> _Host:
    columns = ["rank", "process", "thread", "start_ns", "end_ns", "name"]
    parts = (rows.select(columns).cast({"name": pl.String}) for rows in (push_pop_ranges(trace), trace.get(HOST_OPS)))
    rows = pl.concat(parts)
    rows = rows.sort("rank", "process", "thread", "start_ns", "end_ns")
    plain = mapped(rows["name"], lambda names: names.str.replace(NUMBERED_STEP, "$1"), pl.String)
    return _Host(Nesting.of(rows), *_number_texts(plain))


def _grow_nodes(host: _Host, growing: _Growing, root: Int64Array) -> Int64Array:
    """The node of each row of the host's nesting; the outermost rows stand below `root`, a node for each row."""
    node = np.full(host.name.size, _ROOT, np.int64)
    for depth, rows in enumerate(host.nesting.levels()):
        above = root[rows] if depth == 0 else node[host.nesting.parent[rows]]
        node[rows] = growing.nodes(above, host.names, host.name[rows])
    return node


@remembered
def device_tree(trace: Trace) -> CallTree:
    """Time of kernels and copies by the ranges and operators that launched them: what ran at once counts in full."""
    ops = trace.get(DEVICE_OPS)
    return _device_tree(trace, (ops["end_ns"] - ops["start_ns"]).to_numpy())


@remembered
def step_device_tree(trace: Trace) -> CallTree:
    """The same of what lies in steady steps, of all of them together."""
    return _device_tree(trace, _in_steps(trace, trace.get(DEVICE_OPS)))


def _in_steps(trace: Trace, rows: pl.DataFrame) -> Int64Array:
    """How much of each of these stretches of devices lies in steady steps."""
    steady = {device: Intervals.union_of(*step_windows(trace, device)) for device in device_timeline(trace).by_device}
    return covered_by_device(rows, steady)


def step_count(trace: Trace) -> int:
    """How many steady steps the devices have together: what `step_device_tree` and `step_idle_tree` are sums over."""
    return sum(len(step_windows(trace, device)[0]) for device in device_timeline(trace).by_device)


def _device_tree(trace: Trace, time_ns: Int64Array) -> CallTree:
    growing, host, ops = _Growing(), _host(trace), trace.get(DEVICE_OPS)
    node = _grow_nodes(host, growing, np.full(host.name.size, _ROOT, np.int64))
    around = asked_at(trace, host.nesting)
    nowhere = growing.node(_ROOT, NOWHERE) if (around < 0).any() else _ROOT
    leaf = growing.nodes(np.append(node, nowhere)[around], *_number_texts(_shorten_names(ops["name"])))
    growing.add(leaf, time_ns)
    return _prune(growing.tree())


def _shorten_names(names: pl.Series) -> pl.Series:
    def shortened(texts: pl.Series) -> pl.Series:
        short = short_names(texts.to_list())
        return pl.Series([short[text] for text in texts], dtype=pl.String)

    return mapped(names, shortened, pl.String)


def _number_texts(texts: pl.Series) -> tuple[list[str], Int64Array]:
    """The different texts, and the place of each in them."""
    names = texts.unique().sort()
    if not len(names):
        return [], np.zeros(0, np.int64)
    places = texts.replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64)
    return names.to_list(), places.to_numpy()


@remembered
def module_tree(trace: Trace) -> CallTree:
    """Time of kernels and copies by module, operator and name. Modules are those of PyTorch's stacks, nested, else
    ranges that a person named; an operator has what it launched itself. What ran at once counts in full."""
    growing, ops, row = _Growing(), trace.get(DEVICE_OPS), attribution(trace).host_op.astype(np.int64)
    host = trace.get(HOST_OPS)
    paths, at = _number_texts(modules(trace).fill_null(NO_MODULE))
    nowhere = [] if set(paths) <= {NO_MODULE} else [NO_MODULE]  # a level that holds everything says nothing
    homes = [_grow_path(growing, nowhere if path == NO_MODULE else path.split("/")) for path in [*paths, NO_MODULE]]
    home = np.array(homes, np.int64)
    names, name = _number_texts(host["name"].cast(pl.String))
    operator = growing.nodes(home[np.append(at, -1)[row]], [*names, NO_OPERATOR], np.append(name, len(names))[row])
    leaf = growing.nodes(operator, *_number_texts(_shorten_names(ops["name"])))
    growing.add(leaf, (ops["end_ns"] - ops["start_ns"]).to_numpy())
    return _prune(growing.tree())


def _grow_path(growing: _Growing, names: Sequence[str]) -> int:
    node = _ROOT
    for name in names:
        node = growing.node(node, name)
    return node


@remembered
def host_tree(trace: Trace) -> CallTree:
    """Time of ranges and operators on each thread, by who called whom. Where a range ends amid an operator that began
    in it, what the operator takes longer is the operator's."""
    growing, host = _Growing(), _host(trace)
    root = np.full(host.name.size, _ROOT, np.int64)
    several = len({rank for rank, _, _ in host.nesting.first}) > 1
    for (rank, _, thread), (first, last) in host.nesting.first.items():
        root[first:last] = growing.node(_ROOT, f"rank {rank}, thread {thread}" if several else f"thread {thread}")
    growing.add(_grow_nodes(host, growing, root), np.maximum(host.nesting.self_ns, 0))
    return _prune(growing.tree())


@remembered
def step_host_tree(trace: Trace) -> CallTree:
    """The same of what lies in steady steps of a rank's first device, of all threads together: threads of two runs have
    different numbers."""
    growing, host = _Growing(), _host(trace)
    nesting, inside = host.nesting, np.zeros(host.name.size, np.int64)
    for rank, device in _first_devices(trace):
        steady = Intervals.union_of(*step_windows(trace, (rank, device)))
        for (of, _, _), (first, last) in nesting.first.items():
            if of == rank:
                inside[first:last] = steady.covered_ns(nesting.start_ns[first:last], nesting.end_ns[first:last])
    own, called = inside.copy(), nesting.parent >= 0
    np.subtract.at(own, nesting.parent[called], inside[called])
    growing.add(_grow_nodes(host, growing, np.full(host.name.size, _ROOT, np.int64)), np.maximum(own, 0))
    return _prune(growing.tree())


def host_step_count(trace: Trace) -> int:
    """How many steady steps the ranks have together: what `step_host_tree` is a sum over."""
    return sum(len(step_windows(trace, device)[0]) for device in _first_devices(trace))


def _first_devices(trace: Trace) -> list[Device]:
    devices = sorted(device_timeline(trace).by_device)
    return [device for at, device in enumerate(devices) if not at or devices[at - 1][0] != device[0]]


@remembered
def idle_tree(trace: Trace) -> CallTree:
    """Idle time of devices by cause, then by the ranges and operators of the thread that kept them waiting."""
    return _idle_tree(trace, idle_places(trace))


@remembered
def step_idle_tree(trace: Trace) -> CallTree:
    """The same of what lies in steady steps, of all of them together. Of a stretch that only begins or ends in one, the
    preparation of input has the same share as of the whole."""
    places = idle_places(trace)
    share = _in_steps(trace, places) / np.maximum((places["end_ns"] - places["start_ns"]).to_numpy(), 1)
    inside = np.rint(places["idle_ns"].to_numpy() * share).astype(np.int64)
    return _idle_tree(trace, places.with_columns(pl.Series("idle_ns", inside)))


def _idle_tree(trace: Trace, places: pl.DataFrame) -> CallTree:
    growing, host = _Growing(), _host(trace)
    words, threads = pl.col("cause").replace(dict(IDLE_WORDS)), pl.col("rank", "process", "thread").fill_null(-1)
    rows = places.with_columns(words, threads)
    for cause, part in sorted(rows.partition_by("cause", as_dict=True).items()):
        root = growing.node(_ROOT, str(cause[0]))
        of_thread = part.sort("rank", "process", "thread", "start_ns")
        innermost = np.full(of_thread.height, _ROOT, np.int64)
        for key, first, last in thread_slices(of_thread):
            innermost[first:last] = host.nesting.innermost(key, of_thread["start_ns"].to_numpy()[first:last])
        node = np.full(of_thread.height, root, np.int64)
        inside = np.flatnonzero(innermost >= 0)
        node[inside] = _grow_below(host, growing, root, innermost[inside])
        growing.add(node, of_thread["idle_ns"].to_numpy())
    return _prune(growing.tree())


def _grow_below(host: _Host, growing: _Growing, root: int, rows: Int64Array) -> Int64Array:
    """The node below `root` of each of these rows of the nesting, with all that encloses it."""
    paths: list[Int64Array] = [rows]
    while (paths[-1] >= 0).any():
        above = paths[-1]
        paths.append(found_at(host.nesting.parent, above))
    node = np.full(rows.size, root, np.int64)
    for level in reversed(paths):
        at = np.flatnonzero(level >= 0)
        node[at] = growing.nodes(node[at], host.names, host.name[level[at]])
    return node


def _prune(tree: CallTree) -> CallTree:
    """Without nodes that took no time: operators that launched nothing."""
    kept = np.flatnonzero(tree.total_ns > 0)
    number = np.full(len(tree) + 1, _ROOT, np.int64)
    number[kept] = np.arange(kept.size)
    return CallTree(tuple(tree.names[at] for at in kept), number[tree.parent[kept]], tree.total_ns[kept])


class TreeChange(Record, eq=False):
    """The paths of either tree: per node its name, its parent's number (-1 for a root, always smaller than its own),
    and the time in ns of it and all below it on each side. Names are untrusted text.

    On each side the roots sum to what that side's tree sums to; a node's time is at least the sum of its children's.
    """

    names: tuple[str, ...]
    parent: Int64Array
    before_ns: Float64Array
    after_ns: Float64Array

    def __len__(self) -> int:
        return len(self.names)


def tree_change(before: CallTree, after: CallTree, counts: tuple[int, int] = (1, 1)) -> TreeChange:
    """Both trees, each divided by its count, such as that of its steps; paths of equal names are one."""
    number: dict[tuple[int, str], int] = {}
    sides = []
    for tree in (before, after):
        node = np.full(len(tree) + 1, -1, np.int64)  # the last place is that of no parent
        for at, (name, parent) in enumerate(zip(tree.names, tree.parent.tolist(), strict=True)):
            node[at] = number.setdefault((int(node[parent]), name), len(number))
        sides.append(node[:-1])
    total = np.zeros((2, len(number)))
    for at, (tree, node, count) in enumerate(zip((before, after), sides, counts, strict=True)):
        np.add.at(total[at], node, tree.total_ns / max(count, 1))
    parents = np.array([parent for parent, _ in number], np.int64)
    return TreeChange(tuple(name for _, name in number), parents, *total)
