"""What a report for a browser shows besides the diagnosis, as plain data: it computes nothing and reads no trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from timesink.diagnosis.verdicts import Diagnosis

LaneKind = Literal["range", "op", "call", "stream", "idle"]


@dataclass(frozen=True, slots=True)
class Part:
    """One share of a step: `kind` is compute, communication, copy, idle or an idle cause; `time_ns` is per step."""

    kind: str
    time_ns: float


@dataclass(frozen=True, slots=True)
class StepBudget:
    """Where the mean step of one device goes. The parts sum to `period_ns`; `steps` is how many were averaged, 0 where
    the trace has no steps and its whole span stands for one."""

    rank: int
    device: int
    steps: int
    period_ns: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The period of each steady step of one rank, in order. `spikes` are the steps that stand out, with what made them
    slow."""

    rank: int
    numbers: tuple[int, ...]
    period_ns: tuple[int, ...]
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    spikes: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One box of a lane: `row` 0 is the outermost. `kind` is what it is coloured by: a lane's kind, the class of device
    work, a cause of idle time. `name` and `detail` are untrusted text."""

    start_ns: int
    end_ns: int
    name: str
    kind: str
    row: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of a timeline. `hidden` boxes, shorter than every box drawn, were left out."""

    kind: LaneKind
    label: str
    items: tuple[Item, ...]
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one device's time around a finding; `claimed` is what of it the finding accounts for.

    `step` is the number of the step it lies in, where the trace has steps.
    """

    rank: int
    device: int
    start_ns: int
    end_ns: int
    step: int | None
    claimed: tuple[tuple[int, int], ...]
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All launches of one kernel on one device. `time_ratio` is its share of the device's summed kernel durations;
    `work` is what its name says it does, empty where that is not known."""

    rank: int
    device: int
    name: str
    count: int
    total_ns: int
    mean_ns: float
    max_ns: int
    time_ratio: float
    work: str = ""


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """All calls of one framework operator on one rank; `self` leaves out what operators inside it did."""

    rank: int
    name: str
    calls: int
    kernels: int
    self_device_ns: int
    total_device_ns: int
    self_host_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """`windows` holds the timeline of a finding by its position in `diagnosis.findings`; not every finding has one.

    Kernels and operators are the costliest; `kernel_count` and `operator_count` say of how many.
    """

    diagnosis: Diagnosis
    budgets: tuple[StepBudget, ...] = ()
    series: tuple[StepSeries, ...] = ()
    windows: Mapping[int, Window] = field(default_factory=dict)
    kernels: tuple[KernelTime, ...] = ()
    kernel_count: int = 0
    operators: tuple[OperatorTime, ...] = ()
    operator_count: int = 0
