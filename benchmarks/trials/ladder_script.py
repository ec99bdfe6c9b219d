"""One program of the ladders as a script: `python -m benchmarks.trials.ladder_script NAME`."""

import sys

import torch
from benchmarks.faults import machine as machines
from benchmarks.faults.machine import Ranges
from benchmarks.ladders import suite
from benchmarks.ladders.parts import Context

torch.backends.cudnn.allow_tf32 = True
machine = machines.choose(Ranges.OFF, dry="--dry" in sys.argv)
step = suite.find(sys.argv[1]).builder()(Context(machine, frozenset()))
while True:
    step()
