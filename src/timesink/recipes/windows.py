"""Windows of a long row that a batch is cut from: one index takes all of them, where each was cut by itself."""

import ast
from collections.abc import Iterator
from copy import deepcopy
from typing import Final

from timesink.recipes.rounds import axis_of, each_of, source_of
from timesink.recipes.source import Proposal, Source, bound_in, calls_in, name_of, read_in
from timesink.recipes.walking import walk

_CASTS: Final = frozenset({"astype", "long", "float", "int", "half", "double", "bfloat16"})


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
        index = source.said(cut.value) + (f"[({at}).numpy()]" if is_array else f"[{at}]")
        text = ast.unparse(_With(cut, ast.parse(index, mode="eval").body).visit(deepcopy(one)))
        reason = f"{source.said(cut.value)} is cut window by window; one index takes all of them"
        yield Proposal(call.lineno, reason, (source.replace(call, text), *dropped))


class _With(ast.NodeTransformer):
    """Another expression in place of one that stands there."""

    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self.old, self.new = ast.dump(old), new

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self.new if ast.dump(node) == self.old else self.generic_visit(node)


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
    scope = source.scope(source.parents[call.args[0]] if isinstance(call.args[0], ast.Name) else call)
    bound = [one for one in walk(scope, ast.Assign) if starts in bound_in(one)]
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
