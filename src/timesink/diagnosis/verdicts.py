"""The vocabulary of a diagnosis: quantities, evidence, findings, verdicts. It computes nothing and reads no trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, Self

from timesink.knowledge.step_parts import Bottleneck
from timesink.model.presentable import UNASKED, Origin, Presentable
from timesink.records import Record, field, field_names
from timesink.units import NS_PER_MS, share_text

if TYPE_CHECKING:  # the vocabulary stays importable where polars is absent
    from timesink.fixes import Fix
    from timesink.model.intervals import Intervals
    from timesink.whatif import Change


class Quantity(Record):
    """A value with its unit, and the ends of its interval where they are known, in the same unit."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None

    @classmethod
    def ms(cls, time_ns: float, low_ns: float | None = None, high_ns: float | None = None) -> Quantity:
        """A time in milliseconds, of nanoseconds."""
        low, high = (None if end_ns is None else end_ns / NS_PER_MS for end_ns in (low_ns, high_ns))
        return cls(time_ns / NS_PER_MS, "ms", low, high)

    @property
    def most(self) -> float:
        """The upper end, or the value where none is known."""
        return self.value if self.high is None else self.high


class Evidence(Record):
    """One measured figure that a verdict rests on; `rows` are the row numbers of `table` that it was measured from.

    `how` says in half a sentence how it was measured; `limit` is what it was compared with, in the same unit.
    """

    label: str
    measured: Quantity
    how: str
    limit: Quantity | None = None
    table: str = ""
    rows: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the figure is larger than what it was compared with."""
        return self.limit is not None and self.measured.value > self.limit.value


class Where(Record):
    """The place in the program, as far as it is known. Every text here comes from a trace: untrusted."""

    rank: int | None = None
    device: int | None = None
    stream: int | None = None
    thread: int | None = None
    step: str | None = None
    range: str | None = None
    op: str | None = None
    kernel: str | None = None
    file: str | None = None
    line: int | None = None

    def known(self) -> dict[str, str | int]:
        """The fields that are known, in declaration order."""
        return {name: value for name in field_names(self) if (value := getattr(self, name)) is not None}


class Claim(Record, eq=False):
    """Device time a finding accounts for: per (rank, device), the intervals that its fix could at most remove.

    `expected` is the part that it is expected to remove, where that is less than the whole.
    """

    intervals: Mapping[tuple[int, int], Intervals] = field(default_factory=dict)
    expected: Mapping[tuple[int, int], Intervals] | None = None

    @property
    def total_ns(self) -> int:
        """Device time claimed, summed over devices."""
        return sum(part.total_ns for part in self.intervals.values())


StepName = Literal["", "mean", "longest", "unprofiled"]
"""Which step or window a share is of, where not of the usual recorded one."""
PricedBy = Literal["replay", "kernel_time", "bound", "stated"]
"""How a price was found: by a replay of the dependency graph, from the recorded time of kernels that get shorter, as
the most that the claimed time allows, or by the rule itself."""


class OfPeriod(str):
    """A time and the step that it is a part of, with its share of that, `ratio`; `alone` is the same without it."""

    __slots__ = ("alone", "ratio")
    alone: str
    ratio: float

    def __new__(cls, alone: str, ratio: float) -> Self:
        """The text of both."""
        made = super().__new__(cls, f"{alone} ({share_text(ratio)})" if ratio else alone)
        made.alone, made.ratio = alone, ratio
        return made


class Finding(Record, eq=False):
    """One bottleneck, its place, its evidence, and what to do.

    `message` is one sentence an engineer can paste into a ticket. A rule gives the engine one of three things to price,
    the first of which that is there counts: `stated`, what the fix wins in milliseconds per step; `change`, which the
    what-if engine prices; `claim`, which bounds it. The claim also decides which findings share time.

    `fix` is the row of the table of fixes that the change is one of. `cause` is the rule whose finding on the same rank
    is a part of this one, which takes the time first. `parts`: what its message says of a step. `behind`: the
    part of its price that counts for its place, less than 1 where another finding on the same work comes first.

    The engine adds `recoverable`, the price after sharing, in milliseconds per `period`: per step, or of the recorded
    window where the trace has no steps; `of_ms`, the length of that step or window; `which`, where that is not the
    usual recorded one: the mean of steps whose median is another, the longest of windows, the unprofiled step;
    `priced_by`; and `counted_in`, the code of the rule whose finding has taken most of the claimed time before, and the
    share of it that is taken.

    >>> card, finding = timesink.diagnose("run.json.gz").findings[0]
    >>> card, finding
    (<Card IDL101 input-pipeline>, <Finding input_pipeline: 1... ms per step>)
    >>> finding.recoverable
    Quantity(value=1..., unit='ms', low=..., high=...)
    >>> finding.evidence[0].label, finding.evidence[0].measured.unit, finding.evidence[0].table
    ('idle time while input is prepared of GPU 0', 'ratio', 'device_ops')
    >>> finding.advice[:50]
    'Prepare the next batch while this one computes: Da'
    """

    message: str
    bottleneck: Bottleneck
    where: Where
    evidence: tuple[Evidence, ...]
    advice: str
    verify: str
    claim: Claim = field(default_factory=Claim)
    change: Change | None = None
    fix: Fix | None = None
    stated: Quantity | None = None
    cause: str = ""
    parts: tuple[OfPeriod, ...] = ()
    behind: float = 1.0
    recoverable: Quantity | None = None
    priced_by: PricedBy | None = None
    period: Literal["step", "window"] = "step"
    of_ms: float | None = None
    which: StepName = ""
    counted_in: tuple[str, float] | None = None

    def __repr__(self) -> str:
        gain = self.recoverable
        worth = "not priced" if gain is None else f"{gain.value:.3g} {gain.unit} per {self.period}"
        return f"<Finding {self.bottleneck.value}: {worth}>"

    @property
    def name(self) -> str:
        """The one name of its cause, as every door writes it: ``input-pipeline``."""
        return self.bottleneck.value.replace("_", "-")


class Found(Record, eq=False):
    """The rule looked and found its pattern: one finding per place."""

    findings: tuple[Finding, ...]


class Clear(Record):
    """The rule looked and found nothing; the evidence says how far from its limit each figure is."""

    evidence: tuple[Evidence, ...]


class NotApplicable(Record):
    """The question makes no sense for this trace, such as communication on one GPU."""

    why: str


class Undecided(Record):
    """The rule could not look. `to_decide` is what to capture, or the command that would decide it. `elsewhere` says
    that it takes another kind of capture, of which this one is not a part; `most_ratio` is how much of the step it may
    be about, where that is known."""

    why: str
    to_decide: str
    elsewhere: bool = False
    most_ratio: float = 0.0


Verdict = Found | Clear | NotApplicable | Undecided


class Card(Record):
    """A rule's identity. `code` is three letters and a number, never reused; `name` is the pattern, not its remedy.

    `doc` is its page in Markdown, of which `summary` is the first line.
    `symptom` says that other causes look like this one too: where claims overlap, such a finding takes what is left.
    """

    code: str
    name: str
    summary: str
    doc: str
    since: str
    references: tuple[str, ...] = ()
    symptom: bool = False

    def __repr__(self) -> str:
        return f"<Card {self.code} {self.name}>"


class Ruling(Record, eq=False):
    """One rule's verdict on one trace."""

    card: Card
    verdict: Verdict


