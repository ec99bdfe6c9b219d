"""The figures that nobody can read off a trace: what a fix leaves, what recording costs, where a line is drawn.

`Assumption` is the sibling of a rule's `Limit`. The figures of all stand in `assumptions.txt`, each with its unit, its
reason and its source, and are printed as docs/assumptions.md; code reads them as `fixes.LOADING_LEFT`, by the names
declared here. The environment variable `TIMESINK_ASSUMPTIONS` replaces some for one run:
``fixes.loading_left=0.2,replay.event_cost_us=1:2:4``, one figure or all three.
"""

import math
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from timesink.errors import UsageError
from timesink.knowledge.tables import TableRow, damaged, read_rows
from timesink.records import State

TABLE: Final = Path(__file__).with_suffix(".txt")
VARIABLE: Final = "TIMESINK_ASSUMPTIONS"


class Assumption(State, eq=False):
    """One assumed figure with the range it may lie in.

    `value` is what is expected. For a share or a cost that a price uses, `low` is the figure that wins least and `high`
    the one that wins most, whichever is larger; a price takes all three. For a threshold they are the least and the
    greatest figure that could be defended. `source` says where the figures are from, `set_on` which split of
    benchmarks/faults they were set on, if any, and `rules` the codes of the rules that use them: none where many do.
    """

    low: float
    value: float
    high: float
    unit: str
    why: str
    source: str
    set_on: str = ""
    rules: str = ""
    name: str = ""
    changed: bool = False

    def at(self, case: Enum) -> float:
        """The figure at a case: 0 wins least, 1 is expected, 2 wins most."""
        return (self.low, self.value, self.high)[case.value]

    @property
    def whole(self) -> int:
        """The value of a count."""
        return round(self.value)

    @property
    def ns(self) -> int:
        """The value of a time in whole nanoseconds; the unit must be us."""
        return round(self.value * 1000)  # ns per us

    def replace(self, figures: tuple[float, ...]) -> None:
        """Take these instead: all three, or the value alone, which widens the range where it is outside."""
        if len(figures) == 1:
            (value,) = figures
            least, most = sorted((self.low, self.high))
            below, above = min(least, value), max(most, value)
            figures = (below, value, above) if self.low <= self.high else (above, value, below)
        self.low, self.value, self.high = figures
        self.changed = True


class Subject:
    """The assumptions about one subject; `FIGURE` is the row `<subject>.figure` of the table."""

    @property
    def about(self) -> str:
        """What its figures are of, in a sentence."""
        return " ".join((type(self).__doc__ or "").split())


