"""A name that a module does not have is found by the type checker: nothing hides behind names made at run time."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "timesink"


def hidden(source: str) -> list[str]:
    """What would let a type checker take names that are not there: of each its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), body=body):
                asked = (inner for part in body for inner in ast.walk(part))
                found += [f"{one.lineno}: __getattr__" for one in asked if _is_asked_for(one)]
            case ast.Call(func=ast.Attribute(value=of, attr="update" | "setdefault")) if _is_namespace(of):
                found.append(f"{node.lineno}: update")
            case ast.Subscript(value=of, ctx=ast.Load()) if _is_namespace(of):
                found.append(f"{node.lineno}: looked up")
            case ast.AugAssign(target=of) if _is_namespace(of):
                found.append(f"{node.lineno}: update")
            case ast.Call(args=args) if any(_is_namespace(arg) and not arg.args for arg in args):
                found.append(f"{node.lineno}: handed on")
    return found


def _is_asked_for(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__getattr__"


def _is_namespace(node: ast.expr) -> bool:
    """Whether it is `globals()`, or `vars(…)` of something."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("globals", "vars")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_makes_names_that_a_type_checker_cannot_see(path: Path) -> None:
    assert hidden(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "if TYPE_CHECKING:\n    def __getattr__(name: str) -> Pattern: ...",
        "class Subject:\n    if TYPE_CHECKING:\n        def __getattr__(self, name: str) -> Assumption: ...",
        "globals().update(_CALLED)",
        "FOUND = vars(_FILE)[name.upper()]",
        "_FILE = Patterns(__file__, globals())",
    ],
)
def test_a_name_made_at_run_time_is_seen(source: str) -> None:
    assert len(hidden(source)) == 1
