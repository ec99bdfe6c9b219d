"""What the replay of a trace assumes where the trace does not say: costs of launches, of waiting and of recording, and
how far a replay may be off."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

_DELAYS = "delays only ever add to a cost: what lies above its low quantile is jitter"
_SEEN = "tune captures of benchmarks/faults (H200), tenth to ninetieth percentile: "
_HOST_SET = "42 captures whose host sets the pace (H200 hosts, torch 2.11, nsys 2025.3)"
_LATENCIES = "22 tune captures of benchmarks/faults with 50 latencies and more (H200), at their median:"

INTRINSIC_QUANTILE: Final = Assumption(
    0.05, 0.10, 0.25, "quantile", f"the intrinsic cost: {_DELAYS}",
    "the smallest of ten: one stamp that is off by chance does not set it; 36 tune captures (H200) have "
    "latencies of 0.61 to 0.93 of their median there",
)  # fmt: skip
USUAL_QUANTILE: Final = Assumption(
    0.4, 0.5, 0.6, "quantile", "the usual cost is the median", f"{_LATENCIES} low and high are 0.97 and 1.03 of it"
)
LATE_QUANTILE: Final = Assumption(
    0.95, 0.99, 0.999, "quantile", "a cost that is seldom exceeded", f"{_LATENCIES} 1.7, 3.1 and 3.2 times the usual"
)
LATE_AT_MOST: Final = Assumption(
    2.0, 4.0, 10.0, "times the usual", "the first launch of a kernel loads its module, which is no latency",
    "CUDA, lazy loading: the first launch takes milliseconds; 36 tune captures of benchmarks/faults (H200): the late "
    "ones take 1.5 to 3.4 times the median between the tenth and the ninetieth percentile, 4.4 at most",
)  # fmt: skip
ENOUGH: Final = Assumption(
    3, 5, 20, "launches", "with fewer a low quantile is one of the slow ones", "a tenth of 5 is the smallest of them"
)
GAP_IF_UNSEEN_US: Final = Assumption(
    0.5, 1.0, 2.0, "us", "between two queued kernels, where the trace shows too few",
    f"232 {_SEEN}0.93 to 1.18 us where the host leads, medians of 1.15 to 1.63", "tune",
)  # fmt: skip
LATENCY_IF_UNSEEN_US: Final = Assumption(
    3.5, 6.0, 12.0, "us", "from a launch to its kernel, where no kernel started on an idle stream",
    f"103 {_SEEN}intrinsic latencies of 4.1 to 8.7 us, median 6.3", "tune",
)  # fmt: skip
LATENCY_AT_MOST_US: Final = Assumption(
    10.0, 20.0, 50.0, "us", "one slow launch alone is no intrinsic cost: the excess is left unexplained",
    f"103 {_SEEN}medians of 5.7 to 11.0 us, 21 at most", "tune",
)  # fmt: skip
RETURN_IF_UNSEEN_US: Final = Assumption(
    2.0, 5.0, 10.0, "us", "a call that waits returns so long after what it waited for, where no call shows it",
    f"34 {_SEEN}medians of 4.5 to 24 us, median 5.3", "tune",
)  # fmt: skip
QUEUE_NEARLY_FULL: Final = Assumption(
    800, 900, 1024, "outstanding launches", "a launch near the 1024 of a context may block until one completes",
    "documentation of Holistic Trace Analysis; 246 captures (H200) have 732 outstanding at most",
)  # fmt: skip
BLOCKED_FACTOR: Final = Assumption(
    3.0, 5.0, 10.0, "times the usual launch", "a launch near a full queue that took so long was blocked",
    "documentation of Holistic Trace Analysis; the usual launch is the median",
)  # fmt: skip
JOINED_SHARE: Final = Assumption(
    0.95, 0.98, 1.0, "of a graph's kernels", "a capture that explains less recorded another graph",
    "public pairs of vLLM and SGLang: 421 of 421, 544 of 544 and 361 of 361 kernels; one kernel more or less in fifty",
)  # fmt: skip
INSIDE_SHARE: Final = Assumption(
    0.87, 0.98, 0.98, "of a worker's time",
    "a worker acts in its owner's silences, but for jitter of clocks at the edges",
    "246 tune captures of benchmarks/faults (H200): workers act there for 98.1 % of their time and more, other threads "
    "for 86.7 % at most",
)  # fmt: skip
KNOWN_SHARE: Final = Assumption(
    0.1, 0.25, 0.59, "of a worker's time", "of three bursts the first and the last may be cut by the window",
    "a third is left, or a quarter of four; 246 tune captures of benchmarks/faults (H200) have none of a worker's time "
    "within, or 59 % and more",
)  # fmt: skip
BURSTS_WITHOUT_PROOF: Final = Assumption(
    2, 3, 3, "bursts", "two alternating threads may be a coincidence, three bursts in a row hardly are",
    "by the toss of a coin 2 bursts fall into silences once in 4 times, 3 once in 8; 246 tune captures of "
    "benchmarks/faults (H200) have 1 by chance, or 3 and more",
)  # fmt: skip
CLOCK_SLACK_US: Final = Assumption(
    5.0, 20.0, 50.0, "us", "stamps of device and host of one instant differ by this at most",
    "kineto issue 1380: kernels that begin before their launch; none of 246 captures (H200) or 27 of others has any",
)  # fmt: skip
RETURN_WITHIN_US: Final = Assumption(
    50.0, 100.0, 500.0, "us", "a call returns this soon after its release; work that ended earlier was not its cause",
    f"34 {_SEEN}medians of 4.5 to 24 us; a busy host adds tens", "tune",
)  # fmt: skip
DEVICE_SLACK_US: Final = Assumption(
    0.0, 1.0, 2.0, "us", "two stamps of one device are this exact: a source that ends later was not waited for",
    "CUPTI: stamps come from the timer of the device, whose resolution is up to 1 us",
)  # fmt: skip
STEP_NOISE: Final = Assumption(
    0.005, 0.015, 0.05, "of the step", "two runs of one program differ by this much (clocks, temperature)",
    "498 programs of benchmarks/faults in three processes each: coefficients of variation of 0.5 % at the median, "
    "2.1 % at the ninetieth percentile; arXiv:2510.15596 has up to 9 % at scale", "tune",
)  # fmt: skip
USUAL_KAPPA: Final = Assumption(
    0.30, 0.40, 0.45, "of the host's time left",
    "torch.profiler with shapes makes operators and calls take 2.5 times as long",
    f"docs/decisions/0005-refusal-by-slow-down.md: {_HOST_SET}", "tune",
)  # fmt: skip
KAPPA_DEVIATION: Final = Assumption(
    0.05, 0.10, 0.20, "of the host's time", "how far the share that is left is off that",
    "docs/decisions/0005-refusal-by-slow-down.md: 0.30 to 0.45", "tune",
)  # fmt: skip
ESTIMATE_DEVIATION: Final = Assumption(
    0.10, 0.15, 0.20, "of the host's time", "how far the share is off that is estimated from what recording costs",
    "22 captures by Nsight Systems whose host sets the pace (benchmarks/faults and ladders): 0.11, root mean square; "
    "three are off by 0.2", "tune",
)  # fmt: skip
KAPPA_LEAST: Final = Assumption(
    0.02, 0.05, 0.10, "of the host's time left", "the least that is tried",
    "an eighth of the median of decision 0005 (0.40): the search ends there",
)  # fmt: skip
EVENT_COST_US: Final = Assumption(
    1.0, 1.8, 3.1, "us an event",
    "what recording an operator or a call costs the host under torch.profiler; slower hosts pay more",
    "33 tune captures of benchmarks/faults whose host sets the pace (H200 hosts, torch 2.11): 1.55 to 2.4 us between "
    "the tenth and the ninetieth percentile, median 1.8, at most 3.1", "tune",
)  # fmt: skip
STACK_COST_US: Final = Assumption(
    1.0, 1.5, 3.0, "us an operator", "what recording its stack costs more",
    "captures of host-bound programs against unprofiled steps (H200, torch 2.11); a loop of add_, torch 2.13: 1.6 us",
    "tune",
)  # fmt: skip
FRAME_COST_US: Final = Assumption(
    0.2, 0.4, 1.0, "us a frame", "what recording a call of a Python function costs the host",
    "a loop of calls of an empty function, torch 2.13: 0.2 to 0.4 us",
)  # fmt: skip
RANGE_COST_US: Final = Assumption(
    5.0, 12.0, 18.0, "us a range", "a range of torch.profiler is entered and left in Python",
    f"{_HOST_SET}: least squares give 12 us a range beside 1.7 us an event and 59 us a step", "tune",
)  # fmt: skip
STEP_COST_US: Final = Assumption(
    20.0, 60.0, 90.0, "us a step", "prof.step() costs the host this beside its range",
    f"{_HOST_SET}: least squares give 12 us a range beside 1.7 us an event and 59 us a step", "tune",
)  # fmt: skip
CALL_COST_US: Final = Assumption(
    1.8, 2.7, 4.5, "us a call or range", "what Nsight Systems costs the host, the kernel's record counted in",
    f"{_HOST_SET}: least squares give 2.9 us, single programs 2.1 to 6.2 us", "tune",
)  # fmt: skip
QUICK_LAUNCH_US: Final = Assumption(
    3.1, 3.5, 4.0, "us", "a kernel's launch under a profiler, on a fast host that does nothing else",
    "246 tune captures of benchmarks/faults (H200 hosts, torch.profiler and Nsight Systems alike): tenth percentile of "
    "a capture's launches", "tune",
)  # fmt: skip
SLOW_HOST_POWER: Final = Assumption(
    0.5, 1.75, 2.5, "power of how much longer launches take",
    "recording costs a slow or busy host more: it runs longer, and waits for cores and locks",
    "18 captures whose host sets the pace, on slower hosts (third and fourth sets of benchmarks/faults, tune part of "
    "benchmarks/ladders): an event costs 0.6 to 7 times what it does on a fast one", "tune",
)  # fmt: skip
SLOW_KAPPA_POWER: Final = Assumption(
    0.8, 1.8, 3.5, "power of how much longer launches take",
    "what recording takes over what the program takes by itself, on a slow or busy host: the step without a profiler "
    "may have run on better cores, too",
    "six programs of benchmarks/ladders (tune, H100) whose host sets the pace, launches 1.4 to 2.2 times as long: "
    "kappa is 0.14 to 0.27, by single programs powers of 0.9 to 4.0, by least squares 1.8", "tune",
)  # fmt: skip
QUICKER_AGAIN_POWER: Final = Assumption(
    0.1, 0.8, 1.2, "power of how much longer launches take",
    "a host whose launches are slow beside the profiler is quicker without it: it shares its cores with less",
    "nine captures by Nsight Systems whose host sets the pace, launches 1.2 to 2.3 times as long (fourth set of "
    "benchmarks/faults, tune part of benchmarks/ladders): beside recording 0.4 to 0.9 of the host's time is left, by "
    "single programs powers of 0.1 to 1.2", "tune",
)  # fmt: skip
SLOWEST_HOST: Final = Assumption(
    2.0, 2.5, 3.3, "times", "launches that take longer than this wait for something else",
    "the same captures: 1.3 to 3.3 times; with CUDA_LAUNCH_BLOCKING 4.4 times", "tune",
)  # fmt: skip
KEPT_AT_LEAST: Final = Assumption(
    0.5, 0.35, 0.2, "of the host's time left", "an event that holds little but its own recording keeps this",
    "docs/decisions/0005-refusal-by-slow-down.md: kappa is 0.30 to 0.45", "tune",
)  # fmt: skip
UNRECORDED_KEPT: Final = Assumption(
    1.0, 0.95, 0.75, "of the host's time left",
    "Python, compilers and loaders are slowed too where nothing is recorded: by tracing of system calls, and by cores "
    "shared with the profiler's threads",
    f"{_HOST_SET}: those that prepare batches keep 0.7 to 1.1 of what they take beside recorded events", "tune",
)  # fmt: skip
NEAR_CALL_US: Final = Assumption(
    20.0, 60.0, 200.0, "us",
    "recording is paid within half of this of where an event begins or ends; a longer stretch is the program's own",
    "238 captures (H200): the median distance of launches is 12 to 35 us in four fifths of them, 79 us at most", "tune",
)  # fmt: skip
ALLOCATION_CONTENDED: Final = Assumption(
    3.0, 4.0, 9.0, "times the quick ones", "half of the calls that allocate or free memory took so long: the driver's "
    "lock was held",
    "24 groups of such calls in 246 tune captures of benchmarks/faults (H200): 2.8 times at most in 22, 9.7 and 18 in "
    "two: any figure between decides the same", "tune",
)  # fmt: skip
ALLOCATION_SPREAD: Final = Assumption(
    4.0, 2.0, 1.0, "times the quick ones", "what calls take that do not wait for that lock",
    "benchmarks/faults: calls of one that waits for it take 110 us without the profiler, its quick ones 50 to 65 us",
    "tune",
)  # fmt: skip
RESIDUAL_LIMIT: Final = Assumption(
    0.03, 0.05, 0.10, "of the step", "of a step that no edge explains for more than this no replay is to be trusted",
    f"246 {_SEEN}0.0 to 1.7 %, median 0.5 %", "tune",
)  # fmt: skip
SLOWDOWN_LIMIT: Final = Assumption(
    1.5, 2.0, 3.0, "times the step", "a step that is more than half profiling: a gain of the host may be one in that",
    "docs/decisions/0005-refusal-by-slow-down.md; 123 tune captures of benchmarks/faults by torch.profiler (H200): "
    "1.96 at most in 120, 2.03, 2.4 and 11 in three", "tune",
)  # fmt: skip
ANOTHER_RUN: Final = Assumption(
    0.9, 1.0, 1.1, "times the estimated step",
    "without a profiler a step takes this of its estimate: another process, another clock",
    "238 tune captures of benchmarks/faults (H200): 0.91 of the low end at least; fifth percentile 0.98 of the low "
    "end, ninety-fifth 1.10 of the high one", "tune",
)  # fmt: skip
MODEL_ERROR: Final = Assumption(
    0.08, 0.12, 0.15, "of the gain, one standard deviation", "replays are off by this of what they predict",
    "benchmarks/faults: with 0.08 nine tenths of the gains of tune lie within the interval, and seven tenths of those "
    "set aside; with this four fifths of theirs", "tune",
)  # fmt: skip
STEP_ERROR: Final = Assumption(
    0.015, 0.02, 0.03, "of the step, one standard deviation", "replays are off by this whatever they predict",
    "benchmarks/faults: as of the gain itself; two runs of a program differ by 0.5 to 2.1 %", "tune",
)  # fmt: skip
SLOWEST_CLOCK: Final = Assumption(
    1.05, 1.15, 1.3, "times", "a program runs up to this much faster in a capture, by a higher clock",
    "36 captures of healthy programs (H200): a recorded step is up to 1.14 times shorter than one without the profiler",
    "tune",
)  # fmt: skip
