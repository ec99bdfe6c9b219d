"""What the process of low priority does with a window: wait for the ranks, write the manifest, hand on to the verdict.

``python -m timesink.capture.trainer.finish ORDER``, where ORDER is a `verdict.Order` as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.running import doubtful, ended_ranks, missing_from
from timesink.capture.trainer.verdict import Order, warn


def main(text: str) -> int:
    """Write the manifest; then become `timesink watch`, if a verdict is wanted."""
    order = Order(**json.loads(text))
    os.nice(19)
    window = Path(order.window)
    ranks = ended_ranks(window, order.patience_s)
    try:
        missing = _write(order, window, ranks)
    except OSError as error:
        warn(f"no manifest of {window}: {error}")
        return 1
    for sentence in missing:
        warn(sentence)
    if order.root:
        name = window.relative_to(order.root).as_posix()
        words = ["watch", order.root, "--once", "--name", name]
        os.execv(sys.executable, [sys.executable, "-P", "-m", "timesink", *words])
    return 0


def _write(order: Order, window: Path, ranks: list[dict[str, Any]]) -> list[str]:
    """The manifest; what is missing of the capture, a sentence each."""
    with ThreadPoolExecutor(1) as pool:  # nvidia-smi and git take as long as looking through the traces
        surroundings = pool.submit(manifests.surroundings, order.program, (), order.facts)
        checked = [manifests.check(window / rank["file"]) for rank in ranks if rank.get("file")]
    expected = ["operators"]
    if any("gpu" in rank.get("software", {}) for rank in ranks):
        expected += ["CUDA API calls", "kernels"]
    missing = missing_from(checked, expected, ranks)
    entry = {
        **surroundings.result(),
        "tool": order.tool,
        **({"steps": order.steps} if order.steps else {}),
        "ranks": [{key: value for key, value in rank.items() if key != "pid"} for rank in ranks],
        "files": manifests.files_entry(checked),
        "missing": missing,
        "doubts": doubtful(ranks),
    }
    manifests.write(window, entry)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
