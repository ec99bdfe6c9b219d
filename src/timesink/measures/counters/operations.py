"""What a kernel's pipes really did: the name of a pipe is not the operation.

The XU pipe does special functions, and also conversions between integers and floating point, scans of bits (`__ffs`,
`__clz`, `__popc`, `__brev`), and the first guess of a division, an integer's or a double's. The pipe of fused
multiply-adds multiplies integers too. Which it was is told by opcodes, by counted instructions, or by the types of the
kernel's arguments (a kernel that takes integers alone multiplies no floats).
"""

from collections.abc import Mapping
from math import ceil
from typing import Final

from timesink.knowledge.gpus import PER_OPCODE, SECTOR_BYTES
from timesink.knowledge.operators import INTEGER_ARGUMENT
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.resources import Leaf, Resource
from timesink.startup import regex
from timesink.units import share_text

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


_PRODUCTS: Final = frozenset({"IMAD", "IMUL", "IDP", "IDP4A"})  # of integers, in the pipe of multiply-adds
_OF_FLOATS: Final = frozenset({"FFMA", "FMUL", "FADD", "FSWZADD", "HFMA2", "HMUL2", "HADD2"})
_HEAVY: Final = "fmaheavy"  # the half of the pipe that takes integers, and about half of the floats
_SEEN: Final = 0.1  # of the instructions: opcodes that are worth a word
_WIDE: Final = 16  # sectors of 32 lanes with 16 bytes each
_NAMED: Final = 3  # as many as fit in a sentence


def variant_of(kernel: KernelCounters, pipe: Leaf) -> str:
    """The kind of a kernel's work on that pipe: the pipe's name, or what it was used for."""
    if pipe.resource is Resource.XU:
        return _on_xu(kernel)
    is_integer = pipe.resource is Resource.FMA and _multiplies_integers(kernel, pipe)
    return "fma_integers" if is_integer else pipe.resource.value


def executed_text(kernel: KernelCounters) -> str:
    """The opcodes that most instructions were, with their shares; '' where they were not counted."""
    counts = _executions(kernel.texts.get(PER_OPCODE, ""))
    every = sum(counts.values())
    shown = sorted(counts, key=lambda opcode: (-counts[opcode], opcode))[:_NAMED]
    return ", ".join(
        f"{opcode} {share_text(counts[opcode] / every)}" for opcode in shown if counts[opcode] >= _SEEN * every
    )


def _multiplies_integers(kernel: KernelCounters, pipe: Leaf) -> bool:
    """Whether most of what a pipe of multiply-adds did were integers: by opcodes, else as counted or by arguments."""
    counts = _executions(kernel.texts.get(PER_OPCODE, ""))
    integers, floats = (sum(counts.get(opcode, 0.0) for opcode in of) for of in (_PRODUCTS, _OF_FLOATS))
    if not integers and not floats:
        return is_of_integers(kernel)
    return integers > (floats / 2 if _HEAVY in pipe.name else floats)


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


def loads_widely(kernel: KernelCounters) -> bool:
    """Whether loads take 16 bytes a lane: 16 sectors each, neither fewer nor scattered."""
    sectors, requests = (kernel.get(f"l1tex__t_{of}_pipe_lsu_mem_global_op_ld.sum") for of in ("sectors", "requests"))
    return sectors is not None and bool(requests) and abs(sectors / (requests or 1.0) - _WIDE) < 1


_SIZES: Final = {bits // 8: f"smsp__sass_inst_executed_op_memory_{bits}b.sum" for bits in (8, 16, 32, 64, 128)}
_WORD: Final = 4  # bytes of an element, where nobody counted


def excess_of_rows(kernel: KernelCounters) -> float:
    """The part of the sectors that a block's rows waste at most, where they are rows of the data: a row needs its bytes
    and touches whole sectors, with one more where it begins within one."""
    counts = {size: kernel.get(name) or 0.0 for size, name in _SIZES.items()}
    size = max(counts, key=counts.__getitem__) if any(counts.values()) else _WORD
    needed = kernel.block[0] * size / SECTOR_BYTES
    return 1 - needed / (ceil(needed) + 1)
