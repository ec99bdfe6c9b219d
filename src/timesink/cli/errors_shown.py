"""Errors for people on stderr, and as JSON on stdout where JSON was asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from typer.exceptions import TyperException

from timesink.errors import TimesinkError
from timesink.scrub import scrub_sentence


def show_error(error: TimesinkError | TyperException, code: int, arguments: Sequence[str]) -> None:
    """Say what is wrong and what to do next."""
    if wants_json(arguments):
        from timesink.reporters.json import SCHEMA_VERSION, dumped

        remedy = getattr(error, "remedy", "")
        said = {"kind": type(error).__name__, "message": error.message, "remedy": remedy, "exit_code": code}
        sys.stdout.write(dumped({"schema_version": SCHEMA_VERSION, "error": said}))
        return
    if isinstance(error, TyperException) and hasattr(error, "show"):
        error.show()
        return
    sys.stderr.write(f"timesink: {scrub_sentence(error.message)}\n")
    if isinstance(error, TimesinkError) and error.remedy:
        sys.stderr.write(f"  {scrub_sentence(error.remedy)}\n")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for JSON; it may be too wrong to be parsed."""
    ours = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    pairs = zip(ours, [*ours[1:], ""], strict=True)
    apart = any(option in ("--format", "-f") and value == "json" for option, value in pairs)
    return apart or "--format=json" in ours or "-fjson" in ours
