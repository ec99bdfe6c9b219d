"""Loops over parameters that change one tensor after another: one operation on lists of tensors for each statement.

`torch._foreach_*` gives each tensor what the loop gave it, so long as no tensor of the lists shares memory with another
that is read after it was changed. That is known where there is one list of a module's parameters, and of two lists
where the first belongs to a deep copy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from timesink.edits.source import Proposal, Source, bound_in, calls_in, name_of, read_in, root_of

_LISTED: Final = frozenset({"parameters", "buffers"})
_NAMES: Final = {
    "mul_": "mul", "add_": "add", "sub_": "sub", "div_": "div", "copy_": "copy", "zero_": "zero", "lerp_": "lerp",
    "addcmul_": "addcmul", "addcdiv_": "addcdiv", "neg_": "neg", "sqrt_": "sqrt", "clamp_min_": "clamp_min",
}  # fmt: skip
_AUGMENTED: Final = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_BINDERS: Final = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.FunctionDef)
_SHARED: Final = "two tensors of the lists may share memory, and then their order counts"


@dataclass(frozen=True, slots=True)
class _Lists:
    """What a loop goes through: the list of each name as an expression, and when a round does anything."""

    names: dict[str, str]
    condition: str

    def of(self, element: str) -> str:
        """The list of an expression of one round's names."""
        bare = [name for name in self.names if name in read_in(ast.parse(element, mode="eval"))]
        if element in self.names and not self.condition:
            return f"list({self.names[element]})"
        names = bare if not self.condition else list(self.names)
        target = ", ".join(names)
        each = self.names[names[0]] if len(names) == 1 else f"zip({', '.join(map(self.names.__getitem__, names))})"
        return f"[{element} for {target} in {each}{f' if {self.condition}' if self.condition else ''}]"


def find_list_loops(source: Source, line: int) -> Iterator[Proposal]:
    """Loops whose every statement changes a tensor in place by tensors of the same round, and by numbers."""
    for loop in source.loops():
        if not isinstance(loop, ast.For) or loop.orelse or (lists := _lists(source, loop)) is None:
            continue
        body = loop.body
        if lists.condition and isinstance(body[0], ast.If):
            body = body[0].body
        calls = [call for statement in body for call in _operations(source, statement, lists)]
        if not calls or "" in calls:
            continue
        indent = source.indent(loop)
        text = f"\n{indent}".join(calls if not lists.condition else _unless_empty(source, calls, indent))
        reason = "a loop changes one tensor after another; operations on lists change all of them at once"
        doubt = _read_later(source, lists, loop) or ("" if _are_apart(source, lists, loop) else _SHARED)
        yield Proposal("list_operations", loop.lineno, reason, (source.replace(loop, text),), doubt)


def find_norm_sums(source: Source, line: int) -> Iterator[Proposal]:
    """`sum(p.grad.square().sum() for p in model.parameters())` of a training loop, after its backward pass."""
    for loop in source.step_loops():
        backs = [call.lineno for call in calls_in(loop) if name_of(call.func) == "backward"]
        for call in calls_in(loop):
            made = call.args[0] if len(call.args) == 1 and name_of(call.func) == "sum" else None
            if not isinstance(made, (ast.GeneratorExp, ast.ListComp)) or call.lineno <= min(backs, default=call.lineno):
                continue
            each, squared = made.generators[0], _squared(made.elt)
            of_all = isinstance(each.iter, ast.Call) and name_of(each.iter.func) == "parameters" and not each.is_async
            name = name_of(each.target)
            if of_all and len(made.generators) == 1 and squared is not None and source.said(squared) == f"{name}.grad":
                only = "".join(f" if {source.said(one)}" for one in each.ifs)
                listed = f"[{name}.grad for {name} in {source.said(each.iter)}{only}]"
                text = f"torch.stack(torch._foreach_norm({listed})).square().sum()"
                reason = "gradients are squared and summed one after another; one operation takes the norms of all"
                yield Proposal("list_operations", call.lineno, reason, (source.replace(call, text),))


def _squared(node: ast.expr) -> ast.expr | None:
    """The tensor whose squares an expression sums: `g.square().sum()`, `g.pow(2).sum()`, `g.norm() ** 2`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and getattr(node.right, "value", 0) == 2:
        return _receiver(node.left, "norm")
    summed = _receiver(node, "sum")
    return summed and (_receiver(summed, "square") or _receiver(summed, "pow", 2))


def _receiver(node: ast.expr, method: str, *given: int) -> ast.expr | None:
    """What a method is called of, with those numbers and nothing else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != method:
        return None
    is_so = [getattr(one, "value", None) for one in node.args] == [*given] and not node.keywords
    return node.func.value if is_so else None


