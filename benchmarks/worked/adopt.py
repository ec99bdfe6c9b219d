"""Take what a run on a GPU left into `results/`: figures, ledger, and the small captures that tests diagnose again.

python -m benchmarks.worked.adopt OUT
"""

from __future__ import annotations

import argparse
import json
import tarfile
from pathlib import Path

from benchmarks.worked.ladders import EXAMPLES
from benchmarks.worked.tables import RESULTS

LARGEST_CAPTURES_BYTES = 1_500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    RESULTS.mkdir(exist_ok=True)
    left_bytes = LARGEST_CAPTURES_BYTES
    for name in EXAMPLES:
        if not (out / f"{name}.json").exists():
            continue
        result = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"{name}.ledger.jsonl").write_bytes((out / f"{name}.ledger.jsonl").read_bytes())
        wanted = {f"{change['before']}.json.xz" for change in result["changes"] if change["kept"]}
        left_bytes = adopt_captures(out / f"{name}.captures.tar", wanted, left_bytes)


def adopt_captures(archive: Path, wanted: set[str], left_bytes: int) -> int:
    """The captures that a change starts from, smallest first, as far as there is room."""
    target = RESULTS / archive.name
    with tarfile.open(archive) as source, tarfile.open(target, "w") as kept:
        for member in sorted(source.getmembers(), key=lambda one: one.size):
            if member.name not in wanted:
                continue
            if member.size > left_bytes:
                print(f"{archive.name}: {member.name} left out, {member.size} bytes")
                continue
            left_bytes -= member.size
            kept.addfile(member, source.extractfile(member))
    print(f"{target.name}: {target.stat().st_size} bytes")
    return left_bytes


if __name__ == "__main__":
    main()
