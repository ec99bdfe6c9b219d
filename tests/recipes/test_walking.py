"""What is found below a node by its place is what `ast.walk` finds, in the order of the text."""

import ast
import copy
from pathlib import Path

import pytest

from timesink.recipes.walking import parsed, walk

FILES = [Path(__file__), *sorted(Path(__file__).parent.glob("test_[flr]*.py"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_nodes_below_each_node_are_those_of_ast(file: Path) -> None:
    tree, parents = parsed(file.read_text())
    for node in ast.walk(tree):
        assert {*walk(node)} == {*ast.walk(node)}
        for kinds in ((ast.Name,), (ast.Call, ast.Attribute), (ast.expr, ast.For, ast.While)):
            found = walk(node, *kinds)
            assert {*found} == {below for below in ast.walk(node) if isinstance(below, kinds)}
            starts = [(one.lineno, one.col_offset) for one in walk(node, ast.stmt)]
            assert starts == sorted(starts)
        assert all(child in parents for child in ast.iter_child_nodes(node))


def test_a_node_that_is_copied_or_built_is_walked_as_ast_does() -> None:
    tree, _ = parsed("def f(x):\n    return g(x)\n")
    copied = copy.deepcopy(tree.body[0])
    assert {*walk(copied)} == {*ast.walk(copied)}
    assert len(walk(ast.parse("a + b"), ast.Name)) == 2
    assert len(walk(tree, ast.Call)) == len(walk(tree.body[0], ast.Call)) == 1
