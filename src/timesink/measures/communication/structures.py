"""How the exchanges of a GPU stand among its products, which tells how the work is shared; told by kernels alone.

`sums`: products wait for sums all along (tensor parallel). `ring`: as much attention follows each message (context
parallel). `messages`: other products do (tokens that go to experts, or heads to ranks, and back). `replicas`: one
process sends weights to all its GPUs and sums their gradients on one (`nn.DataParallel`). Sums of gradients among ranks
are none of these: in a forward pass stands none. `held`: a function of the CPU is put into a stream for each.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from timesink.knowledge.assumptions import Assumption
from timesink.knowledge.assumptions import fixes as assumed
from timesink.knowledge.calls import HOST_FUNCTION
from timesink.knowledge.collectives import ALL_TO_ALL, EXCHANGE, kind_of_kernel
from timesink.knowledge.kernels import PRODUCTS, KernelFamily
from timesink.measures.communication.pipelines import pipeline
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.names import matches, of_each
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_LEAST: Final = 8  # exchanges: fewer stand so by chance
_NEARLY_ALL: Final = 0.9  # of exchanges: some stand at the end of a step, or beside the next one
_ALIKE: Final = 2.0  # times the usual work between two: a forward pass without any sum takes several times as much

_USUAL: Final = 0.75  # quantile of the attention after a message: where heads go and come back, half have hardly any
_LITTLE: Final = 0.25  # of the usual attention: less is another kind, beside the one that messages are for


class Structure(Record):
    """How exchanges stand. `earlier` is the share of their time that is won by sending those earlier that nothing runs
    beside, where it was measured; else a replay tells."""

    name: str
    earlier: Assumption | None = None


REPLICAS: Final = Structure("replicas")
_HELD: Final = Structure("held")


def sent_in_line(trace: Trace, device: Device) -> Intervals:
    """When a GPU's exchanges run that computation does not run beside: those that it does were sent ahead of it."""
    line = device_timeline(trace)[device]
    start, end = line.communication.start_ns, line.communication.end_ns
    alone = line.exposed_communication.covered_ns(start, end) >= _NEARLY_ALL * (end - start)
    return Intervals(start[alone], end[alone])


@remembered
def structures(trace: Trace) -> dict[Device, Structure]:
    """How those of the kind that takes most time stand on each GPU, where they stand in one of these ways; none in a
    pipeline, whose stages are told by themselves."""
    if pipeline(trace) is not None:
        return {}
    facts = kernel_facts(trace)
    told = ((device, _told(trace, facts.on(device))) for device in facts.devices)
    found = {device: how for device, how in told if how is not None} | dict.fromkeys(_replicas(trace), REPLICAS)
    return found | dict.fromkeys(_held(trace), _HELD) if found else found


def host_functions(trace: Trace) -> Mapping[int, int]:
    """How often each rank put a function of the CPU into a stream."""
    calls = trace.get(API_CALLS)
    return Counter(calls["rank"].filter(matches(calls["name"], HOST_FUNCTION)))


def _held(trace: Trace) -> Iterator[Device]:
    """GPUs whose rank puts a function into a stream for nearly each of its exchanges: kernels after it wait for it, and
    it waits for those before it, whatever else could run."""
    counts = host_functions(trace)
    if not counts:
        return
    facts = kernel_facts(trace)
    for device in facts.devices:
        sent = facts.on(device).filter(pl.col("family") == KernelFamily.COMMUNICATION).height
        if sent >= _LEAST and counts.get(device[0], 0) >= _NEARLY_ALL * sent:
            yield device


def _replicas(trace: Trace) -> list[Device]:
    """The GPUs of ranks that exchange among several of their own by broadcasts and reductions to one, and nothing
    else."""
    sends = kernel_facts(trace).frame.filter(pl.col("family") == KernelFamily.COMMUNICATION)
    kinds = of_each(trace.get(DEVICE_OPS)["name"].gather(sends["row"]), kind_of_kernel, pl.String)
    sent = sends.with_columns(kind=kinds).group_by("rank", "device").agg(pl.col("kind").unique().sort())
    alike = sent.filter(pl.col("kind") == ["broadcast", "reduce"]).filter(pl.len().over("rank") > 1)
    return [(rank, device) for rank, device in alike.select("rank", "device").rows()]


def _told(trace: Trace, kernels: pl.DataFrame) -> Structure | None:
    """What the kernels of one device tell, which are in order of start."""
    names = trace[DEVICE_OPS]["name"].gather(kernels["row"])
    kernels = kernels.with_columns(
        kind=of_each(names, kind_of_kernel, pl.String), sends=pl.col("family") == KernelFamily.COMMUNICATION
    )
    times = kernels.filter("sends").group_by("kind").agg(pl.len(), pl.col("length").sum())
    if not times.height:
        return None
    kind, count, _ = times.sort("length", "kind").row(-1)
    turns = kernels.with_columns(turn=(pl.col("sends") & (pl.col("kind") == kind)).cum_sum()).filter(~pl.col("sends"))
    around = turns.group_by("turn").agg(
        pl.col("length").sum().alias("ns"),
        pl.col("family").is_in(PRODUCTS).any().alias("computes"),
        pl.col("length").filter(pl.col("family") == KernelFamily.ATTENTION).sum().alias("attends_ns"),
    )  # fmt: skip
    work = around.filter("computes")
    after = work.filter(pl.col("turn") > 0)
    if count < _LEAST or after.height < _NEARLY_ALL * count:
        return None
    if kind in (ALL_TO_ALL, EXCHANGE):
        little_ns = _LITTLE * pl.col("attends_ns").quantile(_USUAL)
        alike = after.filter(pl.col("attends_ns") > little_ns).height
        is_ring = kind == EXCHANGE and alike >= _NEARLY_ALL * count
        return Structure("ring", assumed.BESIDE_ATTENTION) if is_ring else Structure("messages")
    longest, usual = work.select(pl.col("ns").max(), usual=pl.col("ns").median()).row(0)
    return Structure("sums") if kind == "allreduce" and longest <= _ALIKE * usual else None
