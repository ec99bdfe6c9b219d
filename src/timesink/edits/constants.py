"""Constants and masks that a loop builds in each round: built once before it, where all that they depend on stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from timesink.edits.source import Loop, Proposal, Source, bound_in, calls_in, mutated_in, name_of, read_in, root_of

BUILDS: Final = frozenset({
    "ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "arange", "eye", "linspace", "logspace",
    "tensor", "as_tensor", "triu_indices", "tril_indices", "from_numpy",
})  # fmt: skip
PURE: Final = BUILDS | frozenset({
    "triu", "tril", "to", "cuda", "bool", "float", "half", "double", "int", "long", "bfloat16", "type",
    "view", "repeat", "reshape", "unsqueeze", "squeeze", "expand", "flatten", "transpose", "permute",
    "masked_fill", "logical_not", "pow", "logical_and", "logical_or", "eq", "ne", "lt", "le", "gt", "ge",
    "exp", "log", "sin", "cos", "sqrt", "rsqrt", "outer", "div", "mul", "add", "sub", "neg", "cat", "stack",
    "where", "contiguous", "t", "abs", "clone", "size", "len", "range", "min", "max", "device",
})  # fmt: skip
_SETTINGS: Final = frozenset({"cfg", "config", "args", "opt", "options", "hparams", "params", "settings"})
FACTS: Final = frozenset({"device", "dtype", "shape", "ndim", "pi", "inf"})


def find_constants(source: Source, line: int) -> Iterator[Proposal]:
    """Assignments of a loop that build a tensor of the same values in each round."""
    for loop in source.loops():
        for statement in loop.body:
            if not isinstance(statement, ast.Assign) or not source.moves_whole(statement):
                continue
            name = getattr(statement.targets[0], "id", "")
            if name and len(statement.targets) == 1 and _is_same(source, loop, statement, name):
                yield _hoist(source, loop, statement, _doubt(statement.value))


def _is_same(source: Source, loop: Loop, statement: ast.Assign, name: str) -> bool:
    """Whether each round binds the name once, before it reads it, to what only names from before the loop make."""
    value, others = statement.value, [one for one in loop.body if one is not statement]
    before = loop.body[: loop.body.index(statement)]
    bound = set().union(*(bound_in(one) for one in others), bound_in(loop.target) if isinstance(loop, ast.For) else ())
    reads = read_in(value)
    builds = any(name_of(call.func) in BUILDS and root_of(call.func) in ("torch", "np") for call in calls_in(value))
    return (
        builds
        and not reads & (bound | {name} | mutated_in(loop))
        and name not in bound | mutated_in(loop)
        and not any(name in read_in(one) for one in before)
        and not (isinstance(loop, ast.While) and name in read_in(loop.test))
        and not any(isinstance(node, (ast.Await, ast.NamedExpr, ast.Yield)) for node in ast.walk(value))
        and not any(word.arg == "requires_grad" for call in calls_in(value) for word in call.keywords)
    )


def _doubt(value: ast.expr) -> str:
    """What of the expression its pattern cannot tell: a call that may do more, an attribute that may change."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and name_of(node.func) not in PURE:
            return f"{name_of(node.func) or 'a call'} may give another value in each round"
        if isinstance(node, ast.Attribute) and root_of(node) not in ({"torch", "np", "math"} | _SETTINGS):
            is_method = name_of(node) in PURE
            if not is_method and node.attr not in FACTS:
                return f"the attribute {node.attr} may change in the loop"
    return ""


def _hoist(source: Source, loop: Loop, statement: ast.Assign, doubt: str) -> Proposal:
    rows = source.rows[statement.lineno - 1 : statement.end_lineno]
    inner, outer = source.indent(statement), source.indent(loop)
    text = "".join(outer + row.decode().removeprefix(inner) for row in rows)
    reason = "the loop builds the same tensor in each round; it is built once before it"
    moved = (source.insert(loop.lineno - 1, text), source.drop(statement))
    return Proposal("build_once", statement.lineno, reason, moved, doubt)
