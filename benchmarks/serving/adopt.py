"""Take results of `run_on_gpu.sh` into `captures/`: all measurements, and the captures that decide most.

    python -m benchmarks.serving.adopt OUT

OUT holds `measured.json`, `exchange.json`, and the unpacked captures in `torch/`, `nsys/` and `exchange/`. Captures
that are there already and are not in OUT, as those of `pair.py`, stay.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.ladders import columns

CAPTURES = Path(__file__).parent / "captures"
CHOSEN = {
    "nsys": ("batch_cap_small", "cache_emptied", "prefill_in_one_piece"),
    "exchange": ("share_72.rank0", "share_72.rank1"),
}
PACKED = CAPTURES / "captures.columns.xz"
FIGURES = 4
KEPT = ("step_ms", "token_ms", "late_ms")
UNREAD = ("Ev Idx", "Record function id", "cbid", "Process Group Description", "Collective stage index")


def split(path: Path) -> dict[str, Any]:
    if path.suffix == ".sqlite":
        return columns.split_tables(path)
    trace = json.loads(path.read_bytes())
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") not in ("ac2g", "fwdbwd")]
    for event in trace["traceEvents"]:
        for name in UNREAD:
            event.get("args", {}).pop(name, None)
    return columns.split_trace(trace)


def unpacked(folder: Path, prefix: str = "") -> None:
    """The kept captures as files that the tools could have written: TOOL/NAME.json or TOOL/NAME.sqlite."""
    for name, parts in columns.unpack(PACKED.read_bytes()).items():
        if not name.startswith(prefix):
            continue
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        (columns.write_tables if path.suffix == ".sqlite" else columns.write_trace)(parts, path)


def kept(measured: dict[str, Any]) -> dict[str, Any]:
    """By server and variant: each figure of every block, in ms."""
    return {
        server: {
            variant: {name: [round(block[name], FIGURES) for block in blocks] for name in KEPT}
            for variant, blocks in variants.items()
        }
        for server, variants in measured.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    CAPTURES.mkdir(exist_ok=True)
    found = kept(json.loads((given.out / "measured.json").read_text()))
    (CAPTURES / "measured.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    (CAPTURES / "exchange.json").write_text((given.out / "exchange.json").read_text().strip() + "\n")
    parts = columns.unpack(PACKED.read_bytes()) if PACKED.exists() else {}
    for tool, names in CHOSEN.items():
        for name in names:
            path = given.out / tool / f"{name}.{'sqlite' if tool == 'nsys' else 'json'}"
            parts[f"{tool}/{path.name}"] = split(path)
    PACKED.write_bytes(columns.pack(parts))
    print(f"{PACKED.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    main()
