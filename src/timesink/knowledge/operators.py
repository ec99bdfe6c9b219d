"""The recorded arguments of an operator (tensors with shape, type and strides, scalars as text), and the work it has to
do, whatever kernel does it.

Patterns say what operators and element types are called.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns, table_rows
from timesink.records import Record
from timesink.untrusted.plain_json import parsed

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


def _folded(recorded: str) -> str:
    """A recorded element type without its case and the names around it: ``bfloat16`` of ``c10::BFloat16``."""
    return recorded.strip().lower().replace("::", ".").rpartition(".")[2] if "<" not in recorded else recorded.lower()


# PyTorch's names of element types, folded, to (short name, bytes).
_TYPES: Final = {_folded(row["recorded"]): (row["type"], int(row["bytes"])) for row in table_rows(__file__)}
_FLOATS: Final = {"fp64", "fp32", "fp16", "bf16", "fp8"}
_NO_TENSORS: Final = {"", "scalar", "scalarlist", "tensorlist", "genericlist", "device", "string", "none", "optional"}


class Tensor(Record):
    """One tensor argument. `dtype` is a short name, or the recorded text with `itemsize` 0 where it is not known."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    strides: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Logical elements, broadcast ones included."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Storage of the elements: a dimension of stride 0 is stored once."""
        if len(self.strides) != len(self.shape):
            return self.elements * self.itemsize
        return prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride) * self.itemsize


class Operator(Record):
    """`arguments[i]` is a tensor, a tuple of tensors (a TensorList), or None; `scalars[i]` is its text or ''."""

    name: str
    arguments: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    scalars: tuple[str, ...] = ()

    @classmethod
    def recorded(
        cls, name: str, shapes: str, dtypes: str, strides: str | None, concrete: str | None
    ) -> Operator | None:
        """From the JSON text of a trace, or None where the text is not what PyTorch writes."""
        try:
            dims, types = parsed(shapes), parsed(dtypes)
            steps = parsed(strides) if strides else []
            scalars = parsed(concrete) if concrete else []
        except ValueError:
            return None
        if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
            return None
        if not isinstance(scalars, list):
            return None
        steps = steps if isinstance(steps, list) and len(steps) == len(dims) else [[]] * len(dims)
        arguments = tuple(_argument(d, t, s) for d, t, s in zip(dims, types, steps, strict=True))
        return cls(name, arguments, tuple(map(str, scalars)))

    def tensor(self, index: int) -> Tensor | None:
        """The tensor at that position, or None where the argument is something else."""
        argument = self.arguments[index] if index < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None

    def scalar(self, index: int) -> str:
        """The text of a scalar argument; '' where it was not recorded."""
        return self.scalars[index] if index < len(self.scalars) else ""

    def tensors(self) -> list[Tensor]:
        """Every tensor, those in lists included."""
        tensors: list[Tensor] = []
        for argument in self.arguments:
            if isinstance(argument, Tensor):
                tensors.append(argument)
            elif argument is not None:
                tensors.extend(argument)
        return tensors


def _argument(shape: object, dtype: object, strides: object) -> Tensor | tuple[Tensor, ...] | None:
    if dtype == "TensorList" and isinstance(shape, list) and shape and isinstance(shape[0], list):
        return tuple(t for part in shape if (t := _tensor(part, "c10::BFloat16", [])) is not None)
    return _tensor(shape, dtype, strides)


def _tensor(shape: object, dtype: object, strides: object) -> Tensor | None:
    if not isinstance(shape, list) or not isinstance(dtype, str) or dtype in ("", "Scalar", "ScalarList"):
        return None
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        return None
    short, itemsize = _TYPES.get(_folded(dtype), (dtype, 0))
    steps = tuple(strides) if isinstance(strides, list) and len(strides) == len(shape) else ()
    return Tensor(tuple(shape), short, itemsize, steps) if itemsize else None


def is_floating(recorded: str) -> bool:
    """Whether a recorded element type is a floating one that is known."""
    return _TYPES.get(_folded(recorded), ("", 0))[0] in _FLOATS


@cache
def operand_type(dtypes: str) -> str | None:
    """The floating type that all floating operands have, of the recorded types of an operator's arguments. A type that
    nobody here knows is one too, by its own name: that it was recorded, and is none of the known, is known."""
    try:
        recorded = parsed(dtypes)
    except ValueError:
        return None
    folded = {_folded(text) for text in recorded if isinstance(text, str)} if isinstance(recorded, list) else set()
    if unknown := sorted(folded - _TYPES.keys() - _NO_TENSORS):
        return unknown[0]
    found = {_TYPES[text][0] for text in folded & _TYPES.keys()} & _FLOATS
    return found.pop() if len(found) == 1 else None


class WorkKind(StrEnum):
    """The kind of work, which decides what could make it cheaper."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORM = "norm"
    SOFTMAX = "softmax"
    POINTWISE = "pointwise"
    COPY = "copy"
    REDUCTION = "reduction"
    INDEX = "index"
    OPTIMIZER = "optimizer"


class OperatorWork(Record):
    """`flops` counts a multiply-add as two; `bytes` is compulsory traffic; `dtype` is the operand type (bf16, ...)."""

    kind: WorkKind
    flops: float
    bytes: float
    dtype: str
