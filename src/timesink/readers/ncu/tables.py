"""What Nsight Compute's reports and CSV pages have in common: launches, metrics and a session, which become a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from timesink.knowledge.metric_names import base_unit
from timesink.model.arrays import BoolArray, Int32Array
from timesink.model.record import dataclass, field
from timesink.model.tables import DEVICES, KERNEL_METRICS, KERNEL_PROFILES, KERNEL_RULES, SOURCES
from timesink.model.trace import ImportNote, Trace
from timesink.readers.cache import digest_of
from timesink.readers.ncu.wire import MetricColumns

_DURATION = "gpu__time_duration.sum"


@dataclass(frozen=True, slots=True)
class RuleMessage:
    """One message of one of the profiler's own rules."""

    rule: str
    section: str | None
    kind: str
    title: str | None
    message: str
    speedup_kind: str | None
    speedup_percent: float | None


@dataclass(slots=True)
class Launch:
    """What the report says of a launch, its metrics apart."""

    process: int = 0
    mangled: str = ""
    function: str = ""
    demangled: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    context: int | None = None
    stream: int | None = None
    lock_requested: bool | None = None
    lock_executed: bool | None = None
    ranges: list[str] = field(default_factory=list)
    rules: list[RuleMessage] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The most readable of the names the report gives."""
        return self.demangled or self.function or self.mangled or "(no name)"


_TOOL, _CUDA, _DRIVER = "Nsight Compute Target", "CUDA Version", "Display Driver Version"


@dataclass(slots=True)
class ReportSession:
    """The session details of a report, gathered over its blocks."""

    host: str | None = None
    command: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    devices: dict[int, dict[str, float | str]] = field(default_factory=dict)

    @property
    def tool_version(self) -> str | None:
        """Version of Nsight Compute, as in ``2025.3.1.0``."""
        words = self.versions.get(_TOOL, "").split()
        return words[0] if words else None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A report in memory. `names[i]` is the metric that number i of `metrics.name` means, `units[i]` its unit."""

    format: str
    launches: Sequence[Launch]
    names: Sequence[str]
    metrics: MetricColumns
    session: ReportSession
    units: Sequence[str | None] | None = None
    notes: tuple[ImportNote, ...] = ()


def trace_of(path: Path, report: KernelReport) -> Trace:
    """The canonical tables of the report."""
    wide = _Wide(report)
    tables = {
        SOURCES: _sources(path, report),
        DEVICES: _devices(report),
        KERNEL_PROFILES: _profiles(report, wide),
        KERNEL_METRICS: _metrics(report),
        KERNEL_RULES: _rules(report.launches),
    }
    return Trace(str(path), tables, report.notes)


class _Wide:
    """Single metrics of every profile, by name."""

    def __init__(self, report: KernelReport) -> None:
        self._metrics = report.metrics
        self._numbers = {name: number for number, name in reversed(list(enumerate(report.names)))}
        self._profiles = len(report.launches)

    def numbers(self, name: str) -> list[float | None]:
        """The metric of each profile, None where it is absent."""
        values: list[float | None] = [None] * self._profiles
        for index in self._rows(name):
            if self._metrics.is_number[index]:
                values[int(self._metrics.profile[index])] = float(self._metrics.value[index])
        return values

    def texts(self, name: str) -> list[str | None]:
        values: list[str | None] = [None] * self._profiles
        for index in self._rows(name):
            values[int(self._metrics.profile[index])] = self._metrics.texts.get(index)
        return values

    def _rows(self, name: str) -> list[int]:
        number = self._numbers.get(name)
        rows: list[int] = [] if number is None else np.flatnonzero(self._metrics.name == number).tolist()
        return rows


def _profiles(report: KernelReport, wide: _Wide) -> pl.DataFrame:
    launches, metrics, session = report.launches, report.metrics, report.session
    count = len(launches)
    failed = metrics.is_number & np.isnan(metrics.value) & ~_derived(report)
    columns: dict[str, Iterable[object]] = {
        "profile": range(count),
        "rank": [0] * count,
        "process": [launch.process for launch in launches],
        "device": wide.numbers("launch__device_id"),
        "name": [launch.name for launch in launches],
        "function": [launch.function or None for launch in launches],
        "context": [launch.context for launch in launches],
        "stream": [launch.stream for launch in launches],
        "compute_major": wide.numbers("device__attribute_compute_capability_major"),
        "compute_minor": wide.numbers("device__attribute_compute_capability_minor"),
        "gpu": wide.texts("device__attribute_display_name"),
        "duration_ns": wide.numbers(_DURATION),
        "clock_control": [_clock_control(launch) for launch in launches],
        "nvtx": ["/".join(launch.ranges) or None for launch in launches],
        "tool_version": [session.tool_version] * count,
        "cuda_version": [session.versions.get(_CUDA)] * count,
        "driver_version": [session.versions.get(_DRIVER)] * count,
        "command": [session.command] * count,
        "metrics": _per_profile(metrics.profile, count),
        "failed_metrics": _per_profile(metrics.profile[failed], count),
    }
    for axis, letter in enumerate("xyz"):
        columns[f"grid_{letter}"] = [launch.grid[axis] if launch.grid else None for launch in launches]
        columns[f"block_{letter}"] = [launch.block[axis] if launch.block else None for launch in launches]
    return KERNEL_PROFILES.build(_typed(columns))