_SPREAD: Final = 1.5  # times: no jitter of a steady step is as long


class StepFigures(Record):
    """Times of the steady steps. Percentiles the sample is too small for are None; `dropped` says what was left out;
    `unprofiled` are those steps that the capture timed without a profiler, before it recorded. `origin` is how they are
    known, marked, found or guessed, '' where there are none; `covered_ratio` the share of what was recorded that all
    steps take, left-out ones too; `least_ms` and `most_ms` the shortest and the longest."""

    count: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    source: str = ""
    dropped: tuple[str, ...] = ()
    unprofiled: StepFigures | None = None
    origin: str = ""
    covered_ratio: float | None = None
    least_ms: float | None = None
    most_ms: float | None = None

    @property
    def spread_ms(self) -> tuple[float, float] | None:
        """The shortest and the longest, where that is more than half again as long: no one length says what a
        step takes."""
        if not self.least_ms or not self.most_ms or self.most_ms <= _SPREAD * self.least_ms:
            return None
        return self.least_ms, self.most_ms

    @property
    def little_ratio(self) -> float | None:
        """The share of what was recorded that they take, where that is less than half."""
        return self.covered_ratio if self.covered_ratio is not None and 2 * self.covered_ratio < 1 else None

    @property
    def noun(self) -> str:
        """What they are called beside their count: ``guessed steps``, ``step``."""
        return f"{'guessed ' if self.origin == 'guessed' else ''}step{'s' if self.count != 1 else ''}"


