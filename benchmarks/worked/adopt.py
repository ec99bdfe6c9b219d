"""Take what a run on a GPU left into `results/`: figures, ledger, and the small captures that tests diagnose again.

python -m benchmarks.worked.adopt OUT
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.faults.trim import scrubbed, trim_torch
from benchmarks.ladders import columns
from benchmarks.worked.ladders import EXAMPLES
from benchmarks.worked.pack import unpacked
from benchmarks.worked.tables import RESULTS

STEPS_KEPT = 2
RUN = re.compile(r"^run \d+: (before|after) ([\d.]+) ms per step", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    RESULTS.mkdir(exist_ok=True)
    for name in EXAMPLES:
        if not (out / f"{name}.json").exists():
            continue
        result = scrubbed(json.loads((out / f"{name}.json").read_text(encoding="utf-8")))
        note_cut_off(out / f"{name}.details.tar.xz", result)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"{name}.ledger.jsonl").write_bytes((out / f"{name}.ledger.jsonl").read_bytes())
        wanted = {change["before"] for change in result["changes"] if change["kept"]}
        adopt_captures(out / f"{name}.captures.tar", wanted)


def note_cut_off(details: Path, result: dict[str, Any]) -> None:
    """Where `verify` was cut off before its verdict: the runs it had finished, from its log."""
    with tarfile.open(details) as tar:
        for change in result["changes"]:
            log = f"verify.{change['after']}.log"
            if "measured" in change or log not in tar.getnames():
                continue
            text = tar.extractfile(log).read().decode()
            change["cut_off"] = [{"side": side, "ms": float(ms)} for side, ms in RUN.findall(text)]


def adopt_captures(archive: Path, wanted: set[str]) -> None:
    """The captures that a change starts from, cut to two steps."""
    target, traces = RESULTS / f"{archive.stem}.columns.xz", {}
    with tempfile.TemporaryDirectory() as scratch:
        for path in unpacked(archive, Path(scratch)):
            if path.stem in wanted:
                cut = path.with_suffix(".cut")
                trim_torch(path, cut, STEPS_KEPT)
                traces[path.stem] = columns.split_trace(json.loads(cut.read_bytes()))
    target.write_bytes(columns.pack(traces))
    print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
