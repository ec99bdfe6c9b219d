"""`timesink classify`: every operator of a model beside its roofline, from a trace, a report, or a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from timesink.cli import completion
from timesink.cli.options import TRACES, PageOutput, Reading
from timesink.cli.output import working
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.knowledge.gpus import GpuPeaks
    from timesink.views.page import Page

Format16 = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """A model that is not running."""

    model: Annotated[
        Path | None,
        typer.Option(
            "--model-config",
            metavar="FILE",
            help="Instead of a trace: a Hugging Face config.json, or a configuration of `memory plan`.",
            show_default=False,
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="The GPU it would run on, such as H200; of a trace, the GPU it ran on where that is not known.",
            show_default=False,
            autocompletion=completion.gpus,
        ),
    ] = None
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Sequences at once.")] = 1
    sequence: Annotated[int, typer.Option("--sequence", "--seq", metavar="N", min=1, help="Tokens per sequence.")] = (
        2048
    )
    dtype: Annotated[Format16, typer.Option("--dtype", metavar="NAME", help="Number format: bf16, fp16 or fp32.")] = (
        "bf16"
    )

    def page(self) -> Page:
        """Its operators."""
        from timesink.memory_plan.config import model_in
        from timesink.views.classify import planned_page

        assert self.model is not None
        if self.gpu is None:
            raise UsageError("which GPU the model would run on is not said", remedy="add --gpu H200, for one")
        return planned_page(model_in(self.model), _gpu(self.gpu), self.batch, self.sequence, self.dtype)


def command(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATH", help=TRACES, show_default=False)] = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows per table.")] = 30,
    *,
    planned: PlannedModel,
    reading: Reading,
    writing: PageOutput,
) -> int:
    """Say of every operator what bounds it, how near it comes, and what to do.

    Operations and bytes are those of the recorded shapes (record_shapes=True), of the counters of a Nsight Compute
    report, or of a model's configuration: with --model-config and --gpu no trace is needed.
    """
    if (planned.model is None) == (not paths):
        raise UsageError(
            "give either a trace or --model-config", remedy="timesink classify TRACE, or --model-config FILE --gpu H200"
        )
    if planned.model is not None:
        writing.sink([planned.model]).show(planned.page())
        return 0
    given, named = paths or [], None if planned.gpu is None else _gpu(planned.gpu)
    target = writing.sink(given)
    trace = reading.trace(given)
    with working("classifying"):
        from timesink.model.tables import DEVICE_OPS, KERNEL_PROFILES
        from timesink.views.classify import classification_page, counters_page

        is_report = KERNEL_PROFILES in trace and not trace.get(DEVICE_OPS).height
        target.show(counters_page(trace, top) if is_report else classification_page(trace, top, named))
    return 0


def _gpu(name: str) -> GpuPeaks:
    """The GPU of that name; `UsageError` where none or several are meant."""
    from timesink.knowledge.gpus import ENTRIES, candidates

    found = candidates(name)
    if len(found) == 1:
        return found[0]
    products = ", ".join(entry.product for entry in found) or ", ".join(entry.product for _, entry in ENTRIES)
    raise UsageError(
        f"{name!r} may be several GPUs" if found else f"the peaks of {name!r} are not known",
        remedy=f"choose from: {products}",
    )
