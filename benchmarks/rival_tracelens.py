"""TraceLens' performance report of one PyTorch trace, written as CSV files. Run by an interpreter that has it."""

import json
import sys
import tempfile
from time import perf_counter

from TraceLens.Reporting.generate_perf_report_pytorch import (  # type: ignore[import-not-found]  # not ours to install
    generate_perf_report_pytorch,
)

if __name__ == "__main__":
    started = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        generate_perf_report_pytorch(sys.argv[1], output_csvs_dir=folder)
    print(json.dumps({"seconds": perf_counter() - started}))
