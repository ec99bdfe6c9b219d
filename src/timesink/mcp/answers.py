"""What every answer is made of: values with units and origins, foreign text marked as such, within a budget.

`Captures` holds what an agent has opened: files under the roots that it may read, named by a digest of their bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from timesink.capture.recorded_run import RecordedRun, recorded_run
from timesink.diagnosis.verdicts import Diagnosis, Evidence, Quantity
from timesink.errors import UsageError
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.untrusted.scrub import scrub, scrub_values, shortened

# About 2,000 tokens at three and a half characters each, the worst of names and figures.
BUDGET_CHARACTERS = 6_800
NAME_CHARACTERS = 120
SENTENCE_CHARACTERS = 400
MARK = "_untrusted_text"


def named(text: str | None) -> str | None:
    """A name from a trace, short; it goes under a key that ends in `MARK`."""
    return None if text is None else scrub(text, NAME_CHARACTERS)


def sentence(text: str) -> str:
    """A sentence that may quote a trace; it too goes under a marked key."""
    return shortened(scrub(text, 2 * SENTENCE_CHARACTERS), SENTENCE_CHARACTERS)


def quantity(amount: Quantity | None) -> dict[str, Any] | None:
    """A value with its unit and bounds, three or more digits of each."""
    if amount is None:
        return None
    low, high = rounded(amount.low), rounded(amount.high)
    shown = {"value": rounded(amount.value), "unit": amount.unit, "low": low, "high": high}
    return {key: value for key, value in shown.items() if value is not None}


def evidence(fact: Evidence) -> dict[str, Any]:
    """A measured fact with where it comes from."""
    shown = {
        f"label{MARK}": sentence(fact.label),
        **(quantity(fact.measured) or {}),
        "limit": quantity(fact.limit),
        f"how{MARK}": sentence(fact.how),
        "source_table": fact.table or None,
        "rows": len(fact.rows) or None,
        "first_rows": list(fact.rows[:3]) or None,
    }
    return {key: value for key, value in shown.items() if value is not None}


def rounded(value: float | None) -> float | int | None:
    """Five significant digits; whole numbers stay whole; what is not finite is not known."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) or float(value).is_integer():
        return int(value)
    return float(f"{value:.5g}")


def fitted(document: dict[str, Any], rows: str, cursor: int = 0) -> dict[str, Any]:
    """The document with as many items of the list `rows` as fit, and a cursor where some are left for another call."""
    clean: dict[str, Any] = scrub_values(document)
    items = clean[rows]
    kept = len(items)
    while kept > 1 and len(text({**clean, rows: items[:kept]})) > BUDGET_CHARACTERS:
        kept -= 1
    if kept == len(items):
        return clean
    return {**clean, rows: items[:kept], "truncated": True, "next_cursor": cursor + kept}


def text(document: dict[str, Any]) -> str:
    """The document as compact JSON, as it goes to the agent."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


KEPT = 4
MOST_FILES = 2_000  # whose beginnings are looked at to list captures
_HANDLE_DIGITS = 12
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class OpenCapture:
    """An open capture. The handle is a digest of the files' bytes: the same files have the same handle anywhere."""

    handle: str
    paths: tuple[Path, ...]
    trace: Trace
    diagnosis: Diagnosis
    unprofiled_step_ms: float | None = None


class Captures:
    """Opens captures under `roots` and keeps the last few."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(root.resolve() for root in roots)
        self._open: OrderedDict[str, OpenCapture] = OrderedDict()
        self._lock = Lock()

    def open(self, path: str, unprofiled_step_ms: float | None = None) -> OpenCapture:
        """The capture at a path; read anew only where its bytes are new.

        `unprofiled_step_ms` is its step time without a profiler, by default as its capture measured it. Another one
        than before prices the capture anew, under the same handle.
        """
        from timesink.readers import trace_files

        if unprofiled_step_ms is not None and not 0 < unprofiled_step_ms < math.inf:
            raise UsageError(f"no step takes {unprofiled_step_ms} ms", remedy="give milliseconds, or leave it out")
        files = tuple(self.allowed(str(file)) for file in trace_files(self.allowed(path)))
        handle, run = _digest(files), recorded_run(files)
        if unprofiled_step_ms is not None:
            run = replace(run, step_ms=unprofiled_step_ms, steps_ms=())
        with self._lock:
            known = self._open.get(handle)
            if known is None or (unprofiled_step_ms and known.unprofiled_step_ms != run.step_ms):
                self._open[handle] = _diagnosed(handle, files, None if known is None else known.trace, run)
            self._open.move_to_end(handle)
            while len(self._open) > KEPT:
                self._open.popitem(last=False)
            return self._open[handle]

    def get(self, handle: str) -> OpenCapture:
        """The open capture of that handle. `UsageError` says how to open one."""
        with self._lock:
            capture = self._open.get(handle)
        if capture is None:
            raise UsageError(f"no capture is open as {handle[:40]!r}", remedy="call open_capture(path) first")
        return capture

    def files(self) -> list[Path]:
        """Every file below the roots, the newest first, hidden folders and links left out."""
        found = {
            path
            for root in self.roots
            for path in root.rglob("*")
            if path.is_file() and not path.is_symlink() and not _hidden(path.relative_to(root))
        }
        return sorted(found, key=lambda path: (-path.stat().st_mtime_ns, path))[:MOST_FILES]

    def allowed(self, path: str) -> Path:
        """The file, links followed, if it lies under a root. `UsageError` otherwise."""
        resolved = (self.roots[0] / Path(path).expanduser()).resolve()
        if not any(resolved.is_relative_to(root) for root in self.roots):
            raise UsageError(f"{path!r} lies outside the folders this server may use", remedy=self._roots_text())
        return resolved

    def _roots_text(self) -> str:
        return f"give a path under {', '.join(map(str, self.roots))}, or start the server with another --root"


def _diagnosed(handle: str, files: tuple[Path, ...], trace: Trace | None, run: RecordedRun) -> OpenCapture:
    """The files, read unless the trace is there, and diagnosed with what is known of their run."""
    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read

    trace = (read(files) if trace is None else trace).with_facts(run.facts)
    if run.step_ms is not None:
        steps_ns = tuple(ms * NS_PER_MS for ms in run.steps_ms)
        trace = trace.with_unprofiled_step(run.step_ms * NS_PER_MS, steps_ns)
    return OpenCapture(handle, files, trace, diagnose(trace), run.step_ms)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _digest(files: Sequence[Path]) -> str:
    """Over the digests of the files in order, so that neither names nor places count."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(_file_digest(file))
    return f"cap_{digest.hexdigest()[:_HANDLE_DIGITS]}"


def _file_digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    inside = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    if not all(part.exists() for part in inside):
        raise UsageError(f"{path} does not exist", remedy="give the path of a trace")
    for part in inside:
        with part.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.digest()
