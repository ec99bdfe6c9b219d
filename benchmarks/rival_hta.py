"""Holistic Trace Analysis on the traces of ranks 0, 1, ...: load, temporal breakdown, idle breakdown, overlap.

Run by an interpreter that has it. Several files are parsed by its own pool of processes.
"""

import json
import sys
from time import perf_counter

from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]  # the rival is not ours to install

if __name__ == "__main__":
    files = dict(enumerate(sys.argv[1:]))
    started = perf_counter()
    analysis = TraceAnalysis(trace_files=files)
    loaded = perf_counter()
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=sorted(files), visualize=False)
    if len(files) > 1:
        analysis.get_comm_comp_overlap(visualize=False)
    print(json.dumps({"load_s": loaded - started, "seconds": perf_counter() - started}))
