"""The program's own stack behind GPU work and host time: which lines called what ran.

Stacks come from what the profiler recorded, the first of these that says anything of an operation: Python frames
(torch.profiler with stacks), the stack of its CUDA call or the samples around it (Nsight Systems), the stack that its
operator carries, the ranges around its launch. Frames of libraries are left out. The work of a backward pass has no
Python of its own: it is at the line of the forward operator that made it, by autograd's sequence numbers. Where the
compiler's log was read too, `generated` leads on from there into compiled graphs.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import Final, Literal

import numpy as np
import polars as pl

from timesink.knowledge.frames import LIBRARY, PLACE, is_engine, is_own
from timesink.knowledge.ranges import NUMBER, NUMBERED_STEP
from timesink.measures.lines.folded import folded_samples
from timesink.measures.lines.generated import Texts, fused_stacks
from timesink.measures.steps import steps
from timesink.measures.timeline.attribution import (
    attribution,
    host_places,
    launch_links,
    push_pop_ranges,
    range_nesting,
)
from timesink.measures.timeline.autograd import by_tool, forward_operators, forward_ranges, waiting_ranges
from timesink.measures.timeline.graph_replays import graph_replays
from timesink.model.arrays import Int64Array, IntArray, distinct, found_at
from timesink.model.names import matches, of_each
from timesink.model.nesting import THREAD, Nesting
from timesink.model.tables import API_CALLS, FRAMES, GRAPH_NODES, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record, State, field


class OwnFrames(Record, eq=False):
    """For each row of `frames`: `row`, that of the program's own frame, which may be itself, and -1 where all around it
    is of libraries; `line`, that of the call that led from there to the frame, or -1 where it was not recorded.

    row        0         1                  2             3
    file       train.py  torch/__init__.py  threading.py  -
    caller     -1        0                  -1            1
    call_line  -         12                 -             90
    own row    0         0                  -1            0
    own line   -1        12                 -1            12
    """

    row: Int64Array
    line: Int64Array


@remembered
def own_frames(trace: Trace) -> OwnFrames:
    """Go up from each frame, whether of Python or of a built-in function, to the first of the program's own; to that of
    an engine that runs models where none is."""
    frames = trace.get(FRAMES)
    row, line = np.arange(frames.height), np.full(frames.height, -1)
    if not frames.height:
        return OwnFrames(row, line)
    owned = (of_each(frames["file"], is_program, pl.Boolean).fill_null(False) for is_program in (is_own, is_engine))
    is_known = next((of for of in owned if of.any()), pl.Series([False] * frames.height)).to_numpy()
    caller, called_at = callers(frames), frames["call_line"].fill_null(-1).cast(pl.Int64).to_numpy()
    while (open_ := ~is_known[row] & (caller[row] >= 0)).any():
        line = np.where(open_, called_at[row], line)
        row = np.where(open_, caller[row], row)
    return OwnFrames(np.where(is_known[row], row, -1), np.where(is_known[row], line, -1))


def callers(frames: pl.DataFrame) -> Int64Array:
    """The row of the calling frame, -1 where none was recorded. A call begins before what it calls."""
    numbered = frames.select("rank", "frame_id", "parent_id").with_row_index("row")
    ids = numbered.drop_nulls("frame_id").unique(["rank", "frame_id"], keep="first").select("rank", "frame_id", "row")
    ids = ids.rename({"frame_id": "parent_id", "row": "caller"})
    joined = numbered.join(ids, on=["rank", "parent_id"], how="left", maintain_order="left")
    caller = joined["caller"].cast(pl.Int64).fill_null(-1).to_numpy()
    begins = frames["start_ns"].to_numpy()
    earlier = (begins[caller] < begins) | ((begins[caller] == begins) & (caller < np.arange(caller.size)))
    return np.where((caller >= 0) & earlier, caller, -1)


Known = Literal["line", "function", "range", "fused"]
"""What the profiler said: the very line, only the function that holds it (by its first line), only a range, or the
compiler, that the work of this line and of others was fused into one kernel."""
NEAR_NS: Final = 2_000_000
"""A sample this near to a call on its thread says where the call was made: twice the usual period of sampling."""


class Line(Record):
    """One place in the program. `function` is a range's name where only that is known; `others` are the other lines, by
    file, of what was fused. All texts are untrusted."""

    function: str
    file: str | None
    line: int | None
    known: Known
    others: tuple[tuple[str, int], ...] = ()


Stack = tuple[Line, ...]
"""Outermost first; never empty."""


class StackBook(State, eq=False):
    """Every distinct stack of a trace, numbered. -1 stands for none."""

    stacks: list[Stack] = field(default_factory=list)
    _numbers: dict[Stack, int] = field(default_factory=dict)

    def number(self, stack: Stack) -> int:
        """The number of a stack; -1 for an empty one."""
        if not stack:
            return -1
        if stack not in self._numbers:
            self._numbers[stack] = len(self.stacks)
            self.stacks.append(stack)
        return self._numbers[stack]


@remembered
def stack_book(trace: Trace) -> StackBook:
    """The book that all functions of this module write to."""
    return StackBook()


@remembered
def op_stacks(trace: Trace) -> Int64Array:
    """For each row of `device_ops`, the number of its stack in the book, or -1."""
    call, host_op = launch_links(trace).call, attribution(trace).host_op.astype(np.int64)
    node = graph_replays(trace).node
    call = np.where(node >= 0, -1, call)
    calls, ops = trace.get(API_CALLS), trace.get(HOST_OPS)
    nodes = trace.get(GRAPH_NODES).rename({"recorded_ns": "start_ns"})
    forward = found_at(forward_operators(trace), host_op)  # work of the backward pass has no Python of its own
    number = np.full(host_op.size, -1, np.int64)
    for table, rows in ((ops, forward), (nodes, node), (calls, call), (ops, host_op)):
        _fill(number, rows, partial(_stacks_at, trace, table))
    if operators_have_stacks(trace):
        todo = np.flatnonzero((number < 0) & (host_op >= 0))
        number[todo] = of_texts(trace, ops["call_stack"][host_op[todo]])
    _fill(number, call, lambda at: of_ranges(trace, _ranges_of_calls(trace)[at]))
    return _with_fused(trace, number)


def _fill(number: Int64Array, rows: IntArray, stacks: Callable[[Int64Array], Int64Array]) -> None:
    """Give what has no number yet that of its row, where it has one: each row is asked once."""
    todo = np.flatnonzero((number < 0) & (rows >= 0))
    if todo.size:
        at, place = distinct(rows[todo])
        number[todo] = stacks(at)[place]


def _stacks_at(trace: Trace, table: pl.DataFrame, rows: Int64Array) -> Int64Array:
    return host_stacks(trace, table[rows])


def _ranges_of_calls(trace: Trace) -> Int64Array:
    """For each call the range in which its forward operator was called, else that which waits for it or is around."""
    forward, waiting = forward_ranges(trace), waiting_ranges(trace)
    return np.where(forward >= 0, forward, np.where(waiting >= 0, waiting, host_places(trace).range_))


def _with_fused(trace: Trace, number: Int64Array) -> Int64Array:
    """The stacks with those of generated kernels led on into the compiled code, as far as its compiler told."""
    book, known = stack_book(trace), dict[tuple[int, Texts], int]()
    for row, texts in fused_stacks(trace).items():
        outer = int(number[row])
        if (outer, texts) not in known:
            inner = _fused([stack for text in texts if (stack := stack_of_text(text))])
            known[outer, texts] = (
                book.number(_led_on(book.stacks[outer] if outer >= 0 else (), inner)) if inner else outer
            )
        number[row] = known[outer, texts]
    return number


def _fused(stacks: list[Stack]) -> Stack:
    """What the stacks have in common, outermost first, and then the innermost lines of all of them as one."""
    if not stacks:
        return ()
    lines = sorted({(line.file or "", line.line or 0, line.function) for *_, line in stacks})
    file, line, function = lines[0]
    others = tuple(dict.fromkeys((other, at) for other, at, _ in lines[1:]))
    return (*calls_of_all(stacks), Line(function, file, line, "fused" if others else "line", others))


def calls_of_all(stacks: Iterable[Stack]) -> Stack:
    """The calls that all of these stacks are under, outermost first."""
    levels = zip(*(stack[:-1] for stack in stacks), strict=False)
    return tuple(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))


def _led_on(outer: Stack, inner: Stack) -> Stack:
    """The stack of a launch, led on by lines of the function that was compiled: it may hold a frame of that already."""
    outer = tuple(line for line in outer if line.file is not None)
    entered = inner[0]
    for at, line in enumerate(outer):
        if line.function == entered.function and line.file and (entered.file or "").endswith(line.file):
            return (*outer[:at], *inner)
    return (*outer, *inner)


def host_stacks(trace: Trace, moments: pl.DataFrame) -> Int64Array:
    """The stack at the start of each row of a part of a host table (sorted by rank, process, thread, start)."""
    if trace.get(FRAMES).height:
        return of_frames(trace, frame_nesting(trace).innermost_of(moments))
    return _sampled(trace, moments)


@remembered
def frame_nesting(trace: Trace) -> Nesting:
    """Python frames as trees."""
    return Nesting.of(trace.get(FRAMES))


def of_frames(trace: Trace, rows: IntArray) -> Int64Array:
    """The stack of each row of `frames`; -1 for row -1."""
    own = own_frames(trace)
    if not own.row.size:
        return np.full(rows.size, -1, np.int64)
    row = np.where(rows >= 0, own.row[rows], -1)
    pairs, place = np.unique(np.stack((row, np.where(row >= 0, own.line[rows], -1))), axis=1, return_inverse=True)
    book, above = stack_book(trace), _OwnChains(trace)
    return np.array([book.number(above.stack(*pair)) for pair in pairs.T.tolist()], np.int64)[place.ravel()]


class _OwnChains:
    """Stacks of frames of the program itself, by row and by the line that was called from there."""

    def __init__(self, trace: Trace) -> None:
        frames = trace.get(FRAMES)
        self._own, self._caller = own_frames(trace), _callers(trace)
        self._frames = [frames[name].to_list() for name in ("name", "file", "line")]
        self._called_at = frames["call_line"].fill_null(-1).to_list()
        self._known: dict[int, Stack] = {}

    def stack(self, row: int, line: int) -> Stack:
        """The stack that ends in this frame; () for row -1. `line` is -1 where it was not recorded."""
        if row < 0:
            return ()
        return (*self._around(row), self._line(row, line))

    def _line(self, row: int, line: int) -> Line:
        function, file, first = (column[row] for column in self._frames)
        match = PLACE.match(function)
        name = function[match.end() :] if match else function
        return Line(name, file, line, "line") if line >= 0 else Line(name, file, first, "function")

    def _around(self, row: int) -> Stack:
        """What called the frame, in a loop: a program may call as deeply as it likes."""
        chain, at = [], row
        while at >= 0 and at not in self._known:
            chain.append(at)
            at = self._parent(at)[0]
        for inner in reversed(chain):
            parent, line = self._parent(inner)
            if parent < 0:
                self._known[inner] = ()
                continue
            self._known[inner] = (*self._known[parent], self._line(parent, line))
        return self._known[row]

    def _parent(self, row: int) -> tuple[int, int]:
        """The own frame around a frame, and the line of it that was called from."""
        caller = int(self._caller[row])
        if caller < 0:
            return -1, -1
        parent = int(self._own.row[caller])
        line = self._called_at[row] if parent == caller else int(self._own.line[caller])
        return parent, line if parent >= 0 else -1


@remembered
def _callers(trace: Trace) -> Int64Array:
    return callers(trace.get(FRAMES))


def of_texts(trace: Trace, texts: pl.Series) -> Int64Array:
    """The stack of each text "file(line): function;…", innermost first; -1 where it is null or has nothing own. Where
    all have nothing own, frames of an engine are."""
    codes = texts.cast(pl.Categorical())
    distinct = codes.unique().drop_nulls()
    if not len(distinct):
        return np.full(len(texts), -1, np.int64)
    book = stack_book(trace)
    of_program = ([stack_of_text(text, own) for text in distinct.cast(pl.String)] for own in (is_own, is_engine))
    numbers = [book.number(stack) for stack in next(filter(any, of_program), [()] * len(distinct))]
    return codes.replace_strict(distinct, numbers, default=-1, return_dtype=pl.Int64).to_numpy()


def stack_of_text(text: str, is_program: Callable[[str], bool] = is_own) -> Stack:
    """The program's own frames of a recorded stack, outermost first."""
    found = []
    for frame in reversed(text.split(";")):
        match = PLACE.match(frame)
        if match is None or not match[2].isascii() or len(match[2]) >= 10 or not is_program(match[1]):
            continue
        line = int(match[2])
        if line:
            found.append(Line(frame[match.end() :], match[1], line, "line"))
        elif not LIBRARY.search(match[1]):  # a symbol of the program's own binary
            found.append(Line(frame[match.end() :], None, None, "function"))
    return tuple(found)


