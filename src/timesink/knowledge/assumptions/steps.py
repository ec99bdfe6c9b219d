"""Which steps are steady, which stand out, and when what repeats is a loop."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

_UNMARKED = "246 tune captures of benchmarks/faults without their marks: the same steps from"

REPEATS: Final = Assumption(
    2, 3, 5, "times", "two occurrences show one period, and no second one to check it by",
    f"three occurrences are two periods, whose agreement is a check; {_UNMARKED} 3 to 4, others in 4 of them at 2",
)  # fmt: skip
STEADY_SHARE: Final = Assumption(
    0.5, 2 / 3, 0.9, "of the distances",
    "a loop keeps its pace (within a factor of two of the median) but for a few steps that save or evaluate",
    "programs of others with steps that save or evaluate (tests/measures/steps)",
)  # fmt: skip
TURNS_ALIKE: Final = Assumption(
    0.0, 0.02, 0.1, "of the launches", "two steps of one optimizer that differ by less launch as much",
    "246 tune captures of benchmarks/faults (H200): of 707 pairs of steps in a row 675 launch as much, 7 differ by 2 % "
    "at most, and 25 by 2.6 to 17 %",
)  # fmt: skip
KINDS_AT_HOME: Final = Assumption(
    0.7, 0.85, 0.95, "of the kinds that come back", "below it nothing is called a loop",
    f"{_UNMARKED} 0.5 to 1", "tune",
)  # fmt: skip
EXACT_SHARE: Final = Assumption(
    0.7, 0.85, 0.95, "of the rounds", "kinds at home must occur exactly as often as usual in so many",
    f"{_UNMARKED} 0.5 to 1", "tune",
)  # fmt: skip
PACES_ALIKE: Final = Assumption(
    0.0, 0.02, 0.05, "of the kinds", "paces whose shares differ by less are equally good: the faster one is the loop",
    f"{_UNMARKED} 0 to 0.05, others in 4 of them at 0.1", "tune",
)  # fmt: skip
NEARLY_AT_HOME: Final = Assumption(
    0.1, 0.3, 0.5, "of the kinds that come back", "a loop in which so many fewer are at home is still one to choose",
    "a layer of a program with an optimizer has a third to a half of its kinds at home: it must not win",
)  # fmt: skip
ROUNDS_AT_HOME: Final = Assumption(
    0.6, 0.75, 0.9, "of the rounds", "must have a kind as often as usual: a cut or odd round is allowed",
    f"of four rounds one may be odd; {_UNMARKED} 0.5 to 1",
)  # fmt: skip
SPAN: Final = Assumption(
    0.7, 0.85, 0.95, "of the recording", "rounds must span it, one round more than was seen whole included",
    f"{_UNMARKED} 0.5 to 0.95, none in 6 of them at 1",
)  # fmt: skip
STEPS_HOLD: Final = Assumption(
    0.02, 0.1, 0.25, "of the GPU work", "that ranges of no step's name must hold together to mark the steps",
    "ranges that mark steps hold nearly all of it, a set-up before them aside; thirteen copies within one inference of "
    "TensorRT held 0.003",
)  # fmt: skip
DISTANCE_TOLERANCE: Final = Assumption(
    0.1, 0.25, 0.5, "of the median", "by which distances between rounds may differ",
    f"{_UNMARKED} 0.05 to 0.75",
)  # fmt: skip
PACES_CLOSE: Final = Assumption(
    1.2, 1.5, 1.9, "times",
    "numbers of rounds within this factor are no multiples of one another: the more exact is the loop",
    f"multiples are 2 and more: half-way to the next; {_UNMARKED} 1.2 to 1.9",
)  # fmt: skip
P90_NEEDS: Final = Assumption(
    10, 10, 20, "steps", "about one lies beyond the ninetieth percentile", "definition: 1 / (1 - 0.9)"
)
P99_NEEDS: Final = Assumption(
    100, 100, 200, "steps", "about one lies beyond the ninety-ninth percentile", "definition: 1 / (1 - 0.99)"
)
WARM_UP_DEVIATIONS: Final = Assumption(
    2.5, 3.0, 5.0, "median absolute deviations", "a leading step beyond that is warm-up",
    "Leys and others, J. Exp. Soc. Psychol. 49 (2013) 764: 2.5, or 3 to be conservative",
)  # fmt: skip
LEAST_DEVIATION: Final = Assumption(
    0.005, 0.01, 0.03, "of the median", "steps that agree to this are alike, however small their spread",
    "498 programs of benchmarks/faults in three processes each: coefficients of variation of 0.1 to 2.1 %, median 0.5 "
    "%",
    "tune",
)  # fmt: skip
SPIKE_DEVIATIONS: Final = Assumption(
    4.0, 6.0, 8.0, "standard deviations", "a step beyond them stands out",
    "a normal distribution is out by chance once in 10^9 steps", "", "SPK101",
)  # fmt: skip
SPIKE_EXCESS: Final = Assumption(
    0.1, 0.2, 0.3, "of the median", "lower clocks; below this steps differ for many small reasons",
    "36 healthy captures of benchmarks/faults: the longest step is 2.0 % over the median at the ninetieth percentile, "
    "10.1 % at most", "tune", "SPK101",
)  # fmt: skip
SPIKE_PAUSE: Final = Assumption(
    0.3, 0.5, 1.0, "of the median", "other named causes: reading a loss every few steps drains as much",
    "the longest step is 10.1 % over the median at most in 36 healthy captures, 26 % in 19 of 20 of 210 others "
    "(H200)", "tune", "SPK101",
)  # fmt: skip
SPIKE_UNNAMED: Final = Assumption(
    0.5, 1.0, 2.0, "of the median", "no cause named: short steps that the host sets the pace of vary by half and more",
    "the longest step is 26 % over the median in 19 of 20 of 210 captures with other faults (H200): four times that",
    "tune", "SPK101",
)  # fmt: skip
SPIKE_STEPS: Final = Assumption(
    3, 4, 10, "steady steps", "with fewer there is no median to stand out from",
    "the outlier beside three alike: their median stands one", "", "SPK101",
)  # fmt: skip
CARRIED_SHARE: Final = Assumption(
    0.5, 0.5, 0.7, "of the excess", "what accounts for more than all the rest together is the cause",
    "246 tune captures of benchmarks/faults (H200): of 13 steps that stand out the cause carries 0.53 at least, 0.99 "
    "and more in eight", "", "SPK101",
)  # fmt: skip
BURST_BYTES: Final = Assumption(
    262144, 1048576, 16777216, "bytes", "a checkpoint copies at least so much to the host",
    "planted checkpoints of benchmarks/faults copy 33.5 MB, those planted without harm 0.5 MB, all other copies 64 "
    "bytes", "tune",
    "SPK101",
)  # fmt: skip
BURST_TIMES: Final = Assumption(
    4, 8, 20, "times what a usual step copies", "a checkpoint is a burst",
    "benchmarks/faults: steps copy 4 bytes beside a checkpoint of 33.5 MB; 64 times stand between sizes of "
    "checkpoints", "tune", "SPK101",
)  # fmt: skip
CLOCKS_ALIKE: Final = Assumption(
    0.05, 0.1, 0.2, "of the factor", "kernels slowed by a lower clock agree within this",
    "1,291 launch shapes of benchmarks/faults (H200): coefficients of variation of 1.8 % at the median, 7.5 % at the "
    "ninetieth percentile", "tune", "SPK101",
)  # fmt: skip
CLOCKS_ALIKE_SHARE: Final = Assumption(
    0.6, 0.8, 0.95, "of the kernels", "all but a few bound by memory, whose clock is another",
    "tests/measures/steps/test_spikes.py: a clock that drops, with some kernels bound by memory", "", "SPK101",
)  # fmt: skip
GRAPH_OPS: Final = Assumption(
    4, 8, 16, "operations", "a launch of so many is a replay of a graph of some size",
    "benchmarks/serving (H200): four layers are 50 and more",
)  # fmt: skip
DECODE_ROUNDS: Final = Assumption(
    6, 8, 12, "launches", "a graph that is launched so often may be a server's decoding",
    "benchmarks/serving (H200): 30 steps were recorded",
)  # fmt: skip
DECODE_SHARE: Final = Assumption(
    0.4, 0.5, 0.7, "of the replays, and of the device's time", "belongs to the graph that decodes",
    "benchmarks/serving (H200): 0.62 of the replays where every prompt is read in four chunks, 0.8 else",
)  # fmt: skip
