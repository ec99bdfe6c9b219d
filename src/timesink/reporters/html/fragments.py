"""Pieces of HTML for a cell of a notebook: no script, colours of the notebook itself, tables folded away."""

from __future__ import annotations

from timesink.findings import Diagnosis
from timesink.reporters.html.shell import fragment
from timesink.reporters.parts import device_sheet, grouped, steps_text, undecided_parts
from timesink.reporters.sheets import Page


def diagnosis_fragment(diagnosis: Diagnosis) -> str:
    """Verdict, figures and findings."""
    return fragment(
        "diagnosis_fragment.html.j2",
        {
            "diagnosis": diagnosis,
            "steps_text": steps_text(diagnosis.steps),
            "devices": device_sheet(diagnosis.devices) if diagnosis.devices else None,
            "groups": grouped(diagnosis),
            "undecided": undecided_parts(diagnosis),
        },
    )


def page_fragment(page: Page) -> str:
    """A page of tables, the first open."""
    return fragment("page_fragment.html.j2", {"page": page})
