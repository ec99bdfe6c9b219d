"""Count what should be declared in timesink.knowledge and is not: regular expressions, numbers without name or reason.

A regular expression is what is given to `re` or to a method of Polars that takes one, and any other text or f-string
that holds regex syntax (a class, a group, a repeated dot, an anchor) and is no docstring, no sentence and no help of an
option. It has a reason where a comment stands on its line or before its statement.

Numbers are counted where traces are judged: those of readers are places in files. An unnamed number is a literal
in a function or a class other than -2 to 2, a half, powers of ten, indices and slices, cases of `match`, operands of
shifts and masks, and members of an enumeration. A number without a reason is an unnamed one, or a constant of a module
that is nothing but a number, with no comment on its line or before it and no text after it.

python tools/ratchet.py            print the counts and what they consist of
python tools/ratchet.py --check    fail where a count is above that of tools/ratchet.json
python tools/ratchet.py --write    write the counts, where none rose
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "timesink"
COUNTS = Path(__file__).with_suffix(".json")
ALONE = ("capture", "recipes", "sandbox", "untrusted")
"""Rooms that import no knowledge (a contract holds it): their regular expressions need a reason and no other place."""
OF_FIGURES = ("model", "whatif", "measures", "diagnosis", "rules", "views", "cluster")
KINDS = ("regexes", "regexes_without_a_reason", "unnamed_numbers", "numbers_without_a_reason")
_SYNTAX = re.compile(r"\\[bdwsWDSBAZ.()\[\]/+*?|^$p]|\[\^?[^\]\s]+\][*+?{]|\(\?|\.[*+]|\^\(|\^[a-z]\w*\W|\)\$")
_SYNTAX_OF_PARTS = re.compile(r"\\[bdwsWDS]|\(\?")
_PROSE = re.compile(r"[a-z]{2,}(?:,|:)? [a-z]{2,} [a-z]{2,}|\[TARGET\]|\[default|:REGEX")
_OF_RE = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
_OF_POLARS = ("contains", "extract", "extract_all", "extract_groups", "replace", "replace_all", "count_matches")
_NEEDS_NO_NAME = {-2, -1, 0, 1, 2, 0.5, *(10**power for power in range(1, 13))}
Place = tuple[int, object]
"""A line and what stands there."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="fail where a count is above that of tools/ratchet.json")
    parser.add_argument("--write", action="store_true", help="write the counts, where none rose")
    arguments = parser.parse_args()
    found = places(SOURCE)
    counts = {kind: len(listed) for kind, listed in found.items()}
    before = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.is_file() else counts
    risen = [kind for kind in KINDS if counts[kind] > before[kind]]
    if arguments.write and not risen:
        COUNTS.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    elif arguments.check:
        for kind in risen:
            print(f"{kind}: {counts[kind]}, not {before[kind]}: declare it in timesink.knowledge", file=sys.stderr)
    else:
        for kind, listed in found.items():
            print(f"{kind}: {len(listed)}", *(f"  {place}" for place in listed), sep="\n")
    return int(bool(risen))


def places(source: Path) -> dict[str, list[str]]:
    """The places that count, by kind."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source)
        room = name.parts[0]
        if room == "knowledge":
            continue
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)

        def listed(kind: str, part: Iterator[Place], name: Path = name) -> None:
            found[kind] += [f"{name}:{line}: {what}" for line, what in part]

        if room not in ALONE:
            listed("regexes", regexes(tree))
        listed("regexes_without_a_reason", regexes_without_a_reason(tree, text.splitlines()))
        if room in OF_FIGURES:
            listed("unnamed_numbers", unnamed_numbers(tree))
            listed("numbers_without_a_reason", without_a_reason(tree, text.splitlines()))
    return found


def regexes(tree: ast.Module) -> Iterator[Place]:
    """Every text that is a regular expression."""
    passed, given = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=inner):
                passed.add(id(inner))
            case ast.Call(func=ast.Attribute(value=of, attr=method), args=[first, *_]) if _takes_one(of, method):
                given.add(id(first))
            case ast.Call(func=ast.Name(id="regex"), args=[first, *_]):
                given.add(id(first))
            case ast.JoinedStr():
                passed |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as said):
                pass
            case ast.Constant(value=bytes() as data):
                said = data.decode("latin-1")
            case ast.JoinedStr(values=parts):
                said = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            case _:
                continue
        syntax = _SYNTAX_OF_PARTS if isinstance(node, ast.JoinedStr) else _SYNTAX
        looks_so = syntax.search(said) and not _PROSE.search(said) and id(node) not in passed
        if looks_so or id(node) in given:
            yield node.lineno, said


def _takes_one(of: ast.expr, method: str) -> bool:
    """Whether a call of this method of this takes a regular expression first."""
    is_re = isinstance(of, ast.Name) and of.id == "re" and method in _OF_RE
    return is_re or (isinstance(of, ast.Attribute) and of.attr == "str" and method in _OF_POLARS)


def regexes_without_a_reason(tree: ast.Module, lines: list[str]) -> Iterator[Place]:
    """Those with no comment on their line, nor on the line before the statement that holds them."""
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return))]
    for line, said in regexes(tree):
        around = [node.lineno for node in statements if node.lineno <= line <= (node.end_lineno or line)]
        first = max(around, default=line)
        if not lines[first - 2].lstrip().startswith("#") and not any("  # " in one for one in lines[first - 1 : line]):
            yield line, said


def unnamed_numbers(tree: ast.Module) -> Iterator[Place]:
    """Every number that has no name and needs one."""
    passed: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=inner) | ast.MatchValue(value=inner):
                passed |= {id(part) for part in ast.walk(inner)}
            case ast.BinOp(op=ast.LShift() | ast.RShift() | ast.BitAnd() | ast.BitOr()):
                passed |= {id(part) for part in ast.walk(node)}
            case ast.ClassDef(bases=bases) if any("Enum" in ast.unparse(base) for base in bases):
                passed |= {id(part) for part in ast.walk(node)}
    for holder in tree.body:
        if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for node in ast.walk(holder):
                is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
                if is_number and id(node) not in passed and node.value not in _NEEDS_NO_NAME:
                    yield node.lineno, node.value


def without_a_reason(tree: ast.Module, lines: list[str]) -> Iterator[Place]:
    """Unnamed numbers, and constants that are a number, for which no comment or text says why."""
    for line, number in unnamed_numbers(tree):
        if "#" not in lines[line - 1] and not lines[line - 2].lstrip().startswith("#"):
            yield line, number
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or not _is_figure(node.value):
            continue
        said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        said |= any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
        if not said and not lines[node.lineno - 2].startswith("#"):
            yield node.lineno, ast.unparse(node)


def _is_figure(value: ast.expr) -> bool:
    """Whether it is a number, or a sum, product or tuple of numbers, that is more than an index."""
    numbers = [part for part in ast.walk(value) if isinstance(part, ast.Constant)]
    bare = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context, ast.Name)
    if not all(isinstance(part, bare) for part in ast.walk(value)):
        return False
    figures = [part.value for part in numbers if type(part.value) in (int, float)]
    return len(figures) == len(numbers) and any(figure not in _NEEDS_NO_NAME for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
