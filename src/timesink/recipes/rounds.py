"""What a comprehension, or a loop that only fills a list, gives in each round for PyTorch to put together."""

import ast
from collections.abc import Iterator
from typing import Final

from timesink.recipes.proof import Replacement
from timesink.recipes.source import Loop, Source, bound_in, mutated_in, name_of, number_of, read_in, root_of
from timesink.recipes.walking import walk

Each = tuple[ast.expr, ast.expr, ast.expr]
"""What a loop binds, what it goes through, and what it gives in each round."""
_OF_TENSORS: Final = frozenset({
    "shape", "size", "device", "dtype", "view", "reshape", "ndim", "dim", "to", "cuda", "requires_grad", "grad",
})  # fmt: skip


def axis_of(call: ast.Call) -> int | None:
    """The axis along which `torch.stack` and `torch.cat` put tensors together; None for all else."""
    if source_of(call) != "torch" or name_of(call.func) not in ("stack", "cat", "concat"):
        return None
    words = {word.arg: word.value for word in call.keywords}
    given = call.args[1] if len(call.args) > 1 else words.pop("dim", ast.Constant(0))
    return None if words or len(call.args) > 2 else number_of(given)


def source_of(call: ast.Call) -> str:
    """The name of the module whose function is called."""
    return getattr(getattr(call.func, "value", None), "id", "")


def each_of(source: Source, call: ast.Call) -> tuple[Each | None, tuple[Replacement, ...]]:
    """What is put together, as a comprehension or the list of a loop says it, and the statements that go with it."""
    parts = call.args[0]
    if isinstance(parts, (ast.ListComp, ast.GeneratorExp)):
        (first, *more) = parts.generators
        is_plain = not more and not first.ifs and not first.is_async
        return ((first.target, first.iter, parts.elt) if is_plain else None), ()
    if not isinstance(parts, ast.Name):
        return None, ()
    return _listed(source, call, parts.id)


def _listed(source: Source, call: ast.Call, name: str) -> tuple[Each | None, tuple[Replacement, ...]]:
    """The loop that fills a list which nothing else looks at: `parts = []`, then a loop of one `append`."""
    scope = source.scope(call)
    places = [node for node in walk(scope, ast.Name) if node.id == name]
    begun = [held for node in places for held in source.above(node) if isinstance(held, ast.Assign)]
    loops = [held for node in places for held in source.above(node) if isinstance(held, ast.For)]
    if len(places) != 3 or len(loops) != 1 or call in walk(loops[0]):
        return None, ()
    first = next((one for one in begun if name in bound_in(one)), None)
    loop, one = loops[0], _appended(loops[0], name)
    if first is None or one is None or not _is_empty(first.value) or not _is_next(source, first, loop, call):
        return None, ()
    return (loop.target, loop.iter, one), (source.drop(first), source.drop(loop))


def _is_next(source: Source, first: ast.Assign, loop: ast.For, call: ast.Call) -> bool:
    """Whether the call may compute what the loop did: they stand in one block, nothing between changes what the loop
    reads, and nothing else reads what it binds."""
    block = source.block(loop)
    at = next((at for at, one in enumerate(block) if call in walk(one)), -1)
    if first not in block or at < block.index(loop) or loop.orelse:
        return False
    between = block[block.index(loop) + 1 : at]
    reads, binds = read_in(loop), bound_in(loop)
    others = [node.id for node in walk(source.scope(loop), ast.Name) if node not in walk(loop)]
    is_same = not any(reads & (bound_in(one) | mutated_in(one)) for one in between)
    return is_same and not binds & {*others} and source.moves_whole(first) and source.moves_whole(loop)


def _is_empty(value: ast.expr) -> bool:
    is_list = isinstance(value, ast.Call) and name_of(value.func) == "list" and not value.args
    return is_list or (isinstance(value, ast.List) and not value.elts)


def _appended(loop: Loop, name: str) -> ast.expr | None:
    """What each round appends to the list: an expression, or a name that the statement before it binds to one."""
    *before, last = loop.body
    call = last.value if isinstance(last, ast.Expr) else None
    is_append = isinstance(call, ast.Call) and ast.unparse(call.func) == f"{name}.append" and len(call.args) == 1
    if not is_append or not isinstance(call, ast.Call):
        return None
    if not before:
        return call.args[0]
    bound = before[0] if len(before) == 1 and isinstance(before[0], ast.Assign) else None
    is_named = bound is not None and len(bound.targets) == 1 and isinstance(bound.targets[0], ast.Name)
    if not is_named or bound is None or not isinstance(call.args[0], ast.Name):
        return None
    return bound.value if call.args[0].id == name_of(bound.targets[0]) else None


def _where(source: Source, whole: ast.expr, at: ast.expr) -> ast.AST:
    """Where the file says what a tensor is: the class of an attribute, the function whose name it is, or the file."""
    if isinstance(whole.value if isinstance(whole, ast.Subscript) else whole, ast.Attribute):
        return next((one for one in source.above(at) if isinstance(one, ast.ClassDef)), source.tree)
    scope, name = source.scope(at), root_of(whole)
    is_own = name in bound_in(scope) | {one.arg for one in walk(scope, ast.arg)}
    return scope if is_own else source.tree


def is_tensor(source: Source, whole: ast.expr, at: ast.expr) -> bool:
    """Whether the file shows that it is a tensor and no list: it is asked for its shape, takes an index of several
    axes, or is made by PyTorch."""
    said = ast.unparse(whole.value if isinstance(whole, ast.Subscript) else whole)
    for node in walk(_where(source, whole, at), ast.Attribute, ast.Subscript, ast.Assign):
        if isinstance(node, ast.Assign):
            shows = any(said == ast.unparse(to) and _makes_tensor(value) for to, value in _bindings(node))
        else:
            is_asked = (
                node.attr in _OF_TENSORS if isinstance(node, ast.Attribute) else isinstance(node.slice, ast.Tuple)
            )
            shows = is_asked and ast.unparse(node.value) == said
        if shows:
            return True
    return False


def _bindings(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment binds to what, part by part where both sides have parts."""
    to, value = node.targets[0], node.value
    if isinstance(to, ast.Tuple) and isinstance(value, ast.Tuple) and len(to.elts) == len(value.elts):
        yield from zip(to.elts, value.elts, strict=True)
    else:
        yield to, value


def _makes_tensor(value: ast.expr) -> bool:
    """Whether PyTorch makes one tensor there: not a list of them, nor a module."""
    name = name_of(value.func) if isinstance(value, ast.Call) and root_of(value) in ("torch", "nn") else ""
    return name == "Parameter" or (name.islower() and name not in ("split", "chunk", "unbind", "load"))


class With(ast.NodeTransformer):
    """Another expression in place of one that stands there."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = ast.unparse(old), new

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what stands in its place."""
        is_it = isinstance(node, (ast.Subscript, ast.Name)) and ast.unparse(node) == self.old
        return self.new if is_it else super().visit(node)
