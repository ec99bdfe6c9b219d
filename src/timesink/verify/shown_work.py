"""What both sides of a judged comparison compute with, as PyTorch's profiler shows it: kernels and operators of a call.

A tested process makes the recording of itself, so it proves nothing and ends no comparison: it says where to look.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

import polars as pl

from timesink.knowledge.kernels import decode
from timesink.knowledge.operators import ALLOCATES, HANDS_ON, LOW_TYPE
from timesink.knowledge.work import operand_sides
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.startup import dataclass
from timesink.untrusted.scrub import shortened

_LOW_MATH: Final = ("fp16", "bf16", "fp8", "fp4", "int8", "tf32")
_NO_WORK, _LOW = (re.compile(HANDS_ON), re.compile(ALLOCATES)), re.compile(LOW_TYPE)
_LONGEST: Final = 60  # characters of a kernel's name


@dataclass(frozen=True, slots=True)
class ShownWork:
    """One call. `parts`: its kernels; where there are none, its operators with shapes and types, without those that
    only hand a tensor on. `types`: in which it computes. `read`: the most elements that the operators of one name read;
    None where not all tell."""

    kind: str
    parts: Counter[str]
    types: frozenset[str]
    read: int | None

    @classmethod
    def of(cls, trace: Trace) -> ShownWork:
        """Of the recording of a call."""
        kernels = trace.get(DEVICE_OPS).filter(pl.col("kind") == "kernel")["name"].cast(pl.String).to_list()
        wanted = ("name", "input_shapes", "input_dtypes")
        told = trace.get(HOST_OPS).select(pl.col(*wanted).cast(pl.String).fill_null("")).rows()
        operators = [row for row in told if not any(of.search(row[0]) for of in _NO_WORK)]
        types = {found for _, _, dtypes in operators for found in _LOW.findall(dtypes)}
        types |= {found for kernel in kernels if (found := decode(kernel).math) in _LOW_MATH}
        read: Counter[str] = Counter()
        for name, shapes, _ in operators:
            read[name] += max((math.prod(side) for side in operand_sides(shapes) if side), default=0)  # of the largest
        known = bool(operators) and all(name.startswith("aten::") and shapes for name, shapes, _ in operators)
        parts = Counter(kernels or [" ".join(row) for row in operators])
        return cls("kernel" if kernels else "operator", parts, frozenset(types), max(read.values()) if known else None)


def compare_work(before: Trace, after: Trace, largest: int) -> list[str]:
    """What to know of one call of each side; `largest` is the size of the largest input in elements."""
    old, new = ShownWork.of(before), ShownWork.of(after)
    if not old.parts:
        return ["PyTorch saw no work on the unchanged side, so nothing is known of the changed one's"]
    count = f"{old.parts.total()} {old.kind}{'s' * (old.parts.total() > 1)}"
    if not new.parts:
        return [f"look at the changed side: PyTorch saw no kernel and no operator in a call, and {count} before"]
    if old.parts == new.parts:
        return [f"both sides run the same {count}: PyTorch saw no change"]
    remarks = []
    if lower := ", ".join(sorted(new.types - old.types)):
        remarks.append(f"look at the changed side: it computes in {lower}, the unchanged one does not")
    if new.kind != old.kind:
        remarks.append(f"look at the changed side: it runs no kernel on the GPU, and {count} before")
    if new.read is not None and new.read < largest and (old.read is None or old.read >= largest):
        remarks.append(
            f"look at the changed side: no operator reads more than {new.read:,} of an input's {largest:,} elements"
        )
    gone, come = old.parts - new.parts, new.parts - old.parts
    named = [f"{shortened(name, _LONGEST)} ({count})" for name, count in come.most_common(2)]
    told = f"{(old.parts & new.parts).total()} the same, {gone.total()} only before, {come.total()} only after"
    return [*remarks, f"{new.kind}s of a call: {told}{': ' if named else ''}{', '.join(named)}"]
