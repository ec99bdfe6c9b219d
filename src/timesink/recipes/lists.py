"""Loops over parameters that change one tensor after another: one operation on lists of tensors for each statement.

`torch._foreach_*` gives each tensor what the loop gave it, so long as no tensor of the lists shares memory with another
that is read after it was changed. That is known where there is one list of a module's parameters, of two lists where
one belongs to a deep copy or was made to load the other's state, and of a dict whose tensors are clones.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final, NamedTuple

from timesink.recipes import Effort, Recipe
from timesink.recipes.source import Proposal, Source, bound_in, calls_in, name_of, read_in
from timesink.recipes.walking import walk

_LISTED: Final = frozenset({"parameters", "buffers", "named_parameters", "named_buffers"})
_PAIRS: Final = frozenset({"named_parameters", "named_buffers", "items", "enumerate"})
_CLONES: Final = ("clone(", "deepcopy(", "zeros_like(", "empty_like(")
_NAMES: Final = {
    "mul_": "mul", "add_": "add", "sub_": "sub", "div_": "div", "copy_": "copy", "zero_": "zero", "lerp_": "lerp",
    "addcmul_": "addcmul", "addcdiv_": "addcdiv", "neg_": "neg", "sqrt_": "sqrt", "clamp_min_": "clamp_min",
}  # fmt: skip
_AUGMENTED: Final = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_BINDERS: Final = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.FunctionDef)
_SQUARES: Final = "torch.stack(torch._foreach_norm({})).square().sum()"
_SHARED: Final = "two tensors of the lists may share memory, and then their order counts"


class _Call(NamedTuple):
    """An operation on lists: its name, the list that it changes, and the text of what else it is given."""

    name: str
    changed: str
    given: str

    def text(self, changed: str = "") -> str:
        """The call, of a name that holds the list where one is given."""
        return f"torch._foreach_{self.name}_({changed or self.changed}{self.given})"


@dataclass(frozen=True, slots=True)
class _Lists:
    """What a loop goes through: the list of each target as an expression, and when a round does anything."""

    rounds: dict[str, str]
    condition: str

    @property
    def names(self) -> set[str]:
        """All that a round binds."""
        return {name for target in self.rounds for name in target.split(", ")}

    def of(self, element: str) -> str:
        """The list of an expression of one round's names."""
        if element in self.rounds and not self.condition:
            return f"list({self.rounds[element]})"
        read = self.names if self.condition else read_in(ast.parse(element, mode="eval"))
        targets = [target for target in self.rounds if read & {*target.split(", ")}]
        lists = [self.rounds[target] for target in targets]
        target = targets[0] if len(targets) == 1 else ", ".join(f"({t})" if "," in t else t for t in targets)
        each = lists[0] if len(lists) == 1 else f"zip({', '.join(lists)})"
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
        made = [call for call in calls if call is not None]
        if not made or len(made) < len(calls):
            continue
        indent = source.indent(loop)
        lines = _unless_empty(source, made, indent) if lists.condition else (call.text() for call in made)
        text = f"\n{indent}".join(lines)
        reason = "a loop changes one tensor after another; operations on lists change all of them at once"
        doubt = _read_later(source, lists, loop) or ("" if _are_apart(source, lists, loop) else _SHARED)
        yield Proposal(loop.lineno, reason, (source.replace(loop, text),), doubt)


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
                text = _SQUARES.format(listed)
                reason = "gradients are squared and summed one after another; one operation takes the norms of all"
                yield Proposal(call.lineno, reason, (source.replace(call, text),))


