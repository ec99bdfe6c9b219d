"""The thresholds of experiments in one place, each with its reason and its source."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from timesink.errors import UsageError

# Shares of a time. Project defaults, to be set per suite: smaller changes of a step do not matter in practice, and
# single kernels vary more than steps.
STEP_THRESHOLD: Final = 0.02
KERNEL_THRESHOLD: Final = 0.05

# A comparison of two commands.
ALPHA: Final = 0.05  # error rate, over all its looks together; a convention
POWER: Final = 0.95  # of a slow-down that is said to be seen; a convention
QUIET: Final = 0.001  # chance of calling an unchanged program slower, all looks together
RARE: Final = 0.0001  # the same of a change that the median step does not show: a few long steps make it; simulated
LOOKS: Final = (6, 12, 18, 30)  # pairs; the last is for runs that differ, and made only where it would decide
GATE_S: Final = 300.0  # in which a gate answers unless pairs are asked for: longer, and a reviewer waits for it
CUT_STEPS: Final = 30  # of a run that a gate ends early: of fewer, most are warm-up
FEWEST_PAIRS: Final = 3  # fewer have an interval that nothing but a disaster lies outside of
MIN_PAIRS: Final = 2  # a standard deviation needs two values
STEP_COUNTS: Final = 0.1  # where runs make so many more or fewer steps, a step is hardly the same work
SIGN_P: Final = 0.075  # 6 of 6, 9 of 12, 13 of 18 pairs; the interval decides, this only bars what few pairs make
SD_WARNING: Final = 2.0  # a threshold under so many run-to-run deviations is mostly noise; conventions of nvbench users
MOST_PAIRS: Final = 200  # a plan beyond it is no advice
LOOK_MARGIN: Final = 1.5  # the pairs needed are estimated: so many times them decide in most cases; simulated
HOPELESS: Final = 1.2  # where so many times the plan's pairs would be needed, more runs are wasted
HOPELESS_PAIRS: Final = 12  # fewer tell too little of the noise to stop
EXPLAINED_PAIRS: Final = 8  # fewer cannot tell what explains a spread from chance
EXPLAINED_SHARE: Final = (
    0.15  # of the error rate, for all that explains how runs differ; the plain interval has the rest
)
CARRY_PAIRS: Final = 6  # fewer cannot tell a carry-over from chance
CARRY_P: Final = 0.001  # chance of seeing a carry-over where there is none; it costs pairs, no false verdict
MOVED_P: Final = 0.02  # a covariate that differs between the sides is part of the change; a convention
CLAIM: Final = 3.0  # standard errors of runs seen from outside that a change told must make up to be looked for there
CONTRADICTED: Final = 0.9  # level at which a run seen from outside contradicts the times it tells; a convention
CLOCK_SLACK: Final = 0.01, 0.01  # of a run, and seconds, by which its steps may exceed it: rounding
MODE_GAP: Final = 6.0  # deviations within a mode that the gap between modes is wide; simulated
SPREAD_LEFT: Final = 0.5  # of the deviation, where slow steps explain it
ONE_SIDED_RUNS: Final = 2  # one run alone may be slowed by chance
TAIL_RUNS: Final = 10  # below it a tail percentile of runs has no usable interval

# The steady part of a run. Simulated: tests/verify/test_statistics.py.
MSER_BATCH: Final = 5  # steps; White, Cobb, Spratt (2000), A comparison of five steady-state truncation heuristics
MSER_MIN_STEPS: Final = 60  # below it MSER-5 calls over 8 % of steady series unsteady
FIXED_DROP: Final = 0.10  # dropped as warm-up where the series is too short to detect it
WANTED_STEPS: Final = 100  # from here MSER-5 calls under 3 % of steady series unsteady
STEADY_CUT: Final = 0.5  # a truncation past half the series means it never settled; White (1997), definition of MSER
DRIFT_P: Final = 0.01  # chance of calling a trend where there is none; Mann (1945), Kendall (1975)
UNSTEADY_RUNS: Final = 0.5  # with more than half of a side's runs unsteady, the program does not settle
BATCHES: Final = 8  # enough for a deviation, few enough to decorrelate; Schmeiser (1982), Batch size effects
BATCH_LAG1: Final = 0.4  # batch means this correlated understate the deviation

# What is known before a comparison.
CALIBRATION_RUNS: Final = 5  # fewer leave the deviation unknown within a factor of 3: chi-square interval of a variance
ASSUMED_DF: Final = 4  # an assumed deviation counts as if from five runs
BASELINE_RUNS: Final = 8  # fewer make the prediction interval useless; simulated
BASELINE_LEVEL: Final = 0.99  # coverage of the prediction interval; simulated
BASELINE_AGE: Final = 14  # days; machines drift, and older baselines need a canary
BASELINE_NEW_RUNS: Final = 3  # averaged against a stored baseline
EXACT_TOLERANCE: Final = 0.0  # counters are deterministic
SHARE_TOLERANCE: Final = 0.02  # shares of one capture move this much by themselves; a default, to be set per suite

# The history of the trunk. Simulated: tests/verify.
HISTORY_MIN: Final = 20  # points; fewer leave no power to see a change
HISTORY_MAX: Final = 80  # older points say little about today
HISTORY_ALPHA: Final = 0.01  # chance of a false change point per history
HISTORY_AFTER: Final = 5  # a block of three cannot separate fewer points after the change
HISTORY_PERMUTATIONS: Final = 999  # resolves p to 0.001
HISTORY_LAG1_FREE: Final = 0.1  # under it single points may be permuted
HISTORY_LAG1_UNSTABLE: Final = 0.5  # past it no permutation test keeps its error rate


def check_looks(looks: Sequence[int]) -> None:
    """`UsageError` for numbers of pairs after which nothing can be looked at."""
    if not looks or looks[0] < MIN_PAIRS or any(a >= b for a, b in pairwise(looks)):
        remedy = "give rising numbers of pairs, the first at least 2, such as 6,12,18"
        raise UsageError(f"the looks {looks} are no rising numbers of pairs", remedy=remedy)
