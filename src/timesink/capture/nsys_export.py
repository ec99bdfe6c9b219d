"""An nsys report as SQLite: exported by the nsys that wrote it, then redacted."""

from __future__ import annotations

from pathlib import Path

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.processes import run
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
from timesink.capture.tools import Tool
from timesink.tool_places import importer_link

_PATIENCE_S = 1800.0


def exported(tool: Tool, report: Path, keep_report: bool) -> tuple[Path, list[str]]:
    """The redacted database beside the report, and what was removed. The report, which holds the whole environment of
    the program, goes unless it is to be kept.
    """
    database = report.with_suffix(".sqlite")
    argv = [str(tool.path), "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(database)]
    log = report.with_name("export.txt")
    ended = run([*argv, str(report)], log, extra={}, timeout_s=_PATIENCE_S, quiet=True)
    if ended.status != 0 or not database.is_file():
        link = importer_link(tool.path)
        remedy = (
            f"create its importer's link: ln -sfn {link[1]} {link[0]}" if link else f"look at {log}; try `nsys export`"
        )
        words = " / ".join(ended.tail()) or "it said nothing"
        raise CaptureError(
            Fault.FAILED, f"{tool.title} recorded {report.name} and cannot export it: {words[:300]}", remedy=remedy
        )
    log.unlink()
    removed = redact_sqlite(database)
    if not keep_report:
        report.unlink()
    return database, removed
