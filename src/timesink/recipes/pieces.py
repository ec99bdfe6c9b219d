"""What runs once for each piece of a tensor, and can run once for all: samples, heads, chunks, windows of a long row.

Whether the pieces have nothing to do with each other the text cannot tell: a batch norm sees its batch, a dropout draws
for it. So the batched code is offered. `torch.vmap` computes for all what its function computes for one, by definition.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.rounds import With, axis_of, each_of, is_tensor, source_of
from timesink.recipes.source import Proposal, Source, bound_in, calls_in, is_whole, name_of, read_in
from timesink.recipes.walking import walk

_APART: Final = (
    "it is right where they are of one tensor, none draws, counts or changes anything, and all fit in memory at once"
)
_CASTS: Final = frozenset({"astype", "long", "float", "int", "half", "double", "bfloat16"})
_OF_THE_HOST: Final = ("from_numpy", "item", "tolist", "int", "float", "len", "open", "append")
_TAKE_NUMBERS: Final = frozenset({
    "arange", "linspace", "zeros", "ones", "full", "eye", "tensor", "range", "narrow", "repeat", "repeat_interleave",
    "view", "reshape", "expand", "roll", "topk", "split", "chunk",
})  # fmt: skip
"""What is told sizes and bounds: no tensor of several numbers can be one."""


@dataclass(slots=True)
class _Pieces:
    """An expression that runs for each piece: `over` has its names, and for each the tensor that it is a piece of, and
    along which axis."""

    one: ast.expr
    over: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)


def find_pieces(source: Source, line: int) -> Iterator[Proposal]:
    """`torch.stack` and `torch.cat` of what a comprehension or a loop of one statement gives for each piece."""
    for call in calls_in(source.tree):
        axis = axis_of(call)
        if axis is None or not call.args:
            continue
        each, dropped = each_of(source, call)
        if each is None:
            continue
        target, iterated, one = each
        is_stack = name_of(call.func) == "stack"
        text = (
            _stacked(source, target, iterated, one, axis) if is_stack else _joined(source, target, iterated, one, axis)
        )
        if text:
            what = source.said(one).partition("\n")[0]
            reason = f"{what} runs once for each piece; it runs once for all of them"
            yield Proposal(one.lineno, reason, (source.replace(call, text), *dropped), _APART)


def _joined(source: Source, target: ast.expr, iterated: ast.expr, one: ast.expr, axis: int) -> str:
    """`f(x)` of chunks of rows that `f` is called with: `x[i : i + n]` for `i` in steps of `n`, `x.split(n)`."""
    call = one if isinstance(one, ast.Call) else None
    if call is None or axis != 0 or not isinstance(target, ast.Name) or len(call.args) != 1:
        return ""
    given, index = call.args[0], target.id
    if index in read_in(call.func) or any(index in read_in(word.value) for word in call.keywords):
        return ""
    whole = _split(iterated) if isinstance(given, ast.Name) and given.id == index else None
    if isinstance(given, ast.Subscript) and _steps(source, given, iterated, index):
        whole = given.value
    return "" if whole is None else ast.unparse(ast.Call(call.func, [whole], call.keywords))


def _split(iterated: ast.expr) -> ast.expr | None:
    """What `x.split(n)`, `x.chunk(n)` and `torch.split(x, n)` cut along its rows."""
    if not isinstance(iterated, ast.Call) or name_of(iterated.func) not in ("split", "chunk") or iterated.keywords:
        return None
    is_function = source_of(iterated) == "torch"
    args = iterated.args[1:] if is_function else iterated.args
    whole = iterated.args[0] if is_function and iterated.args else getattr(iterated.func, "value", None)
    is_rows = len(args) == 1 or (len(args) == 2 and isinstance(args[1], ast.Constant) and args[1].value == 0)
    return whole if is_rows else None


def _steps(source: Source, given: ast.Subscript, iterated: ast.expr, index: str) -> bool:
    """Whether `x[i : i + n]` for these `i` is all of `x`, `n` rows at a time."""
    cut = given.slice
    if not isinstance(cut, ast.Slice) or cut.step is not None or not isinstance(cut.upper, ast.BinOp):
        return False
    bounds = iterated.args if isinstance(iterated, ast.Call) and name_of(iterated.func) == "range" else []
    starts = [one for one in (cut.lower, cut.upper.left) if isinstance(one, ast.Name) and one.id == index]
    if not isinstance(cut.upper.op, ast.Add) or len(starts) != 2 or index in read_in(given.value):
        return False
    given_bounds = [source.said(one) for one in bounds]
    first, last, step = {1: ["0", *given_bounds, "1"], 3: given_bounds}.get(len(bounds), ["", "", ""])
    said = source.said(given.value)
    rows = (f"{said}.shape[0]", f"len({said})", f"{said}.size(0)", f"{said}.size()[0]")
    return first == "0" and last in rows and step == source.said(cut.upper.right)


def _stacked(source: Source, target: ast.expr, iterated: ast.expr, one: ast.expr, axis: int) -> str:
    """`torch.vmap` of what each round computes, over the tensors whose pieces it takes."""
    count = _count_of(iterated)
    if count is not None and isinstance(target, ast.Name):
        taken = _by_number(source, target, count, one)
    else:
        taken = _by_piece(target, iterated, one)
    if taken is None or not taken.over or not _is_plain(taken):
        return ""
    if not all(is_tensor(source, whole, iterated) for whole, _ in taken.over.values()):
        return ""
    axes = [axis for _, axis in taken.over.values()]
    more = f", in_dims={axes[0] if len(axes) == 1 else tuple(axes)}" if any(axes) else ""
    more += f", out_dims={axis}" if axis else ""
    given = ", ".join(ast.unparse(whole) for whole, _ in taken.over.values())
    return f"torch.vmap({_mapped(taken)}{more})({given})"


def _is_plain(taken: _Pieces) -> bool:
    """Whether it computes, by PyTorch alone, binds no names, calls no piece (that would be a module of a list), and
    takes none for a size or for a bound of a slice, which a batch of numbers cannot be."""
    binds = walk(taken.one, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.NamedExpr, ast.Await)
    computes = walk(taken.one, ast.Call, ast.BinOp, ast.Compare, ast.UnaryOp)
    others = {name_of(call.func) for call in calls_in(taken.one)} & {*taken.over, *_OF_THE_HOST}
    told = [
        one
        for call in calls_in(taken.one)
        if name_of(call.func) in _TAKE_NUMBERS
        for one in (*call.args, *call.keywords)
    ]
    sizes = any(read_in(one) & taken.over.keys() for one in (*told, *walk(taken.one, ast.Slice)))
    return bool(computes) and not binds and not sizes and not others and not read_in(taken.one) & {"np", "numpy"}


def _mapped(taken: _Pieces) -> str:
    """The function of one piece: one that is only called with it, else the expression with names for what it takes."""
    call = taken.one
    if isinstance(call, ast.Call) and not call.keywords:
        given = [one.id if isinstance(one, ast.Name) else "" for one in call.args]
        if given == [*taken.over] and not read_in(call.func) & {*taken.over}:
            return ast.unparse(call.func)
    return f"lambda {', '.join(taken.over)}: {ast.unparse(call)}"


def _count_of(iterated: ast.expr) -> ast.expr | None:
    """The `n` of `range(n)`."""
    is_range = isinstance(iterated, ast.Call) and name_of(iterated.func) == "range"
    return iterated.args[0] if is_range and isinstance(iterated, ast.Call) and len(iterated.args) == 1 else None


def _by_piece(target: ast.expr, iterated: ast.expr, one: ast.expr) -> _Pieces | None:
    """Of `for row in x` and `for a, b in zip(x, y)`."""
    names, wholes = [target], [iterated]
    if isinstance(target, ast.Tuple) and isinstance(iterated, ast.Call) and name_of(iterated.func) == "zip":
        names, wholes = target.elts, iterated.args
    are_tensors = all(isinstance(whole, (ast.Name, ast.Attribute)) for whole in wholes)
    are_named = all(isinstance(name, ast.Name) for name in names) and set(map(name_of, names)) <= read_in(one)
    if not are_tensors or not are_named or len(names) != len(wholes):
        return None
    return _Pieces(one, {name_of(name): (whole, 0) for name, whole in zip(names, wholes, strict=True)})


def _by_number(source: Source, target: ast.Name, count: ast.expr, one: ast.expr) -> _Pieces | None:
    """Of `for i in range(count)`, where `i` stands nowhere but in `x[i]`, `x[:, i]`; each becomes a name of its own."""
    taken, seen, found = read_in(one) | {target.id}, dict[str, str](), _Pieces(deepcopy(one))

    class Named(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            axis, rest = _axis_at(node.slice, target.id)
            is_whole = isinstance(node.value, (ast.Name, ast.Attribute)) and target.id not in read_in(node.value)
            if axis is None or not is_whole:
                return self.generic_visit(node)
            key = f"{ast.unparse(node.value)} {axis}"
            if key not in seen:
                seen[key] = _free(f"{name_of(node.value)}_i", taken)
                found.over[seen[key]] = (_first(source, node.value, axis, count), axis)
            piece = ast.Name(seen[key], ast.Load())
            index = rest[0] if len(rest) == 1 else ast.Tuple(rest, ast.Load())
            return ast.Subscript(piece, index, ast.Load()) if rest else piece

    found.one = Named().visit(found.one)
    return None if target.id in read_in(found.one) else found


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _axis_at(index: ast.expr, name: str) -> tuple[int | None, list[ast.expr]]:
    """The axis along which an index takes the piece of that number, and what else it takes of the piece."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    at = [number for number, one in enumerate(parts) if isinstance(one, ast.Name) and one.id == name]
    if len(at) != 1 or any(isinstance(one, ast.Constant) and type(one.value) is not int for one in parts):  # ..., None
        return None, []
    rest = [*parts[: at[0]], *parts[at[0] + 1 :]]
    while rest and is_whole(rest[-1]):
        rest.pop()
    return at[0], rest


