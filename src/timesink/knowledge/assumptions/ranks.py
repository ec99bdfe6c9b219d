"""Clocks of several hosts, calls that belong together, and links and ranks that are slower than others."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

DRIFT_MOST: Final = Assumption(
    1e-4, 5e-4, 1e-3, "of the time", "two disciplined clocks drift apart by no more",
    "RFC 5905: NTP slews by 500 ppm at most",
)  # fmt: skip
DRIFT_WINDOW_US: Final = Assumption(
    5e5, 1e6, 1e7, "us", "a drift is fitted over at least this much time",
    "ends of collectives of one host scatter by up to 27 us (benchmarks/ranks): over a second a twentieth of the "
    "most that they drift",
)  # fmt: skip
DRIFT_CALLS: Final = Assumption(
    6, 12, 50, "collectives", "a drift is fitted over at least so many",
    "a slope of 12 points is known four times better than one of 3",
)  # fmt: skip
DRIFT_ABOVE_NOISE: Final = Assumption(
    3.0, 4.0, 6.0, "times the scatter", "a smaller drift is noise",
    "a normal distribution is out by chance once in 16 000",
)  # fmt: skip
SAME_CLOCK_US: Final = Assumption(
    5.0, 20.0, 50.0, "us",
    "clocks of one host differ by what ends of a collective differ by; two hosts seldom agree so well",
    "23 captures of benchmarks/ranks, 2 and 4 ranks of one host: medians of 0.4 to 27 us",
)  # fmt: skip
CLOCK_ERROR_US: Final = Assumption(
    20.0, 50.0, 100.0, "us", "the error of clocks that are called the same, where no collective bounds it",
    "twice the largest median by which ends differ on one host: 27 us (23 captures of benchmarks/ranks)",
)  # fmt: skip
FREE_SPREAD: Final = Assumption(
    1.1, 1.25, 1.5, "p90 / p10", "a launch shape says little: only kernels whose free runs agree are compared",
    "1,291 launch shapes of benchmarks/faults (H200): 1.04 at the median, 1.19 at the ninetieth percentile", "",
    "COM106",
)  # fmt: skip
FREE_RUNS: Final = Assumption(
    2, 3, 10, "runs of each kind", "fewer do not say what is usual", "a median of 3 stands one outlier", "", "COM106"
)
BESIDE_SHARE: Final = Assumption(
    0.3, 0.5, 0.8, "of a kernel's time", "from here on it ran beside communication",
    "33 captures of benchmarks/ranks (H200): of 7,798 kernels that run beside communication at all, it covers nine "
    "tenths and more of 58 %, three tenths at most of 25 %, and four to six tenths of 4 %; at 0.3 one healthy program "
    "has a finding", "", "COM106",
)  # fmt: skip
SHIFT_OVERLAP: Final = Assumption(
    0.3, 0.5, 0.8, "of the shorter sequence", "the least that a shift of two ranks' calls must cover",
    "33 captures of benchmarks/ranks (H200): all 89 pairs of sequences fit over the whole of the shorter one; 40, of "
    "calls that repeat, fit over parts of it too, in 14 of them over a fifth and less; the same verdicts from 0.3 to "
    "0.8",
)  # fmt: skip
SHIFT_BETTER: Final = Assumption(
    1.5, 2.0, 4.0, "times", "a shift takes the place of the plain one only where its ends agree so much better",
    "tests/measures/communication/test_matching.py: windows that begin at different calls",
)  # fmt: skip
CROWD: Final = Assumption(
    3, 3, 4, "ranks", "exchanges of fewer may be messages between two as well as an all-to-all",
    "between two ranks the two are one and the same",
)  # fmt: skip
PIPELINE_SHARE: Final = Assumption(
    0.3, 0.5, 0.8, "of its calls", "ranks are stages where sends and receives are most of their communication",
    "33 captures of benchmarks/ranks (H200): 0.91 and more of the calls of 20 ranks, none of those of 62 others: any "
    "figure between decides the same", "", "COM105",
)  # fmt: skip
MICRO_BATCHES: Final = Assumption(
    2, 4, 8, "a stage", "so many make the bubble small", "Megatron-LM, arXiv:2104.04473", "", "COM105"
)
STAGE_RANGES: Final = Assumption(
    0.7, 0.8, 0.95, "of a rank's computation", "ranges that hold less of it are not its stage",
    "benchmarks/ranks under nsys, where no range holds the backward pass: 0.31 to 0.36; benchmarks/stages: 1", "",
    "COM105",
)  # fmt: skip
SERIAL_SCORE: Final = Assumption(
    0.02, 0.05, 0.1, "OverlapScore", "stages that overlap less run one after another",
    "two micro-batches of two equal stages overlap by half", "", "COM105",
)  # fmt: skip
EVENED: Final = Assumption(
    0.0, 0.5, 1.0, "of the difference between the longest and the mean stage", "stages are made of whole layers",
    "none where no layer can move, all where they are small", "", "COM105",
)  # fmt: skip
LINK_PEERS: Final = Assumption(
    3, 3, 8, "groups or pairs", "with fewer the usual one is not known", "of two nobody can say which is unusual", "",
    "COM109",
)  # fmt: skip
LINK_CALLS: Final = Assumption(
    3, 5, 20, "transfers", "fewer do not say how fast a link is", "a median of 5 stands two outliers", "", "COM109"
)
LINK_SHORTEST_US: Final = Assumption(
    50.0, 100.0, 500.0, "us", "shorter transfers are latency and launch skew, not bandwidth",
    "shortest collectives of small messages of benchmarks/ranks: 27 to 57 us between 2 and 4 H200s", "", "COM109",
)  # fmt: skip
NVLINK_BYTES: Final = Assumption(
    2e6, 8e6, 32e6, "bytes", "transfers of so many bytes show what link they take; smaller ones show latency",
    "benchmarks/faults, two H200s: 2 MB reach 12 to 15 % of NVLink, 8 MB 26 %, 32 MB 53 %, 128 MB 65 %", "third_tune",
    "COM109",
)  # fmt: skip
HELD_UP: Final = Assumption(
    0.3, 0.5, 0.8, "of the ranks", "so many wait in a collective that holds its job up",
    "33 captures of benchmarks/ranks (H200), 276 collectives of four ranks: none waits in 203, one in 5, all in 68: "
    "any figure between decides the same; one of two waits in 215 of 1,359: to leave them out changes four findings",
    "", "COM103 COM104",
)  # fmt: skip
SAME_WORK: Final = Assumption(
    0.9, 0.95, 0.99, "of the kernel time of the others",
    "a rank that runs so much of it, in the same shapes, has no larger share of one batch",
    "benchmarks/ranks: all of it where a rank does more besides; benchmarks/faults: 45 to 75 % of uneven batches",
    "third_tune", "COM103",
)  # fmt: skip
HOST_SLOWED: Final = Assumption(
    3.0, 2.0, 1.5, "times the others' host", "a profiler slows one host more than others, by no more than this",
    "benchmarks/faults: 1.4 times in FSDP programs of small units; benchmarks/ranks: 3.6 times where a host sleeps",
    "third_tune", "COM103",
)  # fmt: skip
GAIN_ERROR: Final = Assumption(
    0.05, 0.1, 0.2, "of the gain", "what a gain of balance may be off by",
    "p10 to p90 of replays of one rank's graph (replay.model_error)", "", "COM103 COM104",
)  # fmt: skip
