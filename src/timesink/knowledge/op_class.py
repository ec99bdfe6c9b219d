"""What a device operation is for (compute, communication, copy): one classification, used by every measure and rule.

A kernel communicates if its name says so: collectives of NCCL and RCCL (`ncclDevKernel_*`, `ncclKernel_*`), of HCCL,
MSCCL, NVSHMEM and DeepEP, and the custom all-reduce kernels of serving engines (`cross_device_reduce`, one-shot,
two-shot, Lamport, multimem, quick-reduce). A name that begins with `hip` is no collective. A copy between GPUs
(`copy_kind` p2p) is a copy: the copy engine moves it and the trace does not say why. A memset and a CUDA graph traced
as a whole are compute, the first because TraceLens and the nsys recipes count it so, the second because nothing is
known of its kernels: `quality.graph_ratio` says how much time that assumption covers.
"""

import polars as pl

from timesink.knowledge import collectives
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

OpClass = pl.Enum(["compute", "communication", "copy"])
# The same classes as the numbers that `OpClass` columns hold physically, for code on NumPy arrays.
COMPUTE, COMMUNICATION, COPY = range(3)


def communicates(names: pl.Series) -> pl.Series:
    """Whether each kernel name is that of a collective or of point-to-point communication."""
    return matches(names, collectives.COMMUNICATION)


def op_class(ops: pl.DataFrame) -> pl.Series:
    """The class of each of some rows of `device_ops`, as an `OpClass` series."""
    is_copy = (ops["kind"] == "copy").rename("is_copy")
    is_kernel = (ops["kind"] == "kernel").rename("is_kernel")
    kernel_talks = communicates(ops["name"]).rename("talks")
    return pl.select(
        pl.when(is_copy)
        .then(pl.lit("copy", OpClass))
        .when(is_kernel & kernel_talks)
        .then(pl.lit("communication", OpClass))
        .otherwise(pl.lit("compute", OpClass))
        .alias("op_class")
    ).to_series()


@remembered
def class_of_ops(trace: Trace) -> pl.Series:
    """The class of each row of `device_ops`, as an `OpClass` series."""
    return op_class(trace.get(DEVICE_OPS))
