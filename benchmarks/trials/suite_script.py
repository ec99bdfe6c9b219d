"""One program of the ladders, or a healthy one of a size, as a script: `suite_script NAME [SIZE] [--dry]`.

What was made for it is collected no more, as in the truth of the ladders.
"""

import gc
import sys

import torch
from benchmarks.faults import machine as machines
from benchmarks.faults import suite as faults
from benchmarks.faults.machine import Ranges
from benchmarks.ladders import suite as ladders
from benchmarks.ladders.parts import Context

torch.backends.cudnn.allow_tf32 = True
machine = machines.choose(Ranges.OFF, dry="--dry" in sys.argv)
name, *size = [word for word in sys.argv[1:] if word != "--dry"]
if size:
    step = faults.find(name).builder()(size[0], machine).fault
else:
    step = ladders.find(name).builder()(Context(machine, frozenset()))
step()
gc.collect()
gc.freeze()
while True:
    step()