def of_ranges(trace: Trace, rows: Int64Array) -> Int64Array:
    """The stack of the ranges around each row of the push/pop ranges; -1 for row -1.

    All steps are one place, and a range that a tool set around an operator is none.
    """
    numbers = _range_stacks(trace)
    return np.where(rows >= 0, numbers[rows], -1) if numbers.size else np.full(rows.size, -1, np.int64)


@remembered
def _range_stacks(trace: Trace) -> Int64Array:
    """The number of the stack that ends in each push/pop range: that of its parent, and its own name."""
    ranges, nesting = push_pop_ranges(trace), range_nesting(trace)
    names, book = ranges["name"].cast(pl.String), stack_book(trace)
    step = steps(trace).marker_name or "step"
    numberless = names.str.replace_all(NUMBER, "#").is_in([step, f"{step}#"])
    is_step = numberless | matches(names, NUMBERED_STEP)  # "step #" for "step 1", "ProfilerStep" for "ProfilerStep#3"
    names = pl.select(pl.when(is_step).then(pl.lit(step)).otherwise(names)).to_series()
    texts, of_tool, number = names.to_list(), by_tool(trace), np.full(ranges.height, -1, np.int64)
    for rows in nesting.levels():
        around = np.where(nesting.parent[rows] >= 0, number[nesting.parent[rows]], -1)
        for row, outer in zip(rows.tolist(), around.tolist(), strict=True):
            stack = book.stacks[outer] if outer >= 0 else ()
            number[row] = outer if of_tool[row] else book.number((*stack, Line(texts[row], None, None, "range")))
    return number


