"""What an agent has opened: captures under the roots that it may read, named by a digest of their bytes.

And what can be said of one as a whole: which there are, what one holds, a file of it for people, how to record one.
"""

import hashlib
import math
import os
import shlex
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from timesink.capture.recorded_run import RecordedRun, recorded_run
from timesink.diagnosis.verdicts import Diagnosis, Undecided
from timesink.errors import UsageError
from timesink.mcp import MARK, fitted, named, paged, rounded, sentence
from timesink.model.trace import Trace
from timesink.records import Record, replace
from timesink.untrusted.spending import allow_for
from timesink.untrusted.unpack import plain_files, refuse_special
from timesink.untrusted.whole_file import whole_file, write_whole

KEPT = 4
MOST_FILES = 2_000  # whose beginnings are looked at to list captures
_HANDLE_DIGITS = 12
_PREFIX = "cap_"
_CHUNK = 1 << 20


class OpenCapture(Record, eq=False):
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
        handle, run = _digest(files, self.roots), recorded_run(files)
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
        """The open capture of that handle, or the one at that path, which is opened. `UsageError` says how."""
        with self._lock:
            capture = self._open.get(handle)
        if capture is not None:
            allow_for(*capture.paths)
            return capture
        if handle.startswith(_PREFIX) and not self.allowed(handle).exists():
            raise UsageError(f"no capture is open as {handle[:40]!r}", remedy="call open_capture(path) first")
        return self.open(handle)

    def files(self) -> list[Path]:
        """Every file below the roots, the newest first, hidden folders and links left out."""
        found = {
            path
            for root in self.roots
            for path in root.rglob("*")
            if path.is_file() and not path.is_symlink()
            if not any(part.startswith(".") for part in path.relative_to(root).parts)
        }
        return sorted(found, key=lambda path: (-path.stat().st_mtime_ns, path))[:MOST_FILES]

    def allowed(self, path: str) -> Path:
        """The file, links followed, if it lies under a root. `UsageError` otherwise."""
        asked = self.roots[0] / os.path.expanduser(path)  # noqa: PTH111  # which leaves a name that nobody has
        refuse_special(asked)
        resolved = asked.resolve()
        if not any(resolved.is_relative_to(root) for root in self.roots):
            raise UsageError(f"{path!r} lies outside the folders this server may use", remedy=self._roots_text())
        return resolved

    def _roots_text(self) -> str:
        return f"give a path under {', '.join(map(str, self.roots))}, or start the server with another --root"


def _diagnosed(handle: str, files: tuple[Path, ...], trace: Trace | None, run: RecordedRun) -> OpenCapture:
    """The files, read unless the trace is there, and diagnosed with what is known of their run."""
    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read

    trace = run.told_to(read(files) if trace is None else trace)
    return OpenCapture(handle, files, trace, diagnose(trace), run.step_ms)


