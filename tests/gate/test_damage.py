"""Damage never turns a finding into "no bottleneck": what is lost may make a verdict undecided, never a clean bill.
Where calls, correlations or kernels are lost, the first line says that what fills the time is not known.

The worst capture of 42 programs is damaged in one way each; in every way behind the marker `slow`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.gate.programs import Program
from tests.gate.test_gate import ARCHIVES
from tests.profiles import swept

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.known import known
from timesink.model.intervals import Intervals
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.readers.plausibility import make_plausible
from timesink.records import replace

Damage = Callable[[Trace], Trace]
COUNT = 42
HOUR_NS = 3600 * 10**9


def with_rows(trace: Trace, table: Table, frame: pl.DataFrame) -> Trace:
    """The trace with other rows of a table; of collectives, as of readers, only those whose GPU has work."""
    tables = {**trace.tables, table: frame.sort(table.sorted_by, maintain_order=True)}
    if table is DEVICE_OPS and COLLECTIVES in tables:
        used = frame.select("rank", "device").unique()
        tables[COLLECTIVES] = tables[COLLECTIVES].join(used, on=["rank", "device"], how="semi", maintain_order="left")
    return replace(trace, tables=tables)


def without(*tables: Table) -> Damage:
    """The categories were not recorded at all."""
    return lambda trace: replace(
        trace, tables={table: frame for table, frame in trace.tables.items() if table not in tables}
    )


def emptied(table: Table) -> Damage:
    """The category was recorded, and its rows are gone."""
    return lambda trace: with_rows(trace, table, trace.get(table).clear()) if table in trace else trace


def kept(condition: pl.Expr) -> Damage:
    return lambda trace: with_rows(trace, DEVICE_OPS, trace[DEVICE_OPS].filter(condition))


def changed(**columns: Any) -> Damage:
    return lambda trace: with_rows(trace, DEVICE_OPS, trace[DEVICE_OPS].with_columns(**columns))


def shifted(by_ns: int, condition: pl.Expr | bool = True) -> Damage:
    where = pl.lit(condition) if isinstance(condition, bool) else condition
    return changed(
        start_ns=pl.col("start_ns") + pl.when(where).then(by_ns).otherwise(0),
        end_ns=pl.col("end_ns") + pl.when(where).then(by_ns).otherwise(0),
    )


def twice(trace: Trace) -> Trace:
    return with_rows(trace, DEVICE_OPS, pl.concat([trace[DEVICE_OPS], trace[DEVICE_OPS]]))


def in_each(change: Callable[[pl.DataFrame], pl.DataFrame], *tables: Table) -> Damage:
    """Tables that have rows, each changed."""

    def damage(trace: Trace) -> Trace:
        for table in tables:
            if trace.get(table).height:
                trace = with_rows(trace, table, change(trace[table]))
        return trace

    return damage


def renamed(name: pl.Expr, *tables: Table) -> Damage:
    return in_each(lambda frame: frame.with_columns(name.cast(frame.schema["name"]).alias("name")), *tables)


def without_the_middle(trace: Trace) -> Trace:
    first, last = trace[DEVICE_OPS]["start_ns"].min(), trace[DEVICE_OPS]["end_ns"].max()
    begin, end = first + (last - first) // 3, last - (last - first) // 3
    return in_each(lambda frame: frame.filter((pl.col("end_ns") <= begin) | (pl.col("start_ns") >= end)), *TIMED)(trace)


def without_the_busiest_stream(trace: Trace) -> Trace:
    streams = trace[DEVICE_OPS].group_by("stream").agg(LENGTH.sum().alias("length")).sort("length")["stream"]
    return kept(pl.col("stream") != streams[-1])(trace) if len(streams) > 1 else trace


TIMED = (DEVICE_OPS, API_CALLS, HOST_OPS, RANGES, FRAMES)
NAME = pl.col("name").cast(pl.String)
START, LENGTH, ROW = pl.col("start_ns"), pl.col("end_ns") - pl.col("start_ns"), pl.int_range(pl.len())
NO_NUMBER = pl.lit(None, DEVICE_OPS.columns["correlation"].dtype)
KERNEL, COPY = pl.col("kind") == "kernel", pl.col("kind") == "copy"
DAMAGES: dict[str, Damage] = {
    "no kernels": kept(~KERNEL),
    "no copies": kept(~COPY),
    "every other kernel lost": kept(~KERNEL | (ROW % 2 == 0)),
    "no GPU work": without(DEVICE_OPS),
    "GPU work emptied": emptied(DEVICE_OPS),
    "no calls": without(API_CALLS),
    "calls emptied": emptied(API_CALLS),
    "no operators": without(HOST_OPS),
    "nothing of the host": without(API_CALLS, HOST_OPS, RANGES, FRAMES),
    "one kernel": kept(ROW == 0),
    "hours early": shifted(-28 * HOUR_NS),
    "a quarter hours early": shifted(-28 * HOUR_NS, ROW % 4 == 0),
    "at time zero": changed(
        start_ns=pl.when(ROW % 3 == 0).then(0).otherwise(START),
        end_ns=pl.when(ROW % 3 == 0).then(0).otherwise("end_ns"),
    ),
    "ten seconds late": shifted(10 * 10**9),
    "no lengths": changed(end_ns=START),
    "copies without lengths": changed(end_ns=pl.when(COPY).then(START).otherwise("end_ns")),
    "copies of no direction": changed(copy_kind=pl.lit(None, DEVICE_OPS.columns["copy_kind"].dtype)),
    "all at once": changed(start_ns=START.min(), end_ns=START.min() + LENGTH),
    "some far too long": changed(end_ns=pl.when(ROW % 50 == 7).then(START + 100 * LENGTH.max()).otherwise("end_ns")),
    "each stands twice": twice,
    "another device": changed(device=(ROW % 2).cast(pl.Int32)),
    "names cut to 12": renamed(NAME.str.head(12), DEVICE_OPS, API_CALLS, HOST_OPS),
    "names cut to 40": renamed(NAME.str.head(40), DEVICE_OPS),
    "no names": renamed(pl.lit(""), DEVICE_OPS),
    "every other launch lost": in_each(
        lambda frame: frame.filter(~NAME.str.contains("(?i)launch") | (ROW % 2 == 0)), API_CALLS
    ),
    "busiest stream lost": without_the_busiest_stream,
    "one thread": in_each(lambda frame: frame.with_columns(thread=pl.lit(7, frame.schema["thread"])), *TIMED[1:]),
    "whole microseconds": in_each(
        lambda frame: frame.with_columns(START // 1000 * 1000, pl.col("end_ns") // 1000 * 1000), *TIMED
    ),
    "middle third lost": without_the_middle,
    "no correlations": in_each(lambda frame: frame.with_columns(correlation=NO_NUMBER), DEVICE_OPS),
    "every other correlation": in_each(
        lambda frame: frame.with_columns(correlation=pl.when(ROW % 2 == 0).then("correlation")), DEVICE_OPS
    ),
    "one correlation": in_each(
        lambda frame: frame.with_columns(correlation=pl.lit(7, frame.schema["correlation"])), DEVICE_OPS, API_CALLS
    ),
    "nine of ten kernels lost": kept(~KERNEL | (ROW % 10 == 0)),
    "each number one off": in_each(lambda frame: frame.with_columns(correlation=pl.col("correlation") + 1), DEVICE_OPS),
    "first half lost": in_each(lambda frame: frame.filter(pl.len() // 2 <= ROW), DEVICE_OPS),
    "last half lost": in_each(lambda frame: frame.filter(pl.len() // 2 > ROW), DEVICE_OPS),
    "last half of the calls lost": in_each(lambda frame: frame.filter(pl.len() // 2 > ROW), API_CALLS),
    "no marks": in_each(lambda frame: frame.clear(), RANGES),
    "marks twice": in_each(lambda frame: pl.concat([frame, frame]), RANGES),
    "calls twice": in_each(lambda frame: pl.concat([frame, frame]), API_CALLS),
    "operators twice": in_each(lambda frame: pl.concat([frame, frame]), HOST_OPS),
    "half of the operators lost": in_each(lambda frame: frame.filter(ROW % 2 == 0), HOST_OPS),
    "calls of no length": in_each(lambda frame: frame.with_columns(end_ns=START), API_CALLS),
    "a call without an end": in_each(
        lambda frame: frame.with_columns(end_ns=pl.when(ROW == 7).then(START + HOUR_NS).otherwise("end_ns")), API_CALLS
    ),
    "a kernel without an end": changed(end_ns=pl.when(ROW == 7).then(START + HOUR_NS).otherwise("end_ns")),
    "all of one name": renamed(pl.lit("kernel"), DEVICE_OPS),
    "all on one stream": changed(stream=pl.lit(7, DEVICE_OPS.columns["stream"].dtype)),
    "each on a stream of its own": changed(stream=ROW.cast(DEVICE_OPS.columns["stream"].dtype)),
    "a millisecond late": shifted(10**6),
    "calls a millisecond late": in_each(
        lambda frame: frame.with_columns(START + 10**6, pl.col("end_ns") + 10**6), API_CALLS
    ),
    "a tenth lost": kept(ROW % 10 != 3),
    "no launches": in_each(lambda frame: frame.filter(~NAME.str.contains("(?i)launch")), API_CALLS),
    "waits of the host lost": in_each(lambda frame: frame.filter(~NAME.str.contains("(?i)synchron|memcpy")), API_CALLS),
}


def damaged_bills(archive: Path, folder: Path, damages: list[str]) -> list[str] | None:
    """The damages that turn the finding of an archive's worst capture into a clean bill; None where it has none."""
    unpacked(archive, folder)
    captures = captures_in(folder)
    name = next((name for name in captures if ".high.fault" in name), min(captures))
    trace = read(captures[name], cache=False)
    if not trace.get(DEVICE_OPS).height or is_clean_bill(trace):
        return None
    return [damage for damage in damages if is_clean_bill(make_plausible(DAMAGES[damage](trace)))]


