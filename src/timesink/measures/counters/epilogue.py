"""The main loop of a matrix product on tensor cores beside its epilogue: which of them keeps the units busy.

The main loop reads operands and multiplies; the epilogue works on the results (bias, activation) and writes them. Each
is at least as long as it keeps its busiest unit busy: tensor cores and what L2 sends for the one; special functions,
fp32 arithmetic and what L2 is sent for the other. L2's input serves writes and the requests of reads alike: writes
have the part that their bytes have of all.

    tensor cores  L2 out  L2 in  read    written   main loop  epilogue
            0.90    0.58   0.20  160 MB    34 MB        0.90     0.035
            0.01    0.03   0.90   32 MB   210 MB        0.03      0.78
"""

from __future__ import annotations

from typing import Final

from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.counters import KernelCounters, Resource, leaves
from timesink.measures.counters.roofline import roofline_of
from timesink.records import Record

_READ: Final = "l1tex__m_xbar2l1tex_read_bytes.sum"
_WRITTEN: Final = "l1tex__m_l1tex2xbar_write_bytes.sum"


class ProductParts(Record):
    """Shares of the kernel's time (0 to 1) for which each keeps a unit busy; bytes that SMs wrote to L2."""

    tensor: float
    operands: float
    writes: float
    arithmetic: float
    written_bytes: float

    @property
    def main_loop(self) -> float:
        """The least share of the time that the main loop needs."""
        return max(self.tensor, self.operands)

    @property
    def epilogue(self) -> float:
        """The least share of the time that the epilogue needs."""
        return max(self.writes, self.arithmetic)


def product_parts(kernel: KernelCounters) -> ProductParts | None:
    """The parts of a matrix product on tensor cores; None for other kernels (attention works on results within its main
    loop), and where the bytes between SMs and L2 were not counted."""
    busy = {leaf.name: leaf.busy for leaf in leaves(kernel)}
    read, written = kernel.get(_READ), kernel.get(_WRITTEN)
    line = roofline_of(kernel)
    roofs = () if line is None else line.compute
    is_product = decode(kernel.name).family in (KernelFamily.GEMM, KernelFamily.OTHER)
    if not is_product or not any(roof.flops for roof in roofs if roof.path != "cuda"):
        return None
    if read is None or written is None or read + written <= 0:
        return None
    cores = [roof.share for roof in roofs if roof.path == "cuda"]
    return ProductParts(
        max((leaf.busy for leaf in leaves(kernel) if leaf.resource is Resource.TENSOR), default=0.0),
        busy.get("lts__lts2xbar_cycles_active", 0.0),
        busy.get("lts__xbar2lts_cycles_active", 0.0) * written / (read + written),
        max(kernel.share("sm__inst_executed_pipe_xu") or 0.0, *cores, 0.0),
        written,
    )
