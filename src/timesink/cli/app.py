"""The command `timesink`: answers at once what needs no parser, and hands the rest to it."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from timesink.cli.commands import GROUPS, help_page, overview, version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never

_KNOWN = {
    (): overview,
    ("help",): overview,
    ("--help",): help_page,
    ("-h",): help_page,
    ("--help-all",): lambda: help_page(GROUPS),
    ("--version",): version,
    ("-V",): version,
}


def main() -> Never:
    """Entry point of the console script. What is left at the end the system takes back at once, not Python by piece."""
    _open_closed_streams()
    code = run(sys.argv[1:])
    with suppress(OSError, AttributeError):  # nobody reads any more, or nobody ever did: Python knows what to do
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Let a stream that whoever began this closed lead nowhere, before a file takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    answer = None if "_TIMESINK_COMPLETE" in os.environ else _KNOWN.get(tuple(arguments))
    if answer and sys.stdout:
        with suppress(OSError):  # which is said, or not, as of any command that cannot write
            sys.stdout.write(answer() + "\n")
            sys.stdout.flush()
            return 0
    if arguments and sys.platform != "linux":
        from timesink.errors import missing_here

        if why := missing_here(arguments[0]):
            sys.stderr.write(f"error: {why}\n")
            return 5
    from timesink.startup import collect_rarely

    collect_rarely()
    from timesink.cli.parser import parsed_and_run

    return parsed_and_run(arguments)
