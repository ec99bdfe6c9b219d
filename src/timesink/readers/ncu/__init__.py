"""Nsight Compute: reports (.ncu-rep, .ncu-repz) and the pages that ncu prints.

The report format is documented (Nsight Compute's Customization Guide, "Report File Format"): length-prefixed blocks of
protocol-buffer messages. We need a dozen fields of them, so `wire` decodes those directly: no generated code, no
dependency, and every length is checked where it is used. NVIDIA's own reader takes random bytes, an empty file and a
truncated file without complaint and hides versions, driver, command line and clock state; this one does neither.
`report` and `csv_pages` read the two formats, `tables` turns what they hold into the canonical tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.knowledge.ncu_texts import TEXT_TABLE
from timesink.readers.formats import Reader
from timesink.untrusted import decoded
from timesink.untrusted.budget import ReadLimits

if TYPE_CHECKING:
    from timesink.model.trace import Trace

_REPORT_MAGIC = b"NVR\0"
_REPORT_SUFFIXES = (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report")
_PAGE_HEADERS = (b'"Process ID","Process Name"', b"Process ID,Process Name")
_OTHER_PAGES = (b'"Address","Source"', b'"Display Driver Version"', b'"device__attribute_')  # to be refused by name
_PAGE = re.compile(b"|".join((TEXT_TABLE.encode(), *map(re.escape, _PAGE_HEADERS + _OTHER_PAGES))))
_PAGE_SUFFIXES = (".csv", ".txt", ".log", ".out")
_SEARCHED_BYTES = 16 << 20


def _is_page(beginning: bytes) -> bool:
    return _PAGE.search(decoded(beginning).encode()) is not None


class NcuReport(Reader):
    """Reader of the documented block format, all versions from 2022 on; ``.ncu-repz`` is one packed by Zstandard."""

    format = "ncu_report"
    kind = "companion"
    priority = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """By its magic; a packed one, or one that is damaged from the start, by its suffix."""
        named = path.suffix in _REPORT_SUFFIXES and bool(head) and not head.startswith(b"version https://git-lfs")
        return named or head.startswith(_REPORT_MAGIC)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The kernels of the report. `UnreadableTrace` where it holds none."""
        from timesink.readers.ncu.report import read_report

        return read_report(path, self.format, limits)


class NcuCsv(Reader):
    """Reader of the raw and details pages, and of what ncu prints as text."""

    format = "ncu_csv"
    kind = "companion"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the header line, which may come after pages of program output; the bytes of a report may read like it."""
        is_page = not head.startswith(_REPORT_MAGIC) and _is_page(head)
        if is_page or not head or path.suffix not in _PAGE_SUFFIXES:
            return is_page
        with path.open("rb") as stream:
            return _is_page(stream.read(_SEARCHED_BYTES))

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The kernels of the page. `UnreadableTrace` where it holds none."""
        from timesink.readers.ncu.csv_pages import read_page

        return read_page(path, self.format, limits)


READERS = (NcuReport(), NcuCsv())
