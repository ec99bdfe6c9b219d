"""The tables of what is kept between runs: ledger, calibration, baselines, and windows of a training."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from timesink.diagnosis.engine import MATERIAL
from timesink.diagnosis.saving import saving_text, what_is_left
from timesink.diagnosis.verdicts import Diagnosis, Where
from timesink.records import Record, as_plain, field
from timesink.units import S_PER_MINUTE
from timesink.verify.baseline import Baseline, check_kept_file
from timesink.verify.calibration import Calibration
from timesink.verify.ledger import Entry, track_record
from timesink.verify.limits import STEP_THRESHOLD
from timesink.verify.outcomes import RunRow
from timesink.verify.power import RunnerLimit
from timesink.views import Field, Page, Sheet, declare, listed, sheet_of

_CHART = 30  # characters of the longest bar


def ledger_page(entries: Sequence[Entry]) -> Page:
    """Every entry with its predicted and measured gain, and how good predictions are here."""
    rows = []
    for one in entries:
        predicted_ms, measured_ms = (gain and gain.value_ms for gain in (one.predicted, one.measured))
        outcome = str(one.outcome) if one.outcome else "open"
        begun = (one.number, one.opened[:10], one.hypothesis, one.finding)
        rows.append((*begun, predicted_ms, outcome, measured_ms, one.error_ms, one.within))
    if not entries:
        title = "The ledger is empty: timesink verify --ledger add 'what should get faster, and why' opens an entry"
        return Page(title, (listed("verify.entries", rows),))
    past, still_open = track_record(list(entries)), sum(entry.outcome is None for entry in entries)
    title = f"{len(entries)} {'prediction' if len(entries) == 1 else 'predictions'}, {still_open} still open"
    if past.compared:
        title += f"; {past.within} of {past.compared} measured gains lie in their predicted interval"
    note = "" if past.median_ratio is None else f"measured over predicted: {past.median_ratio:.2f} (median)"
    sheets = (listed("verify.entries", rows, note), _progress(entries))
    return Page(title, tuple(sheet for sheet in sheets if sheet.rows))


def _progress(entries: Sequence[Entry]) -> Sheet:
    """The step after each change that was measured, in order, beside what it was before the first of them.

    Of an entry that was closed by hand with a gain alone, the step before is taken for that after the one before it.
    """
    steps: list[tuple[str, float]] = []
    for entry in entries:
        if (gain := entry.measured) is None or not (steps or gain.before_ms):
            continue
        steps += [] if steps else [("before", gain.before_ms or 0.0)]
        steps.append((f"{entry.number} {entry.hypothesis}", (gain.before_ms or steps[-1][1]) - gain.value_ms))
    longest = max((step_ms for _, step_ms in steps), default=1.0)
    rows = ((name, ms, ms / steps[0][1], "█" * max(1, round(_CHART * ms / longest))) for name, ms in steps)
    columns = declare("after [text], step_ms: step [ms], ratio: of the first", Field("chart", ""))
    return sheet_of("progress", "The step after each change", rows, columns)


def calibration_page(
    path: Path,
    calibration: Calibration,
    limit: RunnerLimit,
    rows: Sequence[RunRow],
    notes: Sequence[str],
    run_s: float,
) -> Page:
    """What slow-down is seen here, the deviation between runs, and this session's runs, of `run_s` seconds each."""
    all_s = 2 * (limit.pairs + 1) * run_s
    length = f"{all_s / S_PER_MINUTE:.2g} minutes" if all_s >= 2 * S_PER_MINUTE else f"{all_s:.0f} seconds"
    first = "Flaky runner: only a" if limit.is_flaky else "A"
    title = (
        f"{first} slow-down of {100 * limit.slow_down_ratio:.2g} % or more is "
        f"seen here with 95 %, by {limit.pairs} pairs in {length}; runs differ by "
        f"{100 * calibration.run_sd_ratio:.2g} % (standard deviation)"
    )
    if limit.quiet_ratio > STEP_THRESHOLD:
        quiet = f"--threshold {math.ceil(1000 * limit.quiet_ratio) / 10:g}%"
        notes = (*notes, f"with {quiet} an unchanged program is called slower at most once in 1,000 times")
    figures = ((calibration.run_sd_ratio, calibration.df + 1, calibration.sessions),)
    result = listed("verify.calibration", figures, f"kept in {path}")
    return Page(title, (result, listed("verify.runs", rows)), tuple(notes))


