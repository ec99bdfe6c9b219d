"""Work done in full of which a part is used."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.source import Proposal, Source, is_whole, name_of, number_of, root_of
from timesink.recipes.walking import walk

_ARGUMENTS: Final = ("dim", "descending")


@dataclass(frozen=True, slots=True)
class _Sort:
    """A call that sorts, what it sorts, and along which axis."""

    given: ast.expr
    dim: int
    is_descending: bool


def find_sorts(source: Source, line: int) -> Iterator[Proposal]:
    """`x.sort(...)[0][..., :k]` and its spellings: the best `k` alone are found, in the order of the sort. Of equal
    values another one may be meant, so that their places are not asked for."""
    for cut in walk(source.tree, ast.Subscript):
        if (sort := _sort_of(_values_of(cut.value))) is None or (count := _count_of(cut.slice, sort.dim)) is None:
            continue
        text = source.said(sort.given)
        best = f"{text}.topk(min({count}, {text}.shape[{sort.dim}]), dim={sort.dim}, largest={sort.is_descending})"
        reason = f"all of {text} is sorted, and the first {count} are read; they alone are found"
        yield Proposal(cut.lineno, reason, (source.replace(cut, f"{best}.values"),))


def _values_of(node: ast.expr) -> ast.AST | None:
    """The call whose first result it is."""
    if isinstance(node, ast.Subscript) and _number(node.slice) == 0:
        return node.value
    return node.value if isinstance(node, ast.Attribute) and node.attr == "values" else None


def _sort_of(call: ast.AST | None) -> _Sort | None:
    """What a call sorts; None where it is no sort, or by what is not written in it."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or name_of(call.func) != "sort":
        return None
    is_function = isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    given, *rest = [*call.args] if is_function and call.args else [call.func.value, *call.args]
    words: dict[str | None, ast.expr] = dict(zip(_ARGUMENTS, rest, strict=False))
    words |= {word.arg: word.value for word in call.keywords}
    dim, order = _number(words.pop("dim", ast.Constant(-1))), words.pop("descending", ast.Constant(False))
    is_plain = len(rest) <= len(_ARGUMENTS) and not words and (not is_function or bool(call.args))
    is_told = dim is not None and isinstance(order, ast.Constant) and isinstance(order.value, bool)
    names = (ast.Name, ast.Attribute, ast.Load)
    if not (is_plain and is_told) or not root_of(given) or not all(isinstance(one, names) for one in walk(given)):
        return None
    return _Sort(given, dim or 0, bool(ast.literal_eval(order)))


def _count_of(index: ast.expr, dim: int) -> int | None:
    """How many of the first along that axis an index takes; None where it takes others, or of another axis."""
    *before, last = index.elts if isinstance(index, ast.Tuple) else [index]
    from_end = len(before) == 1 and isinstance(before[0], ast.Constant) and before[0].value is ...
    from_start = len(before) == dim and all(map(is_whole, before))
    if not isinstance(last, ast.Slice) or not (from_start or (from_end and dim == -1)):
        return None
    count = None if last.upper is None else _number(last.upper)
    begins = last.lower is None or _number(last.lower) == 0
    return count if begins and last.step is None and count is not None and count > 0 else None


def _number(node: ast.expr) -> int | None:
    """The whole number that stands there, below zero -1 alone; None for all else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -1 if _number(node.operand) == 1 else None
    return number_of(node)


USE_A_PART: Final = Recipe(
    "use_a_part",
    "compute only the part that is used (torch.topk, an index)",
    Effort.LINES,
    drift="rounding",
    edits=(find_sorts,),
)
