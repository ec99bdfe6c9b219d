"""Rules about the kernels of a step, as a timeline shows them; here is what all of them say alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timesink.diagnosis.judge import Details, Row, Rows, declare
from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import Evidence, Quantity
from timesink.fixes import Fix
from timesink.measures.counters.sampled import sampled
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.steps.per_step import period_ns
from timesink.model.trace import Trace
from timesink.whatif import Case, Change
from timesink.whatif.changes.kernels import ShortenKernels


def kernel_row(
    trace: Trace, kernels: ShortenKernels, beyond_ns: float = 0.0, change: Change | None = None, /, **figures: Any
) -> Row:
    """A device's kernels that a fix makes shorter. `saved_ratio` is the share of the step that goes with it: device
    time, and `beyond_ns`. The finding proposes `change`, which is that of the kernels if none is given."""

    def saved_ratio() -> float:
        step_ns = period_ns(trace, kernels.device)
        return (saved_per_step_ns(trace, kernels, Case.EXPECTED) + beyond_ns) / step_ns if step_ns else 0.0

    known = {"count": kernels.rows.size, "saved_ratio": saved_ratio}
    return Row(kernels.device, {**known, **figures}, kernels=kernels, change=change or kernels)


def kernel_rows(fix: Fix) -> Callable[[Trace], Rows]:
    """A row for each device of which a fix makes kernels shorter."""
    return lambda trace: [kernel_row(trace, kernels) for kernels in fix.replay(trace)]


def kernel_details(trace: Trace, row: Row, figures: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """Whether more is saved than the kernels take, and what counters that were sampled along the timeline say of the
    GPU while they ran."""
    step_ns = period_ns(trace, row.device)
    longer = "and slow their neighbors" if figures["saved_ratio"] > figures["time_ns"] / step_ns else None
    means = sampled(trace, row.device, row.kernels.whole(trace)) if row.kernels is not None else ()
    return {"longer": longer}, tuple(
        Evidence(
            f"{mean.what} while they run", Quantity(mean.share, "ratio"), f"{mean.samples} samples", table="gpu_metrics"
        )
        for mean in means
    )


def kernel_rule(
    name: str,
    fix: Fix | None,
    rows: Callable[[Trace], Rows] | None = None,
    details: Details = kernel_details,
    most: int | None = None,
) -> Rule:
    """Declares a rule on kernels that a fix makes shorter; without `rows` they are those that the fix finds."""
    found = kernel_rows(fix) if rows is None and fix is not None else rows or (lambda _: ())
    return declare(name, found, details=details, fix=fix, most=most)
