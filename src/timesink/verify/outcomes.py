"""The vocabulary of a comparison: five outcomes, an effect with its interval, the reason where nothing can be said.

Every effect is a ratio after / before of a quantity of which less is better (a rate is inverted before it comes here),
so a ratio above 1 is worse. Nothing is computed here: the other files of `verify` fill these classes, and `render.gate`
renders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from timesink.model.presentable import UNASKED, Origin, Presentable
from timesink.records import Record, field

if TYPE_CHECKING:
    from timesink.model.trace import Trace


class Outcome(StrEnum):
    """What may be said of a change. There is no sixth: "probably" is a label for people, never an outcome."""

    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no difference"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"


class Reason(StrEnum):
    """Why an outcome is inconclusive or invalid. Codes are stable: scripts may branch on them."""

    TOO_FEW_RUNS = "too few runs"
    TOO_NOISY = "too noisy"
    NOT_STEADY = "not steady"
    DRIFT = "drift"
    CARRY_OVER = "carry-over"
    ONE_RUN_A_SIDE = "one run a side"
    THROTTLED = "throttled"
    FOREIGN_PROCESS = "foreign process"
    INSUFFICIENT_BASELINE = "insufficient baseline"
    STALE_BASELINE = "stale baseline"
    UNCONFIRMED = "unconfirmed"
    UNSTABLE_HISTORY = "unstable history"
    NOT_MEASURED = "not measured"
    BAD_VALUES = "bad values"
    CLOCK = "clock"
    MISSING_BASELINE = "missing baseline"
    CORRUPT_BASELINE = "corrupt baseline"
    OTHER_ENVIRONMENT = "other environment"
    OTHER_WORK = "other work"
    OTHER_STATISTIC = "other statistic"
    WRONG_RESULT = "wrong result"


class Effect(Record):
    """Ratio after / before with its confidence interval; `level` is what the interval covers (0.95 for 95 %)."""

    ratio: float
    low: float
    high: float
    level: float

    @property
    def excludes_one(self) -> bool:
        """Whether the interval leaves out "nothing changed"."""
        return self.low > 1 or self.high < 1


class ChangeVerdict(Record):
    """One comparison of one metric.

    `threshold_ratio` is the practical threshold (0.02: differences under 2 % do not matter). `effect` is None where the
    comparison is invalid or no number exists. `reason` and `to_resolve` are set exactly where nothing can be said.
    `false_alarm_ratio` is the chance of this outcome if nothing had changed. `tagged` marks a verdict that rests on an
    assumption and must not fail a gate; `is_alert` one that is proven and told, and fails none either: the history of a
    trunk is nobody's change. `least_speed_up` is the speed-up that was asked for (1.1: a tenth more steps in
    the same time), None where any change will do. A slow-down of `seen_ratio` or more would have been seen with 95 %;
    None where no deviation between runs is known.
    """

    outcome: Outcome
    threshold_ratio: float
    effect: Effect | None = None
    reason: Reason | None = None
    explanation: str = ""
    to_resolve: str = ""
    pairs: int = 0
    run_sd_ratio: float | None = None
    false_alarm_ratio: float | None = None
    tagged: bool = False
    is_alert: bool = False
    notes: tuple[str, ...] = ()
    least_speed_up: float | None = None
    seen_ratio: float | None = None

    @property
    def falls_short(self) -> bool:
        """Whether a speed-up was asked for that the interval does not prove; what forbids a verdict proves nothing."""
        if self.least_speed_up is None:
            return False
        forbidden = self.reason not in (None, Reason.TOO_NOISY)
        return forbidden or self.effect is None or self.effect.high > 1 / self.least_speed_up

    @property
    def is_final(self) -> bool:
        """Whether more pairs could say nothing new: a change or none is shown, and the speed-up asked for, or not."""
        if self.outcome is Outcome.INCONCLUSIVE:
            return False
        return not self.falls_short or self.effect is None or self.effect.low > 1 / (self.least_speed_up or 1)

    @property
    def label(self) -> str:
        """The outcome for people, with "likely" where the interval excludes no change but not the threshold."""
        if self.outcome is Outcome.INCONCLUSIVE and self.effect is not None and self.effect.excludes_one:
            return f"inconclusive (likely {'slower' if self.effect.ratio > 1 else 'faster'})"
        return str(self.outcome)


def inconclusive(
    threshold_ratio: float, reason: Reason, explanation: str, to_resolve: str, *, pairs: int = 0, tagged: bool = False
) -> ChangeVerdict:
    """A verdict without an effect: nothing can be said, and why."""
    return ChangeVerdict(
        Outcome.INCONCLUSIVE, threshold_ratio, None, reason, explanation, to_resolve, pairs=pairs, tagged=tagged
    )


def invalid(threshold_ratio: float, reason: Reason, explanation: str, to_resolve: str) -> ChangeVerdict:
    """The two sides cannot be compared, and why."""
    return ChangeVerdict(Outcome.INVALID, threshold_ratio, None, reason, explanation, to_resolve)


class Better(StrEnum):
    """Which direction of a metric is good; `NEITHER`: nothing says, so that any difference is worse."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class How(StrEnum):
    """How a metric is compared: runs with an interval, a counter exactly, a share within a tolerance in points."""

    RUNS = "runs"
    EXACT = "exact"
    SHARE = "share"


