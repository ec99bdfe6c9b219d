"""What benchmarks and tools take from timesink, and from each other, is there: most run seldom, and none in CI."""

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for folder in ("benchmarks", "tools") for path in (ROOT / folder).rglob("*.py"))


def taken(source: str) -> Iterator[tuple[str, str]]:
    """Modules of ours and the names that a file takes from each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("timesink", "benchmarks"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def is_there(module: str, name: str) -> bool:
    try:
        found = import_module(module)
    except ModuleNotFoundError as missing:
        return (missing.name or "").partition(".")[0] not in ("timesink", "benchmarks")  # a framework
    return hasattr(found, name) or find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_file_takes_is_there(path: Path) -> None:
    assert not [taken_name for taken_name in taken(path.read_text()) if not is_there(*taken_name)]
