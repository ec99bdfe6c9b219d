"""Every accuracy figure of the project, printed anew: `make scoreboard`.

The fault suite (diagnosis and price against measured truth), what other tools say of its captures, the kernel suite
(limiter and bound against measured fixes), and the error rates of verdicts. `--split` prints one split of the
fault suite: `tune`, on which limits are set, `evaluate`, set aside by a hash, `fresh`, planted after both, or those of
the third set, `third_tune` and `third_evaluate`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile

from benchmarks.faults import suite


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=("", *suite.SPLITS), default="")
    split = parser.parse_args().split
    with tempfile.TemporaryDirectory() as folder:
        own = f"{folder}/own.json"
        parts = {
            "Faults planted in programs": [
                "benchmarks.faults.score", "--json", own, *(["--split", split] if split else [])
            ],
            "Intervals of prices, by kind": ["benchmarks.intervals", own],
            "Other tools on the same captures": ["benchmarks.peers.score", "--own", own],
            "Kernels of known limiter": ["benchmarks.kernels.score"],
            "Verdicts on unchanged programs": ["benchmarks.verdicts"],
            "Figures that pages quote": ["benchmarks.quoted", own],
        }  # fmt: skip
        failed = 0
        for title, command in parts.items():
            print(f"\n## {title}\n", flush=True)
            failed |= subprocess.run([sys.executable, "-m", *command], check=False).returncode
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
