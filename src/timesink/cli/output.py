"""Where a command's words go: results to stdout or a file, progress and errors to stderr.

Errors go to stdout as JSON where JSON was asked for.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from threading import Timer
from typing import TYPE_CHECKING, Any

import click

from timesink.errors import TimesinkError, UsageError
from timesink.model.presentable import UNASKED, Origin
from timesink.records import Record, State, field, replace
from timesink.render import DEFAULT_WIDTH, SUFFIXES, Format, Style
from timesink.untrusted import scrub_sentence
from timesink.untrusted.whole_file import write_whole

if TYPE_CHECKING:
    from timesink.render import Result

NARROWEST, WIDEST = 60, 160
_PLAIN_NAMES = (".txt", ".text", ".log", ".svg", ".diff", ".patch")  # text; commands that draw look for .svg first
_PLAIN = str.maketrans({"…": "...", "–": "-", "─": "-", "━": "-", "→": "->", "·": "-", "≤": "<=", "≥": ">=", "µ": "u"})


class _Running(State):
    """The command that runs: what its JSON says of itself, what is wrong with its input, and the lines of progress that
    wait for it to take long."""

    origin: Origin = UNASKED
    partial: list[TimesinkError] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    telling: Timer | None = None


_running = _Running()


def begin(command: str = "") -> None:
    """A command line, or the command that was found in it, begins: what was known of the one before is forgotten."""
    _running.origin, _running.partial = Origin(command), []


def over() -> None:
    """What the command had to say on its way is of no use any more."""
    if _running.telling:
        _running.telling.cancel()
        _running.telling.join()
    _running.untold, _running.telling = [], None


def answer_is_partial(error: TimesinkError) -> None:
    """Say with whatever this command writes that its input is damaged; it then exits with 2."""
    _running.partial.append(error)


def partial_answers() -> list[TimesinkError]:
    """What is wrong with the input of the command that runs."""
    return _running.partial


class Sink(Record):
    """A place to write one report to. `path` None is stdout."""

    form: Format
    path: Path | None
    width: int
    colour: bool
    verbose: bool = False
    origin: Origin = UNASKED

    def show(self, result: Result, *, strict: bool = False) -> None:
        """Write a result in this sink's format."""
        self.write(self.text(result, strict=strict))

    def show_entries(self, body: Mapping[str, Any]) -> None:
        """Write plain values as a JSON document."""
        from timesink.render.json import enveloped, json_text

        self.write(json_text(enveloped(self.origin, body)))

    def text(self, result: Result, *, strict: bool = False) -> str:
        """The result as this sink would write it."""
        from timesink.render import written

        text = written(result, self.form, Style(self.width, self.colour, strict, self.verbose, self.origin))
        return self._marked(text) if _running.partial else text

    def _marked(self, text: str) -> str:
        """An answer from damaged input, marked as such: JSON carries the error, text begins with it."""
        if self.form is Format.JSON:
            from timesink.render.json import json_text

            return json_text({**json.loads(text), "error": _facts(_running.partial[0], 2)})
        if self.form not in (Format.TEXT, Format.MD):
            return text
        lines = [fill(f"partial answer: {scrub_sentence(error.message)}", self.width) for error in _running.partial]
        return "\n".join([*lines, "", text])

    def say(self, sentence: str) -> None:
        """Write an answer of one sentence as text: wrapped, and marked like a page."""
        text = f"{fill(sentence, self.width)}\n"
        self.write(self._marked(text) if _running.partial else text)

    def write(self, text: str) -> None:
        """Write finished text: a file is replaced at once or not at all."""
        if self.path is None:
            _print(text)
        else:
            _replace(self.path, text)


def _facts(error: TimesinkError | click.ClickException, code: int) -> dict[str, object]:
    remedy = getattr(error, "remedy", "")
    return {"kind": type(error).__name__, "message": error.message, "remedy": remedy, "exit_code": code}


