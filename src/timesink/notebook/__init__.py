"""The Python API: what the commands answer, as objects that print shortly, show themselves in a notebook and can be
written (`to_json`, `to_html`, …). `docs/python/` has a page for each.

A function takes a capture: a `Trace`, or what `read` takes. Each is also a method of the `Trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from timesink.errors import UsageError
from timesink.notebook.trace import compare, read, trace_of

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.notebook.trace import Capture
    from timesink.verify.outcomes import GateResult
    from timesink.views import Page

__all__ = (
    "compare",
    "diagnose",
    "gate",
    "idle",
    "kernels",
    "plan",
    "read",
    "summary",
    "try_",
    "verify_change",
    "what_if",
)


def diagnose(
    capture: Capture,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    overrides: Mapping[str, float] = MappingProxyType({}),
    unprofiled_step_ms: float | None = None,
) -> Diagnosis:
    """Name the bottleneck of a capture and price its fix: `Trace.diagnose`.

    >>> timesink.diagnose("run.json.gz").bottleneck
    <Bottleneck.INPUT_PIPELINE: 'input_pipeline'>
    """
    return trace_of(capture).diagnose(only=only, skip=skip, overrides=overrides, unprofiled_step_ms=unprofiled_step_ms)


def summary(capture: Capture, *, top: int = 10) -> Page:
    """Budget, steps, kernels, copies, waits and launches: `Trace.summary`."""
    return trace_of(capture).summary(top=top)


def idle(capture: Capture, *, top: int = 15) -> Page:
    """What each GPU waited for while it was idle: `Trace.idle`."""
    return trace_of(capture).idle(top=top)


def kernels(capture: Capture, *, top: int = 10) -> Page:
    """What limits each kernel of a Nsight Compute report, or which kernels take most of a timeline: `Trace.kernels`."""
    return trace_of(capture).kernels(top=top)


def plan(capture: Capture, *, unprofiled_step_ms: float | None = None) -> Page:
    """What to change, in which order, and where it ends: `Trace.plan`."""
    return trace_of(capture).plan(unprofiled_step_ms=unprofiled_step_ms)


def what_if(capture: Capture, *changes: str, unprofiled_step_ms: float | None = None) -> Page:
    """The price of changes before they are made: `Trace.what_if`."""
    return trace_of(capture).what_if(*changes, unprofiled_step_ms=unprofiled_step_ms)


def try_(
    program: Sequence[str], *, only: Sequence[str] = (), budget_s: float = 180.0, check: str = "", quiet: bool = True
) -> Page:
    """Switch changes on and off in a running program that uses PyTorch, and say what each wins there.

    `program` is its command line. `only` names the changes (all that can be tried where it is empty), `budget_s` is the
    time for everything, `check` (`MODULE:FUNCTION`) makes a number of what the model returns where there is no loss.
    `CaptureError` where the program fails by itself or makes no step.

    Such as ``timesink.try_(["python", "train.py"], only=["tf32", "fused_optimizer"])``.
    """
    from timesink.trials.course import try_changes
    from timesink.trials.run import unheard
    from timesink.untrusted.masking import stored_command
    from timesink.views.trial import trial_page

    answer = try_changes(program, names=only, budget_s=budget_s, check=check, tell=unheard if quiet else print)
    return trial_page(answer, stored_command(program))


def verify_change(
    before: str | Sequence[str] | Callable[[], object],
    after: str | Sequence[str] | Callable[[], object],
    *,
    threshold_ratio: float = 0.02,
    pairs: Sequence[int] = (6, 12, 18, 30),
    least_speed_up: float | None = None,
    whole: bool = False,
) -> GateResult:
    """Run two programs in turns and tell whether the second makes its steps faster or slower: `timesink verify`.

    A program is its command line, in which ``NAME=value`` may stand first; each run is a fresh process. Two functions
    without arguments are called in this process instead, so that what differs between processes falls out; the verdict
    then holds for this process. `pairs` says after how many pairs of runs the verdict is looked at; `whole` times whole
    runs of programs without steps. `UsageError` where one side is a function and the other none.

    Such as ``timesink.verify_change("python old.py", "python new.py").outcome``.
    """
    from timesink.verify.environment import Command
    from timesink.verify.experiment import ExperimentPlan, to_result, verify
    from timesink.verify.gate import launching, two_sides
    from timesink.verify.runs import SIDES, CallsInTurns, FoundSteps, WholeRuns

    plan = ExperimentPlan(threshold_ratio, looks=tuple(pairs), least_speed_up=least_speed_up)
    if callable(before) and callable(after):
        return to_result(verify(plan, CallsInTurns({"before": before, "after": after}).launch), "")
    if callable(before) or callable(after):
        raise UsageError("one side is a function, the other a program", remedy="give two of a kind")
    commands = [Command.parse(one) if isinstance(one, str) else Command(tuple(one)) for one in (before, after)]
    source = WholeRuns() if whole else FoundSteps()
    with launching(dict(zip(SIDES, commands, strict=True)), source) as launcher:
        return two_sides(plan, launcher, "", lambda _: None)


def gate(capture: Capture, *limits: str, baseline: Capture | None = None, suite: str = "") -> GateResult:
    """Hold numbers of a capture to limits: `timesink gate --limits`. `x` in a limit is the number of the `baseline`.

    >>> timesink.gate("run.json.gz", "mean(steps.period_ns) <= 100 ms").exit_code()
    0
    """
    from timesink.verify.limit_texts import parse_limit
    from timesink.verify.table_limits import gate_tables

    held = None if baseline is None else trace_of(baseline)
    return gate_tables([parse_limit(text) for text in limits], trace_of(capture), held, suite)


def load_ipython_extension(shell: Any) -> None:
    """Register with this shell: what `%load_ext timesink.notebook` calls."""
    from timesink.notebook.display import register

    register(shell)
