"""The edits that make changes permanent, where each is an argument more in one call or a line more: as a unified diff.

A call is found by the line at which the program made it, its end by `ast`. All edits are insertions, so that nothing
else of the file moves. A change whose call cannot be found, stands in a library or has such an argument has no edit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from itertools import groupby
from pathlib import Path
from typing import Final

from timesink.trials.switches import SWITCHES
from timesink.trials.training_switches import LOADER_OPTIONS

Insertion = tuple[int, int, str]
"""Row from 0, column in bytes, and what is put there."""

_ARGUMENTS: Final[dict[str, dict[str, object]]] = {
    **LOADER_OPTIONS,
    "fused_optimizer": {"fused": True},
    "foreach": {"foreach": True},
}
_AFTER_IMPORT: Final = {
    "tf32": 'torch.set_float32_matmul_precision("high")',
    "benchmark_convolutions": "torch.backends.cudnn.benchmark = True",
}
_AROUND: Final = {"bf16": 'with torch.autocast("cuda", dtype=torch.bfloat16):'}


def write_patch(names: Iterable[str], places: Mapping[str, str]) -> tuple[str, list[str]]:
    """A unified diff that makes the changes of `names`, and those that it makes. `places` are `file:line`, by what of
    the program is made or called there."""
    lines: list[str] = []
    made: list[str] = []
    for file, before, after, of_file in _edit(names, places):
        lines += unified_diff(before.splitlines(True), after.splitlines(True), f"a/{file.name}", f"b/{file.name}")
        made += of_file
    return "".join(lines), made


def copy_edited(folder: Path, names: Iterable[str], places: Mapping[str, str]) -> dict[Path, tuple[str, ...]]:
    """A copy of the current folder in `folder` (new) with the edits of `names` made: the edited files, each with the
    changes made in it. All else of the copy are links, so that a program in it finds its modules and data and nothing
    large is copied. A file outside of the current folder is left as it is.
    """
    here, edited = Path.cwd(), {}
    _link(here, folder)
    for file, _, after, made in _edit(names, places):
        if not file.is_relative_to(here):
            continue
        place = folder
        for part in file.relative_to(here).parts[:-1]:
            place /= part
            if place.is_symlink():
                place.unlink()
                _link(here / place.relative_to(folder), place)
        place /= file.name
        place.unlink()
        place.write_text(after, encoding="utf-8")
        edited[file] = tuple(made)
    return edited


def _link(folder: Path, copy: Path) -> None:
    entries = list(folder.iterdir())
    copy.mkdir(parents=True)
    for entry in entries:
        (copy / entry.name).symlink_to(entry.resolve())


def _edit(names: Iterable[str], places: Mapping[str, str]) -> Iterator[tuple[Path, str, str, list[str]]]:
    """Each file that is edited, its text before and after, and the changes made in it."""
    found = [(name, *_find(name, places)) for name in names]
    made = sorted((file, name, edits) for name, file, edits in found if edits)
    for file, group in groupby(made, key=lambda one: one[0]):
        of_file = list(group)
        before = Path(file).read_text(encoding="utf-8")
        after = _insert(before, [edit for _, _, edits in of_file for edit in edits])
        yield Path(file).resolve(), before, after, [name for _, name, _ in of_file]


def _find(name: str, places: Mapping[str, str]) -> tuple[str, list[Insertion]]:
    file, _, line = places.get(SWITCHES[name].where or "model", "").rpartition(":")
    if not Path(file).is_file():
        return file, []
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return file, []
    if name in _ARGUMENTS:
        return file, _add_arguments(tree, int(line), _ARGUMENTS[name])
    if name in _AFTER_IMPORT:
        rows = [node.end_lineno for node in tree.body if _imports_torch(node) and node.end_lineno is not None]
        return file, [(rows[0], 0, f"{_AFTER_IMPORT[name]}\n")] if rows else []
    if name in _AROUND:
        return file, _wrap(tree, int(line), _AROUND[name])
    return file, []


def _imports_torch(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(alias.name == "torch" and not alias.asname for alias in node.names)


def _spans(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _add_arguments(tree: ast.Module, line: int, arguments: Mapping[str, object]) -> list[Insertion]:
    """After the last argument of the call that makes an object of a class (their names begin with a capital)."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _spans(node, line)]
    makers = [call for call in calls if ast.unparse(call.func).rpartition(".")[2][:1].isupper()]
    call = max(makers, key=lambda call: call.lineno, default=None)
    if call is None:
        return []
    given = {keyword.arg for keyword in call.keywords}
    last = max([*call.args, *(keyword.value for keyword in call.keywords)], key=_end, default=None)
    if last is None or None in given or given & arguments.keys():  # **options, or another value of the same
        return []
    row, column = _end(last)
    return [(row - 1, column, "".join(f", {name}={value!r}" for name, value in arguments.items()))]


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _wrap(tree: ast.Module, line: int, opener: str) -> list[Insertion]:
    """A `with` around the simple statement at the line; one that holds a string over several lines is left alone."""
    simple = (node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)))
    statement = next((node for node in simple if _spans(node, line)), None)
    if statement is None or any(
        isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno
        for node in ast.walk(statement)
    ):
        return []
    first, indent = statement.lineno - 1, " " * statement.col_offset
    rows = range(first, statement.end_lineno or statement.lineno)
    return [*((row, 0, "    ") for row in rows), (first, 0, f"{indent}{opener}\n")]


def _insert(text: str, edits: list[Insertion]) -> str:
    rows = [row.encode() for row in text.splitlines(keepends=True)]
    rows += [b""]  # what is put behind the last row
    for row, column, added in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        rows[row] = rows[row][:column] + added.encode() + rows[row][column:]
    return b"".join(rows).decode()
