"""The one door of edits: a new text is given out only where it is the old one with exactly the proposed nodes changed.

Rows end as Python's parser ends them, at line feeds and carriage returns alone. All bytes outside of what is replaced
are kept by construction; then the tree of the new text must be that of the old one, but for the nodes named.
"""

import ast
import copy
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO, StringIO
from typing import Final

# Rows end as Python's tokenizer ends them: not at a form feed, and not at a separator of Unicode.
_ROW: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_DOCUMENTED: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# What may stand before and behind a statement on its rows.
_SPACE: Final = re.compile(rb"[ \t\f]*\Z")
# Behind it a remark too.
_REST: Final = re.compile(rb"[ \t\f]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_BODIES: Final = ("body", "orelse", "finalbody", "handlers", "cases")


class Unproven(Exception):
    """An edit that must not be made."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is put in place of the text from `start` to `end`, each a row from 0 and a column in bytes. `node` is what
    it is about, and may change; without one it only puts rows between others, or spaces before them."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    node: ast.expr | ast.stmt | None = None


def decoded(raw: bytes) -> tuple[bytes, str, str]:
    """The mark at the start of a Python file, its encoding and its text. `SyntaxError` or `UnicodeDecodeError` where it
    has none; `Unproven` where the text does not give the same bytes again."""
    encoding = tokenize.detect_encoding(BytesIO(raw).readline)[0].removesuffix("-sig")
    mark = b"\xef\xbb\xbf" if raw[:3] == b"\xef\xbb\xbf" else b""
    text = raw[len(mark) :].decode(encoding)
    if text.encode(encoding) != raw[len(mark) :]:
        raise Unproven(f"{encoding} does not keep the bytes of this file")
    return mark, encoding, text


def rows_of(text: str) -> list[bytes]:
    """The rows of a text with their ends, as `ast` counts them."""
    rows = [row.encode() for row in _ROW.findall(text)]
    return rows[:-1] if rows and not rows[-1] else rows


def are_flat(strings: str) -> bool:
    """Whether each of the strings that stand side by side in a text is on one row, so that rows may be indented."""
    try:
        tokens = [*tokenize.generate_tokens(StringIO(f"({strings}\n)").readline)]
    except (tokenize.TokenError, SyntaxError):
        return False
    opened = [0]
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):  # of Python 3.12
            opened.append(token.start[0])
        first = opened.pop() if name.endswith("STRING_END") else token.start[0]
        if "STRING" in name and first != token.end[0]:
            return False
    return True


@dataclass(frozen=True)
class _Text:
    """A text with its tree, and where its statements lie, in bytes from its start."""

    text: str

    @cached_property
    def data(self) -> bytes:
        return self.text.encode()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def starts(self) -> list[int]:
        found = [0]
        for row in rows_of(self.text):
            found.append(found[-1] + len(row))
        return found

    def at(self, row: int, column: int) -> int:
        return min(self.starts[min(row, len(self.starts) - 1)] + column, len(self.data))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """With its decorators."""
        above = min((one.lineno for one in getattr(node, "decorator_list", ())), default=0)
        start = self.starts[above - 1] + _indent(self.data[self.starts[above - 1] :]) if above else 0
        start = start or self.at(node.lineno - 1, node.col_offset)
        return start, self.at((node.end_lineno or node.lineno) - 1, node.end_col_offset or 0)

    @cached_property
    def parents(self) -> dict[ast.AST, tuple[ast.AST, str]]:
        """For each node the one that holds it, and in which field."""
        held = ((node, name, value) for node in ast.walk(self.tree) for name, value in ast.iter_fields(node))
        return {
            child: (node, name)
            for node, name, value in held
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        }

    @cached_property
    def statements(self) -> list[ast.stmt]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]


def _indent(data: bytes) -> int:
    return len(data) - len(data.lstrip(b" \t\f"))


class _Moved:
    """Where each byte of the old text lies in the new one, and what is new there."""

    def __init__(self, old: _Text, replacements: Sequence[Replacement]) -> None:
        self.made = sorted(
            ((old.at(*one.start), old.at(*one.end), _with_ends(one.text, old.text).encode()) for one in replacements),
            key=lambda one: one[:2],
        )
        for (_, end, _), (start, *_) in zip(self.made, self.made[1:], strict=False):
            if start < end:
                raise Unproven("two changes overlap")
        parts, last = list[bytes](), 0
        self.new: list[tuple[int, int]] = []
        for start, end, text in self.made:
            parts += [old.data[last:start], text]
            before = sum(map(len, parts))
            self.new += [(before - len(text), before)] if text.strip() else []
            last = end
        self.data = b"".join([*parts, old.data[last:]])

    def __call__(self, at: int) -> int:
        """The new place of a byte that is kept."""
        return at + sum(len(text) - (end - start) for start, end, text in self.made if end <= at)

    def end(self, at: int) -> int:
        """The new place of an end: what is put there comes after it."""
        return at + sum(len(text) - (end - start) for start, end, text in self.made if start < at)


def _with_ends(text: str, old: str) -> str:
    ending = re.search(r"\r\n|\r|\n", old)  # as the first row ends
    return text.replace("\n", ending[0]) if ending else text


def edited(text: str, tree: ast.Module, replacements: Iterable[Replacement]) -> str:
    """The text with all of them made; those at one place stand in the order in which they are given. `Unproven` where
    its tree is not `tree`, which is that of the text, with the nodes changed that they name, and rows put in."""
    old = _Text(text)
    old.__dict__["tree"] = tree  # whose nodes the replacements name
    made = list(replacements)
    if made and not text.endswith(("\n", "\r")) and any(one.start[0] >= len(rows_of(text)) for one in made):
        made.insert(0, Replacement((len(rows_of(text)), 0), (len(rows_of(text)), 0), "\n"))
    for one in made:
        _fits(old, one)
    moved = _Moved(old, made)
    new = _Text(moved.data.decode())
    try:
        compile(new.text, "new", "exec", dont_inherit=True)
        _hold(old, new, moved, made)
    except (SyntaxError, ValueError) as broken:
        raise Unproven(f"the new text is no Python: {broken}") from broken
    return new.text


def _fits(old: _Text, one: Replacement) -> None:
    """A change replaces no more than its node, its spaces and its comment, whose text is the node's indeed."""
    start, end = old.at(*one.start), old.at(*one.end)
    if one.node is None:
        if start != end or (start not in old.starts and one.text.strip()):
            raise Unproven("what no node is named for would be replaced")
        return
    first, last = old.span(one.node)
    if start < first and not (start in old.starts and _SPACE.match(old.data[start:first])):
        raise Unproven("something stands before the statement")
    if end > last and not _REST.fullmatch(old.data[last:end]):
        raise Unproven("something stands after the statement")
    if _dump(_parsed(old.data[first:last], one.node)) != _dump(one.node):
        raise Unproven("the place of a node is not its text")


def _parsed(data: bytes, node: ast.AST) -> ast.AST:
    text = data.decode()
    if isinstance(node, ast.stmt):
        block = ast.parse(f"if 1:\n{' ' * max(node.col_offset, 1)}{text}\n").body[0]
        return block.body[0] if isinstance(block, ast.If) and len(block.body) == 1 else block
    return ast.parse(f"({text}\n)", mode="eval").body


def _dump(node: ast.AST) -> str:
    return re.sub(r"(?:Store|Del)\(\)", "Load()", ast.dump(node))  # where a name stands is no difference


def _header(node: ast.stmt) -> str:
    """A statement without those that it holds."""
    bare = copy.copy(node)
    for name in _BODIES:
        if isinstance(held := getattr(node, name, None), list):
            kept = [_header_of(one) for one in held] if name in ("handlers", "cases") else []
            setattr(bare, name, kept)
    return _dump(bare)


def _header_of(part: ast.AST) -> ast.AST:
    bare = copy.copy(part)
    bare.body = []  # type: ignore[attr-defined]
    return bare


def _hold(old: _Text, new: _Text, moved: _Moved, made: Sequence[Replacement]) -> None:
    """`Unproven` unless each statement that is not replaced is in its place, under the one that held it, unchanged but
    for the expressions named, and all that is new lies in what was put in."""
    gone = {id(inner) for one in made if isinstance(one.node, ast.stmt) for inner in ast.walk(one.node)}
    twins: dict[int, ast.AST] = {}
    copy.deepcopy(old.tree, twins)
    for one in made:
        if isinstance(one.node, ast.expr):
            start, end = old.span(one.node)
            _substitute(old, one.node, twins, _parsed(new.data[moved(start) : moved.end(end)], one.node))
    places = {new.span(node)[0]: node for node in new.statements}
    images: dict[int, ast.AST] = {id(old.tree): new.tree}
    for node in old.statements:
        if id(node) in gone:
            continue
        image = places.pop(moved(old.span(node)[0]), None)
        twin = twins[id(node)]
        if image is None or not isinstance(twin, ast.stmt) or _header(twin) != _header(image):
            raise Unproven(f"line {node.lineno} would not be as it was")
        images[id(node)] = image
    for start, node in places.items():
        if not any(first <= start < last for first, last in moved.new):
            raise Unproven(f"line {node.lineno} of the new text is not what was put in")
    _hold_blocks(old, new, images)


def _substitute(old: _Text, node: ast.expr, twins: dict[int, ast.AST], by: ast.AST) -> None:
    parent, name = old.parents[node]
    twin, kept = twins[id(parent)], twins[id(node)]
    held = getattr(twin, name)
    if isinstance(held, list):
        held[next(at for at, one in enumerate(held) if one is kept)] = by
    else:
        setattr(twin, name, by)
    twins[id(node)] = by


def _hold_blocks(old: _Text, new: _Text, images: dict[int, ast.AST]) -> None:
    """Each statement is still in the block that held it, but for blocks that were put around it; documentation is what
    it was."""
    known = {id(image) for image in images.values()}
    for node in (one for one in old.statements if id(one) in images):
        holder = next(one for one in _above(old, node) if id(one) in images)
        image = next(one for one in _above(new, images[id(node)]) if id(one) in known)
        if image is not images[id(holder)]:
            raise Unproven(f"line {node.lineno} would be of another block")
    for held in (one for one in ast.walk(old.tree) if isinstance(one, _DOCUMENTED)):
        now = images.get(id(held))
        if isinstance(now, _DOCUMENTED) and _said(held) != _said(now):
            raise Unproven("a text became a docstring, or one is gone")


def _said(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    return ast.get_docstring(node, clean=False)


def _above(text: _Text, node: ast.AST) -> Iterator[ast.AST]:
    while node in text.parents:
        node, _ = text.parents[node]
        yield node
