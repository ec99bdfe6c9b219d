"""Whether the diagnosis of a capture is the same after it was redacted: every code, price, figure and bound.

Texts may differ: a folder is gone, a name is a placeholder. Notes on the file itself may too.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.pack import unpacked

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import redact
from timesink.diagnosis.engine import diagnose
from timesink.errors import TimesinkError
from timesink.readers import read
from timesink.render import render

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "benchmarks/faults/captures"


def figures(path: Path) -> Any:
    """The diagnosis without its texts."""
    return _plain(json.loads(render(diagnose(read(path, cache=False)), "json")))


def _plain(value: Any, key: str = "") -> Any:
    """Numbers and codes."""
    if isinstance(value, dict):
        return {name: _plain(inner, name) for name, inner in value.items() if name not in _OF_THE_FILE}
    if isinstance(value, list):
        return [_plain(inner, key) for inner in value]
    return value if not isinstance(value, str) or key in _CODES else type(value).__name__


_OF_THE_FILE = frozenset(("path", "paths", "trace", "traces", "source", "size_bytes", "notes", "doubts"))
_CODES = frozenset(("code", "rule", "verdict", "unit", "bottleneck", "kind", "status"))


def difference(path: Path, folder: Path) -> str:
    """What differs after redaction, or ""."""
    try:
        before = figures(path)
    except TimesinkError:
        return ""  # no capture that anybody diagnoses
    try:
        after = figures(redact(path, folder / f"redacted-{path.name}").path)
    except (CaptureError, TimesinkError) as error:
        return str(error)
    return next(_differences(before, after, ""), "")


def _differences(before: Any, after: Any, where: str) -> Iterator[str]:
    if type(before) is not type(after):
        yield f"{where}: {before!r:.60} became {after!r:.60}"
    elif isinstance(before, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{where}.{key}")
    elif isinstance(before, list):
        if len(before) != len(after):
            yield f"{where}: {len(before)} became {len(after)}"
        for at, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from _differences(one, other, f"{where}[{at}]")
    elif before != after:
        yield f"{where}: {before!r:.60} became {after!r:.60}"


def _unpacked(folder: Path) -> Iterator[Path]:
    for archive in sorted(CAPTURES.iterdir()):
        if archive.name.endswith((".tar.xz", ".tar")):
            unpacked(archive, folder)
            yield from sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".sqlite"))
        elif archive.suffix == ".xz":
            path = folder / archive.stem
            path.write_bytes(lzma.decompress(archive.read_bytes()))
            yield path


def compared(paths: list[Path] | None = None) -> int:
    """0 where every diagnosis is the same. Those of the fault suite, or of the files given."""
    differ = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in paths or _unpacked(folder):
            count += 1
            if found := difference(path, folder):
                differ += 1
                print(f"{path.name}: {found}", flush=True)
            for made in folder.iterdir():
                made.unlink()
    print(f"{count} captures, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(compared([Path(word) for word in sys.argv[1:]]))
