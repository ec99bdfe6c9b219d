"""The thresholds of experiments, each with its reason and source, in one place so that a report can print them."""

from __future__ import annotations

from timesink.diagnosis.rule import Limit

STEP_THRESHOLD = Limit.ratio(
    0.02, "step-time changes under this do not matter in practice", "project default; set it per suite"
)
KERNEL_THRESHOLD = Limit.ratio(0.05, "single kernels vary more than steps", "project default; set it per suite")
ALPHA = Limit.ratio(0.05, "error rate of a comparison, over all its looks together", "convention")
LOOKS = (6, 12, 18)
MIN_PAIRS = Limit(2, "pairs", "a standard deviation needs two values", "definition of the t statistic")
STEP_COUNTS = Limit.ratio(
    0.1, "where runs make so many more or fewer steps, a step is hardly the same work", "project default"
)
SD_WARNING = Limit(
    2.0, "run sd", "a threshold under twice the run-to-run deviation is mostly noise", "conventions of nvbench users"
)

MOST_PAIRS = Limit(200, "pairs", "a plan beyond it is no advice", "convention")
ONE_SIDED_RUNS = Limit(2, "runs", "one run alone may be slowed by chance", "convention")
TAIL_RUNS = Limit(10, "runs", "below it a tail percentile of runs has no usable interval", "convention")

MSER_BATCH = Limit(
    5, "steps", "batch of MSER-5", "White, Cobb, Spratt (2000), A comparison of five steady-state truncation heuristics"
)
MSER_MIN_STEPS = Limit(
    60,
    "steps",
    "below it MSER-5 calls over 8 % of steady series unsteady",
    "simulation, tests/verify/test_steady_state.py",
)
FIXED_DROP = Limit.ratio(0.10, "share dropped as warm-up where the series is too short to detect it", "convention")
WANTED_STEPS = Limit(
    100,
    "steps",
    "from here MSER-5 calls under 3 % of steady series unsteady",
    "simulation, tests/verify/test_steady_state.py",
)
STEADY_CUT = Limit.ratio(
    0.5, "a truncation past half the series means it never settled", "White (1997), definition of MSER"
)
DRIFT_P = Limit.ratio(0.01, "chance of calling a trend where there is none", "Mann (1945), Kendall (1975)")
UNSTEADY_RUNS = Limit.ratio(0.5, "more than half of a side's runs unsteady: the program does not settle", "convention")
BATCHES = Limit(
    8,
    "batches",
    "equal batches of one run: enough for a deviation, few enough to decorrelate",
    "Schmeiser (1982), Batch size effects",
)
BATCH_LAG1 = Limit.ratio(
    0.4, "batch means this correlated understate the deviation", "simulation, tests/verify/test_steady_state.py"
)

CALIBRATION_RUNS = Limit(
    5, "runs", "fewer leave the run-to-run deviation unknown within a factor of 3", "chi-square interval of a variance"
)
ASSUMED_DF = Limit(4, "degrees of freedom", "an assumed deviation counts as if from five runs", "convention")

BASELINE_RUNS = Limit(8, "runs", "fewer make the prediction interval useless", "simulation, tests/verify")
BASELINE_LEVEL = Limit.ratio(
    0.99, "coverage of the prediction interval against a stored baseline", "simulation, tests/verify"
)
BASELINE_AGE = Limit(14, "days", "machines drift; older baselines need a canary", "convention")
BASELINE_NEW_RUNS = Limit(3, "runs", "new runs that are averaged against a stored baseline", "convention")
EXACT_TOLERANCE = Limit.ratio(0.0, "counters are deterministic", "definition")
SHARE_TOLERANCE = Limit(
    0.02, "share", "budget shares of one capture move this much by themselves", "project default; set it per suite"
)

HISTORY_MIN = Limit(20, "points", "fewer leave no power to see a change", "simulation, tests/verify")
HISTORY_MAX = Limit(80, "points", "older points say little about today", "convention")
HISTORY_ALPHA = Limit.ratio(0.01, "chance of a false change point per history", "convention")
HISTORY_AFTER = Limit(
    5, "points", "a block of three cannot separate fewer points after the change", "simulation, tests/verify"
)
HISTORY_PERMUTATIONS = Limit(999, "permutations", "resolves p to 0.001", "convention")
HISTORY_LAG1_FREE = Limit.ratio(0.1, "under it single points may be permuted", "simulation, tests/verify")
HISTORY_LAG1_UNSTABLE = Limit.ratio(0.5, "past it no permutation test keeps its error rate", "simulation, tests/verify")
