"""Take the results of `run_all.sh` into `captures/`: archives as they are, the measurements of all calls merged.

python -m benchmarks.faults.adopt OUT/faults.*.tar
"""

from __future__ import annotations

import argparse
import json
import statistics
import tarfile
from pathlib import Path
from typing import Any

from benchmarks.faults import suite

CAPTURES = Path(__file__).parent / "captures"
MEASURED = CAPTURES / "measured.json"
ARCHIVES = frozenset(f"{fault.name}.{tool}.tar.xz" for fault in suite.FAULTS for tool in ("torch", "nsys"))
LISTS = ("fault_ms", "fix_ms", "receipts_equal", "failed")
HALVES = ("first_fixed_ms", "second_fixed_ms")
"""Of programs with two faults: the step with either of them mended."""


def archive(name: str, tool: str) -> Path:
    """Where the captures of a program by a tool are kept: those without marks apart, as laws of marked steps do not
    hold of them."""
    fault = suite.find(name)
    return (CAPTURES if fault.marked else CAPTURES / fault.folder) / f"{name}.{tool}.tar.xz"


def merged(parts: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Per case the step times of every process of every part, and the gain of their medians."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, result in part.items():
            case = found.setdefault(name, {key: [] for key in LISTS})
            for key in LISTS:
                case[key] += result[key]
            for key in HALVES:
                if key in result:
                    case.setdefault(key, []).extend(result[key])
            case.update({key: result[key] for key in ("receipts",) if key in result})
    for case in found.values():
        if case["fault_ms"] and case["fix_ms"]:
            case["gain_share"] = round(1 - statistics.median(case["fix_ms"]) / statistics.median(case["fault_ms"]), 5)
    return dict(sorted(found.items()))


def unpacked(results: Path) -> list[dict[str, dict[str, Any]]]:
    """Archives go to `captures/`; the measurements are returned, logs stay behind."""
    parts = []
    with tarfile.open(results) as opened:
        for member in opened:
            content = opened.extractfile(member)
            if content is None or "/" in member.name:
                raise SystemExit(f"{results.name}: {member.name!r} is no plain file of a result")
            if member.name.startswith("measured."):
                parts.append(json.loads(content.read()))
            elif member.name in ARCHIVES:  # logs stay behind: they name folders
                archive(*member.name.split(".")[:2]).write_bytes(content.read())
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archives", type=Path, nargs="+")
    parser.add_argument("--add", action="store_true", help="keep the measurements already adopted")
    options = parser.parse_args()
    for folder in suite.FOLDERS.values():
        (CAPTURES / folder).mkdir(parents=True, exist_ok=True)
    parts = [json.loads(MEASURED.read_text())] if options.add and MEASURED.exists() else []
    for results in options.archives:
        parts += unpacked(results)
    cases = merged(parts)
    MEASURED.write_text(json.dumps(cases, indent=1, sort_keys=True) + "\n")
    size = sum(path.stat().st_size for path in CAPTURES.rglob("*.*"))
    print(f"{len(cases)} cases, {size / 1e6:.1f} MB in {CAPTURES.name}/")


if __name__ == "__main__":
    main()
