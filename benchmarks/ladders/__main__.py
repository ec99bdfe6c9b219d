"""`python -m benchmarks.ladders score`, `python -m benchmarks.ladders adopt OUT`, and the other parts."""

from __future__ import annotations

import runpy
import sys

PARTS = ("score", "adopt", "run", "measure", "batches", "prices")

if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
    raise SystemExit(f"python -m benchmarks.ladders {{{','.join(PARTS)}}} …")
runpy.run_module(f"benchmarks.ladders.{sys.argv.pop(1)}", run_name="__main__")