def _lists(source: Source, loop: ast.For) -> _Lists | None:
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    zipped = isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) == "zip"
    each = list(loop.iter.args) if zipped and isinstance(loop.iter, ast.Call) else [loop.iter]
    if len(targets) != len(each) or not all(isinstance(target, ast.Name) for target in targets):
        return None
    condition, only = "", loop.body[0]
    if isinstance(only, ast.If):
        if len(loop.body) > 1 or only.orelse or not source.said(only.test).endswith(".grad is not None"):
            return None
        condition = source.said(only.test)
    names = {name_of(target): source.said(one) for target, one in zip(targets, each, strict=True)}
    return _Lists(names, condition)


def _read_later(source: Source, lists: _Lists, loop: ast.For) -> str:
    """What is said where a name of the round is read by something else, which does not bind it itself."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id in lists.names and isinstance(node.ctx, ast.Load):
            binders = (one for one in source.above(node) if isinstance(one, _BINDERS))
            if not any(one is loop or node.id in bound_in(one) for one in binders):
                return f"{node.id} is read in line {node.lineno}, after the loop"
    return ""


def _unless_empty(source: Source, calls: list[str], indent: str) -> Iterator[str]:
    """The calls where a condition may leave no tensor at all, which an operation on lists refuses."""
    name = source.free_name("listed")
    for call in calls:
        function, _, rest = call.partition("([")
        changed, _, arguments = rest.partition("]")
        yield f"{name} = [{changed}]"
        yield f"if {name}:\n{indent}    {function}({name}{arguments}"


def _are_apart(source: Source, lists: _Lists, loop: ast.For) -> bool:
    """Whether all lists are parameters of modules, and of two the first is changed and belongs to a deep copy."""
    each = [ast.parse(text, mode="eval").body for text in lists.names.values()]
    if not all(isinstance(one, ast.Call) and name_of(one.func) in _LISTED for one in each):
        return False
    if len(each) == 1:
        return True
    owners = [root_of(one) for one in each]
    copies = {
        root_of(target)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and "deepcopy" in source.said(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return len(set(owners)) == len(owners) and owners[0] in copies


def _operations(source: Source, statement: ast.stmt, lists: _Lists) -> Iterator[str]:
    """One call for each in-place operation of the statement; an empty text where one cannot be written so."""
    if isinstance(statement, ast.AugAssign) and type(statement.op) in _AUGMENTED:
        yield _augmented(source, statement, lists)
        return
    value = statement.value if isinstance(statement, ast.Expr) else None
    chain: list[ast.Call] = []
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _NAMES:
        chain.append(value)
        value = value.func.value
    if not chain or value is None or not _is_element(value, lists):
        yield ""
        return
    changed = source.said(value)
    for call in reversed(chain):
        given = [_argument(source, one, lists) for one in call.args]
        words = [f"{word.arg}={source.said(word.value)}" for word in call.keywords]
        is_plain = all(
            word.arg in ("alpha", "value", "weight") and not _names(word.value, lists) for word in call.keywords
        )
        arguments = [lists.of(changed), *given, *words]
        wrong = "" in given or not is_plain
        yield "" if wrong else f"torch._foreach_{_NAMES[name_of(call.func)]}_({', '.join(arguments)})"


def _augmented(source: Source, statement: ast.AugAssign, lists: _Lists) -> str:
    """`p -= lr * p.grad` and its like, where what is changed is an element itself."""
    changed, value = statement.target, statement.value
    if not _is_element(changed, lists):
        return ""
    operation, alpha = _AUGMENTED[type(statement.op)], ""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and operation in ("add", "sub"):
        scale, value = (value.left, value.right) if not _names(value.left, lists) else (value.right, value.left)
        if _names(scale, lists):
            return ""
        sign = "" if operation == "add" else "-"
        alpha, operation = f", alpha={sign}({source.said(scale)})", "add"
    argument = _argument(source, value, lists)
    return f"torch._foreach_{operation}_({lists.of(source.said(changed))}, {argument}{alpha})" if argument else ""


def _argument(source: Source, node: ast.expr, lists: _Lists) -> str:
    """A list for an element of a round, a number as it is; empty for what is neither."""
    if _is_element(node, lists):
        return lists.of(source.said(node))
    return "" if _names(node, lists) else source.said(node)


def _is_element(node: ast.AST, lists: _Lists) -> bool:
    """A name of the round, or its data or gradient."""
    inner = node.value if isinstance(node, ast.Attribute) and node.attr in ("data", "grad") else node
    if isinstance(inner, ast.Call) and name_of(inner.func) == "detach" and not inner.args:
        inner = inner.func.value if isinstance(inner.func, ast.Attribute) else inner
    return isinstance(inner, ast.Name) and inner.id in lists.names


def _names(node: ast.AST, lists: _Lists) -> set[str]:
    """Names of the round, or bound by the expression, that it reads."""
    return (read_in(node) & lists.names.keys()) | bound_in(node)
