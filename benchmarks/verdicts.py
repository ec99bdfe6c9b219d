"""How often common decision rules, and ours, call an unchanged program changed.

usage: python -m benchmarks.verdicts [--json FILE] [--experiments 2000]

Three situations: one capture per side, rules applied to its steps (the usual practice); several runs per side in
turns, rules applied to run means; the same with all runs of one side first. Nominal rate 5 % everywhere. The last rows
are the outcomes of the plan `timesink verify` follows (looks at 6, 12, 18 pairs of its 30, threshold 1 %).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks.noise import KINDS, Kind, log_ratios, run_means, runs
from benchmarks.rivals import RULES, batch_means

from timesink.verify.runs import pair_order
from timesink.verify.statistics import UNDECIDED, classify, paired_interval

STEPS = 200
PAIRS = 6
LOOKS = (6, 12, 18)


def one_capture_per_side(rng: np.random.Generator, kind: Kind, experiments: int) -> dict[str, float]:
    """Rules on the steps of one run before and one after."""
    series = runs(rng, kind, experiments, 2, STEPS)
    rules = {**RULES, "8 batch means, t": batch_means}
    return {name: float(rule(series[:, 0], series[:, 1]).mean()) for name, rule in rules.items()}


def many_runs(rng: np.random.Generator, kind: Kind, experiments: int) -> dict[str, float]:
    """Rules on run means, alternating; and ours."""
    means = run_means(runs(rng, kind, experiments, 2 * PAIRS, STEPS))
    first = np.array([pair_order(pair)[0] == "before" for pair in range(PAIRS)])
    before = np.where(first, means[:, 0::2], means[:, 1::2])
    after = np.where(first, means[:, 1::2], means[:, 0::2])
    rates = {name: float(rule(before, after).mean()) for name, rule in RULES.items()}
    at = paired_interval(log_ratios(means), 0.95)
    rates["timesink: paired t"] = float(((at.low > 0) | (at.high < 0)).mean())
    blocked = paired_interval(np.log(means[:, PAIRS:]) - np.log(means[:, :PAIRS]), 0.95)
    rates["paired t, side after side"] = float(((blocked.low > 0) | (blocked.high < 0)).mean())
    return rates


def sequential_codes(
    log_ratios: npt.ArrayLike, looks: tuple[int, ...], alpha: float, threshold_ratio: float
) -> npt.NDArray[np.int64]:
    """What the plan with these looks concludes, for each row of (..., pairs): the first look that decides wins."""
    values = np.asarray(log_ratios, dtype=np.float64)
    level = 1 - alpha / len(looks)
    codes = np.full(values.shape[:-1], UNDECIDED, dtype=np.int64)
    for pairs in looks:
        interval = paired_interval(values[..., :pairs], level)
        codes = np.where(codes == UNDECIDED, classify(interval.low, interval.high, threshold_ratio), codes)
    return codes


def plan_outcomes(rng: np.random.Generator, kind: Kind, experiments: int) -> dict[str, float]:
    """What the plan says of an unchanged program, and of one that is 1, 2 and 3 % slower."""
    ratios = log_ratios(run_means(runs(rng, kind, experiments, 2 * LOOKS[-1], 100)))
    row = {}
    for change in (0.0, 0.01, 0.02, 0.03):
        codes = sequential_codes(ratios + np.log1p(change), LOOKS, 0.05, 0.01)
        row[f"slower at +{change:.0%}"] = float((codes == 1).mean())
        if not change:
            row["faster at +0%"] = float((codes == -1).mean())
            row["no difference at +0%"] = float((codes == 0).mean())
    return row


SITUATIONS = {
    "one capture per side, rule on its steps: share called different": one_capture_per_side,
    f"{PAIRS} runs per side in turns, rule on run means: share called different": many_runs,
    "timesink verify (6, 12, 18 pairs; threshold 1 %): share of outcomes": plan_outcomes,
}


def tables(experiments: int) -> dict[str, dict[str, dict[str, float]]]:
    """situation -> noise -> rule -> rate. Seeded: the same on every machine."""
    return {
        title: {
            kind.name: rates(np.random.default_rng(11), kind, experiments)
            for kind in KINDS
            if not (kind.drift and rates is one_capture_per_side)  # two runs make no session to drift over
        }
        for title, rates in SITUATIONS.items()
    }


def show(found: dict[str, dict[str, dict[str, float]]]) -> None:
    for title, rows in found.items():
        print(f"\n{title}")
        names = list(next(iter(rows.values())))
        print(f"{'':30}" + "".join(f"{name:>26}" for name in names))
        for kind, rates in rows.items():
            print(f"{kind:30}" + "".join(f"{rates[name]:26.3f}" for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--experiments", type=int, default=2000)
    given = parser.parse_args()
    found = tables(given.experiments)
    show(found)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
