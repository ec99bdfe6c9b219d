"""Objects of a class that keeps running sums of what a training loop hands them: `meter.update(loss.item(), n)`.

A method that does nothing but arithmetic computes the same of a value that stays on the device.
"""

import ast
from collections.abc import Iterable
from typing import Final

from timesink.recipes.source import Source, name_of
from timesink.recipes.walking import walk

AS_NUMBERS: Final = (
    "vars({0}).update({{name: value.item() for name, value in vars({0}).items() if hasattr(value, 'item')}})"
)
"""What makes numbers of all that an object has kept on a device."""
_TELLS: Final = frozenset({"print", "str", "repr", "format"})
_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def handed(source: Source, statement: ast.stmt) -> tuple[ast.Name, ast.expr] | None:
    """The object and what its method is given first; None where the method is of no class of the file, or may do more
    than keep sums of it."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
        return None
    kept = call.func.value
    if not isinstance(kept, ast.Name):
        return None
    values = [
        node.value
        for node in walk(source.tree)
        if isinstance(node, ast.Assign) and kept.id in map(name_of, node.targets)
    ]
    makers = {source.said(value.func) if isinstance(value, ast.Call) else "" for value in values}
    held = next((one for one in source.tree.body if isinstance(one, ast.ClassDef) and {one.name} == makers), None)
    if held is None or {*map(name_of, held.bases)} - {"object"} or held.keywords or held.decorator_list:
        return None
    methods = {one.name: one for one in held.body if isinstance(one, ast.FunctionDef)}
    method = methods.get(call.func.attr)
    is_plain = method is not None and "__setattr__" not in methods and _only_sums(source, method)
    return (kept, call.args[0]) if is_plain else None


def who_has(source: Source, kept: ast.Name) -> str:
    """What is said where anything but a message has the object itself, not only what it keeps."""
    for node in walk(source.tree):
        if isinstance(node, ast.Name) and node.id == kept.id and isinstance(node.ctx, ast.Load):
            parent = source.parents[node]
            is_told = isinstance(parent, ast.Call) and name_of(parent.func) in _TELLS
            if not is_told and not isinstance(parent, (ast.Attribute, ast.FormattedValue, ast.Return)):
                return f"{kept.id} is handed on in line {node.lineno}, and what has it may look at it in the loop"
    return ""


def _only_sums(source: Source, method: ast.FunctionDef) -> bool:
    """Whether a method does arithmetic with its first argument, keeps the results, and no choice hangs on them."""
    names = [one.arg for one in method.args.args]
    body = method.body[ast.get_docstring(method) is not None :]
    made = [one for one in body if isinstance(one, (ast.Assign, ast.AugAssign))]
    if len(names) < 2 or method.decorator_list or len(made) < len(body):
        return False
    of_value, before = {names[1]}, set[str]()
    while before != of_value:
        before = {*of_value}
        for one in made:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            read = _read(source, [one.value, *(targets if isinstance(one, ast.AugAssign) else ())])
            of_value |= {source.said(target) for target in targets} if read & of_value else set()
    changed = {source.said(one.target) for one in made if isinstance(one, ast.AugAssign)} & of_value
    return not any(_shares(source, one, changed) for one in made) and all(
        isinstance(getattr(one, "op", ast.Add()), _OPERATORS) and _is_arithmetic(source, one.value, of_value)
        for one in made
    )


def _shares(source: Source, statement: ast.Assign | ast.AugAssign, changed: set[str]) -> bool:
    """Whether it gives the very tensor that is `changed` in place two names."""
    if isinstance(statement, ast.AugAssign):
        return False
    targets = {source.said(one) for one in statement.targets}
    whole = [statement.value, *(getattr(statement.value, part, None) for part in ("body", "orelse"))]
    values = {source.said(one) for one in whole if isinstance(one, (ast.Name, ast.Attribute))}
    return bool(values and (values | targets) & changed) or (len(targets) > 1 and bool(targets & changed))


def _is_arithmetic(source: Source, node: ast.expr, of_value: set[str]) -> bool:
    """Whether an expression is sums, products and quotients of names, chosen by what is not `of_value` at most."""
    if isinstance(node, ast.IfExp):
        chosen = [node.body, node.orelse]
        is_free = not walk(node.test, ast.Call)
        return is_free and not _read(source, [node.test]) & of_value and _are_arithmetic(source, chosen, of_value)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, _OPERATORS) and _are_arithmetic(source, [node.left, node.right], of_value)
    is_place = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_place or isinstance(node, (ast.Name, ast.Constant))


def _are_arithmetic(source: Source, nodes: Iterable[ast.expr], of_value: set[str]) -> bool:
    return all(_is_arithmetic(source, node, of_value) for node in nodes)


def _read(source: Source, nodes: Iterable[ast.expr]) -> set[str]:
    """The names and attributes that expressions read, as they are written."""
    inside = (one for node in nodes for one in walk(node))
    return {source.said(one) for one in inside if isinstance(one, (ast.Name, ast.Attribute))}