def _derived(report: KernelReport) -> BoolArray:
    """Metrics that ncu computes from others: theirs may be 0/0 without any pass having failed."""
    kinds = np.array([name.startswith("derived") for name in report.names], dtype=np.bool_)
    return kinds[report.metrics.name] if len(kinds) else np.zeros(0, dtype=np.bool_)


def _typed(columns: Mapping[str, Iterable[object]]) -> dict[str, pl.Series]:
    """Lists as series of the declared types, so that a list of nothing but None is typed too."""
    return {
        name: pl.Series(name, values, dtype=_loose(name), strict=False).cast(
            KERNEL_PROFILES.columns[name].dtype, strict=False
        )
        for name, values in columns.items()
    }


def _loose(name: str) -> pl.DataType | type[pl.DataType]:
    dtype = KERNEL_PROFILES.columns[name].dtype
    is_word = isinstance(dtype, (pl.Enum, pl.Categorical))
    return pl.String if is_word else pl.Float64 if dtype in (pl.Int32, pl.Float64) else dtype


def _clock_control(launch: Launch) -> str | None:
    if launch.lock_requested is None:
        return None
    if not launch.lock_requested:
        return "unlocked"
    return "locked_base" if launch.lock_executed else "lock_failed"


def _per_profile(profile: Int32Array, count: int) -> list[int]:
    counted: list[int] = np.bincount(profile, minlength=count).tolist() if count else []
    return counted


def _metrics(report: KernelReport) -> pl.DataFrame:
    metrics = report.metrics
    units = report.units if report.units is not None else [base_unit(name) for name in report.names]
    number = pl.Series(metrics.name)
    names = pl.Series(list(report.names), dtype=pl.String).cast(pl.Categorical())
    unit_of = pl.Series(list(units), dtype=pl.String).cast(pl.Categorical())
    rows = list(metrics.texts)
    distinct = sorted(set(metrics.texts.values()))
    place = {words: index for index, words in enumerate(distinct)}
    text_index = np.full(len(metrics.name), -1, dtype=np.int64)
    text_index[rows] = [place[metrics.texts[row]] for row in rows]
    texts = pl.Series([*distinct, None], dtype=pl.String).cast(pl.Categorical())
    value = pl.Series(metrics.value).zip_with(pl.Series(metrics.is_number), pl.Series([None], dtype=pl.Float64))
    return KERNEL_METRICS.build(
        {
            "rank": 0,
            "profile": pl.Series(metrics.profile),
            "metric": names[number],
            "unit": unit_of[number],
            "value": value,
            "text": texts[pl.Series(np.where(text_index < 0, len(distinct), text_index))],
        }
    )


def _rules(launches: Sequence[Launch]) -> pl.DataFrame:
    rows = [(profile, message) for profile, launch in enumerate(launches) for message in launch.rules]
    names = ("rule", "section", "kind", "title", "message", "speedup_kind")
    words = {name: [getattr(message, name) for _, message in rows] for name in names}
    percents = [message.speedup_percent for _, message in rows]
    columns = {name: pl.Series(name, values, dtype=pl.String) for name, values in words.items()}
    columns["profile"] = pl.Series([profile for profile, _ in rows], dtype=pl.Int32)
    columns["rank"] = pl.Series([0] * len(rows), dtype=pl.Int32)
    columns["speedup_percent"] = pl.Series(percents, dtype=pl.Float64)
    return KERNEL_RULES.build(columns)


def _sources(path: Path, report: KernelReport) -> pl.DataFrame:
    return SOURCES.build(
        {
            "rank": [0],
            "path": [str(path)],
            "format": [report.format],
            "tool_version": pl.Series([report.session.tool_version], dtype=pl.String),
            "sha256": [digest_of(path)],
            "size_bytes": [path.stat().st_size],
            "host": pl.Series([report.session.host], dtype=pl.String),
        }
    )


def _devices(report: KernelReport) -> pl.DataFrame:
    rows = sorted(report.session.devices.items())
    numbers = {
        "compute_major": "compute_capability_major",
        "compute_minor": "compute_capability_minor",
        "sm_count": "multiprocessor_count",
        "l2_bytes": "l2_cache_size",
    }
    columns = {
        column: pl.Series([_number(values, name) for _, values in rows], dtype=pl.Float64).cast(
            DEVICES.columns[column].dtype, strict=False
        )
        for column, name in numbers.items()
    }
    columns["device"] = pl.Series([ordinal for ordinal, _ in rows], dtype=pl.Int32)
    columns["rank"] = pl.Series([0] * len(rows), dtype=pl.Int32)
    columns["name"] = pl.Series([_word(values, "display_name") for _, values in rows], dtype=pl.String)
    columns["bandwidth_bytes_per_s"] = pl.Series([_bandwidth(values) for _, values in rows], dtype=pl.Float64)
    khz = [_number(values, "clock_rate") for _, values in rows]
    columns["clock_hz"] = (pl.Series(khz, dtype=pl.Float64) * 1000).cast(pl.Int64, strict=False)
    return DEVICES.build(columns)


def _number(values: Mapping[str, float | str], name: str) -> float | None:
    value = values.get(f"device__attribute_{name}")
    return value if isinstance(value, float) else None


def _word(values: Mapping[str, float | str], name: str) -> str | None:
    value = values.get(f"device__attribute_{name}")
    return value if isinstance(value, str) else None


def _bandwidth(values: Mapping[str, float | str]) -> float | None:
    """Both edges of the memory clock (kHz) times the bus width (bits)."""
    clock, width = _number(values, "memory_clock_rate"), _number(values, "global_memory_bus_width")
    return None if clock is None or width is None else 2 * clock * 1000 * width / 8