def _sampled(trace: Trace, moments: pl.DataFrame) -> Int64Array:
    """The stack recorded with each call, else that of a sample of its thread in it, else of the nearest before or after
    its start, where one is near."""
    number = np.full(moments.height, -1, np.int64)
    known = sampled_stacks(trace)
    if not known.height or not moments.height:
        return number
    ends = pl.col("end_ns" if "end_ns" in moments.columns else "start_ns").alias("end_ns")
    wanted = moments.select(*THREAD, ends, time_ns="start_ns").with_row_index("row").sort("time_ns")
    inside = wanted.join_asof(
        known.with_columns(at_ns="time_ns"), on="time_ns", by=THREAD, strategy="forward", check_sortedness=False
    ).filter(pl.col("at_ns") < pl.col("end_ns"))
    near = wanted.join_asof(
        known, on="time_ns", by=THREAD, strategy="nearest", tolerance=NEAR_NS, check_sortedness=False
    )
    for found in (near.drop_nulls("stack"), inside):
        number[found["row"].to_numpy()] = found["stack"].to_numpy()
    return number


@remembered
def sampled_stacks(trace: Trace) -> pl.DataFrame:
    """rank, process, thread, time_ns and stack of everything sampled, or recorded with a call, by time."""
    recorded = folded_samples(trace)
    known = recorded.select(*THREAD, "time_ns", pl.Series("stack", of_texts(trace, recorded["stack"]), pl.Int64))
    return known.filter(pl.col("stack") >= 0).sort("time_ns")


def operators_have_stacks(trace: Trace) -> bool:
    """Whether the profiler wrote a stack with each operator."""
    stacks = trace.get(HOST_OPS)["call_stack"]
    return stacks.null_count() < len(stacks)
