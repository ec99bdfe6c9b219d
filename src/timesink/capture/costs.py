"""What a capture costs in words; figures measured on an H200 with five programs stand in docs/how-to/capture.md."""

from __future__ import annotations

COSTS = {
    "torch": "one run of a few dozen steps; host-bound steps take a third to three quarters longer; 50 kB a step",
    "nsys": "one run and its export; host-bound steps take an eighth to a quarter longer; 100 kB a step",
    "ncu": "one run; each profiled kernel is replayed 20 times with --set detailed, 42 with full: a second or two",
}
