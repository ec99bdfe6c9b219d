"""One capture of a watched folder: its verdict and figures, short enough for a log and a row of an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from timesink.diagnosis.engine import MATERIAL
from timesink.diagnosis.left import what_is_left
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Diagnosis, Finding
from timesink.model.record import asdict, dataclass, field

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
        figures=figures(diagnosis),
        saves=tuple(_saving(card.code, finding) for card, finding in diagnosis.findings[:SHOWN]),
        left=what_is_left(diagnosis, MATERIAL.default).sentence,
        report=report,
    )  # fmt: skip


def figures(diagnosis: Diagnosis) -> dict[str, float]:
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
