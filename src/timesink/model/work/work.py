"""What an operator has to do, whatever kernel does it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Work:
    """`flops` counts a multiply-add as two; `bytes` is compulsory traffic; `dtype` is the operand type (bf16, ...)."""

    kind: WorkKind
    flops: float
    bytes: float
    dtype: str
