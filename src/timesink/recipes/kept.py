"""Data that each step copies to the GPU piece by piece: all of it is copied once, and pieces are taken there."""

import ast
from collections.abc import Iterator
from copy import deepcopy
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.reach import is_read, only_read
from timesink.recipes.rounds import is_tensor, source_of
from timesink.recipes.source import Loop, Proposal, Source, bound_in, calls_in, mutated_in, name_of, read_in
from timesink.recipes.walking import walk

_MAKE: Final = frozenset({"Tensor", "tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor"})
_CASTS: Final = frozenset({
    "float", "long", "half", "double", "int", "bool", "bfloat16", "to", "cuda", "type", "astype", "contiguous",
})  # fmt: skip
_ELEMENTWISE: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ON_DISK: Final = frozenset({"memmap", "open", "File", "load_dataset", "DataLoader"})


def find_copied(source: Source, line: int) -> Iterator[Proposal]:
    """`x = torch.from_numpy(data[at]).to(device)` of a training loop, also where two statements say it."""
    for loop in source.step_loops():
        for statement in walk(loop, ast.Assign):
            name = name_of(statement.targets[0]) if isinstance(statement.targets[0], ast.Name) else ""
            taken, first = _taken(statement.value), statement
            if isinstance(taken, ast.Name) and taken.id == name:  # x = data[at], then x = x.to(device)
                first = _bound_before(source, statement, name) or statement
                taken = first.value
            if not name or not isinstance(taken, ast.Subscript) or not isinstance(taken.value, ast.Name):
                continue
            is_made = any(source_of(one) == "torch" for one in calls_in(statement.value))
            if is_made or is_tensor(source, taken.value, taken):  # a list or a dict has no copy of its own
                yield from _kept(source, loop, (first, statement), taken)


def _taken(value: ast.expr) -> ast.expr | None:
    """What an expression copies to the GPU and changes element by element, as it would all of it; None where it does
    anything else, or copies nothing."""
    is_copied = False
    while not isinstance(value, (ast.Name, ast.Subscript)):
        if isinstance(value, ast.BinOp) and isinstance(value.right, ast.Constant):
            if not isinstance(value.op, _ELEMENTWISE):
                return None
            value = value.left
            continue
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return None
        of = value.func.value
        called, places = name_of(value.func), [*value.args, *(word.value for word in value.keywords)]
        is_copied |= called == "cuda" or any("dev" in ast.unparse(one) or "cuda" in ast.unparse(one) for one in places)
        if source_of(value) == "torch" and called in _MAKE and value.args:
            value = value.args[0]
        elif called in _CASTS:
            value = of
        else:
            return None
    return value if is_copied else None


def _bound_before(source: Source, statement: ast.Assign, name: str) -> ast.Assign | None:
    """The statement before it in its block that binds the name, if nothing between reads it."""
    block = next(one for one in vars(source.parents[statement]).values() if isinstance(one, list) and statement in one)
    before = [one for one in block[: block.index(statement)] if name in bound_in(one) | read_in(one)]
    last = before[-1] if before else None
    is_plain = isinstance(last, ast.Assign) and len(last.targets) == 1 and isinstance(last.targets[0], ast.Name)
    return last if isinstance(last, ast.Assign) and is_plain and name not in read_in(last.value) else None


def _kept(
    source: Source, loop: Loop, statements: tuple[ast.Assign, ast.Assign], taken: ast.Subscript
) -> Iterator[Proposal]:
    first, copied = statements
    data, piece = taken.value, name_of(copied.targets[0])
    whole = ast.unparse(
        _With(taken if first is copied else ast.Name(piece, ast.Load()), data).visit(deepcopy(copied.value))
    )
    outer = _outermost(source, loop, name_of(data), read_in(ast.parse(whole)))
    if outer is None or not all(map(source.moves_whole, {first, copied})) or _is_on_disk(source, name_of(data)):
        return
    name, indent = source.free_name(f"{name_of(data)}_on_gpu"), source.indent(first)
    own = f"{name}[{source.said(taken.slice)}]{'' if _is_only_read(source, loop, piece, copied) else '.clone()'}"
    lines = f"{indent}if {name} is None:\n{indent}    {name} = {whole}\n"
    made = [
        source.insert(outer.lineno - 1, f"{source.indent(outer)}{name} = None\n"),
        source.insert(first.lineno - 1, lines),
    ]
    made.append(source.replace(first.value, own))
    if first is not copied:
        made.append(source.drop(copied))
    reason = f"each step copies a part of {name_of(data)} to the GPU; all of it is copied once"
    yield Proposal(first.lineno, reason, tuple(made), _doubt(source, outer, name_of(data), taken))


class _With(ast.NodeTransformer):
    """Another expression in place of one that stands there."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = ast.unparse(old), new

    def visit(self, node: ast.AST) -> ast.AST:
        is_it = isinstance(node, (ast.Subscript, ast.Name)) and ast.unparse(node) == self.old
        return self.new if is_it else super().visit(node)


def _outermost(source: Source, loop: Loop, data: str, names: set[str]) -> Loop | None:
    """The outermost loop of the function in which the data and all that its copy is made by stay what they are."""
    found = None
    for held in [loop, *source.above(loop)]:
        if isinstance(held, (ast.FunctionDef, ast.ClassDef)):
            break
        if isinstance(held, Loop):
            if (names | {data}) & (bound_in(held) | mutated_in(held)):
                break
            found = held
    return found if found is not None and source.moves_whole(found.body[0]) else None


def _is_on_disk(source: Source, data: str) -> bool:
    """Whether it may be larger than memory: a file that is mapped, or a loader."""
    made = [one.value for one in walk(source.tree, ast.Assign) if data in bound_in(one)]
    return any(name_of(call.func) in _ON_DISK for value in made for call in walk(value, ast.Call))


def _is_only_read(source: Source, loop: Loop, piece: str, copied: ast.Assign) -> bool:
    """Whether nothing writes into a piece, which may be a view of what is kept."""
    reads = [one for one in walk(loop, ast.Name) if one.id == piece and isinstance(one.ctx, ast.Load)]
    return piece not in mutated_in(loop) and all(one in walk(copied) or is_read(source, one) for one in reads)


def _doubt(source: Source, loop: Loop, data: str, taken: ast.Subscript) -> str:
    """Who may change the data while it is kept."""
    is_safe = only_read(source, data, source.scope(loop), source.parents[taken])
    return "" if is_safe else f"{data} is handed on, where it may be changed in the loop"


DATA_ON_GPU: Final = Recipe(
    "data_on_gpu",
    "keep the data on the GPU, and take each step's part there",
    Effort.LINES,
    "the GPU's memory for all of the data",
    drift="exact",
    edits=(find_copied,),
    on_gpu=True,
)