def _digest(files: Sequence[Path], roots: Sequence[Path]) -> str:
    """Over the digests of the files in order, so that neither names nor places count."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(_file_digest(file, roots))
    return f"{_PREFIX}{digest.hexdigest()[:_HANDLE_DIGITS]}"


def _file_digest(path: Path, roots: Sequence[Path]) -> bytes:
    digest = hashlib.sha256()
    inside = [*plain_files(path, roots)]
    if not all(part.exists() for part in inside):
        raise UsageError(f"{path} does not exist", remedy="give the path of a trace")
    for part in inside:
        with part.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.digest()


PAGE = 15
KINDS = ("html", "perfetto")


def open_document(capture: OpenCapture) -> dict[str, Any]:
    """What was opened, with the verdict, so that the next call can be the right one."""
    diagnosis, trace = capture.diagnosis, capture.trace
    return fitted(
        {
            "handle": capture.handle,
            "verdict": {"bottleneck": diagnosis.bottleneck.value, f"statement{MARK}": statement_of(diagnosis)},
            "steps": steps_of(capture),
            "unprofiled_step_ms": rounded(capture.unprofiled_step_ms) or "not known: gains of CPU time are estimates",
            "findings": len(diagnosis.findings),
            "undecided_rules": sum(isinstance(ruling.verdict, Undecided) for ruling in diagnosis.rulings),
            "sources": [_source(source) for source in diagnosis.sources[:4]],
            "caveats" + MARK: [sentence(str(note)) for note in diagnosis.notes[:6]],
            "tables": [{"name": table.name, "rows": trace[table].height} for table in trace],
            "next": "diagnose(handle)",
        },
        "tables",
    )


def listed_captures(captures: Captures, contains: str, cursor: int) -> dict[str, Any]:
    """The files under the roots that a reader takes, newest first, by the beginning of each file."""
    from timesink.readers.formats import is_profile, recognised

    found = [
        {"path" + MARK: named(str(path)), "format": reader.format, "bytes": path.stat().st_size}
        for path in captures.files()
        if contains in str(path) and is_profile(path)
        if (reader := recognised(path)) is not None
    ]
    document = {"of": len(found), "captures": found[cursor : cursor + PAGE], "next": "open_capture(path)"}
    return paged(document, "captures", cursor, len(found))


def _source(source: Any) -> dict[str, Any]:
    wanted = ("format", "rank", "tool_version", "sha256")
    return {
        "path" + MARK: named(str(source.get("path"))),
        **{key: source.get(key) for key in wanted if source.get(key)},
    }


def statement_of(diagnosis: Diagnosis) -> str:
    """The verdict in a sentence, after a word on files that could not be read to their end."""
    return sentence(
        f"partial answer, {diagnosis.partial}: {diagnosis.statement}" if diagnosis.partial else diagnosis.statement
    )


def steps_of(capture: OpenCapture) -> dict[str, Any]:
    """How many steady steps there are, and how long they take."""
    steps = capture.diagnosis.steps
    times = {f"{name}_ms": rounded(getattr(steps, f"{name}_ms")) for name in ("p50", "p90", "p99")}
    known = {key: value for key, value in times.items() if value is not None}
    return {"count": steps.count, "origin": steps.origin or None, **known, "marker" + MARK: named(steps.source) or None}


_ENDINGS = {"html": (".html",), "perfetto": (".pftrace", ".json")}


def export_file(captures: Captures, capture: OpenCapture, kind: str, path: str) -> dict[str, Any]:
    """Write a report or a Perfetto trace to a new file under a root."""
    if kind not in KINDS:
        raise UsageError(f"nothing is exported as {kind!r}", remedy=f"choose one of: {', '.join(KINDS)}")
    target = captures.allowed(path)
    below = next(target.relative_to(root) for root in captures.roots if target.is_relative_to(root))
    if target.suffix not in _ENDINGS[kind] or any(part.startswith(".") for part in below.parts):
        remedy = f"name a file that ends in {' or '.join(_ENDINGS[kind])}, in no hidden folder"
        raise UsageError(f"{kind} is not written to {path!r}", remedy=remedy)
    if target.exists():
        raise UsageError(f"{path!r} exists", remedy="choose a new file: this server replaces none")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder for {path!r}", remedy="choose one that exists")
    if kind == "html":
        from timesink.render.html import render
        from timesink.views.report import report_of

        write_whole(target, render(report_of(capture.trace, capture.diagnosis)))
    else:
        from timesink.export.perfetto import write_perfetto

        with whole_file(target) as part, part.open("wb") as file:
            write_perfetto(capture.trace, capture.diagnosis, file)
    return {"handle": capture.handle, "kind": kind, "path": str(target), "bytes": target.stat().st_size}


def capture_command(question: str, program: str) -> dict[str, Any]:
    """Which profiler answers a question, why, what it costs, and the exact command. Nothing is run."""
    from timesink.capture.choice import COSTS, choose, command_of

    chosen = choose(question)
    return {
        "argv": command_of(chosen.answer, words_of(program)),
        "profiler": chosen.answer.tool,
        "why": chosen.answer.why,
        "not_others": chosen.answer.not_others,
        "cost": COSTS[chosen.answer.tool],
        "matched_words": list(chosen.matched) or "none: this is the capture to begin with",
        "then": "open_capture(path)",
        "ran": False,
    }


def words_of(command: str) -> list[str]:
    """The words of a command line. `UsageError` where it is none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"this is not a command: {error}", remedy="close every quote") from error
    if not words:
        raise UsageError("the command is empty", remedy="give it as you would type it")
    return words
