"""A term of the ledger: bytes of one category, with the formula behind them and where the formula comes from.

What eager autograd keeps: a tape of operators with the sizes of their results, run forward and back.

Forward, a result is freed after its last use unless an operator saved it. Backward, an operator's gradients are
allocated while the gradient of its result and what it saved are still there; then both go. This is how PyTorch runs a
program operator by operator; a compiler that fuses or reorders operators needs less.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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


@dataclass(eq=False, slots=True)
class Value:
    """A tensor's storage. `needs_grad` is false for tokens, masks and tables."""

    name: str
    size_bytes: int
    needs_grad: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operator. `weight_grad_bytes`: gradients of its weights as the backward kernel writes them.

    `keeps` are bytes it saves besides `saves` (masks, statistics); `forward_extra_bytes` and `backward_extra_bytes`
    live only while it runs. `passes_grad`: its input's gradient is the result's own storage (an addition, a view).
    """

    name: str
    inputs: tuple[Value, ...]
    output: Value
    saves: tuple[Value, ...] = ()
    keeps: int = 0
    forward_extra_bytes: int = 0
    backward_extra_bytes: int = 0
    weight_grad_bytes: int = 0
    passes_grad: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """One tensor kept for the backward pass: its name and the operators that keep it."""

    name: str
    size_bytes: int
    kept_by: str


@dataclass(slots=True)
class Tape:
    """Operators in the order they run; the first input of the first one is the stretch's own input."""

    ops: list[Op] = field(default_factory=list)

    def op(
        self, name: str, inputs: tuple[Value, ...], out_bytes: int, *, saves_output: bool = False, **more: Any
    ) -> Value:
        """Append an operator and return its result; `more` are fields of `Op`."""
        output = Value(name, out_bytes)
        saves: tuple[Value, ...] = more.pop("saves", ())
        self.ops.append(Op(name, inputs, output, (*saves, output) if saves_output else saves, **more))
        return output

    def saved(self) -> list[Saved]:
        """What stays until the backward pass, each storage once, in the order of the operators."""
        known: dict[int, Saved] = {}
        for op in self.ops:
            for value in op.saves:
                known.setdefault(id(value), Saved(value.name, value.size_bytes, op.name))
            if op.keeps:
                known[id(op)] = Saved(f"{op.name} statistics or mask", op.keeps, op.name)
        return list(known.values())

    @property
    def saved_bytes(self) -> int:
        """Sum of what stays until the backward pass."""
        return sum(one.size_bytes for one in self.saved())

    def forward_peak_bytes(self, *, is_trained: bool = True) -> int:
        """Most bytes alive during the forward pass, what it saves included; without training nothing is saved.

        The stretch's own input is counted only where the tape saves it.
        """
        uses = Counter(id(value) for op in self.ops for value in op.inputs)
        last = self.ops[-1].output
        kept = {id(value) for op in self.ops for value in op.saves if is_trained} | {id(last)}
        own = {id(value) for op in self.ops for value in op.inputs} - {id(op.output) for op in self.ops}
        given = {id(value): value.size_bytes for op in self.ops for value in op.inputs if id(value) in own & kept}
        live = peak = sum(given.values())
        for op in self.ops:
            live += op.output.size_bytes + (op.keeps if is_trained else 0)
            peak = max(peak, live + op.forward_extra_bytes)
            for value in op.inputs:
                uses[id(value)] -= 1
                if not uses[id(value)] and id(value) not in kept and id(value) not in own:
                    live -= value.size_bytes
        return peak

    def backward_peak_bytes(self) -> int:
        """Most bytes alive during the backward pass beyond what was saved, the incoming gradient included."""
        grads: dict[int, int] = {id(self.ops[-1].output): self.ops[-1].output.size_bytes}
        keepers = Counter(id(value) for op in self.ops for value in op.saves)
        live = peak = sum(grads.values())
        for op in reversed(self.ops):
            incoming = grads.pop(id(op.output), 0)
            live, peak = self._step_back(op, grads, live, peak)
            live += op.weight_grad_bytes
            live -= incoming if not op.passes_grad else 0
            for value in op.saves:
                keepers[id(value)] -= 1
                live -= value.size_bytes if not keepers[id(value)] else 0
            live -= op.keeps
        return peak

    @staticmethod
    def _step_back(op: Op, grads: dict[int, int], live: int, peak: int) -> tuple[int, int]:
        """Allocate the gradients of an operator's inputs; a second gradient of one value is added and freed."""
        fresh = 0
        second = 0
        handed_on = op.passes_grad
        for value in op.inputs:
            if not value.needs_grad:
                continue
            if id(value) in grads:
                second += value.size_bytes if not handed_on else 0
                handed_on = False
                continue
            grads[id(value)] = value.size_bytes
            fresh += value.size_bytes if not handed_on else 0
            handed_on = False
        during = live + fresh + second + op.weight_grad_bytes + op.backward_extra_bytes
        return live + fresh, max(peak, during)
