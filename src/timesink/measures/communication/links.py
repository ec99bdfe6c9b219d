"""How fast the links between ranks are: compared with each other, with what was measured there, with their NVLink.

`slow-link.md` says which transfers are compared. A collective of all ranks has nothing to be compared with: NVLink
says what it could take.

`timesink capture nccl-bench` leaves ``nccl-bench.json`` beside the traces. Times are those of nccl-tests: calls one
after another, their time over their number. Between two sizes the time is a straight line; beyond the largest it grows
as the size does, below the smallest it is that of the smallest.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import BUS_FACTORS
from timesink.knowledge.gpus import nvlink_bytes_per_s
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import OP_KEY
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_S


class LinkCurve(Record):
    """Sizes in bytes, ascending, and the time of each, by kind of collective and number of ranks."""

    points: Mapping[tuple[str, int], tuple[tuple[int, float], ...]]

    def time_ns(self, kind: str, ranks: int, size: float) -> float | None:
        """What one of `size` bytes takes; None where that kind was not measured over so many ranks. A message is one
        way, from one rank to another."""
        known = self.points.get(("send" if kind in ("send", "recv", "message") else kind, ranks))
        if not known:
            return None
        sizes, times = zip(*known, strict=True)
        if size > sizes[-1]:
            return float(times[-1] * size / sizes[-1])
        return float(np.interp(size, sizes, times))

    def small_bytes(self) -> int | None:
        """Below this size most of the time is latency: the first that takes twice as long as the smallest."""
        doubled = [
            next((size for size, time_ns in known if time_ns > 2 * known[0][1]), None) for known in self.points.values()
        ]
        sizes = sorted(size for size in doubled if size is not None)
        return sizes[len(sizes) // 2] if sizes else None


@remembered
def link_curve(trace: Trace) -> LinkCurve | None:
    """What was measured on the machine of the trace; None where nothing was."""
    points: dict[tuple[str, int], dict[int, float]] = {}
    for time in trace.link_times:
        points.setdefault((time.kind, time.ranks), {})[time.bytes] = time.time_ns
    return LinkCurve({key: tuple(sorted(known.items())) for key, known in points.items()}) if points else None


_OF_ALL_CHANNELS: Final = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
"""Collectives; messages of NCCL have few channels anyway."""
_SHAPE: Final = ("kind", "size", "hosts", "bytes")


class SlowLink(Record):
    """A group or pair `ranks` that needs `p50_ns` for a `kind` of `size_bytes` for which the median of comparable ones
    needs `usual_ns` (`measured`: by `link_curve`); `exposed_ns` is the exposed time of its slowest
    rank in its `count` transfers, summed."""

    ranks: tuple[int, ...]
    kind: str
    size_bytes: int
    p50_ns: float
    usual_ns: float
    count: int
    exposed_ns: int
    measured: bool = False

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.p50_ns / self.usual_ns

    @property
    def excess_ns(self) -> float:
        """The exposed time that would go if these transfers took the usual time."""
        return self.exposed_ns * (1 - self.usual_ns / self.p50_ns)


class Links(Record, eq=False):
    """Groups and pairs of ranks that have at least two others, or a measurement, to be compared with.

    `frame`: ranks (list), kind, size (ranks), hosts, bytes, count, p50_ns, exposed_ns, usual_ns, measured: where too
    few are alike, the usual time is the one that was measured on this machine (`link_curve`), of one host.
    """

    frame: pl.DataFrame

    def slow(self, ratio: float) -> tuple[SlowLink, ...]:
        """Those whose transfers take more than `ratio` times the usual, the most exposed excess first."""
        rows = self.frame.filter(pl.col("p50_ns") > ratio * pl.col("usual_ns"))
        rows = rows.select("ranks", "kind", "bytes", "p50_ns", "usual_ns", "count", "exposed_ns", "measured")
        slow = [SlowLink(tuple(ranks), *others) for ranks, *others in rows.rows()]
        return tuple(sorted(slow, key=lambda link: (-link.excess_ns, link.ranks, link.kind, link.size_bytes)))

    def shared(self, slow: tuple[SlowLink, ...]) -> tuple[int, ...]:
        """Ranks that take part in every slow transfer and in none of the usual speed."""
        slow_groups = {link.ranks for link in slow}
        in_all = set.intersection(*(set(ranks) for ranks in slow_groups)) if slow_groups else set()
        sound = {rank for ranks in self.frame["ranks"].to_list() if tuple(ranks) not in slow_groups for rank in ranks}
        return tuple(sorted(in_all - sound))


class Detour(Record):
    """Ranks of one host whose large transfers, `count` of them, take little of the NVLink of their GPUs.

    Of the fastest, a `kind`: `size_bytes` (None: not recorded), `bus_bytes_per_s` on the bus, or at most that by its
    `channels`, the blocks of its kernel (None: not recorded), and `bus_share` of what NVLink carries one way.
    """

    ranks: tuple[int, ...]
    kind: str
    size_bytes: int | None
    count: int
    bus_bytes_per_s: float
    bus_share: float
    channels: int | None

    @property
    def few_channels(self) -> bool:
        """Whether its channels each move what a channel of NVLink does: then they are too few, and the way is right."""
        each = self.bus_bytes_per_s / (self.channels or np.inf)
        return self.size_bytes is not None and each > assumed.CHANNEL_BYTES_PER_S.low


@remembered
def beside_nvlink(trace: Trace) -> tuple[Detour, ...]:
    """Per group of ranks of one host whose GPUs all have NVLink: its fastest exchange that is large enough to show the
    link, the slowest group first. One of unknown size is large if it is long: NCCL gives it all channels it has."""
    members = collective_waits(trace).job.members.select("rank", "device_name")
    names = {rank: name for rank, name in members.iter_rows() if name}
    large = (pl.col("bytes") >= assumed.NVLINK_BYTES.value) | (
        pl.col("bytes").is_null()
        & (pl.col("transfer_ns") >= assumed.LONG_TRANSFER_US.ns)
        & pl.col("channels").is_not_null()
    )
    frame = _transfers(trace).filter((pl.col("hosts") == 1) & large & pl.col("kind").is_in(_OF_ALL_CHANNELS))
    found = []
    for (ranks,), rows in frame.group_by("ranks", maintain_order=True):
        rates = [nvlink_bytes_per_s(names.get(rank, "")) for rank in ranks]
        if len(ranks) < 2 or not all(rates) or rows.height < assumed.LINK_CALLS.whole:
            continue
        told = sized if (sized := rows.drop_nulls("bytes")).height else rows
        factor = np.array([BUS_FACTORS[kind](size) for kind, size in told.select("kind", "size").iter_rows()])
        moved = told["bytes"].to_numpy() * factor / np.maximum(told["transfer_ns"].to_numpy(), 1) * NS_PER_S
        on_bus = moved if told is sized else told["channels"].to_numpy() * assumed.CHANNEL_BYTES_PER_S.value
        best = int(on_bus.argmax())
        kind, size, blocks = told.select("kind", "bytes", "channels").row(best)
        rate = float(on_bus[best])
        found.append(Detour(tuple(ranks), kind, size, rows.height, rate, rate / min(filter(None, rates)), blocks))
    return tuple(sorted(found, key=lambda group: (group.bus_share, group.ranks)))


@remembered
def links(trace: Trace) -> Links:
    """Groups and pairs of ranks with enough transfers of a known size each, among enough of their like."""
    each = _transfers(trace).drop_nulls("bytes")
    units = (
        each.group_by("ranks", *_SHAPE)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("transfer_ns").median().alias("p50_ns"),
            pl.col("exposed_transfer_ns").sum().alias("exposed_ns"),
        )
        .filter((pl.col("count") >= assumed.LINK_CALLS.whole) & (pl.col("p50_ns") >= assumed.LINK_SHORTEST_US.ns))
    )
    enough = pl.len().over(_SHAPE) >= assumed.LINK_PEERS.whole
    usual = pl.when(enough).then(pl.col("p50_ns").quantile(0.5, "lower").over(_SHAPE))
    curve = link_curve(trace) if collective_waits(trace).job.members["host"].drop_nulls().n_unique() < 2 else None
    alone = [
        None if curve is None else curve.time_ns(kind, len(ranks), size)
        for ranks, kind, size in units.select("ranks", "kind", "bytes").rows()
    ]
    known = units.with_columns(usual.alias("usual_ns"), pl.Series("alone_ns", alone, pl.Float64))
    known = known.with_columns(pl.coalesce("usual_ns", "alone_ns"), measured=pl.col("usual_ns").is_null())
    return Links(known.drop("alone_ns").drop_nulls("usual_ns").sort("ranks", *_SHAPE))


def _transfers(trace: Trace) -> pl.DataFrame:
    """Complete collectives and messages: kind, size (ranks), ranks, hosts, bytes, channels (blocks of the kernel; both
    null where not recorded), transfer_ns (the shortest kernel of any rank), exposed_transfer_ns."""
    waits = collective_waits(trace)
    calls = pl.concat([waits.calls, waits.pairs]).filter("complete")
    blocks = trace.get(DEVICE_OPS).select(*OP_KEY, channels="grid_x").unique(OP_KEY, keep="first")
    calls = calls.join(blocks, on=OP_KEY, how="left", nulls_equal=True)
    hosts = waits.job.members.select("rank", "clock").unique("rank", keep="first")
    calls = calls.join(hosts, on="rank", how="left").with_columns(
        kind=pl.when(pl.col("kind").is_in(["send", "recv"])).then(pl.lit("message")).otherwise("kind"),
        length_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    return calls.group_by("instance").agg(
        pl.col("kind").first(),
        pl.col("bytes", "channels").max(),
        pl.col("rank").unique().sort().alias("ranks"),
        pl.col("size").first(),
        pl.col("clock").n_unique().alias("hosts"),
        pl.col("length_ns").min().alias("transfer_ns"),
        pl.col("exposed_transfer_ns").max(),
    )
