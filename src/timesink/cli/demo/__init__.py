"""`timesink demo`: the main job on a bundled capture, before and after its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from timesink.cli.options import PageOutput
from timesink.cli.output import working
from timesink.cli.parameters import Option
from timesink.model.presentable import Origin
from timesink.render import Format

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.views import Page

CAPTURES = ("gpt_before", "gpt_after")
BEFORE = "A GPT training loop on one H200, profiled with torch.profiler."
AFTER = "The same loop after the fix: the batch stays on the GPU."
NEXT = """Next, on a program of yours:
  timesink doctor                                what is here to record with
  timesink capture torch -- python train.py      record six steps of it
  timesink diagnose FOLDER                       what costs most, and what a fix would save
Without a GPU: docs/tutorial/first-step.md goes on with these two captures.
"""


class DemoOutput(PageOutput, kw_only=True):
    """Where the demonstration goes and what it is written as."""

    form: Annotated[Format | None, Option("--format -f", "FORMAT", writes=("Diagnosis", "Page"))] = None


def demo(*, writing: DemoOutput) -> int:
    """Diagnose a bundled training run, before and after its fix.

    The files are captures of our own, made on an NVIDIA H200.
    """
    target = writing.sink()
    (first, before), (_, after) = (_diagnosed(name) for name in CAPTURES)
    if target.form is Format.HTML:
        from timesink.render.html import html_report

        target.write(html_report(first, before))
    elif target.form is Format.JSON:
        from timesink.render.json import document

        both = zip(CAPTURES, (before, after), strict=True)
        target.show_entries({name: document(found, Origin("diagnose", (f"{name}.json.gz",))) for name, found in both})
    else:
        compared = target.text(_comparison(before, after))
        target.write(f"{BEFORE}\n\n{target.text(before)}\n{AFTER}\n\n{compared}\n{NEXT}")
    return 0


def _diagnosed(name: str) -> tuple[Trace, Diagnosis]:
    from importlib.resources import as_file, files

    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read

    with working(f"diagnosing {name}"), as_file(files("timesink.cli").joinpath(f"demo/{name}.json.xz")) as path:
        trace = read(path, cache=False)
        return trace, diagnose(trace)


def _comparison(before: Diagnosis, after: Diagnosis) -> Page:
    from timesink.views import Page, listed

    rows = (
        (name, found.bottleneck.value, found.steps.p50_ms, _idle_ratio(found))
        for name, found in zip(CAPTURES, (before, after), strict=True)
    )
    return Page("What the fix changed", (listed("demo.captures", rows, after.statement),))


def _idle_ratio(diagnosis: Diagnosis) -> float | None:
    span_ns = sum(device.span_ns for device in diagnosis.devices)
    return sum(device.idle_ns for device in diagnosis.devices) / span_ns if span_ns else None
