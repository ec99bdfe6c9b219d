"""What a baseline becomes when runs are added: never runs from before a lasting change together with runs after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from timesink.experiments.baseline import Baseline, BaselineRun, Counter
from timesink.experiments.changepoint import judge_history
from timesink.experiments.limits import HISTORY_MAX


def updated(
    old: Baseline, runs: Sequence[BaselineRun], counters: Mapping[str, Counter], update: tuple[str, str, str]
) -> Baseline:
    """The baseline with these runs added; runs before a confirmed change point and runs beyond the newest 80 go.

    Counters given replace those stored; none given leaves them.
    """
    kept = [*old.runs, *runs][-int(HISTORY_MAX.default) :]
    _, change = judge_history([run.mean for run in kept])
    if change is not None:
        kept = kept[change.index :]
    return replace(old, runs=tuple(kept), counters=dict(counters or old.counters), updates=(*old.updates, update))
