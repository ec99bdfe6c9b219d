"""The nodes below a node of a tree, in the order of the text, found by their places in one list that is made once.

A program is looked through by some forty finders, most of which look below each of its functions and loops again.
"""

import ast
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar, overload

_PLACE: Final = "_timesink_place"
Node = TypeVar("Node", bound=ast.AST)
Other = TypeVar("Other", bound=ast.AST)
Third = TypeVar("Third", bound=ast.AST)


class _Nodes:
    """All nodes of a tree in the order of the text, those of each kind apart, and for each the one that holds it."""

    def __init__(self, tree: ast.Module) -> None:
        self.all: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self._kinds: dict[tuple[type[ast.AST], ...], tuple[list[int], list[ast.AST]]] = {}
        self._add(tree)

    def _add(self, root: ast.AST) -> None:
        pending: list[ast.AST | _Place] = [root]
        while pending:
            node = pending.pop()
            if isinstance(node, _Place):
                node.last = len(self.all)
                continue
            place = _Place(self, len(self.all))
            self.all.append(node)
            if not node._fields:  # such nodes are shared between trees
                continue
            setattr(node, _PLACE, place)
            pending.append(place)
            children = [*ast.iter_child_nodes(node)]
            self.parents.update(dict.fromkeys(children, node))
            pending += reversed(children)

    def of(self, kinds: tuple[type[ast.AST], ...]) -> tuple[list[int], list[ast.AST]]:
        """Places and nodes of these kinds."""
        if kinds not in self._kinds:
            places = [at for at, node in enumerate(self.all) if isinstance(node, kinds)]
            self._kinds[kinds] = places, [self.all[at] for at in places]
        return self._kinds[kinds]


class _Place:
    """Where a node and all below it stand among the nodes."""

    def __init__(self, nodes: _Nodes, first: int) -> None:
        self.nodes, self.first, self.last = nodes, first, first + 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def parsed(text: str) -> tuple[ast.Module, dict[ast.AST, ast.AST]]:
    """The tree of a Python text, below whose nodes `walk` finds fast, and for each node the one that holds it."""
    tree = ast.parse(text)
    return tree, _Nodes(tree).parents


@overload
def walk(node: ast.AST) -> Sequence[ast.AST]: ...
@overload
def walk(node: ast.AST, kind: type[Node], /) -> Sequence[Node]: ...
@overload
def walk(node: ast.AST, kind: type[Node], other: type[Other], /) -> Sequence[Node | Other]: ...
@overload
def walk(
    node: ast.AST, kind: type[Node], other: type[Other], /, *kinds: type[Third]
) -> Sequence[Node | Other | Third]: ...
def walk(node: ast.AST, *kinds: type[ast.AST]) -> Sequence[ast.AST]:
    """The node and all below it, of these kinds where some are named; of a parsed text in its order."""
    place: _Place | None = vars(node).get(_PLACE)
    if place is None or place.nodes.all[place.first] is not node:  # a copy has the place of what it copies
        return [below for below in ast.walk(node) if not kinds or isinstance(below, kinds)]
    if not kinds:
        return place.nodes.all[place.first : place.last]
    places, found = place.nodes.of(kinds)
    return found[bisect_left(places, place.first) : bisect_left(places, place.last)]
