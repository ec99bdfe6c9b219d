"""Figures as plain data: charts, timelines, flame graphs, and series of steps and kernels.

Nothing is computed or drawn here. A view fills these classes from measures, a renderer draws them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Self, TypeAlias

from timesink.measures.timeline.call_trees import CallTree, TreeChange
from timesink.model.arrays import Int64Array
from timesink.records import Record, field
from timesink.units import NS_PER_MS

LaneKind = Literal["ranks", "finding", "step", "idle", "stream", "range", "op", "call"]


class StepSeries(Record):
    """The period of each steady step of one rank, in order; `labels` are what the program calls them. `spikes` are the
    steps that stand out, with what made them slow; `parts` are what each step is made of, by kind, where that is known:
    they sum to the period."""

    rank: int
    numbers: tuple[int, ...]
    labels: tuple[str, ...]
    period_ns: tuple[int, ...]
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    spikes: tuple[tuple[int, str], ...] = ()
    parts: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def name_of(self, step: int) -> str:
        """What the program calls the step, else its number."""
        labels = dict(zip(self.numbers, self.labels, strict=False))
        return labels.get(step) or f"step {step}"


class Runs(Record, eq=False):
    """One row of a lane as columns of equal length, in order of time; runs of one row do not overlap.

    A run is one event (`count` 1), or short ones that follow one another closely, of which `busy_ns` of the run's
    length is event. `kind`, `name` and `detail` are places in the timeline's `kinds` and `texts`, -1 for none. A name
    of -2 or less is that of several: place -2 - name of the timeline's `mixes`. `from_lane` and `from_ns` say where an
    event was caused, -1 where that is not known: the lane of the thread and the start of the call that launched it, or
    of the operator whose backward it is.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    busy_ns: Int64Array
    count: Int64Array
    kind: Int64Array
    name: Int64Array
    detail: Int64Array
    from_lane: Int64Array
    from_ns: Int64Array


class Lane(Record, eq=False):
    """One thread, stream or device in the timeline: `rows` of boxes, the outermost first. `device` is None for lanes of
    the host. A lane of kind "ranks" has a row for each rank, or for a few of them, and is of rank -1. `label` is
    untrusted text."""

    kind: LaneKind
    label: str
    rank: int
    device: int | None
    rows: tuple[Runs, ...]


