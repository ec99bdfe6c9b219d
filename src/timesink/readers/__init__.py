"""Readers turn files into traces: `read` takes one file, or several as one trace.

A damaged record is an `ImportNote`; a damaged file is `UnreadableTrace`; a truncated file yields its readable prefix
with a DAMAGE note. `formats` says what a reader is and which there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.readers.formats import Reader, WindowReader, head_of, reader_of, readers, trace_files
from timesink.untrusted.budget import ReadLimits, usual_limits

if TYPE_CHECKING:
    from timesink.model.span import Span
    from timesink.model.trace import Trace

__all__ = ["ReadLimits", "Reader", "WindowReader", "head_of", "read", "reader_of", "readers", "trace_files"]


def read(  # noqa: PLR0913  # every way to read a file is one keyword of the public function
    path: str | Path | Iterable[str | Path],
    *,
    rank: int | None = None,
    ranks: Collection[int] | None = None,
    linked_only: bool = False,
    cache: bool = True,
    limits: ReadLimits | None = None,
    window: str | Span | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Trace:
    """One file, one export folder, or the files of several ranks (a list, or the folder that holds them) as a trace.

    Of several files each gets its own rank: what it says itself; where two say the same, the rank in their file names
    (``rank3``, ``worker3``), else their position, and a note says so. Clocks of machines are not aligned here.

    Parameters
    ----------
    rank
        Overrides what the file says of its rank.
    ranks
        Keep only the rows of these ranks of a file that holds several.
    linked_only
        Leave out the GPU work whose launch is not in the file; a note says how much that is.
    cache
        Take the digest of the file's bytes, by which what is kept of it is named.
    limits
        What may be spent on the file.
    window
        Read only this stretch, counted from the first event: ``12.5s:13.5s``, ``800ms:``, ``:3s``. The tables are those
        of `Trace.between`; the digest of the file is left out. The format must be one with a timeline.
    watch
        Told, of several files, how many are read, and of how many.

    Raises
    ------
    UnreadableTrace
        No reader takes the file, or its reader cannot make a trace of it.
    UsageError
        The window makes no sense, begins after the trace's end, or the format cannot be cut; a rank is not there.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    trace = _read([file for given in paths for file in trace_files(Path(given))], cache, limits, window, watch)
    return _selected(trace if rank is None else trace.with_rank(rank), ranks, linked_only)


def _read(
    files: Sequence[Path],
    cache: bool,
    limits: ReadLimits | None,
    window: str | Span | None,
    watch: Callable[[int, int], None] | None,
) -> Trace:
    """The files as one trace, whole or through a window. What reading needs is imported now, and not before."""
    from concurrent.futures import ThreadPoolExecutor
    from os import cpu_count

    from timesink.model.span import Span
    from timesink.readers.file import read_file, read_window
    from timesink.readers.ranks import join_traces

    allowed = limits or usual_limits()
    if window is not None:
        span = Span.parse(window) if isinstance(window, str) else window
        return read_window(files, span, allowed, cache=cache)
    if len(files) == 1:
        return read_file(files[0], allowed, cache=cache)
    with ThreadPoolExecutor(max_workers=min(len(files), cpu_count() or 1) or 1) as pool:
        traces = []
        for trace in pool.map(lambda file: read_file(file, allowed, cache=cache), files):
            traces.append(trace)
            if watch:
                watch(len(traces), len(files))
    return join_traces(traces, files)


def _selected(trace: Trace, ranks: Collection[int] | None, linked_only: bool) -> Trace:
    """Of a trace that was read, what was asked for."""
    if ranks:
        trace = trace.of_ranks(ranks)
    return trace.linked_only() if linked_only else trace