def _first(source: Source, whole: ast.expr, axis: int, count: ast.expr) -> ast.expr:
    """The first `count` pieces along an axis: the tensor itself where that is its length."""
    said, number = source.said(whole), source.said(count)
    lengths = [f"{said}.shape[{axis}]", f"{said}.size({axis})", *([f"len({said})"] if not axis else [])]
    if number in lengths:
        return whole
    return ast.parse(f"{said}[{':, ' * axis}:{number}]", mode="eval").body


def find_windows(source: Source, line: int) -> Iterator[Proposal]:
    """`torch.stack([data[i : i + n] for i in starts])`, of numbers that PyTorch draws: one index of all windows."""
    for call in calls_in(source.tree):
        is_stack = axis_of(call) == 0 and name_of(call.func) == "stack" and bool(call.args)
        each, dropped = each_of(source, call) if is_stack else (None, ())
        if each is None or not isinstance(each[0], ast.Name) or not isinstance(each[1], ast.Name):
            continue
        start, starts, one = each[0].id, each[1].id, each[2]
        cut, is_array = _window_in(one)
        placed = _drawn(source, call, starts)
        if cut is None or placed is None or start in read_in(cut.value):
            continue
        bounds = _bounds(source, cut, start)
        if bounds is None:
            continue
        at = f"{starts}[:, None] + torch.arange({bounds}{placed})"
        to_host = ".cpu()" if placed else ""
        index = source.said(cut.value) + (f"[({at}){to_host}.numpy()]" if is_array else f"[{at}]")
        text = ast.unparse(With(cut, ast.parse(index, mode="eval").body).visit(deepcopy(one)))
        reason = f"{source.said(cut.value)} is cut window by window; one index takes all of them"
        yield Proposal(call.lineno, reason, (source.replace(call, text), *dropped))