def is_clean_bill(trace: Trace) -> bool:
    return diagnose(trace).bottleneck is Bottleneck.NONE


LOSSES = (
    "no kernels", "every other kernel lost", "nine of ten kernels lost", "no calls", "calls emptied", "no launches",
    "every other launch lost", "no correlations", "every other correlation", "one correlation",
)  # fmt: skip
LARGE = 0.15  # of the span: what is idle and claimed by no finding


def untold(trace: Trace) -> float:
    """How much of the span nobody claims, where the first line does not say that something was lost; else 0."""
    found = diagnose(trace)
    said = (" is not explained: ", "GPU work may be missing in ")
    if found.bottleneck is Bottleneck.UNDECIDED or any(words in found.statement for words in said):
        return 0.0
    shares = [0.0]
    for device, line in device_timeline(trace).by_device.items():
        claims = [one.claim.intervals[device] for _, one in found.findings if device in one.claim.intervals]
        shares.append((line.idle - Intervals.union_all(claims)).total_ns / max(line.span_ns, 1))
    return max(shares)


def losses_untold(archive: Path, folder: Path, losses: Sequence[str]) -> dict[str, float]:
    """The losses after which much of the span is idle for no known cause, and nobody says so."""
    unpacked(archive, folder)
    captures = captures_in(folder)
    trace = read(captures[next((name for name in captures if ".high.fault" in name), min(captures))], cache=False)
    if not trace.get(DEVICE_OPS).height or not trace.get(API_CALLS).height:
        return {}
    damaged = {loss: make_plausible(DAMAGES[loss](trace)) for loss in losses}
    # Where what was lost is a record in a hundred, nothing was: graphs launch all, or every other row was no launch.
    return {loss: share for loss, one in damaged.items() if known(one).missing and (share := untold(one)) >= LARGE}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, COUNT, 3))
