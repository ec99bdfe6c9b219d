"""The source of a program as edits see it, and what an edit proposes.

An edit sees a source file as its tree, what its statements bind and read, and text put in place of other text. Places
are those of `ast` (rows are counted from 0 here, columns in bytes), so that nothing else of the file moves.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from timesink.recipes.proof import Replacement, Unproven, are_flat, decoded, edited, rows_of
from timesink.recipes.walking import parsed, walk

Loop = ast.For | ast.While
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One edit: the line (from 1) that it is about, and the reason in one sentence. `fix` is the change that it makes.

    `unproven` says why the pattern cannot tell that the program computes the same; then it is offered, not made.
    """

    line: int
    reason: str
    replacements: tuple[Replacement, ...]
    unproven: str = ""
    fix: str = ""

    @property
    def rows(self) -> set[int]:
        """The lines (from 1) that it is about: what it replaces or indents, and its own."""
        changed = [one for one in self.replacements if one.start != one.end or one.text.isspace()]
        spans = [(one.start[0], max(one.start[0], one.end[0] - (not one.end[1]))) for one in changed]
        return {self.line, *(row + 1 for first, last in spans for row in range(first, last + 1))}


@dataclass(frozen=True)
class Source:
    """The text of a Python file; `SyntaxError` where it is none."""

    path: Path
    text: str
    mark: bytes = b""
    encoding: str = "utf-8"

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The file, or None where it cannot be read as Python."""
        try:
            mark, encoding, text = decoded(path.read_bytes())
            source = cls(path, text, mark, encoding)
            return source if source.tree else None
        except (OSError, SyntaxError, ValueError, LookupError, RecursionError, Unproven):
            return None

    @cached_property
    def tree(self) -> ast.Module:
        """The whole file."""
        return self._parsed[0]

    @cached_property
    def _parsed(self) -> tuple[ast.Module, dict[ast.AST, ast.AST]]:
        return parsed(self.text)

    @cached_property
    def rows(self) -> list[bytes]:
        """The lines with their ends."""
        return rows_of(self.text)

    @property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """For each node the one that holds it."""
        return self._parsed[1]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that hold it, the innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module whose names it reads."""
        return next((held for held in self.above(node) if isinstance(held, _SCOPES)), self.tree)

    def loops(self) -> Iterator[Loop]:
        """All loops of statements."""
        yield from walk(self.tree, ast.For, ast.While)

    def step_loops(self) -> Iterator[Loop]:
        """The innermost loops that train: a backward pass or an optimizer's step is called in each round."""
        for loop in self.loops():
            calls = [call for call in calls_in(loop) if name_of(call.func) == "backward" or _steps_optimizer(call)]
            if any(next(held for held in self.above(call) if isinstance(held, Loop)) is loop for call in calls):
                yield loop

    def statements(self, loop: Loop) -> Iterator[ast.stmt]:
        """Those that run in each round: of the loop's body, and of the `with` blocks in it."""
        pending = list(reversed(loop.body))
        while pending:
            statement = pending.pop()
            yield statement
            if isinstance(statement, ast.With):
                pending += reversed(statement.body)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that it stands among."""
        held = vars(self.parents[statement]).values()
        return next(one for one in held if isinstance(one, list) and statement in one)

    def said(self, node: ast.expr | ast.stmt) -> str:
        """Its text."""
        first, (last, end) = node.lineno - 1, end_of(node)
        rows = [*self.rows[first:last], self.rows[last][:end]]
        return b"".join((rows[0][node.col_offset :], *rows[1:])).decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Replacement:
        """Other text in place of a node."""
        return Replacement((node.lineno - 1, node.col_offset), end_of(node), text, node)

    def insert(self, row: int, text: str) -> Replacement:
        """Lines put before a row."""
        return Replacement((row, 0), (row, 0), text)

    def indent(self, statement: ast.stmt) -> str:
        """What its first line begins with."""
        row = self.rows[statement.lineno - 1].decode()
        return row[: len(row) - len(row.lstrip())]

    def moves_whole(self, statement: ast.stmt) -> bool:
        """Whether its lines are its own and may be indented: no second statement in them, no string over lines."""
        first, last = self.rows[statement.lineno - 1], self.rows[end_of(statement)[0]]
        before, after = first[: statement.col_offset], last[end_of(statement)[1] :].strip()
        strings = (node for node in walk(statement, ast.Constant, ast.JoinedStr) if not self._is_of_string(node))
        is_flat = all(node.lineno == node.end_lineno or are_flat(self.said(node)) for node in strings)
        return is_flat and not before.strip() and (not after or after.startswith(b"#"))

    def _is_of_string(self, node: ast.AST) -> bool:
        """Whether it is a part of an f-string; from Python 3.12 on its place may begin in one of two and end in the
        next."""
        return any(isinstance(held, ast.JoinedStr) for held in self.above(node))

    def wrap(self, statements: Iterable[ast.stmt], opener: str) -> tuple[Replacement, ...]:
        """One block around neighbouring statements, which `moves_whole` allows."""
        held = list(statements)
        rows = range(held[0].lineno - 1, held[-1].end_lineno or held[-1].lineno)
        opening = self.insert(rows[0], f"{self.indent(held[0])}{opener}\n")
        return (opening, *(self.insert(row, "    ") for row in rows if self.rows[row].strip()))

    def drop(self, statement: ast.stmt) -> Replacement:
        """Its lines are taken out; `pass` stays where it was the only one of its block."""
        row, end = statement.lineno - 1, statement.end_lineno or statement.lineno
        text = f"{self.indent(statement)}pass\n" if self.block(statement) == [statement] else ""
        return Replacement((row, 0), (end, 0), text, statement)

    def free_name(self, wanted: str) -> str:
        """The name, or the name and a number, so that the file has no such name yet."""
        number, name = 1, wanted
        while name in self.text:
            number, name = number + 1, f"{wanted}_{number + 1}"
        return name

    def edited(self, replacements: Iterable[Replacement]) -> str:
        """The text with all of them made. Those at one place stand in the order in which they are given. `Unproven`
        where more than the nodes that they name would change."""
        return edited(self.text, self.tree, replacements)

    def encoded(self, text: str) -> bytes:
        """Another text of this file as its bytes."""
        return self.mark + text.encode(self.encoding)


def _steps_optimizer(call: ast.Call) -> bool:
    """Whether it is a step of an optimizer, by its name: schedulers, environments and profilers have one too."""
    return name_of(call.func) == "step" and "opt" in ast.unparse(call)


def end_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """The row from 0 and the column where it ends."""
    return (node.end_lineno or node.lineno) - 1, node.end_col_offset or 0


def calls_in(node: ast.AST) -> Sequence[ast.Call]:
    """All calls below it."""
    return walk(node, ast.Call)


def number_of(node: ast.AST) -> int | None:
    """The whole number that stands there, without a sign; None for all else."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def is_whole(index: ast.AST) -> bool:
    """Whether an index takes all of an axis."""
    return isinstance(index, ast.Slice) and index.lower is index.upper is index.step is None


