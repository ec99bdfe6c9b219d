"""What a kernel's pipes really did: the name of a pipe is not the operation.

The XU pipe does special functions, and also conversions between integers and floating point, scans of bits (`__ffs`,
`__clz`, `__popc`, `__brev`), and the first guess of a division, an integer's or a double's. The pipe of fused
multiply-adds multiplies integers too. Which it was is told by opcodes, by counted instructions, or by the types of the
kernel's arguments (a kernel that takes integers alone multiplies no floats).
"""

from collections.abc import Mapping
from typing import Final

from timesink.knowledge.gpus import PER_OPCODE
from timesink.knowledge.operators import INTEGER_ARGUMENT
from timesink.measures.counters import KernelCounters, Resource
from timesink.startup import regex

_EXECUTED: Final = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_FLOATS: Final = tuple(_EXECUTED.format(op) for op in ("ffma", "fmul", "fadd", "hfma", "hmul", "hadd", "dfma"))
_FEW: Final = 0.05  # floats for each integer instruction: those of an index or of a counter
_INTEGERS: Final = regex(INTEGER_ARGUMENT)
# Opcodes of the XU pipe by what they do.
_OF_XU: Final[Mapping[str, frozenset[str]]] = {
    "xu_functions": frozenset({"MUFU"}),
    "xu_bits": frozenset({"POPC", "FLO", "BREV"}),
    "xu_conversions": frozenset({"I2F", "F2I", "F2F", "I2I", "FRND"}),
}


def variant_of(kernel: KernelCounters, pipe: Resource) -> str:
    """The kind of a kernel's work on that pipe: the pipe's name, or what it was used for."""
    if pipe is Resource.XU:
        return _on_xu(kernel)
    return "fma_integers" if pipe is Resource.FMA and is_of_integers(kernel) else pipe.value


def is_of_integers(kernel: KernelCounters) -> bool:
    """Whether its arithmetic is of integers, as counted; by its arguments where that was not."""
    floats, integers = kernel.total(*_FLOATS), kernel.get(_EXECUTED.format("integer"))
    if floats is not None and integers is not None:
        return floats <= _FEW * integers
    if floats:
        return False
    _, _, arguments = kernel.name.partition("(")
    listed = [argument.strip() for argument in arguments.rpartition(")")[0].split(",")]
    return listed != [""] and all(_INTEGERS.search(argument) for argument in listed)


def _on_xu(kernel: KernelCounters) -> str:
    counts = _executions(kernel.texts.get(PER_OPCODE, ""))
    of_kind = {kind: sum(counts.get(opcode, 0.0) for opcode in opcodes) for kind, opcodes in _OF_XU.items()}
    most = max(of_kind, key=of_kind.__getitem__)
    if of_kind[most]:
        return most if of_kind[most] > sum(of_kind.values()) / 2 else "xu"
    return "xu_integers" if is_of_integers(kernel) else "xu"


def _executions(text: str) -> dict[str, float]:
    """How often each opcode ran, modifiers left out: of ``MUFU.RCP: 12; FLO.U32: 3`` MUFU 12 and FLO 3 times."""
    counts: dict[str, float] = {}
    for part in text.split("; "):
        opcode, _, count = part.rpartition(": ")
        if count.isdigit():
            name = opcode.partition(".")[0].strip()
            counts[name] = counts.get(name, 0.0) + float(count)
    return counts