def find_norm_loops(source: Source, line: int) -> Iterator[Proposal]:
    """Loops that add up the squared norms of gradients, one after another, each perhaps read."""
    for loop in source.loops():
        if not isinstance(loop, ast.For) or loop.orelse or (lists := _lists(source, loop)) is None:
            continue
        body = loop.body[0].body if lists.condition and isinstance(loop.body[0], ast.If) else loop.body
        named = {name_of(one.targets[0]): one.value for one in body[:-1] if isinstance(one, ast.Assign)}
        last = body[-1]
        if len(body) != 1 + len(named) or not (isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add)):
            continue
        if (root := _root_of_square(last.value)) is None or len(named) > 1:
            continue
        read = _receiver(root, "item")
        norm = named.get(name_of(read or root), read or root)
        gradient = _receiver(norm, "norm") or _receiver(norm, "norm", 2)
        if gradient is None or not _is_element(gradient, lists):
            continue
        listed, total = lists.of(_bare(source.said(gradient))), source.said(last.target)
        name, indent = source.free_name("listed"), source.indent(loop)
        text = f"{total} += {_SQUARES.format(name)}{'.item()' if read else ''}"
        made = f"{name} = {listed}\n{indent}if {name}:\n{indent}    {text}"
        reason = "norms of gradients are taken and added one after another; one operation takes all of them"
        doubt = _read_later(source, replace(lists, rounds=lists.rounds | dict.fromkeys(named, "")), loop)
        yield Proposal(loop.lineno, reason, (source.replace(loop, made),), doubt)


def _number(node: ast.expr) -> object:
    return getattr(node, "value", None)


def _root_of_square(node: ast.expr) -> ast.expr | None:
    """The x of `x ** 2`."""
    is_square = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and _number(node.right) == 2
    return node.left if is_square and isinstance(node, ast.BinOp) else None


def _squared(node: ast.expr) -> ast.expr | None:
    """The tensor whose squares an expression sums: `g.square().sum()`, `g.pow(2).sum()`, `g.norm() ** 2`."""
    if (root := _root_of_square(node)) is not None:
        return _receiver(root, "norm")
    summed = _receiver(node, "sum")
    return summed and (_receiver(summed, "square") or _receiver(summed, "pow", 2))


