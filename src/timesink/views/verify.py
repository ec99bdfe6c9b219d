"""The tables of what is kept between runs: ledger, calibration, baselines, and captures of a watched folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from timesink.diagnosis.engine import MATERIAL
from timesink.diagnosis.left import what_is_left
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Diagnosis, Finding
from timesink.model.record import asdict, dataclass, field
from timesink.verify.baseline import Baseline, KeptFile, check_kept_file
from timesink.verify.calibration import Calibration
from timesink.verify.ledger import Entry, Gain, track_record
from timesink.verify.outcomes import RunRow
from timesink.views.page import Field, Fields, Page, Sheet, figures, sheet_of, texts

_CHART = 30  # characters of the longest bar


def ledger_page(entries: Sequence[Entry]) -> Page:
    """Every entry with its predicted and measured gain, and how good predictions are here."""
    columns: Fields[Entry] = (
        Field("number", "no.", "1"),
        (Field("opened", "opened"), lambda entry: entry.opened[:10]),
        Field("hypothesis", "hypothesis"),
        Field("finding", "finding", is_name=True),
        (Field("predicted_ms", "predicted", "ms"), lambda entry: _value_ms(entry.predicted)),
        (Field("outcome", "outcome"), lambda entry: str(entry.outcome) if entry.outcome else "open"),
        (Field("measured_ms", "measured", "ms"), lambda entry: _value_ms(entry.measured)),
        Field("error_ms", "error", "ms"),
        Field("within", "as predicted"),
    )
    if not entries:
        title = "The ledger is empty: timesink verify --ledger add 'what should get faster, and why' opens an entry"
        return Page(title, (sheet_of("entries", "Entries", entries, columns),))
    past, still_open = track_record(list(entries)), sum(entry.outcome is None for entry in entries)
    title = f"{len(entries)} {'prediction' if len(entries) == 1 else 'predictions'}, {still_open} still open"
    if past.compared:
        title += f"; {past.within} of {past.compared} measured gains lie in their predicted interval"
    note = "" if past.median_ratio is None else f"measured over predicted: {past.median_ratio:.2f} (median)"
    sheets = (sheet_of("entries", "Entries", entries, columns, note), _progress(entries))
    return Page(title, tuple(sheet for sheet in sheets if sheet.rows))


def _progress(entries: Sequence[Entry]) -> Sheet:
    """The step after each change that was measured, in order, beside what it was before the first of them."""
    steps: list[tuple[str, float]] = []
    for entry in entries:
        gain = entry.measured
        if gain is not None and gain.before_ms is not None:
            steps += [] if steps else [("before", gain.before_ms)]
            steps.append((f"{entry.number} {entry.hypothesis}", gain.before_ms - gain.value_ms))
    longest = max((step_ms for _, step_ms in steps), default=1.0)
    first = steps[0][1] if steps else 1.0
    columns: Fields[tuple[str, float]] = (
        (Field("after", "after"), lambda step: step[0]),
        (Field("step_ms", "step", "ms"), lambda step: step[1]),
        (Field("ratio", "of the first", "ratio"), lambda step: step[1] / first),
        (Field("chart", ""), lambda step: "█" * max(1, round(_CHART * step[1] / longest))),
    )
    return sheet_of("progress", "The step after each change", steps, columns)


def _value_ms(gain: Gain | None) -> float | None:
    return None if gain is None else gain.value_ms


def calibration_page(path: Path, calibration: Calibration, rows: Sequence[RunRow], notes: Sequence[str]) -> Page:
    """The deviation between runs here, and the runs of this session."""
    title = f"Runs here differ by {100 * calibration.run_sd_ratio:.2g} % (standard deviation)"
    result = Sheet(
        "calibration",
        "Calibration",
        figures(run_sd_ratio="run sd", runs="runs", sessions="sessions"),
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


def kept_page(paths: Sequence[Path]) -> Page:
    """Files that are committed beside the code, each with what it holds. What is wrong with one is raised."""
    columns: Fields[KeptFile] = (
        (Field("file", "file", is_name=True), lambda kept: str(kept.path)),
        *texts(kind="is", holds="holds"),
    )
    kept = [check_kept_file(path) for path in paths]
    title = f"{len(kept)} file{'s' * (len(kept) != 1)} in order"
    return Page(title, (sheet_of("files", "Files", kept, columns),))


def baselines_page(folder: Path, baselines: Sequence[tuple[Path, Baseline]]) -> Page:
    """The baselines stored in the folder of a suite, each with its file; of an empty one, how to make the first."""
    columns: Fields[tuple[Path, Baseline]] = (
        (Field("file", "file", is_name=True), lambda entry: str(entry[0])),
        (Field("gpu", "GPU"), lambda entry: entry[1].environment.get("gpu", "")),
        (Field("runs", "runs", "1"), lambda entry: len(entry[1].runs)),
        (Field("newest", "newest run"), lambda entry: str(entry[1].last_run or "")),
        (Field("counters", "counters", "1"), lambda entry: len(entry[1].counters)),
        (Field("reason", "last reason"), lambda entry: entry[1].updates[-1][1] if entry[1].updates else ""),
    )
    suite, notes = folder.name, list[str]()
    title = f"Baselines of suite {suite}"
    if not baselines:
        title = f"There is no baseline of suite {suite} in {folder}"
        if others := sorted({path.parent.name for path in folder.parent.glob("*/*.json")}):
            notes.append(f"suites that have one: {', '.join(others)}")
        notes.append(f"timesink gate baseline update --suite {suite} --reason 'first' -- python train.py makes one")
    return Page(title, (sheet_of("baselines", "Baselines", baselines, columns),), tuple(notes))


SHOWN: Final = 3  # as many as a line of an index holds
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Watched:
    """What is kept of a capture: `name` is its path below the folder, `key` says which bytes were looked at.

    `error` says why it could not be diagnosed, and is empty otherwise. `figures` have their unit at the end of their
    name; `saves` are the costliest findings; `report` is the file of the report beside the index.
    """

    name: str
    key: str
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
        return {"timesink_watched": _FORMAT, **asdict(self)}

    @classmethod
    def of(cls, document: Any) -> Watched | None:
        """From a document; None where it is none of `stored`."""
        if not isinstance(document, dict) or document.pop("timesink_watched", None) != _FORMAT:
            return None
        try:
            return cls(**{**document, "saves": tuple(document["saves"])})
        except (TypeError, KeyError):
            return None


def watched(name: str, key: str, recorded: str, diagnosis: Diagnosis, report: str) -> Watched:
    """The row of a diagnosis."""
    partial = f"partial answer, {diagnosis.partial}: " if diagnosis.partial else ""
    return Watched(
        name, key, recorded,
        bottleneck=diagnosis.bottleneck.value,
        statement=partial + diagnosis.statement,
        figures=watched_figures(diagnosis),
        saves=tuple(_saving(card.code, finding) for card, finding in diagnosis.findings[:SHOWN]),
        left=what_is_left(diagnosis, MATERIAL.default).sentence,
        report=report,
    )  # fmt: skip


def watched_figures(diagnosis: Diagnosis) -> dict[str, float]:
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


def _saving(code: str, finding: Finding) -> str:
    """``IDL101 saves 1.53 ms (14.8 % of the step), at train.py:12``: the place where a line is known."""
    where = finding.where
    place = "" if where.file is None else f", at {where.file}" + ("" if where.line is None else f":{where.line}")
    return f"{code} {saving_text(finding, interval=False)}{place}"
