"""A term of the ledger: bytes of one category, with the formula behind them and where the formula comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What memory is planned for, in the order of the ledger. The first ten are those of a measured ledger."""

    WEIGHTS = "weights"
    CAST_WEIGHTS = "low-precision weight copies"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    COMMUNICATION = "communication"
    KV_CACHE = "kv cache"
    INPUTS = "inputs"
    WORKSPACES = "library workspaces"
    CONTEXT = "context and libraries"


@dataclass(frozen=True, slots=True)
class Term:
    """`formula` ends in the numbers put into it; `source` says where it is from."""

    part: Part
    name: str
    size_bytes: int
    formula: str
    source: str


ZERO = "ZeRO, arXiv:1910.02054"
KORTHIKANTI = "arXiv:2205.05198"
EAGER = "eager PyTorch, operator by operator (memory_plan/blocks.py)"
PYTORCH = "PyTorch source, read in 2.11"
