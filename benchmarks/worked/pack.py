"""What a run of the examples leaves: captures cut to a few steps without folders, and everything that was said."""

from __future__ import annotations

import gzip
import json
import lzma
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.faults.trim import trim_torch
from benchmarks.ladders import columns

STEPS_KEPT = 5
LARGEST_BYTES = 15 << 20


def captures(folder: Path, out: Path, name: str) -> None:
    """OUT/NAME.captures.tar: one STATE.json.xz for every state; a file over the limit is left out, and said so."""
    traces = sorted(folder.glob("*/rank0.json.gz"))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(8) as threads:
        small = list(threads.map(lambda path: pressed(path, Path(scratch)), traces))
        with tarfile.open(out / f"{name}.captures.tar", "w") as tar:
            total = 0
            for path in sorted(small, key=lambda one: one.stat().st_size):
                total += path.stat().st_size
                if total > LARGEST_BYTES:
                    print(f"left out: {path.name}, {path.stat().st_size} bytes", flush=True)
                    continue
                tar.add(path, arcname=path.name)


def pressed(trace: Path, folder: Path) -> Path:
    """The trace with few steps and no folders, pressed."""
    raw, cut = folder / f"{trace.parent.name}.raw.json", folder / f"{trace.parent.name}.json"
    raw.write_bytes(gzip.decompress(trace.read_bytes()))
    trim_torch(raw, cut, STEPS_KEPT)
    target = cut.with_name(f"{cut.name}.xz")
    target.write_bytes(lzma.compress(cut.read_bytes(), preset=9))
    return target


def details(work: Path, out: Path, name: str) -> None:
    """OUT/NAME.details.tar.xz: diagnoses, reports and logs."""
    with tarfile.open(out / f"{name}.details.tar.xz", "w:xz") as tar:
        for path in sorted(work.glob("*.*")):
            if path.suffix in (".json", ".log") and path.stat().st_size < LARGEST_BYTES:
                tar.add(path, arcname=path.name)
        for manifest in sorted(work.glob("captures/*/manifest.json")):
            tar.add(manifest, arcname=f"manifest.{manifest.parent.name}.json")


def unpacked(archive: Path, folder: Path) -> list[Path]:
    """The traces of an archive as plain files, by name. Members that are no plain file of ours are refused."""
    found = []
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None or "/" in member.name or not member.name.endswith(".json.xz"):
                raise SystemExit(f"{archive.name}: {member.name!r} is no capture")
            target = folder / member.name.removesuffix(".xz")
            target.write_bytes(lzma.decompress(content.read()))
            json.loads(target.read_bytes())
            found.append(target)
    return sorted(found)


def kept(archive: Path, folder: Path) -> list[Path]:
    """The traces that `adopt` kept, as plain files."""
    found = []
    for name, parts in columns.unpack(archive.read_bytes()).items():
        found.append(folder / f"{name}.json")
        columns.write_trace(parts, found[-1])
    return found
