"""The commands in any text that timesink prints, and whether its own command line takes them."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from tests.docs.commands import ROOT

from timesink.cli.commands import COMMANDS, ENTRIES, resolve
from timesink.cli.parser import loaded
from timesink.errors import UnreadableTrace, UsageError

SOURCE = ROOT / "src" / "timesink"
_QUOTED = re.compile(r"`(timesink [^`]+)`")
_BARE = re.compile(r"(?<![\w`/.'\"-])timesink (?=[a-z])")
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|\S+")
_ENDS = ",;:)"
_SENTENCE = re.compile(r"[.?!]$")
VALUES = {"NAME": "1", "N": "1", "CODE": "IDL101", "MS": "10", "RUNG": "1", "NUMBER": "1"}
"""What may stand for a word in capitals; for any other, the word itself."""
BEHIND = {
    "explain": "IDL101", "try --only": "tf32", "fix --only": "foreach", "plan --change": "feed-loader",
    "verify --predicted": "1,2,3",
}  # fmt: skip
"""What may stand for it behind a command, or behind an option of one, that takes one of several names."""
UNFINISHED = "a command is named, without what it works on"


def commands(text: str) -> Iterator[str]:
    """What of the text is to be typed: what stands between backticks, or from `timesink COMMAND` to where prose is."""
    yield from (" ".join(found.split()) for found in _QUOTED.findall(text))
    rest = _QUOTED.sub(" ", text)
    for found in _BARE.finditer(rest):
        if words := list(_command(rest[found.end() :].split("\n")[0])):
            yield shlex.join(["timesink", *words]) if "'" not in "".join(words) else " ".join(["timesink", *words])


def _command(text: str) -> Iterator[str]:
    """The words of a command that a sentence begins with; none where its first word is no command."""
    program, before = False, list[str]()
    for at, found in enumerate(_WORD.finditer(text)):
        word = found.group()
        plain = _SENTENCE.sub("", word.rstrip(_ENDS))
        if not at and plain not in COMMANDS:
            return
        if at and not program and not (_belongs(plain) or _takes_value(before)):
            return
        if at and program and not _of_a_program(plain):
            return
        yield plain
        before = [*before, plain]
        program = program or plain == "--"
        if plain != word:
            return


def _belongs(word: str) -> bool:
    """Whether a word goes on with a command: an option, a file, a placeholder, a word that chooses what it does."""
    modes = {part for entry in ENTRIES for part in entry.split()[1:]}
    return bool(
        word in modes
        or word.startswith(("-", "'", '"'))
        or word.isupper()
        or re.search(r"[./_*=\d]", word)
        or word in ("torch", "nsys", "ncu", "nccl-bench", "show", "diff", "plan", "train", "add", "close", "update")
    )


def _takes_value(words: list[str]) -> bool:
    """Whether the last of the words is an option that a value follows."""
    entry, rest = resolve(words)[1:]
    command, _ = _innermost(loaded(entry), rest)
    return any(
        words[-1] in option.opts and not option.is_flag for option in command.params if option.opts[0][:1] == "-"
    )


def _innermost(command: click.Command, words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of a group that the words choose, and those that are left for it."""
    while (
        isinstance(command, click.Group) and words and (inner := command.get_command(click.Context(command), words[0]))
    ):
        command, words = inner, words[1:]
    return command, words


def _of_a_program(word: str) -> bool:
    return bool(re.search(r"[./\-=*']", word) or word.isupper() or word in ("python", "torchrun", "CMD..."))


def refused(line: str) -> str:
    """Why the command line does not take those words; "" where it does.

    A command may be named without what it works on: `UNFINISHED`.
    """
    words = list(_with_values(shlex.split(line)[1:]))
    if words[0] == "help":
        words = [*words[1:], "--help"] if words[1:] else ["explain"]
    _, entry, rest = resolve(words)
    if not entry:
        return f"there is no command {words[0]!r}"
    command, rest = _innermost(loaded(entry), rest)
    try:
        command.make_context(entry, list(rest))
    except (click.exceptions.Exit, UnreadableTrace):  # the help was asked for; the file is a placeholder
        return ""
    except click.MissingParameter as error:
        return UNFINISHED if all(word[:1] == "-" for word in rest) else error.format_message()
    except (click.ClickException, UsageError) as error:
        return str(getattr(error, "message", error))
    return ""


def _with_values(words: list[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        before = words[at - 1] if at == 1 else f"{words[0]} {words[at - 1]}"
        known = word if not re.search(r"\b[A-Z]\b|[A-Z]{2}", word) else BEHIND.get(before, VALUES.get(word, word))
        yield word.replace("X", "2") if word.startswith("streams ") else known


def texts(path: Path) -> Iterator[str]:
    """Every text in a module, docstrings aside; what is put into one is told as X."""
    tree = ast.parse(path.read_text("utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        if id(node) in bare | inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
