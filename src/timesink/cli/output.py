"""Where a command's words go: results to stdout or a file, progress and errors to stderr.

Errors go to stdout as JSON where JSON was asked for.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from threading import Timer
from typing import TYPE_CHECKING

from typer.exceptions import TyperException

from timesink.errors import TimesinkError, UsageError
from timesink.render.formats import DEFAULT_WIDTH, SUFFIXES, Format
from timesink.untrusted.scrub import scrub_sentence
from timesink.untrusted.whole_file import write_whole

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.verify.outcomes import GateResult
    from timesink.views.page import Page

NARROWEST, WIDEST = 60, 160
_PLAIN = str.maketrans({"…": "...", "–": "-", "─": "-", "━": "-", "→": "->", "·": "-", "≤": "<=", "≥": ">=", "µ": "u"})


_partial: list[TimesinkError] = []


def answer_is_partial(error: TimesinkError) -> None:
    """Say with whatever this command writes that its input is damaged; it then exits with 2."""
    _partial.append(error)


def partial_answers() -> list[TimesinkError]:
    """What is wrong with the input of the command that runs. To be cleared before each."""
    return _partial


@dataclass(frozen=True, slots=True)
class Sink:
    """A place to write one report to. `path` None is stdout."""

    form: Format
    path: Path | None
    width: int
    colour: bool
    verbose: bool = False

    def show(self, result: Diagnosis | Page | GateResult | Rule, *, strict: bool = False) -> None:
        """Write a result in this sink's format."""
        self.write(self.text(result, strict=strict))

    def text(self, result: Diagnosis | Page | GateResult | Rule, *, strict: bool = False) -> str:
        """The result as this sink would write it."""
        from timesink.render import render

        text = render(result, self.form, width=self.width, colour=self.colour, strict=strict, verbose=self.verbose)
        return self._marked(text) if _partial else text

    def _marked(self, text: str) -> str:
        """An answer from damaged input, marked as such: JSON carries the error, text begins with it."""
        if self.form is Format.JSON:
            from timesink.render.json import json_text

            document = json.loads(text)
            return json_text({**document, "error": _facts(_partial[0], 2)}) if isinstance(document, dict) else text
        if self.form not in (Format.TEXT, Format.MD):
            return text
        lines = [fill(f"partial answer: {scrub_sentence(error.message)}", self.width) for error in _partial]
        return "\n".join([*lines, "", text])

    def write(self, text: str) -> None:
        """Write finished text: a file is replaced at once or not at all."""
        if self.path is None:
            _print(text)
        else:
            _replace(self.path, text)


def _facts(error: TimesinkError | TyperException, code: int) -> dict[str, object]:
    remedy = getattr(error, "remedy", "")
    return {"kind": type(error).__name__, "message": error.message, "remedy": remedy, "exit_code": code}


def sink(
    form: Format | None, output: Path | None, no_color: bool, inputs: Sequence[Path] = (), *, verbose: bool = False
) -> Sink:
    """The sink that the shared options ask for. `UsageError` where the output is one of the inputs."""
    path = None if output is None or str(output) == "-" else output
    if path is not None and any(_same(path, source) for source in inputs):
        raise UsageError(f"{path} is an input of this command", remedy="choose another file for --output")
    return Sink(form or _form_of(path), path, _width(path), path is None and _colour(no_color), verbose)


def _form_of(path: Path | None) -> Format:
    return SUFFIXES.get(path.suffix.lower() if path else "", Format.TEXT)


def _same(path: Path, source: Path) -> bool:
    return path.exists() and source.exists() and path.samefile(source)


def _width(path: Path | None) -> int:
    if path is not None:
        return DEFAULT_WIDTH
    columns = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    return min(max(columns, NARROWEST), WIDEST)


def _colour(no_color: bool) -> bool:
    """NO_COLOR (no-color.org) beats FORCE_COLOR; without either, colour is for terminals."""
    if no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _print(text: str) -> None:
    """To stdout; plain ASCII marks where it cannot show others; quietly nothing more where its reader has left."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace(path: Path, text: str) -> None:
    """Replace a file; a pipe or device is written to as it is."""
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", remedy="choose another --output") from error


PATIENCE_S = 1.0


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show `what` with a spinner and the seconds gone by, from the second second on, while the block runs.

    The block is handed a function that changes what is shown.
    """
    if not sys.stderr.isatty():
        yield _unheard
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(what, total=None)
    timer = Timer(PATIENCE_S, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda shown: progress.update(task, description=shown)
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


def _unheard(shown: str) -> None:
    """Where nobody watches."""


def tell(line: str, quiet: bool = False) -> None:
    """A line of progress for whoever watches: on stderr where that is a terminal, unless it is to be quiet."""
    if not quiet and sys.stderr.isatty():
        sys.stderr.write(f"{scrub_sentence(line)}\n")
        sys.stderr.flush()


def show_error(error: TimesinkError | TyperException, code: int, arguments: Sequence[str]) -> None:
    """Say what is wrong and what to do next."""
    if wants_json(arguments):
        from timesink.render.json import SCHEMA_VERSION, json_text

        sys.stdout.write(json_text({"schema_version": SCHEMA_VERSION, "error": _facts(error, code)}))
        return
    message = error.message if isinstance(error, TimesinkError) else " ".join(error.format_message().split())
    sys.stderr.write(f"timesink: {scrub_sentence(message)}\n")
    for line in remedies(error):
        sys.stderr.write(f"  {scrub_sentence(line)}\n")


def remedies(error: TimesinkError | TyperException) -> list[str]:
    """What to do next: as the error says, or, where the words of the command are wrong, how they go."""
    context = getattr(error, "ctx", None)
    if context is None:
        remedy = getattr(error, "remedy", "")
        return [remedy] if remedy else []
    words = context.command_path.split()
    usage = " ".join(context.get_usage().split())
    return [usage.replace("Usage", "usage", 1), " ".join([f"`{words[0]} help", *words[1:]]) + "` says more"]


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for JSON; it may be too wrong to be parsed."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    in_two_words = any(pair in (("--format", "json"), ("-f", "json")) for pair in pairwise(options))
    return in_two_words or "--format=json" in options or "-fjson" in options
