"""What prose calls by its dotted name is there: a module of the package, or what a module of it declares."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from timesink.knowledge.assumptions import ALL

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "timesink"
ROOMS = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.joinpath("__init__.py").is_file()}
NAME = re.compile(r"(?<!`)`(?:timesink\.)?(\w+(?:\.\w+)+)(?:\(\))?`(?!`)")
FILES = {"md", "txt", "json", "py", "pyi", "js", "css", "toml", "html", "sql", "yml", "yaml", "cpp", "j2"}
PAGES = [*(ROOT / "docs/decisions").glob("*.md"), *(ROOT / "docs/explanation").glob("*.md")]


@cache
def declared(module: Path) -> dict[str, ast.AST]:
    """What a module declares or imports, by name, and what its classes do, by both names."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        within = [("", node)]
        if isinstance(node, ast.ClassDef):
            found[node.name] = node
            within = [(f"{node.name}.", inner) for inner in node.body]
        for of, one in within:
            match one:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found[of + name] = one
                case ast.Assign(targets=targets):
                    named = (inner for target in targets for inner in ast.walk(target))
                    found |= {of + inner.id: one for inner in named if isinstance(inner, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found[of + name] = one
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    found |= {alias.asname or alias.name: one for alias in names}
    return found


def is_there(name: str) -> bool:
    """Whether a dotted name leads from the package to a module, or to what one declares."""
    place, parts = PACKAGE, name.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    module = place / f"{parts[0]}.py" if parts else place
    if parts and module.is_file():
        parts.pop(0)
    else:
        module = place / "__init__.py"
    if not parts or ".".join(parts[:2]) in declared(module):
        return True
    return parts[0] in declared(module) and not isinstance(declared(module)[parts[0]], ast.ClassDef)


def names_in(text: str) -> Iterator[str]:
    """The dotted names in backticks that begin with a room of the package."""
    for name in NAME.findall(text):
        first, *_, last = name.split(".")
        if first in ROOMS and last not in FILES and name.lower() not in ALL:  # which are told by subject and name
            yield name


def docstrings(path: Path) -> Iterator[str]:
    """Every docstring of a module, and every text that stands alone below a constant."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield text


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_a_docstring_names_is_there(path: Path) -> None:
    assert [name for text in docstrings(path) for name in names_in(text) if not is_there(name)] == []


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.name)
def test_what_a_page_names_is_there(path: Path) -> None:
    assert [name for name in names_in(path.read_text(encoding="utf-8")) if not is_there(name)] == []


@pytest.mark.parametrize(
    "name", ["model.correlation", "diagnosis.judge.Judgement", "knowledge.ranges.NO_SUCH", "model.trace.Trace.x"]
)
def test_what_is_not_there_is_seen(name: str) -> None:
    assert list(names_in(f"as `{name}` says")) == [name]
    assert not is_there(name)


@pytest.mark.parametrize(
    "name", ["model.trace", "model.trace.Trace.between", "knowledge.ranges.PROFILER_STEP", "readers.nsys"]
)
def test_what_is_there_is_found(name: str) -> None:
    assert is_there(name)