WITHOUT_PROFILER: Final = "step without the profiler"
"""The row of steps that a capture timed before it recorded others."""


class GateRow(Record):
    """One gated metric: its values on both sides in `unit`, and the verdict. `name` may come from a trace: untrusted.

    A row that is not `gated` (a median, a tail) is shown with the others and decides nothing. `limit` is what the value
    was to keep to, as asked (``>= 0.95x``), where it is no change that is judged.
    """

    name: str
    unit: str
    before: float | None
    after: float | None
    verdict: ChangeVerdict
    better: Better = Better.LOWER
    how: How = How.RUNS
    gated: bool = True
    limit: str = ""

    @property
    def failed(self) -> bool:
        """Whether this row alone fails the gate: worse beyond the threshold, and not resting on an assumption; or short
        of the speed-up that was asked for."""
        slower = self.verdict.outcome is Outcome.SLOWER and not (self.verdict.tagged or self.verdict.is_alert)
        return self.gated and (slower or self.verdict.falls_short)


class RunRow(Record):
    """One run as a report lists it, in the order in which runs were made. Times are seconds; None was not seen.

    `mark` is what ended its steps where they were found and not handed over, or "whole" where the run itself was timed.
    `probe_s` is what a fixed computation on the host took around the run. All its steps took `steps_s`, says whoever
    timed them (the program itself where `told`, in units of `grain_s`); seen from outside it lasted `outside_s`.
    `slope_ratio` is what the trend of its steps makes of a whole run.
    """

    number: int
    side: str
    mean_s: float
    median_s: float
    p95_s: float
    steps: int
    dropped: int
    settled: bool
    drift_ratio: float
    check: str | None = None
    mark: str = ""
    sm_mhz: float | None = None
    celsius: float | None = None
    probe_s: float | None = None
    slowed_by: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    slope_ratio: float | None = None
    steps_s: float | None = None
    outside_s: float | None = None
    grain_s: float = 0.0
    told: bool = False


class Contribution(Record):
    """One part of a change in step time: parts of a comparison sum to its total to the nanosecond."""

    name: str
    before_ns: int
    after_ns: int

    @property
    def delta_ns(self) -> int:
        """What this part adds to the change."""
        return self.after_ns - self.before_ns


class ChangeKind(StrEnum):
    """What a part of a change in step time comes from. Codes are stable: scripts may branch on them."""

    SLOWER = "same kernels, other time"
    OTHER_KERNELS = "other kernels"
    LAUNCHES = "other number of launches"
    OTHER_SHAPES = "other shapes"
    OTHER_OPERATORS = "other operators"
    WAITS = "host waits"
    WAITING = "waiting"
    COMMUNICATION = "communication"
    COPIES = "copies"


class ChangedWork(Record):
    """The same work before and after, per step, and what of its change is of one kind. Of idle time `place` is the
    cause, and `op` who waits. Names are untrusted text; what one side lacks is empty there."""

    op: str
    shapes: str
    place: str
    kernel_before: str
    kernel_after: str
    count_before: float
    count_after: float
    before_ns: int
    after_ns: int
    delta_ns: int


class StepChange(Record):
    """All of a change in step time that is of one kind, and of waiting of one cause. Those of a comparison sum to its
    total to the nanosecond."""

    kind: ChangeKind
    cause: str
    delta_ns: int
    works: tuple[ChangedWork, ...]


