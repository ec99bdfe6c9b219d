"""Nsight Compute reports: ``.ncu-rep``, and ``.ncu-repz``, which is one compressed with Zstandard."""

from __future__ import annotations

from pathlib import Path

from timesink.errors import UnreadableTrace
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers import ReadLimits
from timesink.readers.ncu import metric_columns
from timesink.readers.ncu.results import METRIC_TAG, Launch, Session, launch_of, take_process, take_session
from timesink.readers.ncu.tables import Report, trace_of
from timesink.readers.ncu.wire import MAGIC, DamagedMessage, Ending, blocks

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SUFFIXES = (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report")
_WINDOW_BYTES = 128 << 20  # what zstd itself takes without being asked to
_RECAPTURE = "capture again with `ncu -o report PROGRAM`, or copy the file again"


class NcuReport:
    """Reader of the documented block format, all versions from 2022 on."""

    format = "ncu_report"
    version = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """By its magic; a compressed one, or one that is damaged from the start, by its suffix."""
        if head.startswith(MAGIC):
            return True
        is_named = path.suffix in _SUFFIXES
        return is_named and not head.startswith(b"version https://git-lfs") and len(head) > 0

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The kernels of the report. `UnreadableTrace` where it holds none."""
        data = _unpacked(path, limits)
        if not data.startswith(MAGIC):
            raise UnreadableTrace(
                path, f"no Nsight Compute report: it begins with {data[:8]!r}", place="byte 0", remedy=_RECAPTURE
            )
        return trace_of(path, _report(path, data))


READERS = (NcuReport(),)


def _unpacked(path: Path, limits: ReadLimits) -> bytes:
    if path.stat().st_size > limits.most_held_bytes:
        raise UnreadableTrace(path, f"larger than {limits.most_held_bytes} bytes", remedy="profile fewer kernels")
    raw = path.read_bytes()
    if not raw.startswith(ZSTD_MAGIC):
        return raw
    import zstandard

    pieces, total = [], 0
    try:
        unpacking = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        with unpacking.stream_reader(raw, read_across_frames=True) as stream:
            while piece := stream.read(1 << 22):
                total += len(piece)
                if total > limits.most_held_bytes or limits.is_bomb(total, len(raw)):
                    why = f"its {len(raw)} bytes unpack to more than {total - 1}: too large, or a decompression bomb"
                    raise UnreadableTrace(path, why, remedy="unpack it with zstd if you trust it")
                pieces.append(piece)
    except zstandard.ZstdError as error:
        if not pieces:
            raise UnreadableTrace(path, f"its compression is damaged ({error})", remedy=_RECAPTURE) from error
    return b"".join(pieces)


def _report(path: Path, data: bytes) -> Report:
    names: list[str] = []
    launches: list[Launch] = []
    spans = metric_columns.MetricSpans()
    session, ending = Session(), Ending()
    damaged = ranges = 0
    for block in blocks(data, ending):
        names += block.strings
        ranges += block.ranges
        try:
            if block.session is not None:
                take_session(data, block.session, session)
            if block.process is not None:
                take_process(data, block.process, session)
        except DamagedMessage:
            damaged += 1
        for start, end in block.results:
            damaged += _take_result(data, (start, end), spans, launches)
    if not launches:
        raise UnreadableTrace(path, _emptiness(ending, damaged), place=_place(ending), remedy=_RECAPTURE)
    metrics = metric_columns.decode(data, spans)
    sound = (metrics.name >= 0) & (metrics.name < len(names))
    notes = _notes(ending, damaged, int((~sound).sum()), ranges)
    return Report(NcuReport.format, launches, names, metrics.only(sound), session, notes=notes)


def _take_result(data: bytes, where: tuple[int, int], spans: metric_columns.MetricSpans, launches: list[Launch]) -> int:
    """Add one kernel; 1 where it is damaged and was left out, with nothing of it kept."""
    known = len(spans.starts)
    try:
        others = metric_columns.collect(data, *where, METRIC_TAG, spans)
        launches.append(launch_of(data, others))
    except DamagedMessage:
        del spans.starts[known:], spans.ends[known:]
        return 1
    spans.counts.append(len(spans.starts) - known)
    return 0


def _place(ending: Ending) -> str:
    return "" if ending.cut_at is None else f"byte {ending.cut_at}"


def _emptiness(ending: Ending, damaged: int) -> str:
    if damaged:
        return f"its {damaged} kernels are damaged"
    if ending.cut_at is not None:
        return f"cut off before the first kernel ({ending.why})"
    return "it holds no profiled kernel"


def _notes(ending: Ending, kernels: int, metrics: int, ranges: int) -> tuple[ImportNote, ...]:
    notes = []
    if ending.cut_at is not None:
        why = f"the report breaks off at byte {ending.cut_at}: {ending.why}"
        notes.append(ImportNote(NoteKind.DATA_LOSS, why, 1, "kernel_profiles"))
    if kernels:
        notes.append(ImportNote(NoteKind.DATA_LOSS, "damaged kernels were left out", kernels, "kernel_profiles"))
    if metrics:
        notes.append(ImportNote(NoteKind.DATA_LOSS, "damaged metrics were left out", metrics, "kernel_metrics"))
    if ranges:
        notes.append(ImportNote(NoteKind.SKIPPED, "results of range replay hold no kernel", ranges, "kernel_profiles"))
    return tuple(notes)
