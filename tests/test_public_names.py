"""The names `timesink` offers: loaded on first use, declared for type checkers in a stub beside."""

import ast
from pathlib import Path

import timesink

STUB = Path(timesink.__file__).with_suffix(".pyi")


def test_the_stub_declares_what_the_package_loads() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    homes = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted([*homes, "__version__"]) == sorted(timesink.__all__)
    for name, module in homes.items():
        assert getattr(timesink, name).__module__ == module
