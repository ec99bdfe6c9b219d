"""`timesink demo`: the main job on a bundled capture, before and after its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timesink.cli import options
from timesink.cli.output import Sink, sink, working
from timesink.render.formats import Format

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.views.page import Page

CAPTURES = ("gpt_before", "gpt_after")
BEFORE = "A GPT training loop on one H200, profiled with torch.profiler."
AFTER = "The same loop after the fix: the batch stays on the GPU."


def command(form: options.Form = None, output: options.Output = None, no_color: options.NoColor = False) -> int:
    """Diagnose a bundled training run, before and after its fix.

    The files are captures of our own, made on an NVIDIA H200.
    """
    target = sink(form, output, no_color)
    if target.form is Format.HTML:
        target.write(_html())
        return 0
    before, after = (_diagnosed(name) for name in CAPTURES)
    target.write(_json(before, after) if target.form is Format.JSON else _report(before, after, target))
    return 0


def _diagnosed(name: str) -> Diagnosis:
    from importlib.resources import as_file, files

    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read

    with working(f"diagnosing {name}"), as_file(files("timesink.cli").joinpath(f"demo/{name}.json.gz")) as path:
        return diagnose(read(path, cache=False))


def _html() -> str:
    """The full report of the capture before the fix."""
    from importlib.resources import as_file, files

    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read
    from timesink.render.html import render
    from timesink.views.report import report_of

    with as_file(files("timesink.cli").joinpath(f"demo/{CAPTURES[0]}.json.gz")) as path:
        trace = read(path, cache=False)
    return render(report_of(trace, diagnose(trace)))


def _report(before: Diagnosis, after: Diagnosis, target: Sink) -> str:
    """The first diagnosis in full, then both in one table."""
    from timesink.render import render, render_page

    looks = {"width": target.width, "colour": target.colour}
    first = render(before, target.form, **looks)  # type: ignore[arg-type]
    both = render_page(_comparison(before, after), target.form, **looks)  # type: ignore[arg-type]
    return f"{BEFORE}\n\n{first}\n{AFTER}\n\n{both}"


def _comparison(before: Diagnosis, after: Diagnosis) -> Page:
    from timesink.views.page import Column, Page, Sheet

    columns = (
        Column("capture", "capture", is_name=True),
        Column("bottleneck", "bottleneck", is_name=True),
        Column("step_p50_ms", "step p50", unit="ms"),
        Column("idle_ratio", "GPU idle", unit="ratio"),
    )
    rows = tuple(
        (name, found.bottleneck.value, found.steps.p50_ms, _idle_ratio(found))
        for name, found in zip(CAPTURES, (before, after), strict=True)
    )
    sheet = Sheet("captures", "Before and after", columns, rows, after.statement)
    return Page("What the fix changed", (sheet,))


def _idle_ratio(diagnosis: Diagnosis) -> float | None:
    span_ns = sum(device.span_ns for device in diagnosis.devices)
    return sum(device.idle_ns for device in diagnosis.devices) / span_ns if span_ns else None


def _json(before: Diagnosis, after: Diagnosis) -> str:
    from timesink.render.json import document, json_text

    return json_text(dict(zip(CAPTURES, (document(before), document(after)), strict=True)))