class Fixes(Subject):
    """What a fix leaves of the time of the kernels, copies, launches and loading that it touches."""

    ATTENTION_PRODUCTS: Assumption
    ATTENTION_BETWEEN: Assumption
    ATTENTION_WIDE: Assumption
    ATTENTION_LAUNCHES: Assumption
    POINTWISE_OTHERS: Assumption
    CASTS_NEEDLESS: Assumption
    CASTS_SUMMED: Assumption
    LOSS_NARROWED: Assumption
    LAYOUT_STRIDED: Assumption
    LAYOUT_CONVERTERS: Assumption
    LAYOUT_GROUPED: Assumption
    LAYOUT_PACKED: Assumption
    NORM_BLOCKS: Assumption
    UNIT_BYTES: Assumption
    UNITS_KEPT: Assumption
    CONVOLUTIONS_BESIDE: Assumption
    TF32_PEAKS: Assumption
    TF32_OF_PEAKS: Assumption
    BF16_OF_TF32: Assumption
    BF16_OF_FP32: Assumption
    FP16_OF_FP32: Assumption
    FP16_OF_EMULATED: Assumption
    BF16_MISALIGNED: Assumption
    BF16_STREAMING: Assumption
    AUTOCAST_OF_TF32: Assumption
    AUTOCAST_OF_FP32: Assumption
    AUTOCAST_STREAMING: Assumption
    BF16_PRODUCTS_COMPILED: Assumption
    BF16_OF_FP32_COMPILED: Assumption
    BF16_STREAMING_COMPILED: Assumption
    FP64_AS_FP32: Assumption
    FP64_PRODUCTS_AS_FP32: Assumption
    ALIGNED_BY_NAME: Assumption
    ALIGNED_SINCE_HOPPER: Assumption
    ALIGNED_REACH: Assumption
    BOUND_REACHED: Assumption
    GRIDS_SPREAD: Assumption
    CAUTIOUS_SHARE: Assumption
    TINY_MERGED: Assumption
    STREAMS_CAUTIOUS: Assumption
    OPTIMIZER_KERNELS: Assumption
    OPTIMIZER_FIXED_US: Assumption
    OPTIMIZER_LAUNCH_US: Assumption
    LOADING_LEFT: Assumption
    GRAPH_REPLAY_US: Assumption
    GRAPH_KERNEL_US: Assumption
    GRAPH_GAP_US: Assumption
    VALUE_BYTES: Assumption
    CAPTURED_WITHIN_US: Assumption
    STAGED_BYTES: Assumption
    TRIPS_LEAST: Assumption
    RATED_BYTES: Assumption
    RATE_QUANTILE: Assumption
    PINNED_TIME: Assumption
    COLLECTIVE_SLOWDOWN: Assumption
    FILLS_AT_ONCE: Assumption
    BESIDE_ATTENTION: Assumption
    COMPILED_OTHERS: Assumption
    COMPILED_LONGEST: Assumption
    COMPILED_LAUNCHES: Assumption
    COMPILED_LAUNCHES_GONE: Assumption
    REGION_ENTERED: Assumption
    REGION_TRAINED: Assumption
    FOREACH_KERNELS: Assumption
    AUTOCAST_CASTS: Assumption
    EAGER_LAUNCHES: Assumption
    CHUNK_AGAIN: Assumption
    SHORT_KERNEL_US: Assumption
    SAVING_HOOKS: Assumption
    TOPK_PASSES: Assumption
    RECORDING_LEFT: Assumption


class ReplayAssumptions(Subject):
    """What the replay of a trace assumes where the trace does not say: costs of launches, of waiting and of
    recording, and how far a replay may be off."""

    INTRINSIC_QUANTILE: Assumption
    USUAL_QUANTILE: Assumption
    LATE_QUANTILE: Assumption
    LATE_AT_MOST: Assumption
    ENOUGH: Assumption
    GAP_IF_UNSEEN_US: Assumption
    LATENCY_IF_UNSEEN_US: Assumption
    LATENCY_AT_MOST_US: Assumption
    RETURN_IF_UNSEEN_US: Assumption
    QUEUE_NEARLY_FULL: Assumption
    BLOCKED_FACTOR: Assumption
    JOINED_SHARE: Assumption
    INSIDE_SHARE: Assumption
    KNOWN_SHARE: Assumption
    BURSTS_WITHOUT_PROOF: Assumption
    CLOCK_SLACK_US: Assumption
    RETURN_WITHIN_US: Assumption
    DEVICE_SLACK_US: Assumption
    STEP_NOISE: Assumption
    USUAL_KAPPA: Assumption
    KAPPA_DEVIATION: Assumption
    ESTIMATE_DEVIATION: Assumption
    KAPPA_LEAST: Assumption
    EVENT_COST_US: Assumption
    STACK_COST_US: Assumption
    FRAME_COST_US: Assumption
    RANGE_COST_US: Assumption
    STEP_COST_US: Assumption
    CALL_COST_US: Assumption
    QUICK_LAUNCH_US: Assumption
    SLOW_HOST_POWER: Assumption
    SLOW_KAPPA_POWER: Assumption
    QUICKER_AGAIN_POWER: Assumption
    SLOWEST_HOST: Assumption
    KEPT_AT_LEAST: Assumption
    NEAR_CALL_US: Assumption
    ALLOCATION_CONTENDED: Assumption
    ALLOCATION_SPREAD: Assumption
    ALLOCATION_SEEN_US: Assumption
    RESIDUAL_LIMIT: Assumption
    SLOWDOWN_LIMIT: Assumption
    ANOTHER_RUN: Assumption
    MODEL_ERROR: Assumption
    STEP_ERROR: Assumption
    SLOWEST_CLOCK: Assumption


