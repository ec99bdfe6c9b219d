"""When the host is late, what it waits for, and which gaps between kernels are ordinary."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

AHEAD_BY: Final = Assumption(
    2, 3, 5, "launches",
    "the host is ahead again once a launch finds so many earlier ones waiting: one or two wait by chance",
    "docs/explanation/science.md, whose fault an idle GPU is; 246 captures (H200): where the host leads, 65 "
    "launches wait at once at the median", "", "IDL102",
)  # fmt: skip
EFFECTIVE_SHARE: Final = Assumption(
    0.14, 1 / 3, 1 / 3, "of the idle time after the waits",
    "removing them must win at least that, or they are not its root: the host would have been late without them",
    "246 tune captures of benchmarks/faults (H200): 13 % at most in 4 cases, 33.4 % and more in 50: any figure between "
    "decides the same", "tune", "IDL102 IDL106 CPY102",
)  # fmt: skip
DISPATCH_MOST_US: Final = Assumption(
    30.0, 60.0, 200.0, "us", "three eager operators in a row take no more than this",
    "238 captures (H200): the median distance of launches is 12 to 35 us in four fifths of them, 79 us at most", "tune",
    "IDL103 IDL104",
)  # fmt: skip
WRITES_APART_US: Final = Assumption(
    500.0, 2000.0, 5000.0, "us", "code between two calls that write or read, so near each other, prepares their data",
    "a line of text of a thousand numbers takes Python 0.5 ms to format; nothing else was launched between", "",
    "IDL108",
)  # fmt: skip
GAP_LEAST_US: Final = Assumption(
    2.0, 3.0, 5.0, "us", "a gap before queued work is ordinary up to here, where the trace has few of them",
    "232 tune captures of benchmarks/faults (H200): medians of 1.15 to 1.63 us, ninety-ninth percentiles of 2.3 to "
    "3.7", "tune",
)  # fmt: skip
GAP_MOST_US: Final = Assumption(
    5.0, 10.0, 20.0, "us", "a gap before queued work is never ordinary beyond, where those of the trace are strange",
    "232 tune captures of benchmarks/faults (H200): ninety-ninth percentiles of 2.3 to 3.7 us in four fifths", "tune",
)  # fmt: skip
TIMED_BLOCKS: Final = Assumption(
    4, 6, 12, "blocks", "fewer may end in a wait by chance (a loss that is read, a copy): no instrumentation",
    "by the toss of a coin 6 blocks end in a wait in one program of 64",
)  # fmt: skip
TIMED_SHARE: Final = Assumption(
    0.8, 0.9, 1.0, "of the blocks", "end in a wait in an instrumented program: some at its edges do not",
    "246 tune captures of benchmarks/faults (H200), none instrumented: of 6 to 144 blocks a tenth at most does; "
    "all do in instrumented programs (tests/measures/steps/test_step_structure.py)",
)  # fmt: skip
START_UP_LAUNCH_MS: Final = Assumption(
    2.0, 3.0, 10.0, "ms", "a launch so long, while the device has nothing to do, loads the module of its kernel",
    "captures of benchmarks/faults (H200): no launch of a warm program takes 3 ms of an idle device's time; 6.5 ms in "
    "a public trace of a first iteration (MI250), 3 s in another (A100)",
)  # fmt: skip
START_UP_FIRST_LAUNCH_MS: Final = Assumption(
    0.05, 0.1, 0.3, "ms", "a kernel's first launch that takes so long, while the device has nothing to do, loads it",
    "public captures of whole programs of a few kernels: 468 us on a GTX 1650, 80 to 100 us on a T4; later launches "
    "take under 20 us",
)  # fmt: skip
START_UP_CALL_MS: Final = Assumption(
    20.0, 50.0, 150.0, "ms", "an allocation, or another call that does not wait, so long sets up the device",
    "captures of benchmarks/faults (H200): 12 ms at most, where a cache is emptied in each step; 0.18 to 6 s in public "
    "traces of first iterations (A100)",
)  # fmt: skip
