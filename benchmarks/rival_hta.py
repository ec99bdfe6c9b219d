"""Holistic Trace Analysis on one rank: load, temporal breakdown, idle breakdown. Run by an interpreter that has it."""

import json
import sys
from time import perf_counter

from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]  # the rival is not ours to install

started = perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
loaded = perf_counter()
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
print(json.dumps({"load_s": loaded - started, "seconds": perf_counter() - started}))
