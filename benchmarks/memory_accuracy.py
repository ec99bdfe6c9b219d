"""Compare plans with what a GPU used: writes the tables of benchmarks/memory/README.md to stdout.

usage: python benchmarks/memory_accuracy.py FOLDER   (what benchmarks/memory_on_gpu.py wrote)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.memory.configurations import CONFIGURATIONS

from timesink.measures.memory import MemoryLedger, memory_ledger
from timesink.measures.memory.classes import Category
from timesink.memory_plan import configuration
from timesink.memory_plan.plan import MemoryPlan, plan
from timesink.readers import read

KINDS = {
    "weights": Category.WEIGHTS,
    "gradients": Category.GRADIENTS,
    "optimizer": Category.OPTIMIZER_STATE,
    "kv_cache": Category.KV_CACHE,
    "inputs": Category.INPUTS,
}
COMPARED = ("weights", "optimizer state", "low-precision weight copies", "activations", "temporaries", "communication")


def measured_of(folder: Path, name: str) -> tuple[dict[str, Any], Path]:
    stem = name if (folder / f"{name}.json").is_file() else f"{name}.rank0"
    return json.loads((folder / f"{stem}.json").read_text()), folder / f"{stem}.pickle.xz"


def steady_peak(measured: dict[str, Any]) -> int:
    """The highest peak of the second step and later; the first makes optimizer state, `init` builds the model."""
    return max(row["peak_bytes"] for row in measured["phases"] if row["step"] >= 1)


def agreement(ledger: MemoryLedger, truth: dict[str, list[list[int]]]) -> tuple[int, int]:
    """Bytes that the program says are of a kind, and those of them that the classification calls so."""
    known = {address: (kind, size) for kind, entries in truth.items() for address, size in entries}
    frame, last = ledger.classes.lives.frame, {}
    for row, (address, size) in enumerate(frame.select("address", "bytes").iter_rows()):
        if address in known and abs(size - known[address][1]) < 512:
            last[address] = (row, size)
    right = whole = 0
    for address, (row, size) in last.items():
        kind = known[address][0]
        whole += size
        right += size if kind in KINDS and bool(ledger.classes.of(KINDS[kind])[row]) else 0
    return right, whole


def row_of(folder: Path, config: dict[str, Any]) -> tuple[str, str, float]:
    measured, snapshot = measured_of(folder, config["name"])
    planned: MemoryPlan = plan(configuration(config))
    peak = steady_peak(measured)
    error = planned.peak_bytes / peak - 1
    ledger = memory_ledger(read(snapshot, cache=False))[0, 0]
    right, whole = agreement(ledger, measured["truth"])
    held = measured["peak_reserved_bytes"] / measured["peak_bytes"] - 1
    outside = measured["device_used_bytes"] - measured["reserved_bytes"]
    first = (
        f"| {config['name']} | {planned.peak_bytes / 1e9:.2f} | {peak / 1e9:.2f} | {100 * error:+.1f} % | "
        f"{planned.peak.phase} | {100 * held:.0f} % | {outside / 1e9:.2f} | {100 * ledger.unclassified_ratio:.2f} % | "
        f"{100 * right / whole:.1f} % |"
    )
    at_peak = {str(category): size for category, size in ledger.at_peak().items()}
    plans = {str(part): size for part, size in planned.peak.parts.items()}
    pairs = " | ".join(f"{plans.get(name, 0) / 1e9:.2f} / {at_peak.get(name, 0) / 1e9:.2f}" for name in COMPARED)
    return first, f"| {config['name']} | {pairs} |", error


def main() -> None:
    folder = Path(sys.argv[1])
    rows = [row_of(folder, config) for config in CONFIGURATIONS]
    head = "| program | planned GB | measured GB | error | peak in | reserved above peak | outside torch GB | "
    print(head + "unclassified | told right |")
    print("|---|---:|---:|---:|---|---:|---:|---:|---:|")
    print("\n".join(row[0] for row in rows))
    print(f"\n| program | {' | '.join(COMPARED)} |")
    print(f"|---|{'---:|' * len(COMPARED)}")
    print("\n".join(row[1] for row in rows))
    errors = sorted(abs(row[2]) for row in rows)
    print(f"\nwithin 10 %: {sum(e <= 0.1 for e in errors)} of {len(errors)}; largest {errors[-1]:.3f}; ", end="")
    print(f"median {errors[len(errors) // 2]:.4f}")


if __name__ == "__main__":
    main()