def test_what_was_lost_is_in_the_first_line(tmp_path: Path, number: int) -> None:
    chosen = [LOSSES[number % len(LOSSES)], LOSSES[(number // 3 + 5) % len(LOSSES)]]
    assert losses_untold(ARCHIVES[number * len(ARCHIVES) // COUNT], tmp_path, chosen) == {}


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(ARCHIVES), ids=lambda path: path.name)
def test_whatever_was_lost_is_in_the_first_line(tmp_path: Path, archive: Path) -> None:
    assert losses_untold(archive, tmp_path, LOSSES) == {}


STEP_US, STEPS = 1_000, 12


@pytest.mark.slow
@pytest.mark.parametrize("length_us", [STEP_US * STEPS * 0.6, STEP_US * STEPS, STEP_US * STEPS * 40])
@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
def test_a_kernel_that_nothing_launched_hides_nothing(tmp_path: Path, profiler: str, length_us: float) -> None:
    """It is longer than the steps, whose GPU idles in most of their time; one that is launched is work as any other."""
    program = Program()
    for number in range(STEPS):
        with program.range(f"ProfilerStep#{number}"):
            for _ in range(4):
                with program.range("aten::mm", "cpu_op"):
                    program.launch("ampere_sgemm_128x64_nn", 30)
                program.pause(STEP_US / 4 - 40)
            program.wait()
    alone = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert alone.bottleneck not in (Bottleneck.NONE, Bottleneck.UNDECIDED)
    lone = {"kind": "kernel", "name": "lone", "at": 900.0, "us": length_us, "stream": 99, "device": 0, "correlation": 0}
    program.work.append({**lone, "facts": {"grid": [1, 1, 1], "block": [32, 1, 1]}})
    (tmp_path / "with").mkdir()
    beside = diagnose(read(getattr(program, profiler)(tmp_path / "with"), cache=False))
    assert beside.statement == alone.statement
    assert any("no call launched" in note.message for note in beside.notes)


def test_there_are_the_damages_that_were_measured(record_property: Callable[[str, object], None]) -> None:
    record_property("figure", f"clean bills on damage: {len(DAMAGES)} damages, {len(ARCHIVES)} captures")
    assert len(DAMAGES) >= 53


@pytest.mark.slow
@pytest.mark.parametrize("number", range(COUNT))
def test_no_damage_makes_a_clean_bill(tmp_path: Path, number: int) -> None:
    every = list(DAMAGES)
    assert not damaged_bills(ARCHIVES[number * len(ARCHIVES) // COUNT], tmp_path, [every[number % len(every)]])


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(swept(ARCHIVES)), ids=lambda path: path.name)
def test_no_damage_of_any_kind_makes_a_clean_bill(tmp_path: Path, archive: Path) -> None:
    assert not damaged_bills(archive, tmp_path, list(DAMAGES))
