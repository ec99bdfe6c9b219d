"""Collectives: kernels of every library that communicate, and what each kind of call moves and waits for."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


# Longer words first: "allreduce" holds "reduce", "sendrecv" holds "send".
COLLECTIVE_WORDS: Final = (
    "reducescatter", "allreduce", "allgather", "alltoall", "broadcast", "sendrecv", "barrier",
    "scatter", "gather", "reduce", "send", "recv",
)  # fmt: skip
_CUSTOM_ALL_REDUCE: Final = ("crossdevicereduce", "lamport", "quickreduce", "multimem")

# Every rank needs every rank's data: nobody leaves before the last has come. Others are one-sided.
ALL_TO_ALL: Final = "alltoall"  # ranks may send each other different amounts
BARRIERS: Final = frozenset({"allreduce", "allgather", "reducescatter", ALL_TO_ALL, "barrier"})
POINT_TO_POINT: Final = frozenset({"send", "recv"})
# An exchange that NCCL runs as sends and receives: every rank takes part, but the name does not prove it.
EXCHANGE: Final = "sendrecv"

# Bus bandwidth = algorithm bandwidth x this (nccl-tests, PERFORMANCE.md), n the number of ranks.
BUS_FACTORS: Final[Mapping[str, Callable[[int], float]]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
    "send": lambda n: 1.0,
    "recv": lambda n: 1.0,
}


def letters(name: str) -> str:
    """The name in small letters, without anything else."""
    return "".join(letter for letter in name.lower() if "a" <= letter <= "z")


def after_kernel(name: str) -> str:
    """What follows the word Kernel, where libraries write the kind."""
    return re.sub(_FILE.UP_TO_KIND, "", name)


def kind_of_kernel(name: str) -> str:
    """The collective that a communication kernel runs, by its name; `unknown` where the name does not say."""
    head = name.replace("(anonymous namespace)::", "").split("(", maxsplit=1)[0].removeprefix("void ")
    compact = letters(after_kernel(head)) or letters(head)
    if re.search(_FILE.EXPERT_EXCHANGE, head):
        return ALL_TO_ALL
    if re.search(_FILE.EXPERT_NOTICE, head):
        return "barrier"
    if any(word in compact for word in _CUSTOM_ALL_REDUCE):
        return "allreduce"
    return next((word for word in COLLECTIVE_WORDS if word in compact), "unknown")


def message_bytes(kind: str, in_bytes: int | None, out_bytes: int | None) -> int | None:
    """The S of nccl-tests: the whole array, which all-gather puts out and reduce-scatter takes in."""
    return out_bytes if kind in ("allgather", "recv") else in_bytes