def summed_work(works: Sequence[ChangedWork]) -> ChangedWork:
    """Several as one, without a name."""
    figures = [(one.count_before, one.count_after, one.before_ns, one.after_ns, one.delta_ns) for one in works]
    before, after, *times_ns = map(sum, zip(*figures, strict=True))
    return ChangedWork("", "", "", "", "", before, after, *times_ns)


class Suspect(Record):
    """A setting that the two captures do not share; `can_cause`: whether it could make the change that leads."""

    name: str
    before: str
    after: str
    can_cause: bool


class RangeSide(Record):
    """The ranges of one name in one capture: how many, and of the mean one the host's time and the busy time of the GPU
    work launched inside."""

    count: int
    host_ns: float
    device_ns: float


class RangeChange(Record):
    """The ranges of one name before and after; None on a side that has none."""

    name: str
    before: RangeSide | None
    after: RangeSide | None


class Fate(StrEnum):
    """What became of a finding between two captures."""

    NEW = "new"
    GONE = "gone"
    CHANGED = "changed"
    SAME = "same"


class FindingChange(Record):
    """One finding before and after, in recoverable milliseconds per step (None where it is absent or unpriced).

    `moved`: it is at another place (range, operator, kernel, line) than before. `file` and `line` are where the program
    causes it, as far as a capture shows it: untrusted text.
    """

    code: str
    name: str
    message: str
    fate: Fate
    before_ms: float | None = None
    after_ms: float | None = None
    file: str | None = None
    line: int | None = None
    moved: bool = False


class GateResult(Presentable, Record):
    """Everything a gate has to say; every renderer works from this and nothing else.

    `procedure` is one of "same-job A/B", "stored baseline", "trunk history", "two captures", "table limits",
    "counters". `differences` maps an environment or manifest key to its two values. `changes`, `contributions` and
    `budget` are the change by what it comes from, that which explains most first, by work, and by kind of time: each
    sums to it. `suspects` are the settings that differ, those first that could do it; `joined_ratio` is the share of
    compute joined by operator and shapes, or by place in the step (`placed_ratio`); `alone_ratio` is what one side only
    has. `start_up` is the time before the first steady step by what it was spent on. `sides` are the captures that were
    compared, where a page can show what changed in them.

    >>> result = timesink.compare("before.json.gz", "after.json.gz")
    >>> result
    <GateResult two captures: inconclusive, 5 rows>
    >>> result.outcome, result.exit_code()
    (<Outcome.INCONCLUSIVE: 'inconclusive'>, 0)
    >>> [(part.name, part.delta_ns) for part in result.budget][:2]
    [('compute', 51988), ('exposed copy', -2953)]
    """

    suite: str
    procedure: str
    rows: tuple[GateRow, ...]
    differences: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    contributions: tuple[Contribution, ...] = ()
    budget: tuple[Contribution, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    ranges: tuple[RangeChange, ...] = ()
    runs: tuple[RunRow, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[StepChange, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    joined_ratio: float | None = None
    placed_ratio: float | None = None
    alone_ratio: float | None = None
    start_up: tuple[Contribution, ...] = ()
    origin: Origin = UNASKED
    sides: tuple[Trace, Trace] | None = None

    def __repr__(self) -> str:
        return f"<GateResult {self.suite or self.procedure}: {self.outcome.value}, {len(self.rows)} rows>"

    @property
    def outcome(self) -> Outcome:
        """The worst gated row: invalid, slower, inconclusive, faster, no difference; no row at all is invalid."""
        gated, harmless = [row.verdict for row in self.rows if row.gated], (Outcome.NO_DIFFERENCE, Outcome.INVALID)
        seen = {Outcome.INCONCLUSIVE if one.tagged and one.outcome not in harmless else one.outcome for one in gated}
        for outcome in (Outcome.INVALID, Outcome.SLOWER, Outcome.INCONCLUSIVE, Outcome.FASTER, Outcome.NO_DIFFERENCE):
            if outcome in seen:
                return outcome
        return Outcome.INVALID

    def exit_code(self, *, strict: bool = False) -> int:
        """0 nothing over the gate, 1 slower or short of the speed-up asked for, 3 inconclusive (only where strict), 4
        invalid."""
        if self.outcome is Outcome.INVALID:
            return 4
        if any(row.failed for row in self.rows):
            return 1
        return 3 if strict and self.outcome is Outcome.INCONCLUSIVE else 0
