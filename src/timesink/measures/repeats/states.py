"""A state that a unit of operators reads and leaves, as far as shapes tell: no trace says which tensor it was."""

import json
from collections import Counter
from functools import lru_cache
from math import prod
from typing import Final

from timesink.records import State, field

Shape = tuple[int, ...]
Call = tuple[str, str, str]
"""An operator's name, and the JSON of its shapes and of the numbers that it was given."""

CUTS: Final = ("aten::select", "aten::slice", "aten::narrow")
CALLS_READ: Final = 1_500  # of a run
_ROTATIONS: Final = 32  # of a long unit, evenly spread: a state shows in most
_UNLIKE: Final = frozenset({"sum", "mean", "item", "empty", "linalg_vector_norm", "conv2d", "conv1d", "pad"})
"""Operators whose result has another shape than their largest operand."""
_RESHAPES: Final = frozenset(
    {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "transpose", "permute", "t", "movedim", "squeeze"}
    | {"unsqueeze"}
)
"""Operators whose result has the elements of their operand, in another shape."""
_REDUCES: Final = frozenset(
    {"sum", "mean", "std", "var", "var_mean", "std_mean", "amax", "amin", "max", "min", "norm", "linalg_vector_norm"}
)
"""Operators whose operand is usually read again, with what they make of it."""
_MAKERS: Final = frozenset(
    {"empty", "zeros", "ones", "full", "lift_fresh", "arange", "randn", "rand", "scalar_tensor", "eye", "linspace"}
)


@lru_cache(1 << 14)
def shapes_of(text: str | None) -> tuple[Shape, ...]:
    """The dimensions but those of 1 of the tensors that an operator was given, those in lists too."""
    try:
        given = [one for one in json.loads(text or "[]") if isinstance(one, list)]
    except ValueError:
        return ()
    flat = [one for each in given for one in (each if each and isinstance(each[0], list) else [each])]
    return tuple(tuple(size for size in one if isinstance(size, int) and size != 1) for one in flat if one)


def carried(unit: list[Call], weights: Counter[Shape], split: set[Shape], wholes: list[Shape]) -> list[Shape]:
    """Shapes of which a unit reads more tensors than it made before or was given, and leaves one: a state, perhaps.

    Where units begin is not known, so the rotation counts that reads fewest from outside.
    """
    least: list[Shape] | None = None
    for turn in range(0, len(unit), max(len(unit) // min(_ROTATIONS, CALLS_READ // len(unit) + 1), 1)):
        held, outside = _Held(Counter(dict.fromkeys(split, 1)), parts=list(wholes)), set[Shape]()
        for name, shapes, _ in unit[turn:] + unit[:turn]:
            given = [shape for shape in shapes_of(shapes) if shape]
            outside.update(shape for shape in held.lacking(name, given) if shape not in weights)
        excess = sorted(filter(held.leaves, outside))
        least = excess if least is None or len(excess) < len(least) else least
    return least or []


class _Held(State, eq=False):
    """What a unit has made and not read yet, by shape or, of another view of it, by its elements. What else a shape may
    be of: of what a sum or a norm has read, which is read again (`again`); of what these make of it (`reduced`); a part
    of a tensor (`parts`), or one with such a part (`padded`); anything that was made from nothing (`fresh`)."""

    shapes: Counter[Shape]
    elements: Counter[int] = field(default_factory=Counter)
    again: Counter[Shape] = field(default_factory=Counter)
    reduced: list[Shape] = field(default_factory=list)
    parts: list[Shape] = field(default_factory=list)
    padded: list[Shape] = field(default_factory=list)
    fresh: int = 0

    def lacking(self, name: str, given: list[Shape]) -> list[Shape]:
        """Run one operator: which of the tensors it was given the unit has not made."""
        bare, full = name.removeprefix("aten::"), given[0] if given else ()
        self.fresh += bare in _MAKERS and not given
        if name.startswith(CUTS):
            self.shapes.update({full[:at] + full[at + 1 :] for at in range(len(full))})
            self.parts += [full] * (bare != "select")
            return []
        lacking = [shape for shape in given if not self._takes(shape, bare in _REDUCES)]
        if bare in _RESHAPES:
            self.elements.update(prod(shape) for shape in given[:1])
        else:
            self.shapes.update(_made(name, given))
        self.reduced += [full] * (bare in _REDUCES)
        self.padded += [full] * (bare == "pad")
        return lacking

    def leaves(self, shape: Shape) -> bool:
        """Whether the unit leaves a tensor that may be of that shape, which nothing has read."""
        return self.shapes[shape] > 0 or self.elements[prod(shape)] > 0

    def _takes(self, shape: Shape, is_read_again: bool) -> bool:
        known = self.shapes if self.shapes[shape] > 0 else self.again
        if known[shape] > 0:
            known[shape] -= 1
            self.again[shape] += is_read_again
            return True
        if self.elements[prod(shape)] > 0:
            self.elements[prod(shape)] -= 1
            return True
        for wholes, fits in (
            (self.parts, lambda whole: _is_part(shape, whole)),
            (self.padded, lambda part: _is_part(part, shape)),
            (self.reduced, lambda whole: len(shape) < len(whole) and not Counter(shape) - Counter(whole)),
        ):
            if (found := next(filter(fits, wholes), None)) is not None:
                wholes.remove(found)
                self.again[shape] += is_read_again
                return True
        self.fresh -= (is_fresh := self.fresh > 0)
        return is_fresh


def _is_part(shape: Shape, whole: Shape) -> bool:
    """Whether a shape is shorter than another along one dimension, and else the same."""
    unlike = [(size, of) for size, of in zip(shape, whole, strict=False) if size != of]
    return len(shape) == len(whole) and len(unlike) == 1 and unlike[0][0] < unlike[0][1]


def _made(name: str, given: list[Shape]) -> list[Shape]:
    """The shape of what an operator makes, where that is easily known."""
    if not given or name.removeprefix("aten::") in _UNLIKE:
        return []
    if "linear" in name and len(given) > 1:
        return [given[0][:-1] + given[1][:1]]
    if any(word in name for word in ("matmul", "::mm", "bmm")) and len(given) > 1:
        return [given[0][:-1] + given[1][-1:]]
    return [max(given, key=lambda shape: (len(shape), prod(shape)))]
