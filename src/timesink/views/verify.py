"""The tables of what is kept between runs: `timesink ledger`, `timesink calibrate`, `timesink baseline show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from timesink.verify.baseline import Baseline
from timesink.verify.calibration import Calibration
from timesink.verify.ledger import Entry, track_record
from timesink.verify.outcomes import RunRow
from timesink.views.page import Column, Page, Sheet


def ledger_page(entries: Sequence[Entry]) -> Page:
    """Every entry with its predicted and measured gain, and how good predictions are here."""
    columns = (
        Column("number", "no.", "1"),
        Column("opened", "opened"),
        Column("hypothesis", "hypothesis"),
        Column("finding", "finding", is_name=True),
        Column("predicted_ms", "predicted", "ms"),
        Column("outcome", "outcome"),
        Column("measured_ms", "measured", "ms"),
        Column("error_ms", "error", "ms"),
        Column("within", "as predicted"),
    )
    rows = tuple(
        (
            entry.number,
            entry.opened[:10],
            entry.hypothesis,
            entry.finding,
            entry.predicted.value_ms if entry.predicted else None,
            str(entry.outcome) if entry.outcome else "open",
            entry.measured.value_ms if entry.measured else None,
            entry.error_ms,
            entry.within,
        )
        for entry in entries
    )
    past = track_record(list(entries))
    note = f"{past.within} of {past.compared} measured gains lie in their predicted interval"
    if past.median_ratio is not None:
        note += f"; measured over predicted: {past.median_ratio:.2f} (median)"
    return Page("Ledger", (Sheet("entries", "Entries", columns, rows, note if past.compared else ""),))


def calibration_page(path: Path, calibration: Calibration, rows: Sequence[RunRow], notes: Sequence[str]) -> Page:
    """The deviation between runs here, and the runs of this session."""
    title = f"Runs here differ by {100 * calibration.run_sd_ratio:.2g} % (standard deviation)"
    result = Sheet(
        "calibration",
        "Calibration",
        (Column("run_sd_ratio", "run sd", "ratio"), Column("runs", "runs", "1"), Column("sessions", "sessions", "1")),
        ((calibration.run_sd_ratio, calibration.df + 1, calibration.sessions),),
        f"kept in {path}",
    )
    runs = Sheet(
        "runs",
        "Runs of this session",
        (Column("number", "run", "1"), Column("mean_s", "mean step", "s"), Column("steps", "steps", "1")),
        tuple((row.number, row.mean_s, row.steps) for row in rows),
    )
    return Page(title, (result, runs), tuple(notes))


def baselines_page(suite: str, baselines: Sequence[tuple[Path, Baseline]]) -> Page:
    """The stored baselines of a suite, each with its file."""
    columns = (
        Column("file", "file", is_name=True),
        Column("gpu", "GPU"),
        Column("runs", "runs", "1"),
        Column("newest", "newest run"),
        Column("counters", "counters", "1"),
        Column("reason", "last reason"),
    )
    rows = tuple(
        (
            str(path),
            baseline.environment.get("gpu", ""),
            len(baseline.runs),
            str(baseline.last_run or ""),
            len(baseline.counters),
            baseline.updates[-1][1] if baseline.updates else "",
        )
        for path, baseline in baselines
    )
    return Page(f"Baselines of suite {suite}", (Sheet("baselines", "Baselines", columns, rows),))
