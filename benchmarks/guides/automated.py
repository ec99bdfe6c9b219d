"""Nsight Compute from a script, and its figures as `{metric: number}`: `automated.py FOLDER FIGURES.json`."""

import json
import sys
from pathlib import Path

import timesink
from timesink import capture

METRICS = (
    "gpu__time_duration.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
)


def figures_of(report: Path) -> dict[str, float]:
    """The mean of each metric over the launches of a report."""
    rows = timesink.read(report).table("kernel_metrics").drop_nulls("value")
    values = {metric: rows["value"].filter(rows["metric"].cast(str) == metric) for metric in METRICS}
    return {metric: float(of.mean()) for metric, of in values.items() if len(of)}


if __name__ == "__main__":
    folder, figures = map(Path, sys.argv[1:3])
    program = [sys.executable, str(Path(__file__).with_name("programs.py")), "bench", "count=6"]
    done = capture.ncu(program, out=folder, kernels="rmsnorm_fwd", launch_count=3, metrics=METRICS, whole=True)
    figures.write_text(json.dumps(figures_of(done.files[0])))
