"""Which groups or pairs of ranks need longer than others for the same transfer, and what ranks they share.

A transfer is told without any clock: whoever comes last to a collective or a message waits for nobody, so the shortest
of its kernels is the transfer. Only transfers of one kind, size, number of ranks and number of hosts are compared. A
collective of all ranks has nothing to be compared with: a slow link slows it for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from timesink.measures.communication.waits import CollectiveWaits, collective_waits
from timesink.model.trace import Trace, remembered

# With fewer groups or pairs the usual one is not known.
_PEERS: Final = 3
# Shorter ones are latency and launch skew, not bandwidth.
_SHORTEST_NS: Final = 100_000
_SHAPE: Final = ("kind", "size", "hosts", "bytes")


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A group or pair `ranks` whose `kind` of `size_bytes` takes `p50_ns`, where the median of its like takes
    `usual_ns`; `exposed_ns` is what its slowest rank stood in those transfers, all in all."""

    ranks: tuple[int, ...]
    kind: str
    size_bytes: int
    p50_ns: float
    usual_ns: float
    count: int
    exposed_ns: int

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.p50_ns / self.usual_ns

    @property
    def excess_ns(self) -> float:
        """What would go of the exposed transfers if they took the usual time."""
        return self.exposed_ns * (1 - self.usual_ns / self.p50_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """`frame`: ranks (list), kind, size, hosts, bytes, count, p50_ns, exposed_ns, usual_ns: groups and pairs that have
    at least two others to be compared with."""

    frame: pl.DataFrame

    def slow(self, ratio: float) -> tuple[SlowLink, ...]:
        """Those that take more than so many times the usual, the most exposed excess first."""
        rows = self.frame.filter(pl.col("p50_ns") > ratio * pl.col("usual_ns")).iter_rows(named=True)
        found = [
            SlowLink(tuple(row["ranks"]), row["kind"], row["bytes"], row["p50_ns"], row["usual_ns"], row["count"],
                     row["exposed_ns"])
            for row in rows
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda link: (-link.excess_ns, link.ranks, link.kind, link.size_bytes)))

    def shared(self, slow: tuple[SlowLink, ...]) -> tuple[int, ...]:
        """Ranks that take part in every slow transfer and in none of the usual speed."""
        odd = {link.ranks for link in slow}
        inside = set.intersection(*(set(ranks) for ranks in odd)) if odd else set()
        sound = {rank for ranks in self.frame["ranks"].to_list() if tuple(ranks) not in odd for rank in ranks}
        return tuple(sorted(inside - sound))


@remembered
def links(trace: Trace) -> Links:
    """The links of all ranks of a trace."""
    return links_of(collective_waits(trace))


def links_of(waits: CollectiveWaits, fewest: int = 5) -> Links:
    """Groups and pairs with at least `fewest` transfers of a known size each, among enough of their like."""
    calls = pl.concat([waits.calls, waits.pairs]).filter(pl.col("bytes").is_not_null() & pl.col("complete"))
    hosts = waits.job.members.select("rank", "clock").unique("rank", keep="first")
    calls = calls.join(hosts, on="rank", how="left").with_columns(
        kind=pl.when(pl.col("kind").is_in(["send", "recv"])).then(pl.lit("message")).otherwise("kind"),
        length_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    each = calls.group_by("instance").agg(
        pl.col("kind").first(),
        pl.col("bytes").max(),
        pl.col("rank").unique().sort().alias("ranks"),
        pl.col("size").first(),
        pl.col("clock").n_unique().alias("hosts"),
        pl.col("length_ns").min().alias("transfer_ns"),
        pl.col("exposed_transfer_ns").max(),
    )
    units = (
        each.group_by("ranks", *_SHAPE)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("transfer_ns").median().alias("p50_ns"),
            pl.col("exposed_transfer_ns").sum().alias("exposed_ns"),
        )
        .filter((pl.col("count") >= fewest) & (pl.col("p50_ns") >= _SHORTEST_NS))
    )
    compared = units.filter(pl.len().over(_SHAPE) >= _PEERS)
    usual = pl.col("p50_ns").quantile(0.5, "lower").over(_SHAPE)
    return Links(compared.with_columns(usual.alias("usual_ns")).sort("ranks", *_SHAPE))