class DeviceFigures(Record):
    """The time budget of one device: compute + exposed_comm + exposed_copy + idle = span, to the nanosecond."""

    rank: int
    device: int
    name: str
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int


class StepPart(Record):
    """One share of a step: `kind` is compute, communication, copy, or an idle cause; `time_ns` is per step."""

    kind: str
    time_ns: float


class StepBudget(Record):
    """Where the mean step of one device goes. The parts sum to `period_ns`; `steps` is how many were averaged, 0 where
    the trace has no steps and its whole span stands for one."""

    rank: int
    device: int
    steps: int
    period_ns: float
    parts: tuple[StepPart, ...]

    @property
    def compute_ns(self) -> float:
        """The time of the period in which a kernel computes."""
        return sum(part.time_ns for part in self.parts if part.kind == "compute")


class Note(Record):
    """One thing to know before believing the figures. `kind` is the reader's word for a note on the import (data loss,
    an assumption, rows left out) of `count` rows of `table`, or "unclaimed" where no finding claims a cause; it is
    empty where the diagnosis itself has another note. No number goes before a message that is `whole`."""

    message: str
    kind: str = ""
    count: int = 0
    table: str = ""
    whole: bool = False

    @property
    def counted(self) -> str:
        """The message behind the number of what it begins with, ``5 rows of GPU work begin ...``."""
        return self.message if self.whole or self.count < 2 else f"{self.count:,} {self.message}"

    def __str__(self) -> str:
        rows = f" ({self.count} row{'s' * (self.count > 1)})" if self.count and not self.whole else ""
        return f"{self.kind and self.kind + ': '}{self.message}{rows}"


class Diagnosis(Presentable, Record, eq=False):
    """Everything a report shows. `rulings` holds one verdict per rule, findings priced and ranked by the engine.

    `bottleneck` and `statement` are the verdict. `findings` are pairs of a rule's card and a finding, the costliest
    first. `steps`, `devices` and `budgets` are the figures of the trace, `notes` what to know before believing them.
    `partial` says what is wrong with the files where only part of them could be read; it stands before the verdict.
    `facts` are what the run was, as its author said: untrusted text.

    >>> diagnosis = timesink.diagnose("run.json.gz")
    >>> diagnosis
    <Diagnosis input_pipeline: ... findings, ... rules>
    >>> diagnosis.statement[:67]
    'GPU 0 is idle for 1.85 ms of the 12.4 ms step while thread 710 prep'
    >>> [card.code for card, finding in diagnosis.findings]
    ['IDL101', 'KRN108', ...]
    >>> diagnosis.steps.count, diagnosis.steps.p50_ms
    (11, 12.339153)
    """

    sources: tuple[Mapping[str, str | int | None], ...]
    steps: StepFigures
    devices: tuple[DeviceFigures, ...]
    rulings: tuple[Ruling, ...]
    findings: tuple[tuple[Card, Finding], ...]
    bottleneck: Bottleneck
    statement: str
    notes: tuple[Note, ...] = ()
    statements: tuple[str, ...] = ()
    budgets: tuple[StepBudget, ...] = ()
    profiled_kernels: int = 0
    partial: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    origin: Origin = UNASKED

    def __repr__(self) -> str:
        return f"<Diagnosis {self.bottleneck.value}: {len(self.findings)} findings, {len(self.rulings)} rules>"