def sink(
    form: Format | None,
    output: Path | None,
    no_color: bool,
    inputs: Sequence[Path | str] = (),
    *,
    verbose: bool = False,
) -> Sink:
    """The sink that the shared options ask for, of a command that reads these files. `UsageError` where the output is
    one of them; an input that is no path is shown as it is given."""
    path = None if output is None or str(output) == "-" else output
    if path is not None and any(_same(path, source) for source in inputs if isinstance(source, Path)):
        raise UsageError(f"{path} is an input of this command", remedy="choose another file for --output")
    _running.origin = replace(_running.origin, source=tuple(map(str, inputs)))
    colour = path is None and _colour(no_color)
    if form is None and path is not None and not _is_known(path):
        raise UsageError(
            f"no format is known by the name {path}",
            remedy=f"call it {', '.join(SUFFIXES)} or .txt, or give --format",
        )
    form = form or SUFFIXES.get(path.suffix.lower() if path else "", Format.TEXT)
    return Sink(form, path, _width(path), colour, verbose, _running.origin)


def check_place(path: Path) -> None:
    """`UsageError` where no file can be written, for there is no folder: told before anything is read for it."""
    if not path.parent.is_dir():
        raise _cannot_write(path, os.strerror(errno.ENOTDIR if path.parent.exists() else errno.ENOENT))


def _cannot_write(path: Path, why: str) -> UsageError:
    return UsageError(f"cannot write {path}: {why}", remedy="choose another --output")


def _is_known(path: Path) -> bool:
    """Whether the name says what to write: one of a format, of text or a picture, none; or a device, a pipe."""
    is_special = path.exists() and not path.is_file()
    return is_special or path.suffix.lower() in ("", *SUFFIXES, *_PLAIN_NAMES)


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
        raise _cannot_write(path, error.strerror or str(error)) from error


PATIENCE_S = 1.0
SILENT_S = 20.0


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

    console = Console(file=sys.stderr, markup=False, emoji=False)
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
    """A line of progress on stderr, unless it is to be quiet: who waits for minutes, a CI service too, sees that we
    work. Without a terminal what is over within `SILENT_S` tells nothing."""
    if quiet:
        return
    _running.untold.append(f"{scrub_sentence(line)}\n")
    if sys.stderr.isatty() or (_running.telling and _running.telling.finished.is_set()):
        _tell_all()
    elif not _running.telling:
        _running.telling = Timer(SILENT_S, _tell_all)
        _running.telling.daemon = True
        _running.telling.start()


def _tell_all() -> None:
    lines, _running.untold = _running.untold, []
    sys.stderr.write("".join(lines))
    sys.stderr.flush()


def show_error(error: TimesinkError | click.ClickException, code: int, arguments: Sequence[str]) -> None:
    """Say what is wrong and what to do next."""
    if wants_json(arguments):
        from timesink.render.json import enveloped, json_text

        sys.stdout.write(json_text(enveloped(_running.origin, {"error": _facts(error, code)})))
        return
    message = error.message if isinstance(error, TimesinkError) else " ".join(error.format_message().split())
    sys.stderr.write(f"timesink: {scrub_sentence(message)}\n")
    for line in remedies(error):
        sys.stderr.write(f"  {scrub_sentence(line)}\n")


def remedies(error: TimesinkError | click.ClickException) -> list[str]:
    """What to do next: as the error says, or, where the words of the command are wrong, how they go."""
    context = getattr(error, "ctx", None)
    if context is None:
        remedy = getattr(error, "remedy", "")
        return [remedy] if remedy else []
    words = context.command_path.split()
    usage = " ".join(context.get_usage().split())
    told = [usage.replace("Usage", "usage", 1), " ".join([f"`{words[0]} help", *words[1:]]) + "` says more"]
    option = getattr(error, "option_name", "")
    if option and words[-2:-1] == ["capture"]:
        from timesink.knowledge.profiler_texts import SPELLED_HERE

        here = SPELLED_HERE.get(words[-1], {}).get(option)
        told[:0] = [f"here, for {option} of {words[-1]}: {here}"] if here else []
    return told


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for JSON; it may be too wrong to be parsed."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    in_two_words = any(pair in (("--format", "json"), ("-f", "json")) for pair in pairwise(options))
    return in_two_words or "--format=json" in options or "-fjson" in options