def _window_in(one: ast.expr) -> tuple[ast.Subscript | None, bool]:
    """The slice that an expression only casts, and whether it is of an array of NumPy, as PyTorch is handed one."""
    is_array = False
    while isinstance(one, ast.Call) and not one.keywords:
        if name_of(one.func) in _CASTS and isinstance(one.func, ast.Attribute):
            one = one.func.value
        elif source_of(one) == "torch" and name_of(one.func) == "from_numpy" and len(one.args) == 1:
            one, is_array = one.args[0], True
        else:
            return None, False
    return (one, is_array) if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice) else (None, False)


def _drawn(source: Source, call: ast.Call, starts: str) -> str | None:
    """Where the numbers lie, as `torch.arange` is told, if they are drawn in one row by `torch.randint`."""
    bound = [one for one in walk(source.scope(call), ast.Assign) if starts in bound_in(one)]
    made = bound[0].value if len(bound) == 1 else None
    if not isinstance(made, ast.Call) or source_of(made) != "torch" or name_of(made.func) != "randint":
        return None
    words = {word.arg: word.value for word in made.keywords}
    shape = words.get("size", made.args[-1] if made.args else None)
    is_row = isinstance(shape, (ast.Tuple, ast.List)) and len(shape.elts) == 1
    placed = f", device={source.said(words['device'])}" if "device" in words else ""
    return placed if is_row and words.keys() <= {"size", "device", "high", "low"} else None


def _bounds(source: Source, cut: ast.Subscript, start: str) -> str | None:
    """From where to where beyond `i` a window goes: `i + a` to `i + a + n` is "a, a + n", `i` to `i + n` is "n"."""
    if not isinstance(cut.slice, ast.Slice) or cut.slice.step is not None:
        return None
    ends = [_terms(source, one) for one in (cut.slice.lower, cut.slice.upper) if one is not None]
    if len(ends) != 2 or any(terms.count(start) != 1 for terms in ends):
        return None
    first, last = (" + ".join(one for one in terms if one != start) for terms in ends)
    others = read_in(cut.slice) - {start}
    return None if start in others or not last else f"{first}, {last}" if first else last


def _terms(source: Source, value: ast.expr) -> list[str]:
    """What a sum adds."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return [*_terms(source, value.left), *_terms(source, value.right)]
    return [
        source.said(value) if isinstance(value, (ast.Name, ast.Attribute, ast.Constant)) else f"({source.said(value)})"
    ]


BATCH_UNITS: Final = Recipe(
    "batch_units",
    "make one batched pass of what runs once for each sample, head or expert",
    Effort.REWRITE,
    "the memory of all of them at once",
    drift="rounding",
    edits=(find_windows, find_pieces),
)