def _receiver(node: ast.expr, method: str, *given: int) -> ast.expr | None:
    """What a method is called of, with those numbers and nothing else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != method:
        return None
    is_so = [*map(_number, node.args)] == [*given] and not node.keywords
    return node.func.value if is_so else None


def _lists(source: Source, loop: ast.For) -> _Lists | None:
    called = name_of(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    zipped = isinstance(loop.target, ast.Tuple) and called not in _PAIRS
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) and zipped else [loop.target]
    each = list(loop.iter.args) if called == "zip" and isinstance(loop.iter, ast.Call) else [loop.iter]
    bound = [list(one.elts) if isinstance(one, ast.Tuple) else [one] for one in targets]
    if len(targets) != len(each) or not all(isinstance(name, ast.Name) for names in bound for name in names):
        return None
    texts = [", ".join(map(name_of, names)) for names in bound]
    lists = _Lists(dict(zip(texts, map(source.said, each), strict=True)), "")
    if not isinstance(only := loop.body[0], ast.If):
        return lists
    is_fixed = read_in(only.test) <= lists.names and not any(calls_in(only.test))
    return replace(lists, condition=source.said(only.test)) if is_fixed and not (loop.body[1:] or only.orelse) else None


def _read_later(source: Source, lists: _Lists, loop: ast.For) -> str:
    """What is said where a name of the round is read by something else, which does not bind it itself."""
    for node in walk(source.tree):
        if isinstance(node, ast.Name) and node.id in lists.names and isinstance(node.ctx, ast.Load):
            binders = (one for one in source.above(node) if isinstance(one, _BINDERS))
            if not any(one is loop or node.id in bound_in(one) for one in binders):
                return f"{node.id} is read in line {node.lineno}, after the loop"
    return ""


def _unless_empty(source: Source, calls: list[_Call], indent: str) -> Iterator[str]:
    """The calls where a condition may leave no tensor at all, which an operation on lists refuses."""
    name, held = source.free_name("listed"), ""
    for call in calls:
        if call.changed != held:
            held = call.changed
            yield f"{name} = {held}"
            yield f"if {name}:"
        yield f"    {call.text(name)}"


def _are_apart(source: Source, lists: _Lists, loop: ast.For) -> bool:
    """Whether no tensor of the lists, nor of the dicts that the loop looks into by its keys, shares memory."""
    each = [ast.parse(text, mode="eval").body for text in lists.rounds.values()]
    each = [one.args[0] if isinstance(one, ast.Call) and name_of(one.func) == "enumerate" else one for one in each]
    looked = [one for one in walk(loop, ast.Subscript) if _is_key(one.slice, lists)]
    if not all(isinstance(one, ast.Call) and name_of(one.func) in _LISTED for one in each):
        return False
    if not all(_holds_clones(source, source.said(one.value)) for one in looked):
        return False
    owners = [ast.unparse(one.func.value) for one in each if isinstance(one, ast.Call)
              and isinstance(one.func, ast.Attribute)]  # fmt: skip
    return len(owners) == len(each) and (len(owners) == 1 or _are_two(source, owners, loop))


def _holds_clones(source: Source, name: str) -> bool:
    """Whether the file fills a dict or list of that name with tensors of its own, and with nothing else."""
    filled = [
        node.value
        for node in walk(source.tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if source.said(target.value if isinstance(target, ast.Subscript) else target) == name
    ]
    made = [one for one in filled if source.said(one) not in ("{}", "[]", "dict()", "list()")]
    return (
        bool(made)
        and f"{name}.update(" not in source.text
        and all(isinstance(one, ast.BinOp) or any(word in source.said(one) for word in _CLONES) for one in made)
    )


def _are_two(source: Source, owners: list[str], loop: ast.For) -> bool:
    """Whether the modules have no parameter in common: one is a deep copy, or loads the state of the other. Those of a
    function's parameters are looked up where the file calls it."""
    function = source.scope(loop)
    if isinstance(function, ast.FunctionDef) and {*owners} <= {*(names := [one.arg for one in function.args.args])}:
        calls = [call for call in calls_in(source.tree) if name_of(call.func) == function.name]
        shift = int(names[0] == "self")
        given = [dict(zip(names[shift:], map(source.said, call.args), strict=False)) for call in calls]
        for call, words in zip(calls, given, strict=True):
            words |= {word.arg: source.said(word.value) for word in call.keywords if word.arg}
        return bool(calls) and all(
            {*owners} <= words.keys() and _are_two_modules(source, [words[one] for one in owners]) for words in given
        )
    return _are_two_modules(source, owners)


