"""Commands that the person who starts the server has declared: the only programs it may run, each by its name."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import anyio

from timesink.errors import UsageError
from timesink.mcp import MARK, sentence
from timesink.records import Record, field, replace
from timesink.untrusted import is_made_of, plain_json, scrub

_LONGEST_NAME = 40
_SHOWN_LINES, _SHOWN_CHARACTERS, _READ_BYTES = 40, 3_000, 65_536
_GRACE_S = 5.0


class Declared(Record):
    """What may be run, where, and for how long at most. `commands` maps a name to the words of its command.

    `base` holds the commit that the judge compares with: that of the start, then each that it found faster.
    """

    commands: Mapping[str, tuple[str, ...]]
    folder: Path
    timeout_s: float
    base: list[str] = field(default_factory=lambda: [""])


def declared_commands(texts: Sequence[str], file: Path | None) -> dict[str, tuple[str, ...]]:
    """Commands from `NAME=COMMAND` texts and from the table `commands` of a TOML file. No shell ever reads them."""
    commands: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, given, command = text.partition("=")
        if not given:
            raise UsageError(f"{text!r} declares no command", remedy="write NAME=COMMAND, such as train='python t.py'")
        _add(commands, name.strip(), command)
    for name, listed in _from_file(file).items() if file is not None else ():
        _add(commands, name, listed)
    return commands


def _is_name(text: str) -> bool:
    is_short = 0 < len(text) <= _LONGEST_NAME
    return is_short and text[0] not in "_-" and text == text.lower() and is_made_of(text, "_-")


def _add(commands: dict[str, tuple[str, ...]], name: str, command: object) -> None:
    if not _is_name(name) or name in commands:
        why = "is declared twice" if name in commands else "is not a name"
        raise UsageError(f"{name!r} {why}", remedy="name each command once, in a-z, 0-9, - and _, 40 letters at most")
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise UsageError(f"the command of {name!r} cannot be read: {error}", remedy="close every quote") from error
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise UsageError(f"the command of {name!r} has no words", remedy="write it as you would type it")
    commands[name] = tuple(words)


def _from_file(path: Path) -> dict[str, object]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", remedy="check --commands") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or a number beyond what Python reads
        raise UsageError(f"{path} is no TOML: {error}", remedy='write lines NAME = "COMMAND" in it') from error
    commands = tables.get("commands")
    if not isinstance(commands, dict) or tables.keys() != {"commands"}:
        raise UsageError(f"{path} holds other than a table [commands]", remedy='write lines NAME = "COMMAND" in it')
    return commands


async def run_declared(declared: Declared, name: str) -> dict[str, Any]:
    """Run the command of that name to its end, or end it with all it started; a model gives the name, no more."""
    words = declared.commands.get(name)
    if words is None:
        known = ", ".join(declared.commands)
        raise UsageError(f"no command is declared as {name[:40]!r}", remedy=f"choose one of: {known}")
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        code, timed_out = await _finished(declared, words, output)
        tail = _tail(output)
    return {
        "name": name,
        "argv": list(words),
        "ran": True,
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
        **({"timed_out_after_s": declared.timeout_s} if timed_out else {}),
        "last_lines" + MARK: tail,
        "next": "if it wrote a capture: open_capture(path)",
    }


async def _answered(declared: Declared, name: str, *words: str) -> tuple[dict[str, Any], Any]:
    """What became of a module of ours that runs the command of that name, and the JSON that it wrote ("{}" in `words`
    stands for the file)."""
    command = declared.commands.get(name, ())
    with tempfile.TemporaryDirectory(prefix="timesink-") as folder:
        file = Path(folder) / "answer.json"
        ours = (sys.executable, "-m", *(str(file) if word == "{}" else word for word in words), "--", *command)
        commands = {name: ours} if command else declared.commands
        ran = await run_declared(replace(declared, commands=commands), name)
        return {**ran, "argv": list(command)}, plain_json.document(file) if file.is_file() else None


async def try_declared(declared: Declared, name: str) -> dict[str, Any]:
    """Try changes on the command of that name (`timesink try`): what is kept, and what each change won or why not."""
    ran, found = await _answered(declared, name, "timesink", "try", "--quiet", "--format", "json", "-o", "{}")
    found = found or {}
    kept = {key: found[key] for key in ("changes", "fresh", "make", "left_out") if key in found}
    notes = [sentence(str(note)) for note in found.get("notes", ())]
    return {**ran, f"notes{MARK}": notes, **kept, "next": "make what is kept, then judge(name)"}


async def next_declared(declared: Declared, name: str, skip: str) -> dict[str, Any]:
    """The next edit of the program of that name (`trials.judged`), without those fixes; nothing is edited."""
    ran, found = await _answered(declared, name, "timesink.trials.judged", "{}", "next", skip)
    if not found:
        return {**ran, "edit": None, "next": "no edit is left, or the program failed: see exit_code"}
    told = {key: found[key] for key in ("fix", "foretold") if found[key]}
    lines = [scrub(line, 300) for line in found["diff"].splitlines()]
    shown = lines if sum(map(len, lines)) < _SHOWN_CHARACTERS else [f"too long: timesink fix --only {found['fix']}"]
    edit = {**told, f"place{MARK}": scrub(found["where"], 200), f"doubt{MARK}": scrub(found["why"], 300) or None}
    edit[f"diff{MARK}"] = shown
    return {"name": name, "edit": edit, "next": "make it, alone; then judge(name)"}


async def judge_declared(declared: Declared, name: str, lower_precision: bool) -> dict[str, Any]:
    """The judge's word on the files as they lie; a faster program is the base of the next judgement."""
    drift = "lower precision" if lower_precision else "rounding"
    given = (declared.base[0], drift, str(declared.timeout_s * 0.9))
    ran, found = await _answered(declared, name, "timesink.trials.judged", "{}", "judge", *given)
    if not found:
        return {**ran, "outcome": "invalid", "next": "the program as it was fails: tell the person"}
    declared.base[0] = found["base"]
    is_faster = found["outcome"] == "faster"
    why = {f"why{MARK}": scrub(found.pop("why"), 400)}
    return {"name": name, **found, **why, "next": "keep it; next_edit(name)" if is_faster else "take the change back"}


async def _finished(declared: Declared, words: Sequence[str], output: IO[bytes]) -> tuple[int | None, bool]:
    try:
        process = await anyio.open_process(
            words, cwd=declared.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    except OSError as error:
        raise UsageError(f"{words[0]} cannot be run: {error.strerror or error}", remedy="tell the person") from error
    try:
        with anyio.move_on_after(declared.timeout_s) as limit:
            await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _ended(process)
    return process.returncode, limit.cancelled_caught


async def _ended(process: anyio.abc.Process) -> None:
    """End the command and everything in its session, politely first. One that is over is left alone."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            return
        with anyio.move_on_after(_GRACE_S):
            await process.wait()


def _tail(output: IO[bytes]) -> list[str]:
    """The last lines of what it wrote, scrubbed."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - _READ_BYTES, 0))
    lines = output.read().decode("utf-8", "replace").splitlines()[-_SHOWN_LINES:]
    shown: list[str] = []
    left = _SHOWN_CHARACTERS
    for line in reversed(lines):
        clean = scrub(line, 300)
        left -= len(clean) + 4
        if left < 0:
            break
        shown.append(clean)
    return shown[::-1]
