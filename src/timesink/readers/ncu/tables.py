"""What Nsight Compute's reports and CSV pages have in common: launches, metrics and a session, which become a trace."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from timesink.knowledge.metric_names import base_unit
from timesink.model.schema import Table
from timesink.model.tables import DEVICES, KERNEL_METRICS, KERNEL_PROFILES, KERNEL_RULES, SOURCES
from timesink.model.trace import ImportNote, Trace
from timesink.readers.file import digest_of
from timesink.readers.ncu.wire import MetricColumns
from timesink.records import Record, State, field, field_names


class RuleMessage(Record):
    """One message of one of the profiler's own rules."""

    rule: str
    section: str | None
    kind: str
    title: str | None
    message: str
    speedup_kind: str | None
    speedup_percent: float | None


class Launch(State):
    """What the report says of a launch, its metrics apart."""

    process: int = 0
    mangled: str = ""
    function: str = ""
    demangled: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    context: int | None = None
    stream: int | None = None
    clock_control: str | None = None
    ranges: list[str] = field(default_factory=list)
    rules: list[RuleMessage] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The most readable of the names the report gives."""
        return self.demangled or self.function or self.mangled or "(no name)"


class ReportSession(State):
    """The session details of a report, gathered over its blocks."""

    host: str | None = None
    command: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    devices: dict[int, dict[str, float | str]] = field(default_factory=dict)

    @property
    def tool_version(self) -> str | None:
        """Version of Nsight Compute, as in ``2025.3.1.0``."""
        words = self.versions.get("Nsight Compute Target", "").split()
        return words[0] if words else None


class KernelReport(Record):
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
    source = {
        "rank": 0,
        "path": [str(path)],
        "format": report.format,
        "tool_version": report.session.tool_version,
        "sha256": digest_of(path),
        "size_bytes": path.stat().st_size,
        "host": report.session.host,
    }
    tables = {
        SOURCES: SOURCES.build(source),
        DEVICES: _devices(report),
        KERNEL_PROFILES: _profiles(report),
        KERNEL_METRICS: _metrics(report),
        KERNEL_RULES: _rules(report.launches),
    }
    return Trace(str(path), tables, report.notes)


def _built(table: Table, columns: Mapping[str, Iterable[object]]) -> pl.DataFrame:
    """The table of columns as lists, in which a number that does not fit its column is missing."""
    series = {name: pl.Series(name, list(values), strict=False) for name, values in columns.items()}
    return table.build({name: one.cast(table.columns[name].dtype, strict=False) for name, one in series.items()})


def _profiles(report: KernelReport) -> pl.DataFrame:
    launches, metrics, session = report.launches, report.metrics, report.session
    count = len(launches)
    numbers_of = {name: number for number, name in reversed(list(enumerate(report.names)))}
    derived = np.array([name.startswith("derived") for name in report.names], dtype=np.bool_)
    # Theirs are computed from others, and may be 0/0 without any pass having failed.
    of_derived = derived[metrics.name] if len(derived) else np.zeros(0, dtype=np.bool_)
    failed = metrics.is_number & np.isnan(metrics.value) & ~of_derived

    def single(name: str, value_of: Callable[[int], object]) -> list[object]:
        """The metric of each profile, None where it is absent."""
        values: list[object] = [None] * count
        for row in np.flatnonzero(metrics.name == numbers_of.get(name, -1)).tolist():
            if (value := value_of(row)) is not None:
                values[int(metrics.profile[row])] = value
        return values

    def number(name: str) -> list[object]:
        return single(name, lambda row: float(metrics.value[row]) if metrics.is_number[row] else None)

    columns: dict[str, Iterable[object]] = {
        "profile": range(count),
        "rank": [0] * count,
        "process": [launch.process for launch in launches],
        "device": number("launch__device_id"),
        "name": [launch.name for launch in launches],
        "function": [launch.function or None for launch in launches],
        "context": [launch.context for launch in launches],
        "stream": [launch.stream for launch in launches],
        "compute_major": number("device__attribute_compute_capability_major"),
        "compute_minor": number("device__attribute_compute_capability_minor"),
        "gpu": single("device__attribute_display_name", metrics.texts.get),
        "duration_ns": number("gpu__time_duration.sum"),
        "clock_control": [launch.clock_control for launch in launches],
        "nvtx": ["/".join(launch.ranges) or None for launch in launches],
        "tool_version": [session.tool_version] * count,
        "cuda_version": [session.versions.get("CUDA Version")] * count,
        "driver_version": [session.versions.get("Display Driver Version")] * count,
        "command": [session.command] * count,
        "metrics": np.bincount(metrics.profile, minlength=count).tolist(),
        "failed_metrics": np.bincount(metrics.profile[failed], minlength=count).tolist(),
    }
    for axis, letter in enumerate("xyz"):
        columns[f"grid_{letter}"] = [launch.grid[axis] if launch.grid else None for launch in launches]
        columns[f"block_{letter}"] = [launch.block[axis] if launch.block else None for launch in launches]
    return _built(KERNEL_PROFILES, columns)


def _metrics(report: KernelReport) -> pl.DataFrame:
    metrics = report.metrics
    units = report.units if report.units is not None else [base_unit(name) for name in report.names]
    number = pl.Series(metrics.name)
    names = pl.Series(list(report.names), dtype=pl.String).cast(pl.Categorical())
    unit_of = pl.Series(list(units), dtype=pl.String).cast(pl.Categorical())
    distinct = sorted(set(metrics.texts.values()))
    place = {words: index for index, words in enumerate(distinct)}
    text_index = np.full(len(metrics.name), len(distinct), dtype=np.int64)
    text_index[list(metrics.texts)] = [place[words] for words in metrics.texts.values()]
    texts = pl.Series([*distinct, None], dtype=pl.String).cast(pl.Categorical())
    value = pl.Series(metrics.value).zip_with(pl.Series(metrics.is_number), pl.Series([None], dtype=pl.Float64))
    return KERNEL_METRICS.build(
        {
            "rank": 0,
            "profile": pl.Series(metrics.profile),
            "metric": names[number],
            "unit": unit_of[number],
            "value": value,
            "text": texts[pl.Series(text_index)],
        }
    )


def _rules(launches: Sequence[Launch]) -> pl.DataFrame:
    rows = [(profile, message) for profile, launch in enumerate(launches) for message in launch.rules]
    words = {name: [getattr(message, name) for _, message in rows] for name in field_names(RuleMessage)}
    return _built(KERNEL_RULES, {"rank": [0] * len(rows), "profile": [profile for profile, _ in rows], **words})


_NUMBERS = {
    "compute_major": "compute_capability_major", "compute_minor": "compute_capability_minor",
    "sm_count": "multiprocessor_count", "l2_bytes": "l2_cache_size",
}  # fmt: skip


def _devices(report: KernelReport) -> pl.DataFrame:
    rows = sorted(report.session.devices.items())

    def stated(name: str, kind: type) -> list[Any]:
        values = (attributes.get(f"device__attribute_{name}") for _, attributes in rows)
        return [value if isinstance(value, kind) else None for value in values]

    memory_khz, bus_bits = stated("memory_clock_rate", float), stated("global_memory_bus_width", float)
    columns: dict[str, Iterable[object]] = {
        "rank": [0] * len(rows),
        "device": [ordinal for ordinal, _ in rows],
        "name": stated("display_name", str),
        "clock_hz": [None if khz is None else khz * 1000 for khz in stated("clock_rate", float)],
        # Both edges of the memory clock times the bus width.
        "bandwidth_bytes_per_s": [
            None if khz is None or bits is None else 2 * khz * 1000 * bits / 8
            for khz, bits in zip(memory_khz, bus_bits, strict=True)
        ],
    }
    return _built(DEVICES, columns | {column: stated(name, float) for column, name in _NUMBERS.items()})
