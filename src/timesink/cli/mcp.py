"""`timesink mcp`: the server for coding agents, over standard input and output."""

from pathlib import Path
from typing import Annotated

from timesink.cli.parameters import Option
from timesink.errors import UsageError
from timesink.verify import LONGEST_RUN_S


def mcp(
    roots: Annotated[
        list[Path] | None, Option("--root", "DIR", "A folder it may use [default: this one]; may be repeated.")
    ] = None,
    allow_exec: Annotated[
        bool, Option("--allow-exec", "", "Let it run the commands declared here, by name, and no others.")
    ] = False,
    commands: Annotated[
        list[str] | None, Option("--command", "NAME=COMMAND", "Declare a command; may be repeated.")
    ] = None,
    command_file: Annotated[Path | None, Option("--commands", "FILE", "A TOML file with a table [commands].")] = None,
    timeout: Annotated[
        float, Option("--timeout", "S", "The longest that a command may run, in seconds.", least=1)
    ] = LONGEST_RUN_S,
) -> int:
    """Serve coding agents over stdio (Model Context Protocol).

    The server reads captures under --root and writes new files there when asked to export. It opens no connection. It
    runs no program unless --allow-exec is given, and then only the commands declared with --command or --commands, in
    the first --root, without a shell: an agent chooses a name and adds nothing to it.
    """
    folders = roots or [Path.cwd()]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder", remedy="give --root a folder that exists")
    from timesink.mcp.declared import Declared, declared_commands

    known = declared_commands(commands or (), command_file)
    if allow_exec and not known:
        raise UsageError("--allow-exec has nothing to allow", remedy="declare commands with --command NAME=COMMAND")
    if known and not allow_exec:
        raise UsageError("commands are declared, but none may be run", remedy="add --allow-exec, or leave them out")
    from timesink.errors import extra

    extra("mcp.server.mcpserver", "mcp")
    extra("duckdb", "mcp")
    from timesink.mcp.server import build, mend_requests
    from timesink.trials.workplace import head

    mend_requests()
    build(folders, Declared(known, folders[0], timeout, [head(folders[0])]) if known else None).run("stdio")
    return 0