class Machines(Subject):
    """What machines reach of what their data sheets say."""

    DRAM_SHARE: Assumption
    DRAM_BUSY: Assumption
    TENSOR_SHARE: Assumption
    NARROW_TIMES: Assumption
    UNFILLED_US: Assumption
    KERNEL_FLOOR_US: Assumption


class StepAssumptions(Subject):
    """Which steps are steady, which stand out, and when what repeats is a loop."""

    REPEATS: Assumption
    STEADY_SHARE: Assumption
    TURNS_ALIKE: Assumption
    KINDS_AT_HOME: Assumption
    EXACT_SHARE: Assumption
    PACES_ALIKE: Assumption
    NEARLY_AT_HOME: Assumption
    ROUNDS_AT_HOME: Assumption
    KINDS_IN_ROUND: Assumption
    SPAN: Assumption
    STEPS_HOLD: Assumption
    DISTANCE_TOLERANCE: Assumption
    PACES_CLOSE: Assumption
    P90_NEEDS: Assumption
    P99_NEEDS: Assumption
    WARM_UP_DEVIATIONS: Assumption
    LEAST_DEVIATION: Assumption
    SPIKE_DEVIATIONS: Assumption
    SPIKE_EXCESS: Assumption
    SPIKE_PAUSE: Assumption
    SPIKE_UNNAMED: Assumption
    SPIKE_STEPS: Assumption
    CARRIED_SHARE: Assumption
    BURST_BYTES: Assumption
    BURST_TIMES: Assumption
    CLOCKS_ALIKE: Assumption
    CLOCKS_ALIKE_SHARE: Assumption
    GRAPH_OPS: Assumption
    DECODE_ROUNDS: Assumption
    DECODE_SHARE: Assumption


class Idle(Subject):
    """When the CPU is late, what it waits for, and which gaps between kernels are ordinary."""

    AHEAD_BY: Assumption
    EFFECTIVE_SHARE: Assumption
    DISPATCH_MOST_US: Assumption
    WRITES_APART_US: Assumption
    GAP_LEAST_US: Assumption
    PAGE_TOUCH_US: Assumption
    PAGE_FAULT_US: Assumption
    GAP_MOST_US: Assumption
    TIMED_BLOCKS: Assumption
    TIMED_SHARE: Assumption
    SLOW_OPERATOR_US: Assumption
    START_UP_LAUNCH_MS: Assumption
    START_UP_FIRST_LAUNCH_MS: Assumption
    START_UP_CALL_MS: Assumption


class Kernels(Subject):
    """Which kernels belong together, and which are too short to say anything."""

    SOFTMAX_REACH: Assumption
    MEAN_REACH: Assumption
    CHAIN_LEAST: Assumption
    CHAIN_SIZES: Assumption
    TINY_US: Assumption
    USUAL_BLOCK: Assumption
    LATENCY_BOUND_US: Assumption
    UNKNOWN_KEPT: Assumption
    GENERATED_BYTES: Assumption
    CACHES_ALIKE: Assumption


class RankAssumptions(Subject):
    """Clocks of several hosts, calls that belong together, and links and ranks that are slower than others."""

    DRIFT_MOST: Assumption
    DRIFT_WINDOW_US: Assumption
    DRIFT_CALLS: Assumption
    DRIFT_ABOVE_NOISE: Assumption
    SAME_CLOCK_US: Assumption
    CLOCK_ERROR_US: Assumption
    FREE_SPREAD: Assumption
    FREE_RUNS: Assumption
    BESIDE_SHARE: Assumption
    SHIFT_OVERLAP: Assumption
    SHIFT_BETTER: Assumption
    CROWD: Assumption
    PIPELINE_SHARE: Assumption
    MICRO_BATCHES: Assumption
    STAGE_RANGES: Assumption
    WAY_BACK: Assumption
    PIECE: Assumption
    SERIAL_SCORE: Assumption
    EVENED: Assumption
    LINK_PEERS: Assumption
    LINK_CALLS: Assumption
    LINK_SHORTEST_US: Assumption
    CHANNEL_BYTES_PER_S: Assumption
    LONG_TRANSFER_US: Assumption
    NVLINK_USED: Assumption
    NVLINK_BYTES: Assumption
    HELD_UP: Assumption
    SAME_WORK: Assumption
    HOST_SLOWED: Assumption
    GAIN_ERROR: Assumption


