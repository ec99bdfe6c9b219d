"""Batches padded to their longest sample rather than to the longest there may be."""

import ast
from collections.abc import Iterator
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.source import Proposal, Source, calls_in, name_of, read_in, root_of
from timesink.recipes.walking import walk

_MASKED: Final = ("mask", "ignore_index", "padding_idx", "pad_sequence", "lengths")
_SHAPES: Final = ("view", "reshape", "unflatten", "Linear", "LayerNorm", "Conv1d", "expand")
_FIXED: Final = ("torch.compile", "CUDAGraph", "make_graphed_callables", "StaticCache", "pad_to_multiple_of")


def find_padding(source: Source, line: int) -> Iterator[Proposal]:
    """Functions that collate samples into a constant length, and tokenizers that pad to the longest allowed."""
    for function in walk(source.tree, ast.FunctionDef):
        batch = [argument.arg for argument in function.args.args if argument.arg != "self"]
        if len(batch) == 1 and _collates(source, function.name):
            yield from _filled(source, function, batch[0])
    for call in calls_in(source.tree):
        told = next((word for word in call.keywords if word.arg == "padding"), None)
        if told is not None and getattr(told.value, "value", None) == "max_length" and not _is_of_one(source, call):
            yield _proposal(source, call.lineno, told.value, '"longest"')


def _is_of_one(source: Source, call: ast.Call) -> bool:
    """Whether a data set makes its items so, one by one: at lengths of their own they make no batch."""
    classes = [one for one in source.above(call) if isinstance(one, ast.ClassDef)]
    return any(getattr(one, "name", "") == "__getitem__" for each in classes for one in each.body)


def _collates(source: Source, name: str) -> bool:
    given = (word.value for call in calls_in(source.tree) for word in call.keywords if word.arg == "collate_fn")
    return any(name_of(value) == name for value in given)


def _filled(source: Source, function: ast.FunctionDef, batch: str) -> Iterator[Proposal]:
    """`torch.full((len(batch), LONGEST), PAD)`, whose rows are filled up to the length of each sample."""
    for call in calls_in(function):
        sizes = call.args[0] if call.args else None
        if (
            name_of(call.func) not in ("full", "zeros", "ones")
            or not isinstance(sizes, ast.Tuple)
            or len(sizes.elts) < 2
        ):
            continue
        longest = sizes.elts[1]
        is_constant = isinstance(longest, ast.Constant) or (isinstance(longest, ast.Name) and longest.id.isupper())
        if batch in read_in(sizes.elts[0]) and is_constant and (each := _length(source, function, batch)):
            yield _proposal(source, call.lineno, longest, f"max({each})")


def _length(source: Source, function: ast.FunctionDef, batch: str) -> str:
    """What gives the lengths of the samples: samples are sequences, or tuples that begin with one."""
    for loop in walk(function, ast.For):
        targets = loop.target
        if root_of(loop.iter) != "enumerate" or batch not in read_in(loop.iter) or not isinstance(targets, ast.Tuple):
            continue
        each, said = targets.elts[-1], source.said(loop)
        first = each.elts[0] if isinstance(each, ast.Tuple) else each
        if isinstance(first, ast.Name) and f": len({first.id})]" in said:
            held = source.said(each)
            return f"len({first.id}) for {held.strip('()')} in {batch}"
    return ""


def _proposal(source: Source, line: int, node: ast.expr, text: str) -> Proposal:
    masked = any(word in source.text for word in _MASKED)
    fixed = next((word for word in _FIXED if word in source.text), "") or _shaped(source, source.said(node))
    doubt = "" if masked else "nothing in the file masks what is padded, so the results may depend on it"
    if fixed:
        doubt = f"{fixed} may need batches of one length"
    reason = "batches are padded to the longest sequence there may be; they are to the longest of the batch"
    return Proposal(line, reason, (source.replace(node, text),), doubt)


def _shaped(source: Source, longest: str) -> str:
    """The call that takes the padded length as a size, such as `view`, or a layer of that many inputs."""
    calls = (call for call in calls_in(source.tree) if name_of(call.func) in _SHAPES)
    return next((name_of(call.func) for call in calls if longest in map(source.said, call.args)), "")


PAD_TO_BATCH: Final = Recipe(
    "pad_to_batch",
    "pad batches to their longest sequence",
    Effort.LINES,
    "shapes that change from step to step",
    drift="rounding",
    edits=(find_padding,),
)