def kept_page(paths: Sequence[Path]) -> Page:
    """Files that are committed beside the code, each with what it holds. What is wrong with one is raised."""
    kept = [check_kept_file(path) for path in paths]
    rows = ((str(one.path), one.kind, one.holds) for one in kept)
    sheet = listed("verify.files", rows)
    return Page(f"{len(kept)} file{'s' * (len(kept) != 1)} in order", (sheet,))


def baselines_page(folder: Path, baselines: Sequence[tuple[Path, Baseline]]) -> Page:
    """The baselines stored in the folder of a suite, each with its file; of an empty one, how to make the first."""
    suite, notes = folder.name, list[str]()
    title = f"Baselines of suite {suite}"
    if not baselines:
        title = f"There is no baseline of suite {suite} in {folder}"
        if others := sorted({path.parent.name for path in folder.parent.glob("*/*.json")}):
            notes.append(f"suites that have one: {', '.join(others)}")
        notes.append(f"timesink gate baseline update --suite {suite} --reason 'first' -- python train.py makes one")
    rows = []
    for path, one in baselines:
        reason = one.updates[-1].reason if one.updates else ""
        newest = str(one.last_run or "")
        rows.append((str(path), one.environment.get("gpu", ""), len(one.runs), newest, len(one.counters), reason))
    return Page(title, (listed("verify.baselines", rows),), tuple(notes))


SHOWN: Final = 3  # as many as a line of an index holds
_FORMAT: Final = 1


class WindowRow(Record):
    """What is kept of a window that a training recorded: `name` is its path below the folder.

    `error` says why it could not be diagnosed, and is empty otherwise. `figures` have their unit at the end of their
    name; `saves` are the costliest findings; `report` is the file of the report beside the index.
    """

    name: str
    recorded: str
    error: str = ""
    bottleneck: str = ""
    statement: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    saves: tuple[str, ...] = ()
    left: str = ""
    report: str = ""

    def stored(self) -> dict[str, Any]:
        """As a document."""
        return {"timesink_window": _FORMAT, **as_plain(self)}

    @classmethod
    def of(cls, document: Any) -> Self | None:
        """From a document; None where it is none of `stored`."""
        if not isinstance(document, dict) or document.pop("timesink_window", None) != _FORMAT:
            return None
        try:
            return cls(**{**document, "saves": tuple(document["saves"])})
        except (TypeError, KeyError):
            return None


def row_of(name: str, recorded: str, diagnosis: Diagnosis, report: str) -> WindowRow:
    """The row of a diagnosis."""
    partial = f"partial answer, {diagnosis.partial}: " if diagnosis.partial else ""
    return WindowRow(
        name, recorded,
        bottleneck=diagnosis.bottleneck.value,
        statement=partial + diagnosis.statement,
        figures=logged_figures(diagnosis),
        saves=tuple(
            f"{card.code} {saving_text(finding, interval=False)}{_at_line(finding.where)}"
            for card, finding in diagnosis.findings[:SHOWN]
        ),
        left=what_is_left(diagnosis, MATERIAL.default).sentence,
        report=report,
    )  # fmt: skip


def logged_figures(diagnosis: Diagnosis) -> dict[str, float]:
    """Figures for a log of runs; what the capture does not show is left out."""
    left = what_is_left(diagnosis, MATERIAL.default)
    span_ns = sum(device.span_ns for device in diagnosis.devices)
    gains = [finding.recoverable.value for _, finding in diagnosis.findings if finding.recoverable]
    found = {
        "step_p50_ms": diagnosis.steps.p50_ms,
        "idle_ratio": sum(device.idle_ns for device in diagnosis.devices) / span_ns if span_ns else None,
        "largest_saving_ms": max(gains, default=None),
        "findings": float(len(diagnosis.findings)),
        "findings_above_1_percent": float(left.above),
        "undecided_rules": float(left.blind),
    }
    return {name: value for name, value in found.items() if value is not None}


def _at_line(where: Where) -> str:
    """``, at train.py:12``: the place, where a line is known."""
    return "" if where.file is None else f", at {where.file}" + ("" if where.line is None else f":{where.line}")