def name_of(function: ast.AST) -> str:
    """The last part of a dotted name; empty for what is none."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def root_of(node: ast.AST) -> str:
    """The first name of a dotted, called or indexed expression."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def bound_in(node: ast.AST) -> set[str]:
    """Names that are bound below it, by whatever binds one."""
    found = {name.id for name in walk(node, ast.Name) if not isinstance(name.ctx, ast.Load)}
    found |= {name for other in walk(node, ast.Global, ast.Nonlocal) for name in other.names}
    found |= {other.name for other in walk(node, ast.FunctionDef, ast.ClassDef, ast.ExceptHandler) if other.name}
    return found | {(other.asname or other.name).partition(".")[0] for other in walk(node, ast.alias)}


def read_in(node: ast.AST) -> set[str]:
    """Names that are read below it."""
    return {name.id for name in walk(node, ast.Name) if isinstance(name.ctx, ast.Load)}


def mutated_in(node: ast.AST) -> set[str]:
    """Names whose values are changed in place below it: by an index, an attribute, or a method that says so."""
    found = set()
    for other in walk(node, ast.Subscript, ast.Attribute, ast.AugAssign, ast.Call):
        if isinstance(other, (ast.Subscript, ast.Attribute)) and not isinstance(other.ctx, ast.Load):
            found.add(root_of(other))
        elif isinstance(other, ast.AugAssign):
            found.add(root_of(other.target))
        elif isinstance(other, ast.Call):
            name, receiver = name_of(other.func), getattr(other.func, "value", None)
            if receiver is not None and (name.endswith("_") or name in _MUTATORS):
                found.add(root_of(receiver))
            found |= {root_of(word.value) for word in other.keywords if word.arg == "out"}
            if name.endswith("_") or (name != "masked_fill" and any(word in name for word in _EXCHANGES)):
                found |= {root_of(argument) for argument in other.args}
    return found


_EXCHANGES: Final = ("reduce", "broadcast", "gather", "scatter", "recv", "fill")
_MUTATORS: Final = frozenset(
    {"append", "extend", "insert", "pop", "clear", "remove", "sort", "reverse", "update", "add", "setdefault"}
)
