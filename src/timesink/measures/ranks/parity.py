"""What ought to be the same on every rank of a job, and where it is not."""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.operators import SHAPED
from timesink.knowledge.ranges import COMPILED_CALL
from timesink.model.names import matches
from timesink.model.nesting import key_slices
from timesink.model.tables import DEVICE_OPS, DEVICES, HOST_OPS, RANGES, SETTINGS, SOURCES
from timesink.model.trace import Trace
from timesink.records import Record

PARITY = {"rank": pl.Int32, "fact": pl.String, "value": pl.String}
_OF_DEVICES = ("name", "compute_major", "compute_minor", "sm_count", "memory_bytes", "clock_hz")
# Ranks of one job have these each for itself.
OF_ONE_RANK: Final = ("CUDA_VISIBLE_DEVICES", "NODE_RANK")


class Difference(Record):
    """One fact that ranks do not share: each value with the ranks that have it, the commonest value first."""

    fact: str
    values: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def text(self) -> str:
        """The difference in half a sentence."""
        (usual, _), *others = self.values
        odd = "; ".join(f"{value} on {ranks_text(ranks)}" for value, ranks in others)
        return f"{self.fact} is {usual}, but {odd}"


def parity_facts(trace: Trace) -> pl.DataFrame:
    """rank, fact, value, for facts that the file states. Ranks it says nothing of have no row."""
    rows: list[tuple[int, str, str]] = []
    for rank, form, version, world in trace.get(SOURCES).select("rank", "format", "tool_version", "world_size").rows():
        rows += [(rank, "trace format", form)]
        rows += [(rank, "profiler version", version)] if version else []
        rows += [(rank, "world size", str(world))] if world is not None else []
    for row in trace.get(DEVICES).select("rank", *_OF_DEVICES).rows():
        rows += [
            (row[0], f"GPU {name.replace('_', ' ')}", str(value))
            for name, value in zip(_OF_DEVICES, row[1:], strict=True)
            if value is not None
        ]
    ops = trace.get(DEVICE_OPS)
    for (rank,), first, last in key_slices(ops, ("rank",)):
        used = ops["graph_id"][first:last].null_count() < last - first
        rows.append((rank, "CUDA graphs", "used" if used else "not used"))
    rows += [row for row in trace.get(SETTINGS).select("rank", "name", "value").rows() if row[1] not in OF_ONE_RANK]
    rows += _compilation(trace) + _shapes(trace)
    return pl.DataFrame(sorted(set(rows)), schema=PARITY, orient="row")


def _compilation(trace: Trace) -> list[tuple[int, str, str]]:
    """Whether each rank ran compiled code, of ranks whose operators were recorded."""
    tables = [trace[table] for table in (HOST_OPS, RANGES) if table in trace]
    if HOST_OPS not in trace:
        return []
    compiled = {
        rank for table in tables for rank in table["rank"].filter(matches(table["name"], COMPILED_CALL)).unique()
    }
    ranks = key_slices(trace[HOST_OPS], ("rank",))
    return [(rank, "torch.compile", "used" if rank in compiled else "not used") for (rank,), *_ in ranks]


def _shapes(trace: Trace) -> list[tuple[int, str, str]]:
    """The shapes that each rank's products, convolutions and attentions have most often; of equals the first."""
    ops = trace.get(HOST_OPS)
    shaped = ops[["rank", "name", "input_shapes"]][np.flatnonzero(matches(ops["name"], SHAPED).to_numpy())]
    counts = [row for row in shaped.group_by(pl.all()).len().rows() if row[2] is not None]
    most: dict[tuple[int, str], str] = {}
    for rank, name, shapes, _ in sorted(counts, key=lambda row: (-row[3], row[2])):
        most.setdefault((rank, name), shapes)
    return [(rank, f"the usual input of {name}", shapes) for (rank, name), shapes in most.items()]


def differences(facts: pl.DataFrame) -> tuple[Difference, ...]:
    """Facts with more than one value among the ranks that state them, by name."""
    differing = []
    for fact, part in sorted(facts.partition_by("fact", as_dict=True).items()):
        if part["value"].n_unique() > 1:
            by_value = part.group_by("value").agg(pl.col("rank").unique().sort())
            values = [(value, tuple(ranks)) for value, ranks in by_value.rows()]
            values.sort(key=lambda entry: (-len(entry[1]), entry[1], entry[0]))
            differing.append(Difference(str(fact[0]), tuple(values)))
    return tuple(differing)


def missing_ranks(stated: pl.DataFrame) -> tuple[int, ...]:
    """The ranks below the `world_size` of these rows that none of their `rank`s is."""
    world = stated["world_size"].max()
    return tuple(sorted(set(range(world)) - set(stated["rank"]))) if isinstance(world, int) else ()


def missing_text(stated: pl.DataFrame) -> str:
    """A sentence on ranks that no file holds, by `missing_ranks`; "" where there are none."""
    missing, held = missing_ranks(stated), {*stated["rank"].to_list()}
    if missing and len(held) == 1:
        return f"only rank {min(held)} of {len(missing) + 1} was read: its waits for others count as communication"
    return f"no file holds {ranks_text(missing)}; waits are lower bounds where a rank is missing" if missing else ""


def ranks_text(ranks: tuple[int, ...], most: int = 6) -> str:  # as many as fit on a line
    """`rank 3`, `ranks 1, 2 and 5`, or the first few and how many more."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [str(rank) for rank in ranks[:most]]
    if len(ranks) > most:
        return f"ranks {', '.join(shown)} and {len(ranks) - most} more"
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
