"""Conditions that read a value of the GPU before a setting is asked that may decide alone: the setting first."""

import ast
from collections.abc import Iterator
from typing import Final

from timesink.recipes.reach import GIVE_NEW, SETTINGS, bound_to
from timesink.recipes.source import Proposal, Source, calls_in, name_of, root_of
from timesink.recipes.walking import walk

_TRUTHS: Final = frozenset({"any", "all", "isnan", "isinf", "isfinite", "item", "equal", "allclose"})
_HOST: Final = frozenset({"math", "np", "numpy"})
_PLAIN: Final = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.UnaryOp, ast.expr_context, ast.unaryop, ast.cmpop,
)  # fmt: skip
_LOOSE: Final = (ast.BoolOp, ast.IfExp)
"""Operands that stand in brackets."""


def find_conditions(source: Source, line: int) -> Iterator[Proposal]:
    """`if tensor.isnan().any() and DEBUG:`, of which both parts only read: the cheap one is asked first."""
    for test in walk(source.tree, ast.BoolOp):
        holder = source.parents[test]
        if not isinstance(test.op, ast.And) or not isinstance(holder, (ast.If, ast.While)) or holder.test is not test:
            continue
        first = next((at for at, one in enumerate(test.values) if _reads(one)), len(test.values))
        plain = [one for one in test.values[first + 1 :] if isinstance(one, _PLAIN) and _is_plain(one)]
        if not plain or not all(_reads(one) or one in plain for one in test.values[first:]):
            continue
        rest = [one for one in test.values[first:] if one not in plain]
        text = " and ".join(_operand(source, one) for one in (*test.values[:first], *plain, *rest))
        unsure = next((name for one in plain for name in walk(one, ast.Name) if not _is_bound(source, name)), None)
        doubt = f"{unsure.id} may have no value where the first part is false" if unsure else ""
        reason = f"a value of the GPU is read before {source.said(plain[0])} is asked, which may decide alone"
        yield Proposal(test.lineno, reason, (source.replace(test, text),), doubt)


def _operand(source: Source, one: ast.expr) -> str:
    return f"({source.said(one)})" if isinstance(one, _LOOSE) else source.said(one)


def _reads(one: ast.expr) -> bool:
    """Whether it asks for the truth of a tensor, and calls nothing that does more."""
    calls = calls_in(one)
    is_pure = all(
        isinstance(call.func, ast.Attribute)
        and name_of(call.func) in GIVE_NEW
        and root_of(call.func) not in _HOST
        and not any(word.arg in ("out", None) for word in call.keywords)
        for call in calls
    )
    binds = walk(one, ast.NamedExpr, ast.Await, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.Yield)
    return is_pure and not binds and any(name_of(call.func) in _TRUTHS for call in calls)


def _is_plain(one: ast.expr) -> bool:
    """Whether it is made of names, numbers and settings alone."""
    attributes = walk(one, ast.Attribute)
    return all(isinstance(node, _PLAIN) for node in walk(one)) and all(
        isinstance(held.value, ast.Name) and held.value.id in SETTINGS for held in attributes
    )


def _is_bound(source: Source, name: ast.Name) -> bool:
    """Whether the name has a value wherever it is read: an argument, or what the file binds once, at its start."""
    functions = [one for one in source.above(name) if isinstance(one, (ast.FunctionDef, ast.Lambda))]
    if any(name.id == given.arg for one in functions for given in walk(one.args, ast.arg)):
        return True
    if (value := bound_to(source, name.id)) is not None:
        statement = next(held for held in source.above(value) if isinstance(held, ast.stmt))
        return statement in source.tree.body and (bool(functions) or statement.lineno < name.lineno)
    imports = (one for one in source.tree.body if isinstance(one, ast.ImportFrom))
    return any((alias.asname or alias.name) == name.id for one in imports for alias in one.names)