class Timeline(Record, eq=False):
    """The whole capture: nothing that it holds is left out of a lane, but events shorter than `merged_below_ns` may
    share a run. `short` holds the short names of kernels by their place in `texts`, which are untrusted. `notes` say
    which lanes are not here. Times that people read count from `origin_ns`, as those of `--window` do. `marks` says
    which lane and row hold what a finding claims on a device, by rank, device and the finding's number. `mixes` are
    names that share a run, as places in `texts` (-1 for one that is not known), and how often each is there."""

    origin_ns: int
    start_ns: int
    end_ns: int
    texts: tuple[str, ...]
    short: Mapping[int, str]
    kinds: tuple[str, ...]
    lanes: tuple[Lane, ...]
    merged_below_ns: int
    notes: tuple[str, ...]
    marks: Mapping[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    mixes: tuple[tuple[tuple[int, int], ...], ...] = ()


class TimelineWindow(Record):
    """A stretch of one device's time in which a finding shows, and how much of it the finding accounts for.

    `step` is the number of the step it lies in, where the trace has steps.
    """

    rank: int
    device: int
    start_ns: int
    end_ns: int
    step: int | None
    claimed_ns: int


class MarkedWindow(Record):
    """A window in a timeline, of which `row` of `lane` holds what the finding accounts for: -1 where it is nothing.

    `longest` are the window's longest events: lane, name, start from the window's, length.
    """

    window: TimelineWindow
    lane: int
    row: int
    longest: tuple[tuple[str, str, int, int], ...]


class Flame(Record, eq=False):
    """Time by call path. `tree` holds the paths that can be seen; `costliest` are those with most time by themselves:
    the path from the outside in, its own time, and its share of the whole. `kinds` are those of kernels, by name."""

    key: str
    title: str
    tree: CallTree
    costliest: tuple[tuple[str, int, float], ...]
    kinds: Mapping[str, str]


class FlameChange(Record, eq=False):
    """What changed by call path, per step. `largest` are the paths that changed most by themselves: the path, its own
    time before and after, and the change."""

    key: str
    title: str
    tree: TreeChange
    largest: tuple[tuple[str, float, float, float], ...]


class StageChart(Record):
    """Items of a pipeline, in order: the period that each took, the time of every stage, and the share of the period in
    which the stages stood still, averaged over them. Names are untrusted text."""

    title: str
    items: tuple[str, ...]
    period_ns: tuple[float, ...]
    stages: tuple[tuple[str, tuple[float, ...]], ...]
    bubble_ratio: tuple[float, ...]


class StageSpan(Record):
    """Work of one row on one item: its part, when it began and ended since the chart's beginning."""

    row: int
    item: str
    part: int
    start_ns: int
    end_ns: int


class GanttChart(Record):
    """Who worked on which item of a pipeline, when: a row for each rank. Names are untrusted text."""

    title: str
    note: str
    length_ns: int
    rows: tuple[str, ...]
    parts: tuple[str, ...]
    spans: tuple[StageSpan, ...]


class Slope(Record):
    """A memory level's roof: bytes per second."""

    level: str
    bytes_per_s: float


class Ceiling(Record):
    """An arithmetic roof: operations per second. `is_used` where a kernel of the picture works below it."""

    label: str
    flops: float
    is_used: bool


class Point(Record):
    """A kernel at one memory level: operations per byte, operations per second, and what its sheet says of it."""

    kernel: str
    level: str
    intensity: float
    flops: float
    facts: str = ""


class RooflineChart(Record):
    """Roofs and kernels, both axes logarithmic. `title` and the names of kernels are untrusted text. `moves` are pairs
    of points: where a kernel was, and where it is after a change.
    """

    title: str
    slopes: tuple[Slope, ...]
    ceilings: tuple[Ceiling, ...]
    points: tuple[Point, ...]
    moves: tuple[tuple[Point, Point], ...] = ()


class Band(Record):
    """One category of memory: its name and number, and its bytes at every column of the chart."""

    name: str
    bytes: tuple[int, ...]
    number: int


class MemoryChart(Record):
    """Memory over time: bands on top of one another, the first at the bottom, all with equally many columns. These are
    equally many events apart, for little happens for a long time and much at once; `time_ns` is when each was."""

    title: str
    bands: tuple[Band, ...]
    time_ns: tuple[int, ...]


FREE: Final = -1
"""The number of what nobody uses, in a map."""


class MapChart(Record):
    """Segments of memory one after the other, cut into lines of `cells` cells of `cell_bytes`. A cell has the number of
    its segment and of the class of memory in its middle; `names` and `bytes_of` are of these classes."""

    title: str
    note: str
    cells: int
    cell_bytes: float
    lines: tuple[tuple[tuple[int, int], ...], ...]
    segments: tuple[str, ...]
    names: Mapping[int, str]
    bytes_of: Mapping[int, int]


class HeatChart(Record):
    """A figure in ns for every row and column, None where there is none; a row or column may stand for several, whose
    mean it holds."""

    title: str
    row_title: str
    column_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values_ns: tuple[tuple[float | None, ...], ...]


class LadderRung(Record):
    """One change of a plan: the step before and after it, and how long it may be after it, in ns."""

    name: str
    before_ns: float
    after_ns: float
    low_ns: float
    high_ns: float


class LadderChart(Record):
    """The step as changes shorten it, one below the other; `note` says why it ends."""

    title: str
    step_ns: float
    rungs: tuple[LadderRung, ...]
    note: str

    @classmethod
    def of(cls, title: str, step_ms: float, rungs: Iterable[tuple[str, float, float, float, float]], note: str) -> Self:
        """The same of milliseconds; of each rung its name, the step before and after it, and after it low and high."""
        drawn = (LadderRung(name, *(ms * NS_PER_MS for ms in times_ms)) for name, *times_ms in rungs)
        return cls(title, step_ms * NS_PER_MS, tuple(drawn), note)


Chart: TypeAlias = LadderChart | RooflineChart | MemoryChart | MapChart | HeatChart | StageChart | GanttChart
