"""Every assumed figure with its range, its reason and its source: for `timesink explain` and docs/assumptions.md."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.errors import UsageError
from timesink.knowledge.assumptions import ALL, SUBJECTS, VARIABLE, Assumption
from timesink.views.page import Page, Sheet, sheet_of

_FIGURES = (
    "assumption [name], low [text], value [text], high [text], unit [text], rules: used by [text], "
    "set_on: set on [text]"
)


def assumptions(code: str = "") -> Page:
    """All assumptions, two sheets per subject (figures, reasons); or those that one rule alone uses."""
    if not code:
        subjects = (
            (key, subject.about, [a for name, a in ALL.items() if name.startswith(f"{key}.")])
            for key, subject in SUBJECTS.items()
        )
        return Page("Assumptions of timesink", tuple(sheet for listed in subjects for sheet in _sheets(*listed)))
    own = [assumption for assumption in ALL.values() if code in assumption.rules.split()]
    if not own:
        raise UsageError(
            f"{code} has no assumption of its own", remedy="timesink explain --assumptions lists those of every price"
        )
    return Page(f"Assumptions of {code}", _sheets("assumptions", f"{len(own)} assumed figures", own))


def _sheets(key: str, title: str, listed: Sequence[Assumption]) -> tuple[Sheet, Sheet]:
    figures = (
        (a.name, *(f"{figure:g}" for figure in (a.low, a.value, a.high)), a.unit, a.rules, a.set_on) for a in listed
    )
    reasons = ((a.name, a.why, a.source) for a in listed)
    columns = "assumption [name], why [text], source [text]"
    return (
        sheet_of(key, title, figures, _FIGURES, f"{VARIABLE}=name=value replaces one for one run"),
        sheet_of(f"{key}_reasons", "Why, and from where", reasons, columns),
    )
