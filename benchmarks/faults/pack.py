"""Pack what the stages of `run_all.py` left in its scratch folder: archives of captures, merged measurements, logs."""

from __future__ import annotations

import io
import json
import lzma
import multiprocessing
import os
import statistics
import tarfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.faults import suite, trim
from benchmarks.faults.receipts import equal
from benchmarks.ladders import columns

PIECE_BYTES = 14_000_000
KERNEL = b'"cat": "kernel"'
TIMES = ("fault_ms", "fix_ms", "first_fixed_ms", "second_fixed_ms")
TRACES, TABLES = "traces.columns.xz", "tables.columns.xz"
"""Of an archive, the traces of torch.profiler and the reports of Nsight Systems, stored by column."""


def merged(scratch: Path) -> dict[str, dict[str, object]]:
    """Every case's step times, one number per process, and whether the receipts agreed in all."""
    found: dict[str, dict[str, object]] = {}
    for path in sorted(scratch.glob("measure[0-9]*.json")):
        for name, result in json.loads(path.read_text()).items():
            case = found.setdefault(name, {"fault_ms": [], "fix_ms": [], "receipts_equal": [], "failed": []})
            if "failed" in result:
                case["failed"].append(result["failed"])
                continue
            for variant in TIMES:  # one alone where the other needs another environment
                if variant in result:
                    case.setdefault(variant, []).append(round(result[variant], 5))
            case["receipts"] = case.get("receipts", {}) | result["receipts"]
            if "receipts_equal" in result:
                case["receipts_equal"].append(result["receipts_equal"])
            elif {"fault", "fix"} <= case["receipts"].keys():
                kept = case["receipts"]
                case["receipts_equal"].append(equal(kept["fault"], kept["fix"], kept["tolerance"]))
            case.setdefault("spread_ms", {})
            for variant, values in result["blocks_ms"].items():
                case["spread_ms"].setdefault(variant, []).append(round(max(values) - min(values), 5))
    for case in found.values():
        if case["fault_ms"] and case["fix_ms"]:
            fault, fix = statistics.median(case["fault_ms"]), statistics.median(case["fix_ms"])
            case["gain_share"] = round(1 - fix / fault, 5)
    return found


def fault_archive(scratch: Path, tool: str, name: str) -> Path | None:
    """The captures of one program by one tool in one solid archive: severities and ranks share most of their text."""
    suffix = "json" if tool == "torch" else "sqlite"
    raw = sorted([*(scratch / tool).glob(f"{name}.*.{suffix}"), *(scratch / tool).glob(f"{name}.*.settings")])
    target = scratch / "packed" / f"{name}.{tool}.tar.xz"
    if not raw:
        return None
    files = {path.name: path for path in raw if path.suffix != ".json"}
    working = [path for path in raw if path.suffix == ".json" and KERNEL in path.read_bytes()]
    for path in raw:
        if path in working or (path.suffix == ".json" and not working):  # a rank may leave its GPU to another
            files[path.name] = scratch / "trimmed" / path.name
            trim.trim_torch(path, files[path.name], suite.find(name).recorded)
    write(target, files)
    return target


def write(target: Path, files: Mapping[str, Path]) -> None:
    """An archive of files under these names: traces and tables by column, others as they are."""
    by_column: dict[str, dict[str, Any]] = {TRACES: {}, TABLES: {}}
    content = {}
    for name, path in files.items():
        if path.suffix == ".sqlite":
            by_column[TABLES][name.removesuffix(".sqlite")] = columns.split_tables(path)
        elif path.suffix == ".json" and (parts := traced(path)):
            by_column[TRACES][name.removesuffix(".json")] = parts
        else:
            content[name] = path.read_bytes()
    content |= {name: columns.pack(parts) for name, parts in by_column.items() if parts}
    with tarfile.open(target, "w:xz", preset=9 | lzma.PRESET_EXTREME) as archive:
        for name, stored in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(stored)
            archive.addfile(info, io.BytesIO(stored))


def traced(path: Path) -> dict[str, Any] | None:
    """The columns of a trace; None of other JSON, and of a trace whose numbers would change."""
    document = json.loads(path.read_bytes())
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        return None
    parts = columns.split_trace(document)
    return parts if columns.joined_trace(parts) == document else None


def unpacked(archive: Path, folder: Path) -> None:
    """The files of an archive as the tools could have written them."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    for stored, suffix, write_one in ((TRACES, "json", columns.write_trace), (TABLES, "sqlite", columns.write_tables)):
        if (path := folder / stored).exists():
            for name, parts in columns.unpack(path.read_bytes()).items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_one(parts, folder / f"{name}.{suffix}")
            path.unlink()


def archived(job: tuple[Path, str, str]) -> Path | None:
    try:
        return fault_archive(*job)
    except (OSError, ValueError, KeyError, SystemExit) as problem:
        print(f"{job[1]} {job[2]}: not packed: {problem}", flush=True)
        return None


class Packer:
    """`out`/faults.<label>.N.tar, each below the size limit, filled with the archives of programs as they are packed,
    and at last with the measurements and logs; until then the measurements lie beside them."""

    def __init__(self, scratch: Path, out: Path, label: str) -> None:
        self.scratch, self.out, self.label, self.piece = scratch, out, label, 0
        self.lock, self.seen = Lock(), set[tuple[str, str]]()
        for folder in ("packed", "trimmed"):
            (scratch / folder).mkdir(exist_ok=True)
        # spawn: threads run here, and a child forked from them can hang
        workers = min(48, os.cpu_count() or 1)
        self.pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), os.nice, (19,))

    def add(self, tool: str, names: Iterable[str]) -> None:
        """Pack these programs' captures by a tool that were not packed before."""
        wanted = sorted({(tool, name) for name in names} - self.seen)
        self.seen.update(wanted)
        for path in self.pool.map(archived, [(self.scratch, *one) for one in wanted]):
            if path:
                self.append(path)

    def append(self, path: Path) -> None:
        with self.lock:
            target = self.out / f"faults.{self.label}.{self.piece}.tar"
            if target.exists() and target.stat().st_size + path.stat().st_size > PIECE_BYTES:
                self.piece += 1
                target = self.out / f"faults.{self.label}.{self.piece}.tar"
            with tarfile.open(target, "a") as archive:
                archive.add(path, arcname=path.name)

    def write_measured(self) -> Path:
        target = self.out / f"measured.{self.label}.json"
        with self.lock:
            target.write_text(json.dumps(merged(self.scratch), indent=1, sort_keys=True))
        return target

    def finish(self) -> None:
        """What is left, the measurements and the logs."""
        for tool in ("torch", "nsys"):
            self.add(tool, (fault.name for fault in suite.FAULTS))
        self.pool.shutdown()
        logs = self.scratch / f"logs.{self.label}.tar.xz"
        with tarfile.open(logs, "w:xz") as archive:
            kept = ("*.log", "*/*.taken.json", "measure[0-9]*.json")
            for path in sorted(path for pattern in kept for path in self.scratch.glob(pattern)):
                archive.add(path, arcname=path.name)
        measured = self.write_measured()
        for path in (logs, measured):
            self.append(path)
        measured.unlink()