fixes, replay, machines, steps = Fixes(), ReplayAssumptions(), Machines(), StepAssumptions()
idle, kernels, ranks = Idle(), Kernels(), RankAssumptions()
SUBJECTS: Final[Mapping[str, Subject]] = {
    "fixes": fixes, "replay": replay, "machines": machines, "steps": steps, "idle": idle, "kernels": kernels,
    "ranks": ranks,
}  # fmt: skip


def read_assumptions(table: Path, subjects: Mapping[str, Subject]) -> dict[str, Assumption]:
    """The assumptions of a table by name, each given to its subject as the attribute that declares it."""
    declared = {f"{key}.{name.lower()}" for key, subject in subjects.items() for name in type(subject).__annotations__}
    found: dict[str, Assumption] = {}
    for row in read_rows(table, ("name", "low", "value", "high", "unit", "set on", "rules", "why", "source")):
        name = row.text("name")
        if name in found or name not in declared:
            told = "stands there twice" if name in found else f"is declared nowhere in {Path(__file__).name}"
            raise row.damaged(f"assumption {name!r} {told}", "write the name of one that has no row yet, or declare it")
        subject, _, attribute = name.partition(".")
        found[name] = _assumption(row)
        setattr(subjects[subject], attribute.upper(), found[name])
    if absent := sorted(declared - found.keys()):
        raise damaged(table, 0, f"no row for {absent[0]}", f"add one, or take the name out of {Path(__file__).name}")
    return found


def _assumption(row: TableRow) -> Assumption:
    low, value, high = (row.number(column) for column in ("low", "value", "high"))
    if not min(low, high) <= value <= max(low, high):
        raise row.damaged(f"{value:g} does not lie between {low:g} and {high:g}", "put the value between low and high")
    codes = row.text("rules", r"[A-Z]{3}\d{3}( [A-Z]{3}\d{3})*", may_lack=True)
    split = row.text("set on", r"(\w+_)?tune", may_lack=True)
    unit, why, source = (row.text(column) for column in ("unit", "why", "source"))
    return Assumption(low, value, high, unit, why, source, split, codes, row.text("name"))


def read_replacements(text: str) -> dict[str, tuple[float, ...]]:
    """The figures by name that the environment variable gives; `UsageError` where it cannot be read."""
    replaced = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, figures = part.partition("=")
        try:
            numbers = tuple(float(figure) for figure in figures.split(":"))
        except ValueError:
            numbers = ()
        if not equals or len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
            raise UsageError(
                f"{VARIABLE}: {part!r} is not an assumption",
                remedy="write name=value or name=low:value:high, such as fixes.loading_left=0.2",
            )
        replaced[name.strip().lower()] = numbers
    return replaced


def replace_assumptions(every: dict[str, Assumption], text: str) -> dict[str, Assumption]:
    """The assumptions with the replacements of `text` applied."""
    for name, figures in read_replacements(text).items():
        if name not in every:
            raise UsageError(f"{VARIABLE}: no assumption {name!r}", remedy="timesink explain --assumptions lists them")
        every[name].replace(figures)
    return every


def changed() -> tuple[str, ...]:
    """What this run assumes otherwise than declared, one sentence each."""
    return tuple(
        f"{name} was taken for {assumption.value:g} {assumption.unit}, as {VARIABLE} says"
        for name, assumption in ALL.items()
        if assumption.changed
    )


ALL: Final = replace_assumptions(read_assumptions(TABLE, SUBJECTS), os.environ.get(VARIABLE, ""))
