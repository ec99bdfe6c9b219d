"""The tables of what is kept between runs: `timesink ledger`, `timesink calibrate`, `timesink baseline show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from timesink.verify.baseline import Baseline
from timesink.verify.calibration import Calibration
from timesink.verify.ledger import Entry, Gain, track_record
from timesink.verify.outcomes import RunRow
from timesink.views.page import Field, Fields, Page, Sheet, sheet_of


def ledger_page(entries: Sequence[Entry]) -> Page:
    """Every entry with its predicted and measured gain, and how good predictions are here."""
    columns: Fields[Entry] = (
        (Field("number", "no.", "1"), lambda entry: entry.number),
        (Field("opened", "opened"), lambda entry: entry.opened[:10]),
        (Field("hypothesis", "hypothesis"), lambda entry: entry.hypothesis),
        (Field("finding", "finding", is_name=True), lambda entry: entry.finding),
        (Field("predicted_ms", "predicted", "ms"), lambda entry: _value_ms(entry.predicted)),
        (Field("outcome", "outcome"), lambda entry: str(entry.outcome) if entry.outcome else "open"),
        (Field("measured_ms", "measured", "ms"), lambda entry: _value_ms(entry.measured)),
        (Field("error_ms", "error", "ms"), lambda entry: entry.error_ms),
        (Field("within", "as predicted"), lambda entry: entry.within),
    )
    past = track_record(list(entries))
    note = f"{past.within} of {past.compared} measured gains lie in their predicted interval"
    if past.median_ratio is not None:
        note += f"; measured over predicted: {past.median_ratio:.2f} (median)"
    return Page("Ledger", (sheet_of("entries", "Entries", entries, columns, note if past.compared else ""),))


def _value_ms(gain: Gain | None) -> float | None:
    return None if gain is None else gain.value_ms


def calibration_page(path: Path, calibration: Calibration, rows: Sequence[RunRow], notes: Sequence[str]) -> Page:
    """The deviation between runs here, and the runs of this session."""
    title = f"Runs here differ by {100 * calibration.run_sd_ratio:.2g} % (standard deviation)"
    result = Sheet(
        "calibration",
        "Calibration",
        (Field("run_sd_ratio", "run sd", "ratio"), Field("runs", "runs", "1"), Field("sessions", "sessions", "1")),
        ((calibration.run_sd_ratio, calibration.df + 1, calibration.sessions),),
        f"kept in {path}",
    )
    runs = Sheet(
        "runs",
        "Runs of this session",
        (Field("number", "run", "1"), Field("mean_s", "mean step", "s"), Field("steps", "steps", "1")),
        tuple((row.number, row.mean_s, row.steps) for row in rows),
    )
    return Page(title, (result, runs), tuple(notes))


def baselines_page(suite: str, baselines: Sequence[tuple[Path, Baseline]]) -> Page:
    """The stored baselines of a suite, each with its file."""
    columns: Fields[tuple[Path, Baseline]] = (
        (Field("file", "file", is_name=True), lambda entry: str(entry[0])),
        (Field("gpu", "GPU"), lambda entry: entry[1].environment.get("gpu", "")),
        (Field("runs", "runs", "1"), lambda entry: len(entry[1].runs)),
        (Field("newest", "newest run"), lambda entry: str(entry[1].last_run or "")),
        (Field("counters", "counters", "1"), lambda entry: len(entry[1].counters)),
        (Field("reason", "last reason"), lambda entry: entry[1].updates[-1][1] if entry[1].updates else ""),
    )
    return Page(f"Baselines of suite {suite}", (sheet_of("baselines", "Baselines", baselines, columns),))
