"""`timesink mcp`: the server for coding agents, over standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.errors import UsageError


def command(
    roots: Annotated[
        list[Path] | None,
        typer.Option("--root", metavar="DIR", help="A folder it may use [default: this one]; may be repeated."),
    ] = None,
) -> int:
    """Serve coding agents over stdio (Model Context Protocol).

    The server reads captures under --root and writes new files there when asked to export. It runs no program and opens
    no connection.
    """
    from timesink.extras import extra

    extra("mcp.server.mcpserver", "mcp")
    extra("duckdb", "mcp")
    folders = roots or [Path.cwd()]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", remedy="give --root a folder that exists")
    from timesink.mcp.server import build

    build(folders).run("stdio")
    return 0
