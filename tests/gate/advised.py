"""No advice is given that the same trace refutes: what a change needs is looked for here by itself, call by call."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl
from tests.gate.answers import Answers, flat

from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace

Needed = Callable[[Trace], bool]

_ENDS_A_GRAPH: Final = re.compile(
    r"(?:Device|Ctx|Thread|Stream|Event)Synchronize|^(?:cuda|hip)Memcpy(?!\w*Async)|^cuMemcpy(?!\w*Async)"
)
_MOST_CALLS: Final = 400_000
_ADVISES_A_GRAPH: Final = re.compile(r"[Cc]apture the step in a CUDA graph|reduce-overhead")


def _seen(column: str, pattern: str, *tables: Table) -> Needed:
    """Whether a row of a table says that."""
    return lambda trace: any(matches(trace.get(table)[column].cast(pl.String), pattern).any() for table in tables)


def _copied(trace: Trace, **wanted: str) -> bool:
    ops = trace.get(DEVICE_OPS)
    every = [pl.col(name).cast(pl.String).is_in(values.split()) for name, values in wanted.items()]
    return bool(ops.filter(pl.all_horizontal(every)).height)


def _is_since(least: tuple[int, int]) -> Needed:
    """Whether a GPU of NVIDIA is of that chip or a later one; a chip that is not recorded may be."""

    def is_since(trace: Trace) -> bool:
        chips = trace.get(DEVICES).select("compute_major", "compute_minor").drop_nulls().rows()
        return not chips or max(chips) >= least

    return is_since


def _pageable(trace: Trace) -> bool:
    return _copied(trace, src_memory="pageable unknown") or _copied(trace, dst_memory="pageable unknown")


_BACKWARD: Final = _seen("name", "(?i)backward|bwd|dgrad|wgrad", DEVICE_OPS, HOST_OPS, RANGES)
_EXCHANGES: Final = _seen("name", "(?i)nccl|rccl|msccl|reduce|gather|scatter|alltoall|sendrecv", DEVICE_OPS, RANGES)
_WAITS: Final = _seen("name", r"(?i)synchronize|memcpy|query|wait", API_CALLS)
_MULTIPLIES: Final = _seen("name", "(?i)gemm|conv|mm|xmma|cutlass|nvjet|matmul|dot|linear|einsum", DEVICE_OPS, HOST_OPS)


def _on_chip_that_multiplies(least: tuple[int, int]) -> Needed:
    """Whether the chip has such tensor cores, and anything is multiplied."""
    return lambda trace: _is_since(least)(trace) and _MULTIPLIES(trace)


NEEDS: Final[dict[str, tuple[Needed, str]]] = {
    **dict.fromkeys(
        ("tf32", "bf16", "bf16_weights"),
        (_on_chip_that_multiplies((8, 0)), "the chip has no such type, or multiplies nothing"),
    ),
    "fp16": (_on_chip_that_multiplies((7, 0)), "the chip has no tensor cores, or multiplies nothing"),
    "pin_memory": (_pageable, "no copy is of pageable memory"),
    "prefetch": (lambda trace: _copied(trace, copy_kind="h2d"), "nothing is copied to the GPU"),
    "copy_behind": (lambda trace: _copied(trace, copy_kind="d2h"), "nothing is copied to the CPU"),
    "loader_workers": (
        lambda trace: (
            _seen("name", "(?i)load|next|fetch|data|batch|input", RANGES, FRAMES, HOST_OPS)(trace)
            or _copied(trace, copy_kind="h2d")
        ),
        "no loader is seen, and nothing is copied to the GPU",
    ),
    "fused_attention": (_seen("name", "(?i)softmax|attention|fmha", DEVICE_OPS), "nothing attends"),
    **dict.fromkeys(("no_sync", "buckets"), (_EXCHANGES, "nothing is exchanged")),
    **dict.fromkeys(("no_recomputation", "evaluate_rarely"), (_BACKWARD, "there is no backward pass")),
    "no_recording": (lambda trace: not _BACKWARD(trace), "there is a backward pass"),
    "no_gradients": (_seen("name", "AccumulateGrad", HOST_OPS), "no gradient is kept"),
    "use_a_part": (
        _seen("name", "(?i)slice|select|narrow|matmul|mm|linear|einsum", HOST_OPS),
        "nothing is cut or picked",
    ),
    "batch_units": (
        lambda trace: trace.get(DEVICE_OPS).filter(pl.col("kind") == "kernel").height > 1,
        "there is one kernel",
    ),
    "remove_sync": (_WAITS, "the CPU waits for nothing"),
}
"""What a change needs, looked for in the tables themselves, and why it wins nothing without."""


def advice_can_be_followed(of: Answers) -> Iterator[str]:
    """Of findings no fix is refused by the trace, nor by its tables; a graph is advised where launches stand together,
    outside of one."""
    for card, finding in of.diagnosis.findings:
        if finding.fix and (why := finding.fix.refused(of.trace)):
            yield f"{card.name} advises {finding.fix.name}, though {why}"
        needed, why = NEEDS.get(finding.fix.name if finding.fix else "", (None, ""))
        if needed is not None and not needed(of.trace):
            yield f"{card.name} advises {finding.fix.name if finding.fix else ''}, though {why}"
    said = [finding.advice for card, finding in of.diagnosis.findings if card.name == "launch-bound"]
    if any(map(_ADVISES_A_GRAPH.search, map(flat, said))) and (why := no_graph_wins(of.trace)):
        yield f"a graph is advised, though {why}"


def no_graph_wins(trace: Trace) -> str:
    """Why a graph wins nothing: most launches stand alone between two waits of their thread, or replay a graph."""
    calls = trace.get(API_CALLS)
    if calls.height > _MOST_CALLS:
        return ""
    launched: dict[Any, int] = defaultdict(int)
    ops = trace.get(DEVICE_OPS)
    for kind, *key in ops.select("kind", "rank", "process", "correlation").iter_rows():
        launched[tuple(key)] += kind == "kernel" and key[2] is not None
    in_stretch: dict[Any, int] = defaultdict(int)
    stretches: list[int] = []
    replayed = 0
    columns = ("rank", "process", "thread", "correlation", "name")
    for rank, process, thread, correlation, name in calls.sort("start_ns").select(columns).iter_rows():
        own = rank, process, thread
        if _ENDS_A_GRAPH.search(name):
            stretches.append(in_stretch.pop(own, 0))
        elif kernels := launched.get((rank, process, correlation), 0):
            in_stretch[own] += 1
            replayed += kernels if "GraphLaunch" in name else 0
    stretches += in_stretch.values()
    alone = stretches.count(1)
    if alone > 1 and 2 * alone > sum(stretches):
        return f"{alone} of {sum(stretches)} launches stand alone"
    whole = sum(launched.values())
    return f"{replayed} of {whole} kernels come from a graph" if 2 * replayed > whole else ""