def _are_two_modules(source: Source, owners: list[str]) -> bool:
    made = {
        source.said(target): source.said(node.value)
        for node in walk(source.tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    copied = any("deepcopy(" in made.get(owner, "") for owner in owners)
    loads = any(f"{one}.load_state_dict({other}.state_dict())" in source.text for one, other in permutations(owners, 2))
    return len({*owners}) == len(owners) and (copied or (loads and not {*owners} & {made.get(one) for one in owners}))


def _operations(source: Source, statement: ast.stmt, lists: _Lists) -> Iterator[_Call | None]:
    """One call for each in-place operation of the statement; None where one cannot be written so."""
    if isinstance(statement, ast.AugAssign) and type(statement.op) in _AUGMENTED:
        yield _augmented(source, statement, lists)
        return
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        is_filled = isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data")
        yield from _mixed(source, target, statement.value, lists) if is_filled else [None]
        return
    chain: list[ast.Call] = []
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _NAMES:
        chain.append(value)
        value = value.func.value
    if not chain or value is None or not _is_element(value, lists):
        yield None
        return
    if name_of(chain[0].func) == "copy_" and len(chain) == 1 and isinstance(chain[0].args[0], ast.BinOp):
        yield from _mixed(source, value, chain[0].args[0], lists)
        return
    changed = source.said(value)
    for call in reversed(chain):
        given = [_argument(source, one, lists) for one in call.args]
        words = [f"{word.arg}={source.said(word.value)}" for word in call.keywords]
        is_plain = all(
            word.arg in ("alpha", "value", "weight") and not _names(word.value, lists) for word in call.keywords
        )
        scaled = _scaled(source, call.args[0], lists) if given == [""] and not words else None
        if scaled is not None and name_of(call.func) == "add_":
            given, words = [lists.of(scaled[0])], [f"alpha={scaled[1]}"]
        rest = "".join(f", {one}" for one in (*given, *words))
        yield None if "" in given or not is_plain else _Call(_NAMES[name_of(call.func)], lists.of(changed), rest)


def _mixed(source: Source, target: ast.expr, value: ast.expr, lists: _Lists) -> Iterator[_Call | None]:
    """`e = a * e + b * p` of an element e and another p: e is scaled, then p added to it."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and _is_element(target, lists)):
        yield None
        return
    parts = [_scaled(source, one, lists) for one in (value.left, value.right)]
    own = [part for part in parts if part is not None and _bare(part[0]) == _bare(source.said(target))]
    others = [part for part in parts if part is not None and part not in own]
    if len(own) != 1 or len(others) != 1:
        yield None
        return
    changed = lists.of(source.said(target))
    yield _Call("mul", changed, f", {own[0][1]}")
    yield _Call("add", changed, f", {lists.of(others[0][0])}, alpha={others[0][1]}")


def _scaled(source: Source, node: ast.expr, lists: _Lists) -> tuple[str, str] | None:
    """The element and the number of a product of the two."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return (source.said(node), "1.0") if _is_element(node, lists) else None
    for element, number in ((node.left, node.right), (node.right, node.left)):
        if _is_element(element, lists) and not _names(number, lists):
            return source.said(element), source.said(number)
    return None


def _bare(element: str) -> str:
    """Its text without what gives the same memory."""
    while (bare := element.removesuffix(".detach()").removesuffix(".data")) != element:
        element = bare
    return element


def _augmented(source: Source, statement: ast.AugAssign, lists: _Lists) -> _Call | None:
    """`p -= lr * p.grad` and its like, where what is changed is an element itself."""
    name = _AUGMENTED[type(statement.op)]
    if not _is_element(statement.target, lists):
        return None
    changed = lists.of(source.said(statement.target))
    scaled = _scaled(source, statement.value, lists)
    if scaled is not None and isinstance(statement.value, ast.BinOp):
        sign = {"add": "", "sub": "-"}.get(name)
        return None if sign is None else _Call("add", changed, f", {lists.of(scaled[0])}, alpha={sign}({scaled[1]})")
    argument = _argument(source, statement.value, lists)
    return _Call(name, changed, f", {argument}") if argument else None


def _argument(source: Source, node: ast.expr, lists: _Lists) -> str:
    """A list for an element of a round, a number as it is; empty for what is neither."""
    if _is_element(node, lists):
        return lists.of(source.said(node))
    return "" if _names(node, lists) else source.said(node)


def _is_element(node: ast.AST, lists: _Lists) -> bool:
    """A name of the round or what a dict holds by one, or its data or gradient."""
    inner = ast.parse(_bare(ast.unparse(node)).removesuffix(".grad"), mode="eval").body
    if isinstance(inner, ast.Subscript) and not any(calls_in(inner)):
        return _is_key(inner.slice, lists) and not _names(inner.value, lists)
    return isinstance(inner, ast.Name) and inner.id in lists.names


def _is_key(node: ast.AST, lists: _Lists) -> bool:
    """Whether it is the name or number of a round that binds a pair."""
    return any(name_of(node) == target.partition(", ")[0] for target in lists.rounds if ", " in target)


def _names(node: ast.AST, lists: _Lists) -> set[str]:
    """Names of the round, or bound by the expression, that it reads."""
    return (read_in(node) & lists.names) | bound_in(node)


LIST_OPERATIONS: Final = Recipe(
    "list_operations",
    "use operations on lists of tensors (torch._foreach_*) in place of a loop",
    Effort.LINES,
    "memory of the results, where not in place",
    drift="rounding",
    edits=(find_list_loops, find_norm_sums, find_norm_loops),
)
