"""What an agent asks of a capture through the MCP server: every tool that reads, on one input."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from fuzz import answers, written

# Every tool that opens a file, and what it is asked with; FILE is the input's name below the root.
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("list_captures", {}),
    ("open_capture", {"path": "FILE"}),
    ("show", {"handle": "FILE", "what": "steps"}),
    ("show", {"handle": "FILE", "what": "kernels", "sort": "mean_ns"}),
    ("show", {"handle": "FILE", "what": "idle"}),
    ("show", {"handle": "FILE", "what": "lines"}),
    ("show", {"handle": "FILE", "what": "statement", "before": "FILE"}),
    ("show", {"handle": "FILE", "what": "limits"}),
    ("query", {"handle": "FILE", "sql": "SELECT * FROM device_ops LIMIT 3"}),
    ("diagnose", {"handle": "FILE", "worth_percent": 0.1}),
    ("explain_finding", {"handle": "FILE", "number": 1}),
    ("explain_finding", {"handle": "FILE", "number": 1, "window": True}),
    ("show", {"handle": "FILE", "what": "moved", "before": "FILE"}),
    ("plan", {"handle": "FILE"}),
    ("plan", {"handle": "FILE", "change": "remove-sync"}),
    ("export", {"handle": "FILE", "kind": "html", "path": "out.html"}),
    ("export", {"handle": "FILE", "kind": "perfetto", "path": "out.pftrace"}),
)
NO_FILE = ("command",)  # tools that open none


def asked(path: Path, kind: str) -> None:
    """Ask for everything; where the input is the server's own configuration, read that."""
    if kind == "declared":
        from timesink.mcp.declared import declared_commands

        declared_commands((), path)
        return
    for document in _answers(path):
        answers.check_document(document)
    for made in path.parent.glob("out.*"):
        written.check_file(made)


def _answers(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of the tools that did not refuse the input, asked without the threads of a session."""
    from mcp.server.mcpserver.exceptions import ToolError

    from timesink.mcp import BUDGET_BYTES
    from timesink.mcp.server import build

    tools = {tool.name: tool.fn for tool in build([path.parent])._tool_manager.list_tools()}
    with mock.patch("timesink.export.sql.apart", lambda work, seconds, memory_bytes: work()):
        for name, given in ASKED:
            words = {key: path.name if value == "FILE" else value for key, value in given.items()}
            with contextlib.suppress(ToolError):
                shown = tools[name](**words).content[0].text
                answers.check_text(shown)
                if len(shown) > BUDGET_BYTES:
                    raise AssertionError(f"{name} answers with {len(shown)} characters")
                yield json.loads(shown)
